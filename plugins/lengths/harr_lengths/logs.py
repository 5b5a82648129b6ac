"""Evaluation over lengths, outside the stages: a trained retriever in documents of every length."""

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harr.errors import ParamsError
from harr.io.files import read_state, write_json, write_text
from harr.params import Params
from harr.params.embed import EmbedParams
from tasks.paths import ADAPTER, PLACES, WORK

if TYPE_CHECKING:
    from harr.rag.policies.two_tower import TwoTowerPolicy
    from harr_lengths.picks import Rule
    from harr_lengths.stories import LongDocuments


def play_lengths(
    params: Params,
    lengths: Sequence[int],
    *,
    tokens: Sequence[int] = (),
    model: Path | None,
    seed: int,
    questions: int,
    beam: int,
    out: Path,
) -> list[dict[str, Any]]:
    """Play the test stories at every length; write logs, a table as JSON and a plot to ``out``.

    ``lengths`` are in sentences; ``tokens`` are converted to sentences by the mean of the noise. ``beam`` plans of
    picks are followed at a time, by the value of their last pick. Without ``questions`` there are as many stories as in
    the test split. Logs are named eval_seed{seed}_ns{sentences}.jsonl; an existing one is continued.

    Raises:
        ParamsError: the data set has no stories to hide in longer documents.
        CorpusError: a document is shorter than its story, or noise shorter than a document; before anything is encoded.
    """
    from harr.builders.retrievers import trained_towers
    from harr.datasets import dataset_of
    from harr.params.pipeline import PickParams
    from harr_lengths.documents import check_lengths, sentences_for, tokens_per_sentence
    from harr_lengths.play import by_length, identity, whole_lines
    from harr_lengths.plot import lengths_plot
    from harr_lengths.stories import Stories

    dataset, section = dataset_of(params.download)
    if not isinstance(dataset, Stories) or not isinstance(params.pipeline, PickParams):
        raise ParamsError(
            "evaluation over lengths needs a data set of stories, such as harr_lengths.babilong:DATASET, and pipeline.name "
            "pick; see recipes/qrag_babilong_small.yaml"
        )
    documents = dataset.long_documents(
        section.model_copy(update={"seed": seed, "test_questions": questions or section.test_questions})
    )
    towers = trained_towers(params.encoder, params.retriever, model or ADAPTER)
    mean = tokens_per_sentence(documents.noise(0), towers.actions.token_counts)
    lengths = sorted({*lengths, *(sentences_for(count, mean) for count in tokens)})
    check_lengths(documents, lengths)
    data = documents.params.model_dump(mode="json", exclude={"seed", "test_questions"})  # these are in the log's name
    picks = params.pipeline.picks
    width = {"beam": beam} if beam > 1 else {}
    _claim(out, {"towers": identity(towers), "picks": picks, "data": data, **width})
    for sentences in lengths:
        log = out / f"eval_seed{seed}_ns{sentences}.jsonl"
        _play_length(documents, sentences, towers, params.embed, log, picks=picks, beam=beam)
    logs = {int(log.stem.rpartition("ns")[2]): whole_lines(log) for log in out.glob(f"eval_seed{seed}_ns*.jsonl")}
    table = [
        {"sentences": row["sentences"], "tokens": round(row["sentences"] * mean), **row}
        for row in by_length(logs, params.evaluate.resamples, params.seed)
    ]
    write_json(out / "lengths.json", table)
    lengths_plot(table, out / "lengths.svg")
    return table


def _claim(out: Path, game: dict[str, Any]) -> None:
    """Check that all logs of a folder are from one model and one game, named in its ``game.json``.

    Raises:
        ParamsError: the folder has logs of another.
    """
    path = out / "game.json"
    facts = read_state(path, f"give another --out, or delete {out}") if path.exists() else game
    if differing := [key for key, value in facts.items() if value != game[key]]:
        others = ", ".join(differing)
        raise ParamsError(f"{out} holds logs of another run (other {others}); give another --out, or delete it")
    write_json(path, game)


def _play_length(
    documents: "LongDocuments",
    sentences: int,
    towers: "TwoTowerPolicy",
    embed: EmbedParams,
    log: Path,
    *,
    picks: int,
    beam: int,
) -> None:
    """Play one length into its log. Noise shared by all its documents is encoded first, in shards on disk."""
    from harr.rag.policies.sentence_vectors import Sentences
    from harr_lengths.documents import SHARED, noise_for, stretch_stories
    from harr_lengths.play import on_disk, play_documents, whole_lines
    from harr_lengths.stories import stories

    count = len(stories(documents)["test"])
    if len(whole_lines(log)) >= count:
        return
    noise, shards = noise_for(documents, sentences), WORK / "lengths" / f"ns{sentences}"
    shared = sentences > SHARED
    towers.sentences = on_disk(noise, towers.actions, embed, shards) if shared else Sentences()
    play_documents(
        stretch_stories(documents, sentences, noise),
        towers,
        log,
        picks=picks,
        beam=beam,
        total=count,
        desc=f"{sentences:,} sentences",
    )
    if shared:
        shutil.rmtree(shards)  # all stories of this length have been played


def ask_reader(params: Params, logs: Sequence[Path], keep: "Rule" = "all", limit: float = 0.0) -> list[dict[str, Any]]:
    """Let the generator answer the questions of some logs from the picks that a rule keeps; EM and F1 by length.

    Next to each log, ``answers_<name>`` gets every line with its answer. The rules and their ``limit`` are those of
    :mod:`harr_lengths.picks`, prompts and scores those of the data set's task (:mod:`harr_lengths.answers`).

    Raises:
        ParamsError: a log is missing, its name gives no length, or there is no generator.
    """
    from harr.builders.generators import build_generator
    from harr_lengths.answers import exam_of, read_answers
    from harr_lengths.picks import cut_row
    from harr_lengths.play import by_length, whole_lines

    generator = build_generator(params.generator, params.seed, PLACES)
    if generator is None:
        raise ParamsError("generator.kind: none reads nothing; set generator to a server or a local model")
    rows_of: dict[int, list[dict[str, Any]]] = {}
    exam = exam_of(params.download)
    for log in logs:
        name = re.fullmatch(r"eval_seed\d+_ns(\d+)\.jsonl", log.name)
        if not name or not log.exists():
            raise ParamsError(f"{log}: expected a log eval_seed<seed>_ns<sentences>.jsonl of `harr lengths`")
        answered = read_answers([cut_row(row, keep, limit) for row in whole_lines(log)], generator, exam)
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in answered)
        write_text(log.with_name(f"answers_{log.name}"), lines)
        rows_of.setdefault(int(name[1]), []).extend(answered)
    return list(by_length(rows_of, params.evaluate.resamples, params.seed, ("answer_em", "answer_f1")))
