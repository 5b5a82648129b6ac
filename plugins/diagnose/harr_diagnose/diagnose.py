"""What training could add: untrained arms and some rollouts play, and their figures become advice and a page."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import pstdev
from typing import TYPE_CHECKING, Any, Literal

from harr.arms import ARMS
from harr.builders.places import Places
from harr.errors import CorpusError, ParamsError
from harr.io.files import read_json, write_json
from harr.params import Params
from harr.params.evaluate import ForeignArmParams
from harr.types import Episode, Question
from tasks.headline import GAIN
from tasks.paths import CORPUS, HEADLINE, PLACES, QUESTIONS
from tasks.play import arm_pipelines, round_figures, with_arms

if TYPE_CHECKING:
    from harr.evaluate.summary import Summary
    from harr_diagnose.advice import Figures
    from harr_diagnose.measure import Found

DEPTHS = (1, 2, 4)
"""Depths at which gold is looked for, in pools."""
READER = ("gold", "nothing")
"""The arms that show how well a reader reads, and what it knows."""
RIGHT = 0.5
"""Answer F1 from which an answer counts as right."""
ROLLED_OUT = 64
"""Maximum number of questions whose rollouts are compared."""
SPLITS = ("validation.jsonl", "train.jsonl")
"""Files that questions come from, in this order."""
MENTION = ForeignArmParams(name="mention", retriever="harr_links.mention:follow_titles")
"""The rule that follows titles: the strongest simple baseline on corpora with titles."""


def diagnose(params: Params, file: Path | None, count: int, out: Path) -> list[str]:
    """Play the untrained arms and some rollouts on questions outside the test set; write a page and its JSON.

    Needs the output of stages download, embed and index, and asks the generator of params.yaml.

    Args:
        params: parameters of the planned run.
        file: questions; None: data/questions/validation.jsonl and, if those are too few, training questions.
        count: maximum number of questions, drawn by ``seed``, with every setting and type by its share.
        out: folder of index.html and diagnosis.json.

    Returns:
        What to do, one sentence each.

    Raises:
        CorpusError: no question could be scored. IndexMismatch: vectors or index are of another corpus or encoder.
    """
    from harr_diagnose.advice import advice, as_json
    from harr_diagnose.page import write_diagnosis

    source, drawn = some_questions(file, count, params.seed, given=params.evaluate.candidates[0] == "question")
    where, questions, notes = place_of(params, drawn)
    asked, known = params, add_mention(params)
    params = with_arms(known, untrained_arms(known))
    episodes, found, rows = play_untrained(params, questions, where, PLACES)
    figures, summary = figures_of(params, questions, episodes, found, rows)
    served: Literal["added", "no"] = "added" if figures.best in params.proposals else "no"
    figures = replace(figures, served="yes" if figures.best in asked.proposals else served)
    sentences = [*advice(figures), *notes]
    write_json(
        out / "diagnosis.json",
        round_figures(
            {
                "questions": len(questions),
                "file": source,
                "candidates": where,
                "advice": sentences,
                **as_json(figures),
                **summary,
            }
        ),
    )
    write_diagnosis(out / "index.html", figures, sentences, summary, (len(questions), source, where))
    return sentences


def some_questions(file: Path | None, count: int, seed: int, *, given: bool = False) -> tuple[str, list[Question]]:
    """Return the paths of the questions in words, and at most ``count`` of them, drawn by ``seed``.

    Without a ``file``, validation questions come first, then training questions. ``given``: only those with passages of
    their own.

    Raises:
        CorpusError: there are none.
    """
    from harr.corpus.passages import read_questions
    from harr.corpus.sample import draw_questions
    from harr.datasets.local import read_question_file

    paths = [file] if file else [path for name in SPLITS if (path := QUESTIONS / name).exists()]
    if not paths:
        raise CorpusError(f"{QUESTIONS / SPLITS[-1]} is missing; run `dvc repro index`")
    drawn: list[Question] = []
    used: list[str] = []
    for path in paths:
        found = list(read_question_file(path)) if file else read_questions(path)
        fitting = [question for question in found if question.candidate_ids or not given]
        if fitting and len(drawn) < count:
            ids = {question.id for question in drawn}  # unique within a file alone
            more = draw_questions(fitting, count - len(drawn), seed)
            drawn += [replace(one, id=f"{one.id} of {path.stem}") if one.id in ids else one for one in more]
            used.append(str(path))
    if not drawn:
        lack = " with passages of its own (evaluate.candidates question)" if given else ""
        raise CorpusError(f"{paths[-1]} holds no question{lack}; name a file of questions with --questions")
    return " and ".join(used), drawn


def place_of(params: Params, questions: Sequence[Question]) -> tuple[str, list[Question], list[str]]:
    """Return where the arms search, the questions that have their gold there, and a note about it.

    They search where evaluation does. If that is the corpus, and the gold of most questions is not in the index (the
    training questions of a benchmark of which only the passages are searched), they search where training does.

    Raises:
        CorpusError: there is no such place.
    """
    from harr.corpus.passages import Passages

    where = params.evaluate.candidates[0]
    passages = Passages.open(CORPUS)
    rows = passages.rows_of({pid for question in questions for pid in question.gold_ids})
    indexed = set(passages.searchable_rows().tolist())
    known = [q for q in questions if all(rows.get(pid) in indexed for pid in q.gold_ids)]
    if where == "question" or len(known) == len(questions):
        return where, list(questions), []
    lost = f"of {len(questions):,} questions {len(questions) - len(known):,} have gold that is not in the index"
    if len(known) > len(questions) / 2:
        return where, known, [f"{lost}; they were left out"]
    given = [q for q in questions if q.candidate_ids]
    remedy = "name questions about its passages with --questions"
    if params.retriever.candidates != "question" or not given:
        raise CorpusError(f"{lost}; {remedy}")
    return "question", given, [f"{remedy}: {lost}, so all searched the passages given with a question, an easier task"]


def add_mention(params: Params) -> Params:
    """Return the parameters with the arm ``MENTION``."""
    evaluate = params.evaluate.model_copy(update={"arms": (*params.evaluate.arms, MENTION)})
    return params.model_copy(update={"evaluate": evaluate})


def untrained_arms(params: Params) -> list[str]:
    """Return the arms that need no training and fit these parameters: those of the table, in order, and ``MENTION``."""
    plain = [name for name, arm in ARMS.items() if not (arm.trained or arm.demonstrations)]
    return [name for name in (*plain, MENTION.name) if _fits(params, name)]


def _fits(params: Params, name: str) -> bool:
    try:
        with_arms(params, list(dict.fromkeys([*params.evaluate.arm_table, name])))
    except ParamsError:
        return False
    return True


def play_untrained(
    params: Params, questions: Sequence[Question], where: str, places: Places
) -> "tuple[dict[str, list[Episode]], dict[str, Found], dict[str, list[dict[str, Any]]]]":
    """Return per arm its episodes, what it found at every depth, and a row of metrics per question."""
    from harr.builders.generators import build_generator, build_reader
    from harr.builders.pipeline import build_reward
    from harr.builders.players import open_generator, open_players
    from harr.evaluate.play import Game
    from harr_diagnose.measure import DeepRetriever

    pipelines, writes = arm_pipelines(params), params.language_model_learns
    reward = build_reward(params.reward, params.encoder, params.seed, places)
    reader = build_reader(params.evaluate.reader, params.seed, places)
    generator = None if writes else build_generator(params.generator, params.seed, places)
    depths, picking = [n * params.retriever.pool for n in DEPTHS], params.pipeline.name == "pick"
    episodes: dict[str, list[Episode]] = {}
    found: dict[str, Found] = {}
    rows: dict[str, list[dict[str, Any]]] = {}
    with open_players(params, places, questions, candidates=where) as player:
        for name, arm in params.evaluate.arm_table.items():
            deep = DeepRetriever(player(arm, None), depths, once=bool(params.sources))
            own = open_generator(params, places, arm, None) if writes else generator
            game = Game(name, pipelines[name], deep, own, reader)
            episodes[name] = game.play(questions, batch_size=params.evaluate.batch_size)
            rows[name] = game.rows(episodes[name], reward.means(episodes[name]), picking=picking)
            found[name] = deep.found
    return episodes, found, rows


def figures_of(
    params: Params,
    questions: Sequence[Question],
    episodes: Mapping[str, list[Episode]],
    found: "Mapping[str, Found]",
    rows: Mapping[str, list[dict[str, Any]]],
) -> "tuple[Figures, Summary]":
    """Return the figures for the advice, and the arms with their intervals."""
    from harr.corpus.passages import read_questions
    from harr.evaluate.summary import contrast, headline, summarise
    from harr.evaluate.tables import label
    from harr_diagnose.advice import Figures
    from harr_diagnose.measure import all_gold_at, ambiguous_queries, detectable_gain, questions_needed

    resamples, seed = params.evaluate.resamples, params.seed
    summary = summarise(
        {name: [own] for name, own in rows.items()}, baseline=params.baseline, resamples=resamples, seed=seed
    )
    lead = headline(summary)
    means = {name: metrics[lead]["mean"] for name, metrics in summary["arms"].items() if lead in metrics}
    possible = [name for name, arm in params.evaluate.arm_table.items() if name in means and not arm.ceiling]
    rivals = sorted(possible, key=lambda name: -means[name])
    best, dense = rivals[0], params.baseline
    scores = {name: [row.get(lead, 0.0) for row in rows[name]] for name in rivals}
    differences = max(
        ([ours - theirs for ours, theirs in zip(scores[best], scores[name], strict=True)] for name in rivals[1:]),
        key=pstdev,
        default=scores[best],
    )
    gain = contrast([rows[best]], [rows[dense]], resamples=resamples, seed=seed)[lead] if best != dense else {}
    tests = len(read_questions(QUESTIONS / "test.jsonl"))
    pool = params.retriever.pool
    by_share = lead == "ndcg_at_10"  # if a question has much gold, nobody finds all of it

    def at(name: str, depth: int) -> float:
        return _share(all_gold_at(questions, found[name], depth, by_share=by_share))

    deepest = max(rivals, key=lambda name: at(name, pool))
    depths = [n * pool for n in DEPTHS] if "all_gold" in summary["arms"][deepest] else []
    pools = {depth: at(deepest, depth) for depth in depths}
    whole = "recall" if by_share else "all_gold"
    others = {**ambiguous_queries(episodes[dense]), **roll_out(params, questions), **describe_training(params)}
    figures = Figures(
        metric=label(lead),
        best=best,
        means=means,
        dense=dense,
        gain_of_best={key: gain[key] for key in ("gain", "low", "high")} if gain else {},
        pool=pool,
        all_gold=pools,
        found=max((summary["arms"][name][whole]["mean"] for name in rivals if pools), default=0.0),
        detectable=detectable_gain(differences, min(tests, params.evaluate.max_questions or tests)),
        needed=questions_needed(differences, 0.05),
        by_share=by_share,
        reader=reader_gain(params, rows, summary),
        **others,
    )
    return figures, summary


def reader_gain(params: Params, rows: Mapping[str, list[dict[str, Any]]], summary: "Summary") -> dict[str, float]:
    """Return the reader's gain in answer F1 from gold passages over none, both F1, and the shares of questions
    answered; {} if nobody answers."""
    from harr.evaluate.summary import contrast

    if any("answer_f1" not in summary["arms"].get(name, {}) for name in READER):
        return {}
    gold, nothing = ([rows[name]] for name in READER)
    gain = contrast(gold, nothing, resamples=params.evaluate.resamples, seed=params.seed)["answer_f1"]
    means = {name: summary["arms"][name]["answer_f1"]["mean"] for name in READER}
    answered = {name: [row["answer_f1"] for row in rows[name] if "answer_f1" in row] for name in READER}
    return gain | means | share_of_readers(answered["nothing"], answered["gold"])


def describe_training(params: Params) -> dict[str, Any]:
    """Return what advice needs to know about the planned training and the last one here."""
    return {
        "method": params.train.method,
        "warm_start": getattr(params.train, "warm_steps", 0) > 0,
        "links": params.retriever.link_features,
        "language_model": params.language_model_learns,
        "last_run": last_gain(),
    }


def last_gain() -> dict[str, float]:
    """Return the gain of ``trained`` over the best untrained arm from stage evaluate; {} without one."""
    figures = read_json(HEADLINE) if HEADLINE.exists() else {}
    return {end: figures[name] for name, end in GAIN.items()} if "gain" in figures else {}


def share_of_readers(nothing: Sequence[float], gold: Sequence[float]) -> dict[str, float]:
    """Return the shares of questions answered from memory, and only with the gold, from the answer F1 of both.

    >>> share_of_readers([1.0, 0.0, 0.4, 0.0], [1.0, 1.0, 0.6, 0.0])
    {'from_memory': 0.25, 'with_gold': 0.5}
    """
    right = [(one >= RIGHT, other >= RIGHT) for one, other in zip(nothing, gold, strict=True)]
    memory, read = sum(one for one, _ in right), sum(other and not one for one, other in right)
    return {"from_memory": memory / len(right), "with_gold": read / len(right)}


def _share(rows: Sequence[tuple[str, float]]) -> float:
    return sum(value for _, value in rows) / len(rows) if rows else 0.0


def roll_out(params: Params, questions: Sequence[Question]) -> dict[str, float]:
    """Return the shares of questions in a sample whose sampled rollouts disagree, and whose rollouts are all right."""
    from harr.builders.setup import open_setup
    from harr.corpus.sample import draw_questions
    from harr.filter import try_questions

    given = params.retriever.candidates == "question"
    asked = draw_questions([q for q in questions if q.candidate_ids or not given], ROLLED_OUT, params.seed)
    if not asked:
        return {"rolled_out": 0.0, "disagreeing": 0.0, "all_right": 0.0}

    section = params.filter.model_copy(update={"keep": "disagreeing"})
    with open_setup(params, PLACES, QUESTIONS / "train.jsonl") as setup:
        rows = try_questions(section, setup, asked, params.seed)
    return {
        "rolled_out": float(len(rows)),
        "disagreeing": sum(row["kept"] for row in rows) / len(rows),
        "all_right": sum(row["reason"] == "all right" for row in rows) / len(rows),
    }
