"""Sections ``pipeline``, ``retriever``, ``sources``, ``evaluate`` and ``lengths``, and the weights of rewards.

See ``harr/params/__init__.py`` for all the others.
"""

import re
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field, model_validator

from harr.params.download import Fraction, MaybeAddress, MaybePlace, Place, Positive, Section, Seed, Several
from harr.params.generator import Local, Scripted, Server

TAUGHT = ("General", "News", "Academy")
"""The tools of R-Search, which the small language model is taught to ask."""


class Multistep(Section):
    """A planner asks sub-queries, a reader answers each from K passages."""

    name: Literal["multistep"]
    max_hops: Positive = 5


class React(Section):
    """A tool-calling agent; its tool searches."""

    name: Literal["react"]
    max_searches: Positive = 5
    shows: Literal["answer", "passages"] = "answer"
    """What the tool says: a reader's short answer, or the passages, so that the conversation is one growing text."""


class SearchR1(Section):
    """One growing text with <think>, <search>, <information> and <answer> (Search-R1, arXiv 2503.09516)."""

    name: Literal["search_r1"]
    max_searches: Positive = 4
    template: Literal["plain", "chatml", "bare"] = "plain"
    """Instructions as they are, in Qwen's chat markup, or no instructions (a model that knows the format)."""


class RSearch(Section):
    """One text with <think>, a <search> graph, its <result> and an <answer> (R-Search, arXiv 2506.08352)."""

    name: Literal["r_search"]
    tools: tuple[str, ...] = TAUGHT
    """The sources that a search may ask, by name."""
    max_nodes: int = Field(8, ge=1, le=26)
    """Searches in a graph; their labels are single letters."""
    max_words: Positive = 10
    """Of a query, as the model writes it."""
    budget: int = Field(0, ge=0)
    """Searches that are made for a question; 0: all of its graph."""
    template: Literal["plain", "chatml", "bare"] = "plain"
    """As for search_r1."""

    @model_validator(mode="after")
    def _tools_have_names(self) -> "RSearch":
        named = all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", tool) for tool in self.tools)
        if not self.tools or not named or len(set(self.tools)) < len(self.tools):
            raise ValueError(f"tools {list(self.tools)} should be different words without blanks, at least one")
        return self


class LeReT(Section):
    """A query a hop, written by a model that sees what was found so far; no answer (LeReT, arXiv 2410.23214)."""

    name: Literal["leret"]
    hops: Positive = 2
    order: Literal["rank", "score"] = "rank"
    """Of all passages found: by their rank in their own search, or by the retriever's score, as published."""
    template: Literal["plain", "chatml", "chat", "bare"] = "plain"
    """As for search_r1; ``chat``: the model's own chat template."""
    max_tokens: int = Field(2048, ge=16)
    """Of a prompt without instructions and demonstrations; a longer one loses its last passages, whole ones."""
    few_shot_tokens: int = Field(0, ge=0)
    """Of a prompt with demonstrations; a longer one loses the last of these. 0: as max_tokens."""


class Pick(Section):
    """Passages are picked one after the other; no LLM, unless one reads them at the end."""

    name: Literal["pick"]
    picks: Positive = 2
    depth: int = Field(0, ge=0)
    """Length of the final ranking; the last pick fills it up. 0: as many as picks."""
    reader: bool = False
    """The generator answers from the picks, so that rewards of answers apply."""


