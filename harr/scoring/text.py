"""Answer matching as the official SQuAD evaluation script does it (Rajpurkar et al., arXiv 1606.05250)."""

import re
import string
from collections import Counter
from collections.abc import Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise(text: str) -> str:
    """Lower case, without ASCII punctuation and the articles a, an, the; single spaces.

    Other punctuation (curly quotes, long dashes) stays, as in the official script.

    >>> normalise("The  Beatles' first, an EP!")
    'beatles first ep'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact_match(answer: str, golds: Sequence[str]) -> float:
    """1.0 if the normalised answer equals a normalised gold answer, else 0.0.

    >>> exact_match("the Eiffel tower.", ["Eiffel Tower", "La tour Eiffel"])
    1.0
    """
    given = normalise(answer)
    return float(any(given == normalise(gold) for gold in golds))


def token_f1(answer: str, golds: Sequence[str]) -> float:
    """F1 over the words of answer and gold (a multiset), the best over all ``golds``; 0.0 without golds.

    Where one side has no word left after normalisation, the score is 1.0 if both have none, as in
    the SQuAD 2.0 script.

    >>> round(token_f1("in the city of Paris", ["Paris"]), 3)  # precision 1/4, recall 1
    0.4
    """
    given = normalise(answer).split()
    return max((_f1(given, normalise(gold).split()) for gold in golds), default=0.0)


def _f1(given: list[str], gold: list[str]) -> float:
    if not given or not gold:
        return float(given == gold)
    shared = sum((Counter(given) & Counter(gold)).values())
    if shared == 0:
        return 0.0
    precision, recall = shared / len(given), shared / len(gold)
    return 2 * precision * recall / (precision + recall)
