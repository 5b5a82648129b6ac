"""robots.txt as RFC 9309 has it: the group of our name or of ``*``, the longest rule that matches, and a crawl delay.

The standard library's parser takes wildcards as they stand, so it would fetch what they forbid.
"""

from urllib.parse import quote, unquote

Rules = list[tuple[str, bool]]
"""Patterns, and whether they allow."""


def rules_of(robots: str, agent: str) -> tuple[Rules, float]:
    """The rules for a user agent, and the seconds that its group asks for between requests (0: it asks for none).

    >>> rules_of("User-agent: *\\nDisallow: /private/\\nCrawl-delay: 2", "harr/1.0 (mail@host)")
    ([('/private/', False)], 2.0)
    """
    name = agent.split("/")[0].split()[0].lower()
    groups: dict[str, tuple[Rules, list[float]]] = {}
    named: list[str] = []
    reading = False
    for line in robots.splitlines():
        key, colon, value = line.split("#")[0].partition(":")
        key, value = key.strip().lower(), value.strip()
        if not colon:
            continue
        if key == "user-agent":
            named = [*named, value.lower()] if not reading else [value.lower()]
            reading = False
            groups.setdefault(value.lower(), ([], []))
        elif key in ("allow", "disallow", "crawl-delay"):
            reading = True
            for group in named:
                rules, delays = groups[group]
                if key == "crawl-delay":
                    delays += [float(value)] if value.replace(".", "", 1).isdecimal() else []
                elif value:
                    rules.append((value, key == "allow"))
    found, delays = groups.get(name) or groups.get("*") or ([], [])
    return found, max(delays, default=0.0)


def allowed(rules: Rules, path: str) -> bool:
    """Whether a path (with its query) may be fetched: the longest rule says so, of two the one that allows.

    >>> rules = [("/a", False), ("/a/b", True), ("/*.pdf$", False)]
    >>> [allowed(rules, path) for path in ("/a/x", "/a/b/c", "/x.pdf", "/x.pdf?y", "/")]
    [False, True, False, True, True]
    """
    told = [(len(pattern), allows) for pattern, allows in rules if _matches(pattern, path)]
    return max(told, default=(0, True))[1]


def _matches(pattern: str, path: str) -> bool:
    """Whether a pattern with ``*`` and a final ``$`` fits the beginning of a path, in linear time."""
    path, end = _same(path), pattern.endswith("$")
    first, *parts = _same(pattern.removesuffix("$")).split("*")
    if not path.startswith(first):
        return False
    place = len(first)
    for part in parts[:-1] if end else parts:
        place = path.find(part, place)
        if place < 0:
            return False
        place += len(part)
    if not end:
        return True
    return path.endswith(parts[-1]) and len(path) - len(parts[-1]) >= place if parts else place == len(path)


def _same(path: str) -> str:
    """A path in which equal characters are written alike."""
    return quote(unquote(path), safe="/*?=&;:@!$'()+,~#[]%")