class Retriever(Section):
    """The player that finds: a state in, K of N passages out. It learns, unless train.method lets another learn."""

    k: Positive = 3
    pool: Positive = 30
    """N: how many nearest passages compete."""
    search: Literal["dense", "sparse", "hybrid"] = "dense"
    """Which passages are nearest: by vector, by BM25 of the query's words, or by both, fused by rank. A retriever that
    learns draws its pool from this search, and then scores and chooses by vectors; one that does not learn returns
    the first K of the ranking as it is."""
    fusion: Literal["weighted", "rrf"] = "weighted"
    """Of hybrid: each side gives weight / rank (``weights``), or 1 / (60 + rank)."""
    weights: tuple[Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)]] = (0.8, 0.2)
    """Of the dense and of the sparse ranking, for fusion: weighted."""
    late_interaction: MaybePlace = ""
    """A multi-vector model (ColBERT), folder or hub name, that orders the first ``pool`` passages of the search anew;
    where the language model learns (agent, leret). Empty: none."""
    temperature: float = Field(0.05, gt=0)
    """Scores are divided by it before a retriever that learns is sampled; where the language model learns (agent,
    leret) nothing reads it."""
    candidates: Literal["corpus", "question"] = "corpus"
    """Search the whole corpus, or only the passages given with the question."""
    positions: Literal["none", "absolute", "random", "relative"] = "none"
    """How a tower of actions is told where a sentence stands (train.method pqn; ``harr/rag/policies/q_values.py``)."""
    state: Literal["json", "sep"] = "json"
    """History as HARR writes it (labelled lines, JSON hops) or as Q-RAG does (joined by [SEP])."""
    max_tokens: int = Field(256, ge=16)
    """Length limit of the state text; the oldest hops are dropped first."""

    @model_validator(mode="after")
    def _k_fits_pool(self) -> "Retriever":
        if self.k > self.pool:
            raise ValueError(
                f"k = {self.k} passages cannot be chosen from a pool of {self.pool}; lower k or raise pool"
            )
        if self.fusion == "rrf" and "weights" in self.model_fields_set:
            raise ValueError("weights are not read by fusion rrf; leave them out, or set fusion: weighted")
        return self


class Milvus(Section):
    """Our own passages; searched as ``retriever.search`` says, ``retriever.k`` of them."""

    kind: Literal["milvus"]
    collection: Literal["source", "corpus"] = "source"
    """The passages whose source has the name of the tool, or the whole corpus."""


class Web(Section):
    """What every source has that is asked query by query."""

    num_results: Positive = 2
    """Passages a search returns."""
    concurrency: Positive = 16
    """Queries at a time."""
    deadline_seconds: float = Field(15.0, gt=0)
    """One query with all its attempts."""
    record: MaybePlace = ""
    """A file that every answer is also written to, for a source of kind cassette."""


class Exa(Web):
    """The web, through Exa's search (`pip install 'harr[web]'`)."""

    kind: Literal["exa"]
    key_variable: str = "EXA_API_KEY"
    """Name of the environment variable with the key."""
    base_url: MaybeAddress = ""
    """Empty: that of Exa's own client."""
    category: str = ""
    """Such as ``news`` or ``publication``; empty: all of the web."""
    max_characters: Positive = 500
    """So much of a page's text."""


class Function(Web):
    """A source of your own: ``function(query, k)`` returns at most k passages (docs/sources.md)."""

    kind: Literal["function"]
    function: str
    """``package.module:function``."""


class Cassette(Section):
    """Answers that were recorded; a query that was not has none."""

    kind: Literal["cassette"]
    path: Place
    """JSON lines ``{tool, query, passages: [{id, title, text}]}``."""
    num_results: Positive = 2


Source = Annotated[Milvus | Exa | Function | Cassette, Field(discriminator="kind")]
Arm = Literal[
    "bm25",
    "frozen",
    "hybrid",
    "history",
    "rl_no_history",
    "infonce",
    "no_positions",
    "base",
    "warmstart",
    "few_shot",
    "few_shot_all",
    "sft",
    "full",
]


class Evaluate(Section):
    """Greedy play of every arm on the same questions."""

    max_questions: int = Field(0, ge=0)
    """0: all test questions."""
    arms: Several[Arm] = ("bm25", "frozen", "history", "full")
    seeds: Positive = 3
    """How often every trained arm is trained, each time with another seed."""
    candidates: Several[Literal["corpus", "question"]] = ("corpus",)
    """Where to search; metrics of ``question`` carry the prefix ``given_``."""
    pass_at: tuple[Positive, ...] = ()
    """Also sample every question, and report the share solved by at least one of k samples."""
    samples: Positive = 8
    batch_size: Positive = 512
    reader: Annotated[Server | Local | Scripted, Field(discriminator="kind")] | None = None
    """Who answers from what a pipeline without answers (leret) has found, so that answers are scored; null: nobody."""
    resamples: Positive = 10_000

    @model_validator(mode="after")
    def _can_be_played(self) -> "Evaluate":
        if not self.arms:
            raise ValueError("arms is empty; name at least one, e.g. [frozen, full]")
        if self.pass_at and max(self.pass_at) > self.samples:
            raise ValueError(f"pass_at {max(self.pass_at)} needs as many samples, found {self.samples}; raise samples")
        return self


