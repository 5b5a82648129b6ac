"""Answer matching as in the official SQuAD evaluation script (Rajpurkar et al., arXiv 1606.05250).

Texts in languages other than English are matched as in MLQA's script.
"""

from collections import Counter
from collections.abc import Sequence

from harr.characters import normalise


def exact_match(answer: str, golds: Sequence[str]) -> float:
    """Return 1.0 if the normalised answer equals a normalised gold answer, else 0.0.

    >>> exact_match("the Eiffel tower.", ["Eiffel Tower", "La tour Eiffel"])
    1.0
    """
    normalised = normalise(answer)
    return float(any(normalised == normalise(gold) for gold in golds))


def token_f1(answer: str, golds: Sequence[str]) -> float:
    """Return F1 over the words of answer and gold (as multisets), the best over all ``golds``; 0.0 without golds.

    If one side has no words after normalisation, the score is 1.0 if both have none, as in the SQuAD 2.0 script.

    >>> round(token_f1("in the city of Paris", ["Paris"]), 3)  # precision 1/4, recall 1
    0.4
    """
    words = normalise(answer).split()
    return max((_f1(words, normalise(gold).split()) for gold in golds), default=0.0)


def substring_match(answer: str, golds: Sequence[str]) -> float:
    """Return 1.0 if a normalised gold answer contains the normalised answer or is contained in it, else 0.0.

    >>> substring_match("the city of Paris", ["Paris"]), substring_match("", ["Paris"])
    (1.0, 0.0)
    """
    normalised = normalise(answer)
    gold_texts = [gold for gold in map(normalise, golds) if gold and normalised]
    return float(any(gold in normalised or normalised in gold for gold in gold_texts))


def rouge_l(answer: str, golds: Sequence[str]) -> float:
    """Return ROUGE-L: F of the longest common subsequence of words, the best over ``golds`` (Lin 2004).

    As in HARR only the first 128 characters count; words are normalised as for the other scores.

    >>> rouge_l("born in old Bath", ["born Bath"])  # precision 2/4, recall 2/2
    0.6666666666666666
    """
    words = normalise(answer[:128]).split()
    return max((_rouge_l(words, normalise(gold[:128]).split()) for gold in golds), default=0.0)


def _rouge_l(words: list[str], gold: list[str]) -> float:
    if not words or not gold:
        return float(words == gold)
    longest = [0] * (len(gold) + 1)
    for word in words:
        above = longest
        longest = [0]
        for place, other in enumerate(gold):
            longest.append(above[place] + 1 if word == other else max(above[place + 1], longest[place]))
    return 2 * longest[-1] / (len(words) + len(gold))


def _f1(words: list[str], gold: list[str]) -> float:
    if not words or not gold:
        return float(words == gold)
    shared = sum((Counter(words) & Counter(gold)).values())
    if shared == 0:
        return 0.0
    precision, recall = shared / len(words), shared / len(gold)
    return 2 * precision * recall / (precision + recall)
