"""`harr ask`: one question, played by the pipeline of params.yaml with the trained model."""

from pathlib import Path
from typing import Any

from harr.arms import ARMS, TRAINED
from harr.errors import ModelError, ParamsError
from harr.params import Params
from harr.types import Episode, Question
from tasks.paths import ADAPTER, PLACES, trained_folder

SHOWN = 200
"""Number of characters printed of a passage."""


def ask(params: Params, text: str, model: Path | None = None) -> Episode:
    """Play a question as evaluation plays the arm ``trained``; needs the index of stages embed and index.

    Args:
        params: parameters of the run that ``model`` is from.
        text: the question.
        model: folder of an adapter or of a merged model: of the language model if that learns, else of the retriever.
            None: this project's.

    Raises:
        ParamsError: the question is empty, or the pipeline needs passages given with each question.
        ModelError: there is no model.
    """
    from harr.builders.generators import build_generator, build_reader
    from harr.builders.pipeline import build_pipeline
    from harr.builders.players import open_generator, open_players
    from harr.evaluate.play import Game

    question = Question("asked", " ".join(text.split()))
    if not question.text:
        raise ParamsError("harr ask: the question is empty; give it in quotation marks")
    if "question" in (params.retriever.candidates, *params.evaluate.candidates):
        raise ParamsError(
            "harr ask searches the corpus, and params.yaml picks from passages that come with each question; set "
            "retriever.candidates and evaluate.candidates: corpus"
        )
    folder, arm, writes = find_model(params, model), ARMS[TRAINED], params.language_model_learns
    pipeline = build_pipeline(params.pipeline, params.generator, PLACES)
    reader = build_reader(params.evaluate.reader, params.seed, PLACES)
    generator = (
        open_generator(params, PLACES, arm, folder)
        if writes
        else build_generator(params.generator, params.seed, PLACES)
    )
    with open_players(params, PLACES, [question], candidates="corpus") as player:
        [episode] = Game("ask", pipeline, player(arm, folder), generator, reader).play([question], batch_size=1)
    return episode


def find_model(params: Params, model: Path | None) -> Path:
    """Return the folder of the trained model: ``model``, or this project's merged model or adapter.

    Raises:
        ModelError: no folder holds a model.
    """
    _, merged = trained_folder(params)
    folders = [model] if model else [merged, ADAPTER]
    for folder in folders:
        if any((folder / name).exists() for name in ("config.json", "adapter_config.json", "modules.json")):
            return folder
    raise ModelError(
        f"{model} holds no model; name the folder of an adapter or of a merged model"
        if model
        else f"neither {merged} nor {ADAPTER} holds a model; run `harr run`, or name one with --model"
    )


def as_json(episode: Episode) -> dict[str, Any]:
    """Return an episode as one JSON object: its answer, its searches with their passages, and the replies."""
    return {
        "question": episode.question.text,
        "answer": episode.answer,
        "searches": [
            {
                "query": step.search.query,
                "tool": step.search.tool,
                "passages": [{"id": p.id, "title": p.title, "text": p.text} for p in step.retrieval.passages],
                "error": step.retrieval.error,
            }
            for step in episode.steps
        ],
        "written": [str(turn.completion) for turn in episode.turns],
        "malformed": episode.outcome.malformed,
    }


def lines(episode: Episode) -> list[str]:
    """Return an episode as lines: every search with its passages, then the answer."""
    lines = []
    for step in episode.steps:
        tool = f" ({step.search.tool})" if step.search.tool else ""
        lines.append(f"search{tool}: {step.search.query}")
        lines += [f"  {step.retrieval.error}"] if step.retrieval.error else []
        for number, passage in enumerate(step.retrieval.passages, start=1):
            text = " ".join(passage.text.split())
            lines.append(f"  {number}. [{passage.id}] {passage.title}: {text[:SHOWN]}{'...' if text[SHOWN:] else ''}")
    if episode.answer is None:
        return [*lines, "this pipeline searches and gives no answer"]
    return [*lines, f"answer: {episode.answer}" if episode.answer else "no answer"]