def check_search(retriever: Retriever, evaluate: Evaluate, *, full_text: bool) -> None:
    """See that the index has what is searched, and that what is told of a search is read.

    Raises:
        ValueError: it is not.
    """
    search, by_words = retriever.search, {"bm25", "hybrid"} & set(evaluate.arms)
    if (by_words or search != "dense") and not full_text:
        what = f"the arm {min(by_words)}" if by_words else f"retriever.search {search}"
        raise ValueError(f"{what} needs the BM25 index; set index.full_text: true")
    if search != "dense" and retriever.candidates == "question":
        raise ValueError(
            f"retriever.search {search} is for candidates: corpus; given passages are not searched, "
            "they all compete; set retriever.search: dense"
        )
    unread = {"fusion", "weights"} & retriever.model_fields_set
    if unread and search != "hybrid" and "hybrid" not in by_words:
        raise ValueError(
            f"retriever.{min(unread)} is for search: hybrid and the arm hybrid, search is {search}; leave it out"
        )


class Preferences(Section):
    """How queries are tried and compared, where they are what is learnt (train.method leret)."""

    pool: Positive = 50
    """Training questions that demonstrations are taken from."""
    validation: Positive = 50
    """Training questions that sets of demonstrations are compared on."""
    candidates: Positive = 12
    """Sets of demonstrations that are compared."""
    prompts: Positive = 3
    """The best so many of them become prompts, beside the one without demonstrations."""
    demonstrations: Positive = 3
    """At most so many in a prompt."""
    min_ap: Fraction = 0.0
    """A play is demonstrated where its average precision is above this."""
    bootstrap_temperature: float = Field(1.0, ge=0)
    """Of the plays that are demonstrated: their styles differ by chance."""
    temperature: float = Field(0.1, ge=0)
    """Of the queries that are compared: they differ by their prompts."""
    sampled_at_once: Positive = 128
    """Completions that are sampled together."""
    held_out: float = Field(0.1, ge=0, lt=1)
    """Share of the questions whose preferences are not learnt but predicted."""
    levels: Literal["adjacent", "all"] = "adjacent"
    """A query is preferred to those of the next lower score, or to all of lower ones."""
    min_margin: Fraction = 0.0
    """Least difference of scores of a pair."""
    max_pairs: int = Field(0, ge=0)
    """Of a prompt; 0: no limit."""
    gain: Literal["accumulated", "marginal"] = "accumulated"
    """Average precision of all passages so far, or of this hop's alone by what was missing before."""
    num_partitions: Positive = 1
    partition: int = Field(0, ge=0)
    """Of so many parts of the questions this one is played, so that several machines can share them."""

    @model_validator(mode="after")
    def _parts_are_there(self) -> "Preferences":
        if self.partition >= self.num_partitions:
            raise ValueError(f"partition {self.partition} is none of {self.num_partitions}; they count from 0")
        if self.prompts > self.candidates:
            raise ValueError(
                f"{self.prompts} prompts cannot be chosen from {self.candidates} candidates; lower prompts or raise "
                "candidates"
            )
        return self


class Lengths(Section):
    """Evaluation over lengths (`python -m flows.lengths`); options of the command go first."""

    sentences: Several[Positive] = (100, 1000, 10_000, 40_000)
    """40,000 sentences of a book are about a million tokens; of the fictional encyclopaedia, 350,000."""
    questions: int = Field(0, ge=0)
    """Stories; 0: as many as the run's test split."""
    seed: Seed = 1


