"""What the pages mention exists: paths, dotted names, commands. mkdocs checks links and anchors (`make docs`)."""

import ast
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import yaml
from texts import ROOT, Found, faults, parsed, python
from typer.main import get_command

from benchmarks import recipes
from flows.cli import add_plugins, app
from harr.io.files import read_json
from harr.params import Params

OUTSIDE = [ROOT / name for name in ("README.md", "SECURITY.md", "AGENTS.md")]
"""Pages outside the site."""
PAGES = [*OUTSIDE, *(ROOT / name for name in ("CONTRIBUTING.md", "recipes/README.md")), *(ROOT / "docs").glob("*.md")]
PAGES += ROOT.glob("plugins/*/README.md")
FILES = [ROOT / name for name in ("params.yaml", "dvc.yaml", "pyproject.toml")]
SETTINGS = [path for folder in ("docker", "recipes") for path in (ROOT / folder).glob("*.*")]
TEXTS = sorted({*PAGES, *FILES, *SETTINGS, *python("harr", "tasks", "flows", "examples", "benchmarks", "plugins")})
FOLDERS = r"harr|plugins|tasks|flows|tests|docs|examples|benchmarks|recipes|docker|\.ci"
MENTIONED = re.compile(rf"(?<![\w/.<>-])((?:{FOLDERS})/[a-zA-Z_.*][\w./*-]*[\w*])")
DOTTED = re.compile(r"(?<![\w/.\"-])((?:harr|tasks|flows)(?:\.[a-zA-Z_]\w*){2,})")
STARTED = re.compile(r"python -m ((?:harr|flows|benchmarks)(?:\.\w+)+)")
MADE_BY_YOU = {"docker/.env"}
IN_THE_WHEEL = "harr/project/files/"
"""Where hatch puts the project files of `harr init`."""
FENCED = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!`)\]\(([^)\s]+)\)")
add_plugins()
COMMANDS = {one: {word for of in what.params for word in of.opts} for one, what in get_command(app).commands.items()}
COMMANDS["init"] = {"--update"}  # also runs outside a project (harr/project/command.py)
TARGETS = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def defined(file: Path) -> set[str]:
    """Return the names that a module defines or imports at its top; lazy imports are in its stub."""
    stub = file.with_suffix(".pyi")
    found = set()
    for node in parsed((stub if stub.exists() else file).read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node)]
        for one in [*targets, *getattr(node, "names", [])]:
            found.add(getattr(one, "asname", None) or getattr(one, "name", getattr(one, "id", "")))
    return found


def there(name: str) -> bool:
    """Return whether a path, which may contain stars, or a dotted name is in the tree."""
    if "/" in name:
        return bool(list(ROOT.glob(name))) or name in MADE_BY_YOU or name.startswith(IN_THE_WHEEL)
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        folder = ROOT.joinpath(*parts[:count])
        file = folder.with_suffix(".py") if folder.with_suffix(".py").is_file() else folder / "__init__.py"
        if file.is_file():
            return count == len(parts) or parts[count] in defined(file)
    return False


def gone(text: str) -> Found:
    """Find paths, names and started modules that a text mentions but the tree lacks."""
    for number, line in enumerate(text.splitlines(), start=1):
        yield from ((number, one) for one in MENTIONED.findall(line) + DOTTED.findall(line) if not there(one))
        yield from ((number, f"no module {one}") for one in STARTED.findall(line) if not find_spec(one))


def typed(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield line and words of every command on a page, in a shell block or in inline code."""
    lines = []
    for block in FENCED.finditer(text):
        if block[1] in ("", "sh", "bash", "console"):
            lines += enumerate(
                block[2].replace("\\\n", " ").splitlines(), start=text.count("\n", 0, block.start(2)) + 1
            )
    prose = FENCED.sub(lambda block: "\n" * block[0].count("\n"), text)
    lines += [(prose.count("\n", 0, code.start()) + 1, code[1]) for code in re.finditer(r"`([^`]+)`", prose)]
    for number, line in lines:
        for part in re.split(r" #|&&|\|", line):
            yield number, [word for word in part.split() if not re.match(r"[A-Z_]+=", word)]


def unknown_commands(text: str) -> Found:
    """Find `harr` and `make` commands that do not exist or lack a given option."""
    for number, words in typed(text):
        if len(words) < 2 or not re.fullmatch(r"[a-z]+", words[1]):
            continue
        options = {word.partition("=")[0] for word in words[2:] if word.startswith("--")}
        known = COMMANDS.get(words[1])
        if words[0] == "harr" and (known is None or options - {*known, "--help"}):
            yield number, " ".join(words)
        if words[0] == "make" and not {word for word in words[1:] if "=" not in word} <= TARGETS:
            yield number, " ".join(words)


def anchors(text: str) -> set[str]:
    """Return the anchors of headings, as GitHub makes them."""
    heads = re.findall(r"^#+ +(.*)", FENCED.sub("", text), re.MULTILINE)
    plain = (re.sub(r"\]\([^)]*\)", "", head).lower() for head in heads)
    return {re.sub(r"[^\w\- ]", "", head).replace(" ", "-") for head in plain}


def dead_links(text: str, folder: Path = ROOT) -> Found:
    """Find links to a missing file or heading."""
    for number, line in enumerate(text.splitlines(), start=1):
        for link in LINK.findall(line):
            file, _, anchor = link.partition("#")
            target = folder / file
            if "://" not in link and not (
                target.exists() and (not anchor or anchor in anchors(target.read_text() if file else text))
            ):
                yield number, link


def test_what_a_text_mentions_exists() -> None:
    found = faults(TEXTS, gone)
    assert not found, "\n".join(found)


def test_every_command_of_a_page_exists() -> None:
    found = faults(PAGES, unknown_commands)
    assert not found, "\n".join(found)


def test_links_of_pages_outside_the_site_lead_somewhere() -> None:
    found = [one for page in OUTSIDE for one in faults([page], lambda text, at=page.parent: dead_links(text, at))]
    assert not found, "\n".join(found)


def test_no_page_has_the_marks_of_a_merge() -> None:
    """mdformat escapes them, and git no longer knows them."""
    marks = re.compile(r"^(# \\?<\\?<|(> ){6}>)", re.MULTILINE)
    assert not [page for page in PAGES if marks.search(page.read_text(encoding="utf-8"))]


def test_the_params_of_the_pages_are_whole() -> None:
    for name in ("README.md", "docs/data.md"):
        (block,) = re.findall(r"```yaml\n(seed: .*?)```", (ROOT / name).read_text(encoding="utf-8"), re.DOTALL)
        Params.model_validate(yaml.safe_load(block))


def test_the_tables_of_recipes_are_those_that_are_kept() -> None:
    page = kept_sections()
    for name in recipes.kept():
        commit = read_json(recipes.KEPT / name / "run.json")["commit"]
        assert recipes.kept_table(name) in page[name] and f"`{commit}`" in page[name], name


def test_the_figures_of_the_readme_are_those_that_are_kept() -> None:
    readme, kept = (ROOT / "README.md").read_text(encoding="utf-8"), kept_sections()
    _, *rows = re.search(r"```\n(arm .*?)```", readme, re.DOTALL)[1].splitlines()
    assert len(rows) == 6 and {*rows} <= {*kept["params"].splitlines()}
    methods = re.findall(r"\| `(\w+)` \| [A-Za-z ]+ ([\d.]+) \| ([\d.]+) \|", readme)
    assert len(methods) == 5
    for recipe, reached, without in methods:
        assert {reached, without} <= decimals(kept[recipe]), recipe


def test_the_figures_of_the_results_are_those_of_the_recipes_named() -> None:
    kept = kept_sections()
    for section in (ROOT / "docs/results.md").read_text(encoding="utf-8").split("\n## "):
        known = {one for name, text in kept.items() if f"`{name}`" in section for one in decimals(text)}
        assert decimals(section) <= known, decimals(section) - known


def kept_sections() -> dict[str, str]:
    """Return what recipes/README.md says of each recipe with figures."""
    page = (ROOT / "recipes/README.md").read_text(encoding="utf-8")
    return dict(re.findall(r"\n## (\w+)\n(.*?)(?=\n## |\Z)", page, re.DOTALL))


def decimals(text: str) -> set[str]:
    """Return the numbers with one decimal place in a text."""
    return {f"{float(one):.1f}" for one in re.findall(r"(?<![\d.])\d*\.\d(?!\d)", text)}


def test_what_is_wrong_is_seen() -> None:
    assert there("harr/types.py") and there("harr.types.Episode") and there("tests/harr/*/test_*.py")
    text = "\nharr/types.py, harr/no.py\n`harr.types.Nothing`, python -m benchmarks.nothing\n"
    assert [*gone(text)] == [(2, "harr/no.py"), (3, "harr.types.Nothing"), (3, "no module benchmarks.nothing")]
    page = """
`harr dance`, `harr run --recipe smoke` and `make coffee`
```sh
cd there && harr run \\
  --fast # as before
```
```python
make = nothing.of("a shell")
```
"""
    assert [*unknown_commands(page)] == [(4, "harr run --fast"), (2, "harr dance"), (2, "make coffee")]
    links = "# A page\n[x](README.md), [x](#a-page)\n[y](#b), [z](no.md), [z](README.md#nothing)\n"
    assert [*dead_links(links)] == [(3, "#b"), (3, "no.md"), (3, "README.md#nothing")]
