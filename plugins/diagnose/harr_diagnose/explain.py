"""Why training gained or did not: facts are read from the stages' outputs, and the rest is measured."""

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from harr.arms import ARMS, TRAINED, Arm
from harr.errors import CorpusError, ParamsError
from harr.io.files import read_state_rows, write_json
from harr.params import Params
from harr.types import Question
from harr_diagnose.causes import Facts
from harr_diagnose.diagnose import READER, play_untrained, reader_gain, untrained_arms
from tasks.arms import without_reader
from tasks.evaluation_outputs import AGAIN, summary_here
from tasks.evaluation_record import check_played
from tasks.paths import ADAPTER, CORPUS, EVALUATION, FILTERED, PLACES, QUESTIONS, STATS
from tasks.play import draw_test_questions, round_figures, with_arms

Rows = list[dict[str, Any]]
START = "history"
"""The arm that a retriever's training starts from: the untrained encoder, which reads the history."""
FIGURES = ("gain", "low", "high", "n")
SEARCHED = 100
"""Maximum number of training questions searched for again."""
GENERAL = 300
"""Maximum number of general queries."""


def explain_training(params: Params, general: Path | None, out: Path) -> list[str]:
    """Name the causes of what training gained or lost; write them with their evidence to ``out`` (JSON).

    Needs the output of all stages up to evaluate. ``general``: questions with gold passages in this corpus that
    training should not harm; None: titles and first sentences of the corpus, each with its own passage as gold.

    Returns:
        The outcome, and a line for every cause.

    Raises:
        DamagedFile: a stage left no output. StaleState: the evaluation is of another model.
        CorpusError: a general question has no gold in this corpus.
        ParamsError: the arm from before training was not played.
    """
    from harr.evaluate.tables import spread, verdict
    from harr_diagnose.causes import explain

    summary = summary_here()
    check_played(params)
    facts = gather_facts(params, summary, general)
    causes = explain(facts)
    compared = f"{verdict(facts.gain)} {facts.baseline}: {spread(facts.gain, 'gain', '+.1f')} points of {facts.metric}"
    outcome = f"{TRAINED} {compared} on {facts.gain['n']:,.0f} questions"
    write_json(out, round_figures({"outcome": outcome, "causes": causes, "facts": vars(facts)}))
    lines = [f"{row['cause']}: {row['evidence']}; {row['remedy']}" for row in causes if row["named"]]
    unknown = [str(row["cause"]) for row in causes if row["named"] is None]
    none = [] if lines else [f"no cause found among the {len(causes) - len(unknown)} that were looked for"]
    return [outcome, *lines, *none, *([f"not measured here: {', '.join(unknown)}"] if unknown else [])]


def gather_facts(params: Params, summary: dict[str, Any], general: Path | None) -> Facts:
    """Return what is known about this project's run."""
    from harr.corpus.passages import read_questions
    from harr.evaluate.summary import contrast, headline
    from harr.evaluate.tables import label
    from harr.rag.validation import leading_metric, points
    from harr_diagnose.evidence import count_leaked

    baseline, lead = params.baseline, headline(summary)
    if baseline not in params.evaluate.arm_table:
        raise ParamsError(f"arm {baseline} was not played, which `trained` was before; add it to evaluate.arms")
    gain, start = (
        contrast(read_runs(arm), read_runs(baseline), resamples=params.evaluate.resamples, seed=params.seed)[lead]
        if arm in params.evaluate.arm_table
        else {}
        for arm in (TRAINED, START)
    )
    train = read_questions(FILTERED / "questions.jsonl")
    history = read_state_rows(STATS, "run `dvc repro -f -s train`")
    validated = points(history)
    metric = leading_metric(validated[-1]) if validated else ""
    last = [row for row in history if row.get("phase", 0.0) == history[-1].get("phase", 0.0)]
    return Facts(
        metric=label(lead),
        baseline=baseline,
        gain={name: gain[name] for name in FIGURES},
        start={name: start[name] for name in FIGURES if start},
        train=len(train),
        leaked=count_leaked(train, draw_test_questions(params, QUESTIONS / "test.jsonl")),
        validation=[point[metric] for point in validated],
        validated=int(validated[-1]["questions"]) if validated else 0,
        rewards=[row["reward_mean"] for row in last],
        equal_rewards=fmean(row["zero_std_share"] for row in last) if params.train.compares_groups else None,
        **measure_search(params, general),
    )


def read_runs(arm: str) -> list[Rows]:
    """Return the question rows of every run of an arm."""
    others = sorted(path for path in EVALUATION.glob(f"{arm}-*.jsonl") if path.stem.removeprefix(f"{arm}-").isdigit())
    return [read_state_rows(path, AGAIN) for path in (EVALUATION / f"{arm}.jsonl", *others)]


