"""Answer matching as the official SQuAD evaluation script does it (Rajpurkar et al., arXiv 1606.05250)."""

import re
import string
from collections import Counter
from collections.abc import Sequence
from unicodedata import normalize

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise(text: str) -> str:
    """Return a text in lower case, without ASCII punctuation and the articles a, an, the; single spaces.

    Other punctuation (curly quotes, long dashes) stays, as in the official script. Beyond it, letters that are written
    in two ways in Unicode (NFC, NFD) are the same.

    >>> normalise("The  Beatles' first, an EP!")
    'beatles first ep'
    """
    text = normalize("NFC", text).lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def exact_match(answer: str, golds: Sequence[str]) -> float:
    """Return 1.0 if the normalised answer equals a normalised gold answer, else 0.0.

    >>> exact_match("the Eiffel tower.", ["Eiffel Tower", "La tour Eiffel"])
    1.0
    """
    given = normalise(answer)
    return float(any(given == normalise(gold) for gold in golds))


def token_f1(answer: str, golds: Sequence[str]) -> float:
    """Return F1 over the words of answer and gold (a multiset), the best over all ``golds``; 0.0 without golds.

    Where one side has no word left after normalisation, the score is 1.0 if both have none, as in
    the SQuAD 2.0 script.

    >>> round(token_f1("in the city of Paris", ["Paris"]), 3)  # precision 1/4, recall 1
    0.4
    """
    given = normalise(answer).split()
    return max((_f1(given, normalise(gold).split()) for gold in golds), default=0.0)


def substring_match(answer: str, golds: Sequence[str]) -> float:
    """Return 1.0 if a normalised gold answer contains the normalised answer or is contained in it, else 0.0.

    >>> substring_match("the city of Paris", ["Paris"]), substring_match("", ["Paris"])
    (1.0, 0.0)
    """
    given = normalise(answer)
    wanted = [gold for gold in map(normalise, golds) if gold and given]
    return float(any(gold in given or given in gold for gold in wanted))


def states_answer(text: str, golds: Sequence[str]) -> bool:
    """Return whether a text holds a gold answer as whole words, which DPR takes as evidence (arXiv 2004.04906).

    Yes, no and what is empty once it is normalised are answers that no text states.

    >>> states_answer("Born in the city of Bath.", ["Bath"]), states_answer("Bathsheba", ["Bath"])
    (True, False)
    """
    words = f" {normalise(text)} "
    return any(f" {gold} " in words for gold in statable(golds))


def statable(golds: Sequence[str]) -> list[str]:
    """Return the normalised answers that a text can state: those that are neither empty nor yes or no.

    >>> statable(["The Baths", "Yes", "a"])
    ['baths']
    """
    return [gold for gold in map(normalise, golds) if gold not in ("", "yes", "no")]


def rouge_l(answer: str, golds: Sequence[str]) -> float:
    """Return ROUGE-L: F of the longest common subsequence of words, the best over ``golds`` (Lin 2004).

    As in HARR only the first 128 characters count; words are normalised as for the other scores.

    >>> rouge_l("born in old Bath", ["born Bath"])  # precision 2/4, recall 2/2
    0.6666666666666666
    """
    given = normalise(answer[:128]).split()
    return max((_rouge_l(given, normalise(gold[:128]).split()) for gold in golds), default=0.0)


def _rouge_l(given: list[str], gold: list[str]) -> float:
    if not given or not gold:
        return float(given == gold)
    longest = [0] * (len(gold) + 1)
    for word in given:
        above = longest
        longest = [0]
        for place, other in enumerate(gold):
            longest.append(above[place] + 1 if word == other else max(above[place + 1], longest[place]))
    return 2 * longest[-1] / (len(given) + len(gold))


def _f1(given: list[str], gold: list[str]) -> float:
    if not given or not gold:
        return float(given == gold)
    shared = sum((Counter(given) & Counter(gold)).values())
    if shared == 0:
        return 0.0
    precision, recall = shared / len(given), shared / len(gold)
    return 2 * precision * recall / (precision + recall)
