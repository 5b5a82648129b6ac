"""`harr demonstrations`: the best episodes of a teacher, or of the model itself, in the format of a warm start."""

import json
from dataclasses import dataclass
from pathlib import Path

from harr_local.ask import find_model

from harr.arms import ARMS, TRAINED
from harr.errors import CorpusError
from harr.io.files import write_text
from harr.params import Params
from harr.params.fields import is_dotted
from harr.params.generator import FunctionGeneratorParams, LocalParams, ServedParams
from harr.params.pipeline import PipelineParams
from harr.params.servers import ServerParams
from harr.types import Episode, Pipeline, Question
from tasks.paths import PLACES, QUESTIONS

Teacher = ServedParams | LocalParams | FunctionGeneratorParams
HIDDEN = ("validation.jsonl", "test.jsonl")
"""Files of questions that are never trained on."""


@dataclass(frozen=True)
class Teaching:
    """What is played and kept: ``samples`` episodes of ``count`` questions (0: all), and at most ``each`` per question,
    none that earned less than ``at_least``."""

    samples: int = 4
    each: int = 1
    at_least: float = 0.9
    count: int = 0


def teacher_of(
    params: Params, model: str, base_url: str, tokenizer: str, temperature: float, max_tokens: int
) -> Teacher:
    """Return the model that plays: one behind ``base_url``, one in this process, or this project's.

    ``package.module:name`` is a player from another package.
    """
    sampling = {"temperature": temperature, "max_tokens": max_tokens}
    if base_url:
        return ServedParams(
            kind="server", server=ServerParams(urls=(base_url,)), model=model, tokenizer=tokenizer, **sampling
        )
    if is_dotted(model):
        return FunctionGeneratorParams(kind="function", function=model)
    folder = model or str(find_model(params, None))
    settings = getattr(params.generator, "chat_template_kwargs", {})
    return LocalParams(kind="local", model=folder, chat_template_kwargs=settings, **sampling)


def write_demonstrations(params: Params, teacher: Teacher, plan: Teaching, file: Path | None, out: Path) -> list[str]:
    """Let ``teacher`` play the training questions, and write what is worth learning to the new file ``out``.

    Completions are cached in work/completions, so a killed command continues.

    Returns:
        Lines on how many were kept and dropped, and why.

    Raises:
        CorpusError: ``out`` exists, there is no question, or no episode was good enough.
    """
    from harr.builders.generators import build_reader
    from harr.builders.pipeline import build_pipeline, build_reward
    from harr.builders.players import open_players
    from harr.corpus.passages import read_questions
    from harr.corpus.sample import draw_questions
    from harr.datasets.local import read_question_file
    from harr.evaluate.play import Game
    from harr_demonstrations.choose import choose, rows_of

    if out.exists():
        raise CorpusError(f"{out} exists and is left as it is; remove it, or name another --out")
    questions = list(read_question_file(file)) if file else read_questions(QUESTIONS / "train.jsonl")
    if not (questions := draw_questions(questions, plan.count, params.seed)):
        raise CorpusError(f"{file or QUESTIONS / 'train.jsonl'} holds no question; name a file with --questions")
    hidden = frozenset(
        q.identity for name in HIDDEN if (QUESTIONS / name).exists() for q in read_questions(QUESTIONS / name)
    )
    learner = build_pipeline(params.pipeline, params.generator, PLACES)
    pipeline = build_pipeline(teacher_pipeline(params, teacher), teacher, PLACES)
    reward = build_reward(params.reward, params.encoder, params.seed, PLACES)
    episodes: list[Episode] = []
    where = params.evaluate.candidates[0]
    with open_players(params, PLACES, questions, candidates=where) as player:
        retriever = player(ARMS[TRAINED], None)
        for sample in range(plan.samples):
            generator = build_reader(teacher, params.seed + sample, PLACES, "teacher")
            desc = f"demonstrations {sample + 1}/{plan.samples}"
            episodes += Game(desc, pipeline, retriever, generator).play(
                questions, batch_size=params.evaluate.batch_size
            )
    rewards = [row.get("reward") for row in reward.means(episodes)]
    choice = choose(episodes, rewards, at_least=plan.at_least, each=plan.each, hidden=hidden)
    dropped = ", ".join(f"{count} {reason}" for reason, count in choice.dropped.most_common())
    if not choice.kept:
        raise CorpusError(
            f"none of {len(episodes)} episodes is worth learning ({dropped}); lower --at-least, or take another teacher"
        )
    lines = []
    for episode, earned in choice.kept:
        for row in rows_of(episode, first_prompt(learner, episode.question)):
            lines.append(json.dumps({**row, "question": episode.question.id, "reward": earned}, ensure_ascii=False))
    write_text(out, "".join(f"{line}\n" for line in lines))
    mean = sum(earned for _, earned in choice.kept) / len(choice.kept)
    return [
        f"{len(choice.kept)} of {len(episodes)} episodes kept, of {len({e.question.id for e, _ in choice.kept})} "
        f"questions among {len(questions)}; mean reward {mean:.3f}",
        f"dropped: {dropped or 'none'}",
        f"written: {len(lines)} demonstrations to {out}; set generator: {{kind: local, warmstart: {{demonstrations: {out}}}}}",
    ]


def teacher_pipeline(params: Params, teacher: Teacher) -> PipelineParams:
    """Return section ``pipeline`` for the teacher: a server gets the form as text, in its chat template if known."""
    section = params.pipeline
    if isinstance(teacher, ServedParams) and hasattr(section, "template"):
        return section.model_copy(update={"template": "chat" if teacher.tokenizer else "plain"})
    return section


def first_prompt(pipeline: Pipeline, question: Question) -> str:
    """Return the raw text that a pipeline first asks its model to continue; "" if it asks otherwise."""
    return getattr(next(pipeline(question)), "prompt", "")
