"""The language of the encyclopaedia: one table of relations for the writer and the reader.

Every relation has forms to ask for it (``questions``), to ask for it with a pronoun (``pronouns``), to name its object
inside a longer question (``nouns``), and to state it with the subject's name (``facts``) or with a pronoun
(``echoes``). ``{}`` is the subject; in a statement ``{s}`` is the subject and ``{o}`` the object; ``{they}``,
``{them}`` and ``{their}`` stand for she/he/it and so on.

Parsing works by prefix and suffix. It is unambiguous because (1) no two ways to ask differ only in the slot, (2) only a
bare name takes a possessive ("Ada Brown's mother"), and (3) names have no comma, no possessive, and no full stop except
after an initial.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from harr_people import grammar as people
from harr_people.grammar import PRONOUNS
from harr_people.names import PROFESSIONS

from harr_encyclopaedia.relations import RELATIONS, Relation

WORK_KINDS = ("novel", "play", "poem", "song", "opera", "symphony")
QUALIFIERS = frozenset(PROFESSIONS) | frozenset(WORK_KINDS)
_OBJECT = {"year": r"(?P<o>\d{4})"}
_NAME = r"(?P<o>(?:[Tt]he [a-z]+ )?[A-Z][^,]*)"


@dataclass(frozen=True, slots=True)
class Chain:
    """A question's meaning: from ``start``, as mentioned in the text, follow ``relations`` in order."""

    start: str
    relations: tuple[Relation, ...] = ()


def split_mention(text: str) -> tuple[str, str]:
    """Return the name and the qualifier of a mention.

    >>> split_mention("the novel The Silent Harbour")
    ('The Silent Harbour', 'novel')
    """
    return people.split_mention(text, QUALIFIERS)


def title(name: str, qualifier: str) -> str:
    """Return the heading of an entity's passages.

    >>> title("Ada Brown", "chemist"), title("Ada Brown", "")
    ('Ada Brown (chemist)', 'Ada Brown')
    """
    return f"{name} ({qualifier})" if qualifier else name


def split_title(text: str) -> tuple[str, str]:
    """Return the name and the qualifier of a heading.

    >>> split_title("Ada Brown (chemist)"), split_title("Ada Brown")
    (('Ada Brown', 'chemist'), ('Ada Brown', ''))
    """
    name, bracket, qualifier = text.partition(" (")
    return (name, qualifier[:-1]) if bracket and qualifier.endswith(")") else (text, "")


def state(relation: Relation, pick: int, subject: str, object_: str, pronoun: str, *, named: bool) -> str:
    """Return a sentence that states a fact, in wording number ``pick``."""
    forms = relation.facts if named else relation.echoes
    sentence = forms[pick % len(forms)].format(s=subject, o=object_, **PRONOUNS[pronoun])
    return sentence[0].upper() + sentence[1:]


def read(relation: Relation, name: str, sentence: str) -> str | None:
    """Return the object if ``sentence`` states ``relation`` of ``name`` or of a pronoun, else None.

    >>> read(RELATIONS["mother"], "Ada Brown", "Her mother was Clara Gray.")
    'Clara Gray'
    >>> read(RELATIONS["mother"], "Ada Brown", "Eva Price's mother was Clara Gray.") is None
    True
    """
    for pattern in _PATTERNS[relation.name]:
        found = pattern.fullmatch(sentence)
        if found and found.groupdict().get("s", name) == name:
            return _mid_sentence(found["o"])
    return None


def _mid_sentence(text: str) -> str:
    """Undo the capital that a mention has at the start of a sentence ("The chemist Ada Brown")."""
    lower = text[0].lower() + text[1:]
    return lower if split_mention(lower)[1] else text


def ask(relation: Relation, subject: str, pick: int) -> str:
    """Return a question for one fact, in wording number ``pick``.

    >>> ask(RELATIONS["mother"], "Ada Brown", 0)
    'Who was the mother of Ada Brown?'
    """
    return relation.questions[pick % len(relation.questions)].format(subject)


def ask_vaguely(relation: Relation, pronoun: str, pick: int) -> str:
    """Return the question of :func:`ask` with a pronoun as its subject: clear only to a reader of the history.

    >>> ask_vaguely(RELATIONS["birthplace"], "she", 0)
    'Where was she born?'
    """
    return relation.pronouns[pick % len(relation.pronouns)].format(**PRONOUNS[pronoun])


