"""How the people's world speaks of people: mentions, pronouns and sentences."""

import re
from collections.abc import Collection

from harr_people.names import FEMALE, MALE, PROFESSIONS

PRONOUNS = {
    "she": {"they": "she", "them": "her", "their": "her", "They": "She", "Their": "Her"},
    "he": {"they": "he", "them": "him", "their": "his", "They": "He", "Their": "His"},
    "it": {"they": "it", "them": "it", "their": "its", "They": "It", "Their": "Its"},
}
_GENDER = dict.fromkeys(FEMALE, "she") | dict.fromkeys(MALE, "he")
_SENTENCE_END = re.compile(r"(?<=[a-z0-9]{2}\.) (?=[A-Z])")


def mention(name: str, qualifier: str) -> str:
    """Return how other texts name an entity; ``qualifier`` is given if two entities share the name.

    >>> mention("Ada Brown", "chemist"), mention("Ada Brown", "")
    ('the chemist Ada Brown', 'Ada Brown')
    """
    return f"the {qualifier} {name}" if qualifier else name


def split_mention(text: str, qualifiers: Collection[str] = PROFESSIONS) -> tuple[str, str]:
    """Return the name and the qualifier of a mention, if the latter is one of ``qualifiers``.

    >>> split_mention("the chemist Ada Brown"), split_mention("Ada Brown")
    (('Ada Brown', 'chemist'), ('Ada Brown', ''))
    """
    words = text.split(" ", 2)
    return (words[2], words[1]) if len(words) == 3 and words[0] == "the" and words[1] in qualifiers else (text, "")


def gender(name: str) -> str:
    """Return the pronoun for a name: she or he by the given name, it for anything else.

    >>> gender("Ada Brown"), gender("the novel The Silent Harbour")
    ('she', 'it')
    """
    return _GENDER.get(split_mention(name)[0].split(" ", 1)[0], "it")


def sentences(text: str) -> list[str]:
    """Split a passage into sentences; a full stop after an initial does not end one.

    >>> sentences("Ada B. Brown was a poet. She died.")
    ['Ada B. Brown was a poet.', 'She died.']
    """
    return _SENTENCE_END.split(text)
