"""The arms of an evaluation: players of the same questions with which the trained model is compared.

Every fact about an arm is in its record in :data:`ARMS`. A new arm is one more record here; another package's arm
is named in ``evaluate.arms`` of params.yaml instead, and gets its record from :func:`retriever_arm`,
:func:`method_arm` or :func:`player_arm`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

TRAINED = "trained"
"""The arm that stage train made; all others are compared with it."""
Rewriting = Literal["", "last_answer", "first_answer", "all_answers", "question_query", "oracle_query"]
"""The rules in ``harr/rag/retrieval/rewritten.py``, by name; empty: none."""
Ranking = Literal["", "dense", "sparse", "hybrid", "gold", "nothing"]
"""A ranking that is returned unchanged; empty: the encoder's."""


@dataclass(frozen=True)
class Arm:
    """One way to play: which retriever searches, which language model writes, and what each of them sees."""

    says: str
    """What the arm is; the end of a sentence that begins with its name."""
    look: str = ""
    """Its colour (``harr/report/plots.py``) and marker in plots; empty: spare ones."""
    learner: Literal["retriever", "language_model", "either"] = "retriever"
    """Which player learns in the runs that this arm belongs to."""
    trained: bool = False
    """Whether it is trained, once per seed; otherwise it plays once, untrained."""
    method: str = ""
    """The method that trains it, one of ours or another package's ``package.module:name``; empty: train.method."""
    inside: str = ""
    """The subfolder of ``trained`` into which its training writes this arm; empty: the arm has its own folder."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of section ``retriever`` that differ from the run's."""
    history: bool = True
    """Whether the retriever sees the finished hops."""
    search: Ranking = ""
    """The ranking that it returns unchanged, whatever ``retriever.search`` says; empty: its encoder ranks."""
    query: Rewriting = ""
    """The rule that rewrites the query; empty: none."""
    ceiling: bool = False
    """Whether it reads what no retriever can know: an upper bound, not a competitor."""
    untaught: bool = False
    """Whether the language model is as it was before stage generator taught it."""
    taught: bool = False
    """Whether it exists only if stage generator taught the language model."""
    demonstrations: Literal["", "best", "all"] = ""
    """The sets of demonstrations from stage filter in the language model's prompt."""
    player: str = ""
    """Another package's player, ``package.module:name``."""
    function: str = ""
    """Another package's retriever, ``package.module:name``."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of another package's retriever, method or player."""

    @property
    def needs_links(self) -> bool:
        """Return whether it learns from the features of ``retriever.link_features``."""
        return self.overrides.get("learns") == "link_features"

    @property
    def can_be_served(self) -> bool:
        """Return whether it searches, and without gold, so that it can be served."""
        return not (self.ceiling or self.search == "nothing")

    @property
    def reads_words(self) -> bool:
        """Return whether it uses full-text search."""
        return self.search in ("sparse", "hybrid")

    @property
    def reads_vectors(self) -> bool:
        """Return whether an encoder reads its queries or states; otherwise it searches only by words."""
        return self.search in ("", "dense", "hybrid")

    @property
    def reads_history(self) -> bool:
        """Return whether an encoder reads the finished hops."""
        return self.history and not self.search


def _rewriting(does: str, prefix: str, search: Ranking, colour: str) -> dict[str, Arm]:
    """Return the untrained arms that search for rewritten queries, one arm per rule."""
    rules: dict[Rewriting, tuple[str, str]] = {
        "last_answer": ("the last answer before the query", "<"),
        "first_answer": ("the first answer before the query", ">"),
        "all_answers": ("all answers so far before the query", "d"),
        "question_query": ("the question before the query", "p"),
    }
    oracle = Arm(
        f"{does} the query with the name that its pronoun stands for, which only the script knows: a ceiling",
        f"{colour} *",
        history=False,
        search=search,
        query="oracle_query",
        ceiling=True,
    )
    plain = {
        f"{prefix}{rule}": Arm(f"{does} {what}", f"{colour} {marker}", history=False, search=search, query=rule)
        for rule, (what, marker) in rules.items()
    }
    return plain | {f"{prefix}oracle_query": oracle}


