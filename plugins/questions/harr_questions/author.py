"""A language model writes questions from passages, and answers them again to see which are good."""

import itertools
import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from harr.characters import WORD
from harr.errors import CorpusError
from harr.io.files import write_text
from harr.io.progress import bar, stoppable
from harr.rag.pipelines.replies import last_json, line, messages, passages_text
from harr.types import Generate, Generator, Passage
from harr_questions.params import WritingParams
from harr_questions.partners import partners
from harr_questions.sift import Asked, Draft, counted, fault_of, verdict

SPLITS = ("train", "validation", "test")
AT_A_TIME = 32
"""Number of passages, or pairs, of a split that are asked about before the questions are answered again."""
CONSIDERED = 20
"""Number of passages considered from a large corpus, per wanted question."""
FEWEST = 2_000
"""Minimum number of passages considered."""


@dataclass
class Written:
    """The questions kept, by split, and those dropped, each with its reason."""

    kept: dict[str, list[Draft]]
    dropped: list[dict[str, object]] = field(default_factory=list)
    missing: dict[str, int] = field(default_factory=dict)
    """Number of wanted questions that were not written, by split and hops."""


@dataclass
class Quota:
    """The questions of one split over a given number of passages, and what is not yet asked about."""

    split: str
    hops: int
    wanted: int
    open: list[tuple[Passage, ...]]
    number: int
    kept: int = 0

    def next(self) -> list[tuple[Passage, ...]]:
        """Return the passages to ask about next, and forget them."""
        count = min(AT_A_TIME, math.ceil(1.5 * (self.wanted - self.kept) / self.number))
        found, self.open = self.open[:count], self.open[count:]
        return found


def write_questions_of(
    params: WritingParams, passages: Sequence[Passage], writer: Generator, seed: int, folder: Path
) -> Written:
    """Write as many questions as section ``plugins.questions`` asks for and the passages allow.

    Every passage belongs to one split by ``seed``, so none is gold in two. Requests to ``writer`` do not depend on what
    ran before: a killed command repeats them and is answered from the cache.
    ``folder`` gets train.jsonl, validation.jsonl and test.jsonl, and dropped.jsonl with the reasons; it appears whole.

    Raises:
        CorpusError: no passage is long enough, or no question of a split was kept. dropped.jsonl is then next to
            ``folder``.
    """
    parts = plan(params, passages, seed)
    written, asked = Written({split: [] for split in SPLITS}), Asked()
    with bar(total=sum(part.wanted for part in parts), desc="questions: kept", unit="question") as progress:
        for _ in stoppable(itertools.takewhile(bool, (_open(parts) for _ in itertools.count()))):
            for part, draft, reason, replies in _round(parts, writer, asked):
                if reason:
                    written.dropped.append({"reason": reason, **replies, **draft.row, "split": draft.split})
                elif part.kept < part.wanted:
                    part.kept += 1
                    written.kept[part.split].append(draft)
                    progress.update()
    written.missing = {
        f"{part.split}, {part.hops} hops": part.wanted - part.kept for part in parts if part.kept < part.wanted
    }
    _write(params, written, folder)
    return written


def plan(params: WritingParams, passages: Sequence[Passage], seed: int) -> list[Quota]:
    """Return which passages are asked about for which split.

    Raises:
        CorpusError: there are too few.
    """
    counts = {split: getattr(params, split) for split in SPLITS}
    total = sum(counts.values())
    long = [passage for passage in passages if len(WORD.findall(passage.text)) >= params.min_words]
    if len(long) < len(SPLITS):
        raise CorpusError(
            f"questions: {len(long)} of {len(passages)} passages have plugins.questions.min_words {params.min_words} words; "
            "lower it, or give more documents"
        )
    drawn = random.Random(f"{seed}/passages").sample(long, min(len(long), max(FEWEST, CONSIDERED * total)))
    parts, start, planned, later = [], 0, 0, sum(count > 0 for count in counts.values())
    for split, count in counts.items():
        planned, later = planned + count, later - (count > 0)
        share = round(len(drawn) * planned / total)  # of this split and those before it; each has a passage or more
        end = min(max(share, start + (count > 0)), len(drawn) - later)
        own, start = drawn[start:end], end
        for place, hops in enumerate(params.hops):
            wanted = count * (place + 1) // len(params.hops) - count * place // len(params.hops)
            open_: list[tuple[Passage, ...]] = [(one,) for one in own]
            if hops == 2:
                open_ = [(own[first], own[second]) for first, second in partners(own)]
            number = min(params.per_passage, max(1, math.ceil(2 * wanted / max(1, len(open_)))))
            parts.append(Quota(split, hops, wanted, open_, number))
    return parts


