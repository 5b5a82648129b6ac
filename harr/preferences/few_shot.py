"""Few-shot prompts for LeReT, bootstrapped from the model's own good episodes (arXiv 2410.23214, app. A).

The model plays some training questions without demonstrations. Successful hops of good episodes become demonstrations;
random sets of them are compared by average precision on other questions. Unlike in the paper, episodes are sampled so
that they differ, and hops that found nothing do not become demonstrations.
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
    generators: tuple[Generator, Generator],
    seed: int,
    work: Path,
) -> dict[str, Any]:
    """Compare sets of demonstrations and choose the best; the first of ``questions`` form the pool.

    ``generators``: the model for bootstrapping and for sampling. Results in the folder ``work`` are reused.

    Returns:
        ``{seed, accepted, zero_shot: ap, sets: [{seed, ap, chosen, demonstrations}]}``, the best set first.

    Raises:
        CorpusError: there are too few questions, or no episode is good enough. ServiceUnavailable: the retriever cannot
            be reached.
    """
    needed = params.pool + params.validation
    if len(questions) <= needed:
        raise CorpusError(
            f"{len(questions)} training questions are too few for filter.preferences pool {params.pool} and validation "
            f"{params.validation}, which are not learnt from; lower them, or download more questions"
        )
    accepted = _bootstrap(params, program, questions[: params.pool], retriever, generators[0], work / "accepted.json")
    sets: dict[tuple[Demonstration, ...], int] = {}
    for number in range(params.candidates):
        sets.setdefault(_draw_set(accepted, params.demonstrations, seed * 1_000_003 + number), number)
    questions_left = questions[params.pool : needed]
    ap_of: dict[tuple[Demonstration, ...], float] = {}
    with bar(total=len(sets) + 1, desc="prompts", unit="set") as progress:
        for number, examples in enumerate(stoppable(((), *sets))):
            path = work / f"ap-{number:02d}.json"
            if not path.exists():
                program_shown = replace(program, demonstrations=examples)
                write_json(path, mean_ap(program_shown, questions_left, retriever, generators[1]))
            ap_of[examples] = read_json(path)
            progress.update()
    ranked = sorted(sets, key=lambda examples: (-ap_of[examples], sets[examples]))
    rows = [
        {
            "seed": sets[examples],
            "ap": ap_of[examples],
            "chosen": place < params.prompts,
            "demonstrations": [asdict(example) for example in examples],
        }
        for place, examples in enumerate(ranked)
    ]
    return {"seed": seed, "accepted": len(accepted), "zero_shot": ap_of[()], "sets": rows}


def _bootstrap(
    params: PreferencesParams,
    program: LeReT,
    questions: Sequence[Question],
    retriever: Retriever,
    generator: Generator,
    path: Path,
) -> list[Demonstration]:
    """Return the demonstrations from episodes of the pool, cached in the file ``path``."""
    if not path.exists():
        with bar(total=len(questions), desc="pool of prompts", unit="question") as progress:
            episodes = play(questions, program, retriever, generator, ended=progress.update)
        accepted = [example for episode in episodes for example in demonstrations(episode, program, params.min_ap)]
        if not accepted:
            raise CorpusError(
                f"the pool of prompts is empty: none of {params.pool} plays had an average precision above "
                f"{params.min_ap:g}; raise filter.preferences.pool or bootstrap_temperature, or lower min_ap"
            )
        write_json(path, [asdict(example) for example in accepted])
    return [Demonstration.of(row) for row in read_json(path)]


def demonstrations(episode: Episode, program: LeReT, min_ap: float) -> list[Demonstration]:
    """Return the hops that found new gold if the episode's average precision is above ``min_ap``."""
    gold, retrievals = episode.question.gold_documents, list(by_hop(episode))
    if not gold or average_precision(documents_of(program.rank(retrievals)), gold) <= min_ap:
        return []
    examples = []
    for place, (hop, retrieval) in enumerate(zip(episode.outcome.hops, retrievals, strict=True)):
        before = program.rank(retrievals[:place])
        missing = {*gold} - {*documents_of(before)}
        if missing & {*documents_of(retrieval.passages)}:
            examples.append(Demonstration(episode.question.text, before, hop.query))
    return examples


def mean_ap(program: LeReT, questions: Sequence[Question], retriever: Retriever, generator: Generator) -> float:
    """Return the mean average precision after all hops."""
    episodes = play(questions, program, retriever, generator)
    rankings = [documents_of(program.rank(list(by_hop(episode)))) for episode in episodes]
    golds = [episode.question.gold_documents for episode in episodes]
    return float(np.mean(list(map(average_precision, rankings, golds))))


def select_prompts(prompts: dict[str, Any]) -> list[tuple[Demonstration, ...]]:
    """Return the chosen prompts of :func:`find_prompts`: zero-shot first, then the sets, the best first."""
    rows = [row["demonstrations"] for row in prompts["sets"] if row["chosen"]]
    return [(), *(tuple(map(Demonstration.of, row)) for row in rows)]


def read_demonstrations(which: str, folder: Path) -> tuple[Demonstration, ...]:
    """Return the demonstrations that stage filter chose: the ``best`` set, those of ``all`` sets, or none ("").

    Raises:
        CorpusError: ``folder`` has no prompts of stage filter.
    """
    if not which:
        return ()
    path = folder / "prompts.json"
    if not path.exists():
        raise CorpusError(f"{path} is missing; an arm is shown what stage filter found there: run `dvc repro filter`")
    sets = select_prompts(read_json(path))[1:]
    return sets[0] if which == "best" else tuple(dict.fromkeys(example for part in sets for example in part))


def hop_metrics(episode: Episode, program: LeReT) -> dict[str, float]:
    """Return recall and average precision of all passages after each hop: ``recall_after_1``, ``ap_after_1``, ..."""
    gold, retrievals = episode.question.gold_documents, list(by_hop(episode))
    if not gold:
        return {}
    rankings = [documents_of(program.rank(retrievals[:place])) for place in range(1, len(retrievals) + 1)]
    recalls = {f"recall_after_{hop}": len({*gold} & {*names}) / len(gold) for hop, names in enumerate(rankings, 1)}
    return recalls | {f"ap_after_{hop}": average_precision(names, gold) for hop, names in enumerate(rankings, 1)}


def _draw_set(accepted: Sequence[Demonstration], most: int, seed: int) -> tuple[Demonstration, ...]:
    """Draw one to ``most`` demonstrations."""
    rng = random.Random(seed)
    return tuple(rng.sample(accepted, min(rng.randint(1, most), len(accepted))))
