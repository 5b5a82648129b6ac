"""Few-shot prompts for LeReT, found by bootstrapping: what the model did well, it is shown (arXiv 2410.23214, app. A).

The model plays some training questions without demonstrations. Hops of good plays that found something become
demonstrations; random sets of them are compared by average precision on other questions. As published, but for the
plays, which are sampled so that they differ, and for hops that found nothing, which are not shown.
"""

import random
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from harr.errors import CorpusError
from harr.io.files import read_json, write_json
from harr.io.progress import bar, stoppable
from harr.params.filter import PreferencesParams
from harr.preferences.pairs import documents_of
from harr.rag.pipelines.leret import Demonstration, LeReT, by_hop
from harr.rag.rollout import play
from harr.rag.scoring.ranking import average_precision
from harr.types import Episode, Generator, Question, Retriever


def find_prompts(
    params: PreferencesParams,
    program: LeReT,
    questions: Sequence[Question],
    retriever: Retriever,
    writers: tuple[Generator, Generator],
    seed: int,
    work: Path,
) -> dict[str, Any]:
    """Compare sets of demonstrations and choose the best; the first of ``questions`` are the pool.

    ``writers``: the model as it bootstraps, and as it is sampled. What was played is kept in the folder ``work``, and
    not played again.

    Returns:
        ``{seed, accepted, zero_shot: ap, sets: [{seed, ap, chosen, demonstrations}]}``, the best set first.

    Raises:
        CorpusError: there are too few questions, or no play could be demonstrated. ServiceUnavailable: the retriever
            cannot be reached.
    """
    needed = params.pool + params.validation
    if len(questions) <= needed:
        raise CorpusError(
            f"{len(questions)} training questions are too few for filter.preferences pool {params.pool} and validation "
            f"{params.validation}, which are not learnt from; lower them, or download more questions"
        )
    accepted = _accepted(params, program, questions[: params.pool], retriever, writers[0], work / "accepted.json")
    sets: dict[tuple[Demonstration, ...], int] = {}
    for number in range(params.candidates):
        sets.setdefault(_drawn(accepted, params.demonstrations, seed * 1_000_003 + number), number)
    asked = questions[params.pool : needed]
    compared: dict[tuple[Demonstration, ...], float] = {}
    with bar(total=len(sets) + 1, desc="prompts", unit="set") as progress:
        for number, examples in enumerate(stoppable(((), *sets))):
            known = work / f"ap-{number:02d}.json"
            if not known.exists():
                shown = replace(program, demonstrations=examples)
                write_json(known, mean_ap(shown, asked, retriever, writers[1]))
            compared[examples] = read_json(known)
            progress.update()
    ranked = sorted(sets, key=lambda examples: (-compared[examples], sets[examples]))
    rows = [
        {
            "seed": sets[examples],
            "ap": compared[examples],
            "chosen": place < params.prompts,
            "demonstrations": [asdict(example) for example in examples],
        }
        for place, examples in enumerate(ranked)
    ]
    return {"seed": seed, "accepted": len(accepted), "zero_shot": compared[()], "sets": rows}


def _accepted(
    params: PreferencesParams,
    program: LeReT,
    questions: Sequence[Question],
    retriever: Retriever,
    writer: Generator,
    known: Path,
) -> list[Demonstration]:
    """Return what can be demonstrated of plays of the pool; it is kept in the file ``known``."""
    if not known.exists():
        with bar(total=len(questions), desc="pool of prompts", unit="question") as progress:
            played = play(questions, program, retriever, writer, ended=progress.update)
        accepted = [example for episode in played for example in demonstrations(episode, program, params.min_ap)]
        if not accepted:
            raise CorpusError(
                f"the pool of prompts is empty: none of {params.pool} plays had an average precision above "
                f"{params.min_ap:g}; raise filter.preferences.pool or bootstrap_temperature, or lower min_ap"
            )
        write_json(known, [asdict(example) for example in accepted])
    return [Demonstration.of(row) for row in read_json(known)]


def demonstrations(episode: Episode, program: LeReT, min_ap: float) -> list[Demonstration]:
    """Return the hops of a play that found something new, where its average precision is above ``min_ap``."""
    gold, found = episode.question.gold_documents, list(by_hop(episode))
    if not gold or average_precision(documents_of(program.ranked(found)), gold) <= min_ap:
        return []
    examples = []
    for place, (hop, retrieval) in enumerate(zip(episode.outcome.hops, found, strict=True)):
        before = program.ranked(found[:place])
        missing = {*gold} - {*documents_of(before)}
        if missing & {*documents_of(retrieval.passages)}:
            examples.append(Demonstration(episode.question.text, before, hop.query))
    return examples


def mean_ap(program: LeReT, questions: Sequence[Question], retriever: Retriever, writer: Generator) -> float:
    """Return the mean average precision after all hops."""
    episodes = play(questions, program, retriever, writer)
    ranked = [documents_of(program.ranked(list(by_hop(episode)))) for episode in episodes]
    golds = [episode.question.gold_documents for episode in episodes]
    return float(np.mean(list(map(average_precision, ranked, golds))))


def chosen_prompts(found: dict[str, Any]) -> list[tuple[Demonstration, ...]]:
    """Return prompts of what :func:`find_prompts` returned: zero-shot first, then the chosen sets, the best first."""
    rows = [row["demonstrations"] for row in found["sets"] if row["chosen"]]
    return [(), *(tuple(map(Demonstration.of, row)) for row in rows)]


def read_demonstrations(which: str, folder: Path) -> tuple[Demonstration, ...]:
    """Return the demonstrations that stage filter chose: the ``best`` set, those of ``all`` sets, or none ("").

    Raises:
        CorpusError: stage filter has left none in ``folder``.
    """
    if not which:
        return ()
    path = folder / "prompts.json"
    if not path.exists():
        raise CorpusError(f"{path} is missing; an arm is shown what stage filter found there: run `dvc repro filter`")
    sets = chosen_prompts(read_json(path))[1:]
    return sets[0] if which == "best" else tuple(dict.fromkeys(example for part in sets for example in part))


def hop_metrics(episode: Episode, program: LeReT) -> dict[str, float]:
    """Return recall and average precision of all passages after each hop: ``recall_after_1``, ``ap_after_1``, ..."""
    gold, found = episode.question.gold_documents, list(by_hop(episode))
    if not gold:
        return {}
    ranked = [documents_of(program.ranked(found[:place])) for place in range(1, len(found) + 1)]
    recalls = {f"recall_after_{hop}": len({*gold} & {*names}) / len(gold) for hop, names in enumerate(ranked, 1)}
    return recalls | {f"ap_after_{hop}": average_precision(names, gold) for hop, names in enumerate(ranked, 1)}


def _drawn(accepted: Sequence[Demonstration], most: int, seed: int) -> tuple[Demonstration, ...]:
    """Return one to ``most`` demonstrations, by a seed."""
    rng = random.Random(seed)
    return tuple(rng.sample(accepted, min(rng.randint(1, most), len(accepted))))