class Weight(Section):
    """Weight of a reward term, and the training steps ``start`` <= step < ``end`` in which it counts."""

    weight: float
    start: int = Field(0, ge=0)
    end: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _ends_after_its_start(self) -> "Weight":
        if self.end is not None and self.end <= self.start:
            raise ValueError(f"a weight that starts at step {self.start} cannot end at step {self.end}; raise end")
        return self


SEMANTIC, UNJUDGED = "semantic", "semantic_f1"
"""A term that a judge grades, and what stands in for it where there is none."""
Terms = dict[str, float | Weight | tuple[Weight, ...]]
"""Reward terms by name: a weight, or several, each for its own steps."""


def one_at_a_time(terms: Terms) -> Terms:
    """The terms as they are, where no two weights of a term count in the same step.

    >>> one_at_a_time({"graph": (Weight(weight=0.4, end=30), Weight(weight=0.25, start=29))})
    Traceback (most recent call last):
    ...
    ValueError: graph has two weights at step 29; let one end where the next starts
    """
    for name, weights in terms.items():
        if weights == ():
            raise ValueError(f"{name} has an empty list of weights; give at least one")
        steps = weights if isinstance(weights, tuple) else ()
        for one, two in pairwise(sorted(steps, key=lambda weight: weight.start)):
            if one.end is None or two.start < one.end:
                raise ValueError(f"{name} has two weights at step {two.start}; let one end where the next starts")
    return terms


TERM_NAMES = (
    "answer_f1", "answer_em", "substring_em", "rouge_l", "recall", "all_gold", "mrr", "format", "graph", "length",
    "search_cost", "context_length", UNJUDGED, "relevance", "novelty", "misses", "judge", SEMANTIC, "answer_similarity",
)  # fmt: skip
"""What ``reward.terms`` may name, beside functions (``harr/rag/scoring/reward.py``)."""
COSTS = ("length", "search_cost", "context_length")
"""Terms that are 0 at most."""


def check_terms(terms: Terms, mix: str, *, judged: bool) -> None:
    """See that a reward can be made of terms.

    Raises:
        ValueError: a term is unknown, or there twice; no weight counts; a judge is missing, or has nothing to judge; or
            ``mix`` l2 would meet a negative reward.
    """
    weights = {
        name: [w if isinstance(w, float) else w.weight for w in _several(given)] for name, given in terms.items()
    }
    every = [weight for several in weights.values() for weight in several]
    if unknown := [name for name in terms if name not in TERM_NAMES and ":" not in name]:
        raise ValueError(
            f"unknown term {unknown[0]} in terms; known: {', '.join(TERM_NAMES)}, or package.module:function"
        )
    if not any(every):
        raise ValueError(f"terms: weights must be not all 0 (found {every})")
    if judged != bool({"judge", SEMANTIC} & set(terms)) and (judged or "judge" in terms):
        raise ValueError(
            f"judge is asked by the terms judge and {SEMANTIC} only; add one of them to terms, or leave judge out"
            if judged
            else "the term judge needs a model; give reward.judge"
        )
    if not judged and {SEMANTIC, UNJUDGED} <= set(terms):
        raise ValueError(f"without reward.judge the term {SEMANTIC} is {UNJUDGED}; leave one of them out")
    for name, several in weights.items() if mix == "l2" else ():
        if any(weight > 0 if name in COSTS else weight < 0 for weight in several):
            raise ValueError(
                f"mix l2 takes rewards of at least 0 and positive weights; leave {name} out, or set another mix"
            )


def _several(weights: float | Weight | tuple[Weight, ...]) -> tuple[float | Weight, ...]:
    return weights if isinstance(weights, tuple) else (weights,)


def told_name(term: str, *, judged: bool) -> str:
    """What a term of ``reward.terms`` is called in metrics: without a judge ``semantic`` is answer F1, and says so.

    >>> told_name("semantic", judged=True), told_name("semantic", judged=False), told_name("graph", judged=False)
    ('semantic', 'semantic_f1', 'graph')
    """
    return UNJUDGED if term == SEMANTIC and not judged else term