def phrase(relation: Relation, subject: str) -> str:
    """Return a phrase for the object of ``relation``.

    >>> phrase(RELATIONS["mother"], "Ada Brown")
    'the mother of Ada Brown'
    """
    return relation.nouns[0].format(subject)


def ask_chain(chain: Chain, picks: Sequence[int]) -> str:
    """Return a nested question for a chain; ``picks`` has one wording number per relation.

    Only the innermost phrase may enclose its subject ("the town where Ada Brown was born"); the question then does not,
    so no sentence ends in "was born born".

    >>> relations = RELATIONS["founder"], RELATIONS["mother"], RELATIONS["birthplace"]
    >>> ask_chain(Chain("Halden Tools", relations), (0, 0, 0))
    'Where was the mother of the founder of Halden Tools born?'
    """
    *inner, last = chain.relations
    phrase, encloses = chain.start, False
    for depth, relation in enumerate(inner):
        forms = [form for form in relation.nouns if depth == 0 or form.endswith("{}")]
        form = forms[picks[depth] % len(forms)]
        phrase, encloses = form.format(phrase), encloses or not form.endswith("{}")
    forms = [form for form in last.questions if not inner or "{}'s" not in form]
    forms = [form for form in forms if not encloses or form.endswith("{}?")]
    return forms[picks[-1] % len(forms)].format(phrase)


@lru_cache(maxsize=65536)
def parse(question: str) -> Chain | None:
    """Return the chain that a question asks for; None if it does not follow this grammar.

    >>> chain = parse("Where was the mother of the founder of Halden Tools born?")
    >>> chain.start, [relation.name for relation in chain.relations]
    ('Halden Tools', ['founder', 'mother', 'birthplace'])
    """
    for prefix, suffix, relation in _QUESTIONS:
        chain = _apply(question, prefix, suffix, relation)
        if chain:
            return chain
    return None


def parse_vague(question: str) -> Relation | None:
    """Return the relation that a question with a pronoun asks for, or None.

    >>> parse_vague("Where was she born?").name
    'birthplace'
    """
    return _VAGUE.get(question)


def _apply(text: str, prefix: str, suffix: str, relation: Relation) -> Chain | None:
    if not (text.startswith(prefix) and text.endswith(suffix) and len(text) > len(prefix) + len(suffix)):
        return None
    inner = _phrase(text[len(prefix) : len(text) - len(suffix)])
    if inner.relations and (suffix.startswith("'s") or inner.relations[-1].range != relation.domain):
        return None
    return Chain(inner.start, (*inner.relations, relation))


def _phrase(text: str) -> Chain:
    for prefix, suffix, relation in _NOUNS:
        chain = _apply(text, prefix, suffix, relation)
        if chain:
            return chain
    return Chain(text)


def _cuts(relations: Sequence[Relation], field: str) -> list[tuple[str, str, Relation]]:
    """Return (prefix, suffix, relation) of all forms, the most specific first."""
    cuts = [(*form.split("{}"), relation) for relation in relations for form in getattr(relation, field)]
    return sorted(cuts, key=lambda cut: (-len(cut[0]), -len(cut[1])))


def _pattern(form: str, relation: Relation) -> re.Pattern[str]:
    """Return a statement's template as a regular expression with the groups ``s`` (if named) and ``o``."""
    parts = {"s": "(?P<s>.+)", "o": _OBJECT.get(relation.range, _NAME)}
    for slot in PRONOUNS["it"]:
        parts[slot] = "(?:" + "|".join(pronoun[slot] for pronoun in PRONOUNS.values()) + ")"
    pieces = re.split(r"\{(\w+)\}", form)
    return re.compile("".join(parts[piece] if place % 2 else re.escape(piece) for place, piece in enumerate(pieces)))


_ALL = tuple(RELATIONS.values())
_QUESTIONS = _cuts(_ALL, "questions")
_NOUNS = _cuts(_ALL, "nouns")
_PATTERNS = {r.name: tuple(_pattern(form, r) for form in (*r.facts, *r.echoes)) for r in _ALL}
_VAGUE = {form.format(**pronoun): r for r in _ALL for form in r.pronouns for pronoun in PRONOUNS.values()}