def _open(parts: Sequence[Quota]) -> list[Quota]:
    """Return the parts that still need questions and have passages to ask about."""
    return [part for part in parts if part.kept < part.wanted and part.open]


def _round(
    parts: Sequence[Quota], writer: Generator, asked: Asked
) -> list[tuple[Quota, Draft, str, Mapping[str, object]]]:
    """Ask about the next passages; return every question with why it is dropped, or "", and how it was answered."""
    todo = [(part, group) for part in _open(parts) for group in part.next()]
    replies = writer.complete([_writing(group, part.number) for part, group in todo])
    drafts = [
        (part, Draft(question, answer, group, part.split))
        for (part, group), reply in zip(todo, replies, strict=True)
        for question, answer in read_reply(reply, part.number)
    ]
    faults = [fault_of(draft) or _again(draft, asked) for _, draft in drafts]
    sound = [draft for (_, draft), fault in zip(drafts, faults, strict=True) if not fault]
    requests = [_checks(draft) for draft in sound]
    said = iter(writer.complete([request for group in requests for request in group]))
    answers = {
        draft.id: [line(last_json(next(said), "answer").get("answer")) for _ in group]
        for draft, group in zip(sound, requests, strict=True)
    }
    found: list[tuple[Quota, Draft, str, Mapping[str, object]]] = []
    for (part, draft), fault in zip(drafts, faults, strict=True):
        if fault:
            found.append((part, draft, fault, {}))
            continue
        whole, blind, *alone = answers[draft.id]
        checks = {"answered": whole, "without passages": blind, **({"from one alone": alone} if alone else {})}
        found.append((part, draft, verdict(draft, whole, blind, alone), checks))
    return found


def _again(draft: Draft, asked: Asked) -> str:
    """Return the reason if a question was asked before; else record it."""
    if same := asked.same(draft):
        return f"the same as {same}"
    asked.add(draft)
    return ""


def read_reply(reply: str, number: int) -> list[tuple[str, str]]:
    """Return at most ``number`` questions and answers of a reply; one empty pair if it cannot be read.

    >>> read_reply('{"questions": [{"question": "Who?", "answer": "Ada"}, {"question": []}]}', 3)
    [('Who?', 'Ada'), ('', '')]
    >>> read_reply("I cannot.", 3), read_reply('{"questions": []}', 3)
    ([('', '')], [])
    """
    proposed = last_json(reply, "questions").get("questions")
    if not isinstance(proposed, list):
        return [("", "")]
    rows = [row if isinstance(row, dict) else {} for row in proposed[:number]]
    return [(line(row.get("question")), line(row.get("answer"))) for row in rows]


def _writing(passages: Sequence[Passage], number: int) -> Generate:
    name = "one" if len(passages) == 1 else "two"
    return messages(_prompt(name), passages=passages_text(passages)[0], number=str(number))


def _checks(draft: Draft) -> list[Generate]:
    """Return the requests to answer the question: with its passages, without any, and with each of several alone."""
    several = draft.passages if len(draft.passages) > 1 else ()
    texts = [passages_text(group)[0] for group in (draft.passages, *((passage,) for passage in several))]
    whole, *alone = [messages(_prompt("again"), passages=text, question=draft.question) for text in texts]
    return [whole, messages(_prompt("blind"), question=draft.question), *alone]


@cache
def _prompt(name: str) -> str:
    return (Path(__file__).parent / "prompts" / f"{name}.txt").read_text(encoding="utf-8")


def _write(params: WritingParams, written: Written, folder: Path) -> None:
    """Write the files under a hidden name, and rename the folder at the end."""
    work = folder.with_name(f".{folder.name}.tmp")
    files = {f"{split}.jsonl": [draft.row for draft in drafts] for split, drafts in written.kept.items()}
    for name, rows in {**files, "dropped.jsonl": written.dropped}.items():
        write_text(work / name, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    for split in SPLITS:
        if getattr(params, split) and not written.kept[split]:
            reasons = counted(str(row["reason"]).partition(" q-")[0] for row in written.dropped)
            raise CorpusError(
                f"questions: no {split} question was kept; dropped: {reasons or 'none was written'}; see "
                f"{work / 'dropped.jsonl'}; try another plugins.questions.writer, or more documents"
            )
    work.replace(folder)
