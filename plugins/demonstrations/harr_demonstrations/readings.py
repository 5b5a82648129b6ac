"""Examples of reading: what a language model should answer from passages, or that they do not tell.

They teach the reader of pipeline ``pick`` before the retriever learns from its answers. The passages are the gold ones,
and those that the untrained encoder finds. Arms ``gold`` and ``nothing`` tell how well a reader reads, and what it
knows: the ceiling and the floor of every search.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from harr.arms import ARMS, retriever_arm
from harr.builders.pipeline import build_pipeline
from harr.builders.players import open_players
from harr.builders.retrievers import RetrieverInputs
from harr.corpus.passages import read_questions
from harr.corpus.sample import draw_questions
from harr.errors import CorpusError, ParamsError
from harr.evaluate.play import Game
from harr.io.files import write_text
from harr.params import Params
from harr.rag.scoring.ranking import all_gold
from harr.rag.scoring.text import states_answer
from harr.types import Episode, Generate, Retrieval, Search
from harr_demonstrations.choose import Row
from tasks.paths import PLACES, QUESTIONS

UNKNOWN = "unknown"
"""What the prompt of pipeline pick has the reader write where the passages do not tell."""
ANSWERED = 3
"""Number of examples with an answer for one without at most: a reader that is taught more of those gives up early."""


class Gold:
    """The retriever of arm ``gold``: it finds the gold passages first, then what ``retriever.search`` finds."""

    def __init__(self, inputs: RetrieverInputs) -> None:
        self._passages, self._base, self._k = inputs.passages, inputs.base, inputs.k

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        """Return one retrieval per search, in order."""
        rows = self._passages.rows_of(name for search in searches for name in search.question.gold_ids)
        retrievals = []
        for search, others in zip(searches, self._base.retrieve(searches), strict=True):
            left = [name for name in search.question.gold_ids if name not in search.exclude_ids]
            rest = [passage for passage in others.passages if passage.id not in left]
            first = self._passages.take([rows[name] for name in left])
            retrievals.append(Retrieval((*first, *rest)[: search.k or self._k]))
        return retrievals


class Nothing:
    """The retriever of arm ``nothing``: it finds nothing, so the reader answers from memory."""

    def __init__(self, inputs: RetrieverInputs) -> None:
        pass

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        """Return one retrieval without passages per search."""
        return [Retrieval(()) for _ in searches]


class Silent:
    """A reader that answers nothing: its prompts are wanted."""

    def complete(self, requests: Sequence[Generate]) -> list[str]:
        """Return an empty completion per request."""
        return [""] * len(requests)

    def usage(self) -> Mapping[str, float]:
        """Return no usage."""
        return {}


def write_readings(params: Params, count: int, out: Path) -> list[str]:
    """Write examples of reading from the training questions, ``count`` of them (0: all), to the new file ``out``.

    Returns:
        What was written, in lines.

    Raises:
        CorpusError: ``out`` exists, or no question has an answer. ParamsError: nobody reads in this pipeline.
    """
    if not getattr(params.pipeline, "reader", False):
        raise ParamsError("--gold writes what a reader should answer; set pipeline: {name: pick, reader: true}")
    if out.exists():
        raise CorpusError(f"{out} exists and is left as it is; remove it, or name another --out")
    questions = [question for question in read_questions(QUESTIONS / "train.jsonl") if question.answers]
    if not (questions := draw_questions(questions, count, params.seed)):
        raise CorpusError(f"{QUESTIONS / 'train.jsonl'} holds no question with an answer")
    pipeline = build_pipeline(params.pipeline, params.generator, PLACES)
    arms = {"gold": retriever_arm("harr_demonstrations.readings:Gold", {}), "frozen": ARMS["frozen"]}
    readings: dict[str, Row] = {}
    with open_players(params, PLACES, questions, candidates=params.evaluate.candidates[0]) as player:
        for name, arm in arms.items():
            game = Game(name, pipeline, player(arm, None), Silent())
            rows = map(reading_of, game.play(questions, batch_size=params.evaluate.batch_size))
            readings |= {json.dumps(row, ensure_ascii=False): row for row in rows}
    answered = [line for line, row in readings.items() if row["messages"][-1]["content"] != UNKNOWN]
    unknown = [line for line, row in readings.items() if row["messages"][-1]["content"] == UNKNOWN]
    unknown = unknown[: len(answered) // ANSWERED]
    write_text(out, "".join(f"{line}\n" for line in answered + unknown))
    return [
        f"written: {len(answered)} examples with an answer and {len(unknown)} without, of {len(questions)} questions, to {out}",
        f"set generator.warmstart.demonstrations: {out}",
    ]


def reading_of(episode: Episode) -> Row:
    """Return the conversation that ends an episode, with what should be answered: a gold answer, or ``UNKNOWN``.

    Passages tell an answer where all gold is among them, or where they state it as whole words; "yes" and "no" stand
    anywhere and need the gold.
    """
    answers = episode.question.answers
    shown = "\n".join(passage.content for step in episode.steps for passage in step.retrieval.passages)
    stated = not {"yes", "no"} & {answer.lower() for answer in answers} and states_answer(shown, answers)
    answer = answers[0] if stated or all_gold(episode) else UNKNOWN
    return {"messages": [*map(dict, episode.turns[-1].request.messages), {"role": "assistant", "content": answer}]}