def measure_search(params: Params, general: Path | None) -> dict[str, Any]:
    """Return the facts that need a search: of training questions by the untrained retriever, of general queries by
    both, and what the reader knows."""
    from harr.builders.players import open_players
    from harr.rag.policies.dense import DensePolicy
    from harr.rag.policies.link_features import LinkFeatures
    from harr_diagnose.evidence import find_false_negatives, mean_cosine
    from harr_diagnose.measure import all_gold_at

    given = params.retriever.candidates
    asked = training_sample(params)
    start = params.baseline if params.language_model_learns else START
    played = {name: read_runs(name)[0] for name in READER if (EVALUATION / f"{name}.jsonl").exists()}
    fitting, answered = untrained_arms(params), "answer_f1" in read_runs(TRAINED)[0][0]
    missing = answered and len(played) < len(READER)
    names = [start, *(name for name in READER if missing and name in fitting)]
    game = with_arms(params, names)
    if getattr(params.pipeline, "reader", False) and names == [start]:
        game = without_reader(game)
    episodes, found, rows = play_untrained(game, asked, given, PLACES)
    reader = measure_reader(params, played if len(played) == len(READER) else rows)
    pools = all_gold_at(asked, found[start], params.retriever.pool, by_share=True)
    facts: dict[str, Any] = {"searched": len(asked), "reader": reader}
    if pools:
        facts["pool_recall"] = fmean(share for _, share in pools)
    steps = [step.search for episode in episodes[start] for step in episode.steps]
    searches = list({(search.question.id, search.query): search for search in reversed(steps)}.values())
    if params.language_model_learns or not searches:
        return facts
    with open_players(params, PLACES, asked, candidates=given) as player:
        second = player(ARMS["bm25"], None) if "bm25" in fitting else None
        facts["mislabelled"] = find_false_negatives(searches, player(ARMS[start], None), second, params.retriever.pool)
        before, after = player(ARMS[start], None), player(ARMS[TRAINED], ADAPTER)
        by_vectors = params.retriever.learns != "link_features" and isinstance(after, DensePolicy)
        by_vectors &= isinstance(getattr(after, "link_features", None), LinkFeatures | None)
        if isinstance(before, DensePolicy) and isinstance(after, DensePolicy) and by_vectors:
            facts["cosine"] = mean_cosine(searches, before, after)
    if params.retriever.positions == "none":
        facts["general"] = measure_general(params, general, ARMS[start])
    return facts


def measure_general(params: Params, file: Path | None, start: Arm) -> dict[str, float]:
    """Return the recall of general queries ``before``, by the arm that training started from, and its change."""
    from harr.builders.players import open_players
    from harr.evaluate.summary import contrast
    from harr_diagnose.evidence import general_queries, recall_rows

    queries = read_general(file) if file else general_queries(CORPUS, GENERAL, params.seed)
    with open_players(params, PLACES, queries, candidates="corpus") as player:
        before, after = (
            recall_rows(queries, player(arm, folder), params.retriever.k)
            for arm, folder in ((start, None), (ARMS[TRAINED], ADAPTER))
        )
    change = contrast([after], [before], resamples=params.evaluate.resamples, seed=params.seed)["recall"]
    return {"before": fmean(row["recall"] for row in before), **{name: change[name] for name in FIGURES}}


def training_sample(params: Params) -> list[Question]:
    """Return a sample of the training questions that training can play and whose gold is in the corpus."""
    from harr.corpus.passages import Passages, read_questions
    from harr.corpus.sample import draw_questions

    questions = read_questions(QUESTIONS / "train.jsonl")
    rows = Passages.open(CORPUS).rows_of(pid for question in questions for pid in question.gold_ids)
    given = params.retriever.candidates == "question"
    fitting = [q for q in questions if all(pid in rows for pid in q.gold_ids) and (q.candidate_ids or not given)]
    return draw_questions(fitting, SEARCHED, params.seed)


def read_general(file: Path) -> list[Question]:
    """Return the general questions of a file.

    Raises:
        CorpusError: one has no gold, or there are none.
    """
    from harr.datasets.local import read_question_file

    questions = list(read_question_file(file))
    bare = [question.id for question in questions if not question.gold_ids]
    if bare or not questions:
        what = f"{len(bare)} questions (first: {bare[0]}) have no gold passages" if bare else "it holds no question"
        raise CorpusError(f"--general {file}: {what}; name in supporting what each should find")
    return questions


def measure_reader(params: Params, rows: Mapping[str, Rows]) -> dict[str, float]:
    """Return the shares of questions that the reader answers from memory, and only with the gold; {} without a reader."""
    from harr.evaluate.summary import summarise

    runs = {name: [rows[name]] for name in READER if name in rows}
    summary = summarise(runs, baseline=READER[1], resamples=params.evaluate.resamples, seed=params.seed)
    figures = reader_gain(params, rows, summary)
    shares = {name: figures[name] for name in ("from_memory", "with_gold") if figures}
    return shares and {**shares, "n": float(len(rows[READER[0]]))}