ARMS = {
    "bm25": Arm("is full-text search", "grey s", search="sparse"),
    "frozen": Arm(
        "is the untrained encoder and sees the current query only",
        "blue o",
        history=False,
    ),
    **_rewriting("is the untrained encoder reading", "", "", "brown"),
    **_rewriting("is full-text search of", "bm25_", "sparse", "slate"),
    "hybrid": Arm("fuses the rankings of both", "olive h", search="hybrid"),
    "gold": Arm("finds the gold passages first: a ceiling", "olive *", search="gold", ceiling=True),
    "nothing": Arm(
        "finds nothing, so that the language model answers from memory: a floor", "grey v", search="nothing"
    ),
    "history": Arm("is the same encoder reading the finished hops as well", "orange ^"),
    "thought": Arm(
        "is the same encoder reading the question and, in place of the hops, what the agent wrote before the query",
        "olive d",
        overrides={"state": "thought"},
    ),
    "rl_no_history": Arm(
        "was trained the same way, but blind to the finished hops", "purple v", trained=True, history=False
    ),
    "infonce": Arm(
        "was trained by the gold passages, against others and its own near misses, with as many questions and updates",
        "sky P",
        trained=True,
        method="infonce",
    ),
    "warm_start": Arm(
        "is the trained model after its supervised warm start, before any reward",
        "sky D",
        trained=True,
        inside="warm_start",
    ),
    "links_alone": Arm(
        "was trained the same way with a frozen encoder: only the link term learns",
        "purple D",
        trained=True,
        overrides={"learns": "link_features"},
    ),
    "query_adapter": Arm(
        "was trained the same way with a frozen encoder: only a linear map of its vector learns",
        "purple P",
        trained=True,
        overrides={"learns": "query_adapter"},
    ),
    "no_positions": Arm(
        "was trained without the positions of passages",
        "purple v",
        trained=True,
        overrides={"positions": "none"},
    ),
    "base": Arm(
        "is the language model before any training",
        "grey s",
        learner="language_model",
        untaught=True,
    ),
    "warmstart": Arm(
        "is the language model taught by examples, with which training by reward begins",
        "blue o",
        learner="language_model",
        taught=True,
    ),
    "few_shot": Arm(
        "is the same model shown the best set of demonstrations",
        "orange ^",
        learner="language_model",
        demonstrations="best",
    ),
    "few_shot_all": Arm(
        "is the same model shown all sets of demonstrations", "purple v", learner="language_model", demonstrations="all"
    ),
    "sft": Arm(
        "was taught to write without demonstrations what it wrote best with them",
        "blue o",
        learner="language_model",
        trained=True,
        inside="sft",
    ),
    TRAINED: Arm("was trained by reward", "green D", learner="either", trained=True),
}


def retriever_arm(function: str, settings: Mapping[str, Any]) -> Arm:
    """Return the record of an arm with another package's retriever.

    >>> retriever_arm("mine.search:Retriever", {"depth": 20}).says
    'is the retriever mine.search:Retriever'
    """
    return Arm(f"is the retriever {function}", function=function, settings=settings)


def method_arm(method: str, settings: Mapping[str, Any]) -> Arm:
    """Return the record of an arm trained by another package's method.

    >>> method_arm("mine.learn:METHOD", {}).says
    'was trained by mine.learn:METHOD, with as many questions and updates'
    """
    says = f"was trained by {method}, with as many questions and updates"
    return Arm(says, trained=True, method=method, settings=settings)


def player_arm(player: str, settings: Mapping[str, Any]) -> Arm:
    """Return the record of the arm ``trained`` as another package's player plays it.

    >>> player_arm("mine.choose:best", {}).says
    'is the trained model as mine.choose:best plays it'
    """
    says = f"is the trained model as {player} plays it"
    return Arm(says, learner="language_model", trained=True, inside=".", player=player, settings=settings)
