"""Unicode words: the one place that splits text in any script into words and compares them.

Scripts without spaces (Chinese, Japanese, Thai, Lao, Khmer, Burmese) are read sign by sign to compare answers and
titles, and in pairs of neighbouring signs to search for words (as in Lucene's CJK analyzer).
"""

import re
import string
from collections.abc import Iterator, Sequence
from itertools import pairwise
from unicodedata import normalize

import regex

_NO_SPACES = r"\p{Han}\p{Hiragana}\p{Katakana}ー\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_LETTER = r"\p{L}\p{N}_"
_SIGN = rf"(?=[[{_LETTER}]&&[{_NO_SPACES}]])\X"
_SPACED = rf"[[{_LETTER}]--[{_NO_SPACES}]][[{_LETTER}\p{{M}}]--[{_NO_SPACES}]]*"
WORD = regex.compile(f"{_SIGN}|{_SPACED}", regex.V1)
"""A word with its marks (accents, vowel signs), or one sign of a script without spaces."""
_RUN = regex.compile(f"(?:{_SIGN})+|{_SPACED}", regex.V1)
_SIGNS = regex.compile(_SIGN, regex.V1)
_PLAIN = re.compile(r"\w+")
_NOT_ENGLISH = regex.compile(r"[\p{L}--\p{Latin}]|[«»¿¡\u2039\u203a\u201e\u201a]|.\u201c$", regex.V1)
"""What no English word has: another script, other quotes, or an opening quote at its end."""
_PUNCTUATION = regex.compile(r"[\p{P}\p{Cf}]")
_ASCII_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WIDTHS = {code: normalize("NFKC", chr(code)) for code in range(0xFF01, 0xFFEF)}
"""Full-width and half-width forms, mapped to the usual ones."""


def fold(text: str) -> str:
    """Return a text without differences of case, Unicode form (NFC, NFD) or East Asian width; Turkish i's become one.

    >>> fold("STRASSE") == fold("Straße"), fold("İstanbul"), fold("ＡＢＣ")
    (True, 'istanbul', 'abc')
    """
    if text.isascii():
        return text.lower()
    text = normalize("NFC", normalize("NFC", text.translate(_WIDTHS)).casefold())
    return text.replace("i\u0307", "i").replace("\u0131", "i")


def list_words(text: str) -> list[str]:
    """Return the words by which a text is searched, in order: folded, in scripts without spaces as pairs of signs.

    >>> list_words("Who made it?"), list_words("北京市, हिन्दी")
    (['who', 'made', 'it'], ['北京', '京市', 'हिन्दी'])
    """
    if text.isascii():
        return _PLAIN.findall(text.lower())
    return [word for run in _RUN.findall(fold(text)) for word in _pair(run)]


def _pair(run: str) -> Iterator[str]:
    """Return the words of a run of letters: itself, or pairs of its signs."""
    signs = WORD.findall(run)
    return map("".join, pairwise(signs)) if len(signs) > 1 else iter(signs)


def spell_words(text: str) -> str:
    """Return a text in which Milvus's tokenizers find the words of :func:`list_words`, Lite's and a server's alike.

    A word that they would split is spelled by its characters' code points.

    >>> spell_words("A film"), spell_words("猫 in Zoë")
    ('A film', ' x732b0  in zoë')
    """
    return text if text.isascii() else _RUN.sub(lambda run: _spell(run.group()), fold(text))


def _spell(run: str) -> str:
    if _PLAIN.fullmatch(run) and not _SIGNS.match(run):
        return run
    words = ("".join(f"{ord(character):x}" for character in word) for word in _pair(run))
    return f" {' '.join(f'x{word}0' for word in words)} "  # with a final 0, no stemmer removes an ending


def normalise(text: str) -> str:
    """Return a text in lower case, without punctuation and the articles a, an, the, with single spaces.

    English words are treated as in SQuAD's official script: without ASCII punctuation (curly quotes, long dashes
    stay). Words in other scripts lose all Unicode punctuation, and signs of scripts without spaces are words
    (as in MLQA, arXiv 1910.07475).

    >>> normalise("The  Beatles' first, an EP!"), normalise("«Париж»"), normalise("北京。")
    ('beatles first ep', 'париж', '北 京')
    """
    text = fold(text).translate(_ASCII_PUNCTUATION)
    if not text.isascii():
        words = (_PUNCTUATION.sub("", word) if _NOT_ENGLISH.search(word) else word for word in text.split())
        text = _SIGNS.sub(r" \g<0> ", " ".join(words))
    return " ".join(_ARTICLES.sub(" ", text).split())


def states_answer(text: str, golds: Sequence[str]) -> bool:
    """Return whether a text contains a gold answer as whole words, which DPR counts as evidence (arXiv 2004.04906).

    Answers that are yes, no, or empty after normalisation do not count.

    >>> states_answer("Born in the city of Bath.", ["Bath"]), states_answer("Bathsheba", ["Bath"])
    (True, False)
    """
    words = f" {normalise(text)} "
    return any(f" {gold} " in words for gold in statable_answers(golds))


def statable_answers(golds: Sequence[str]) -> list[str]:
    """Return the normalised answers that a text can state: those that are neither empty nor yes or no.

    >>> statable_answers(["The Baths", "Yes", "a"])
    ['baths']
    """
    return [gold for gold in map(normalise, golds) if gold not in ("", "yes", "no")]
