"""An arm as a retriever in an application: its folder, over an index made by stages embed and index.

It is built as in evaluation (:func:`harr.builders.retrievers.arm_retriever`); the folder's harr.json says how it
searches, so no parameter file is needed.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from harr.arms import Arm
from harr.builders.encoder import trained_encoder
from harr.builders.places import Places
from harr.builders.retrievers import RetrieverInputs, arm_retriever, open_corpus, retriever_function
from harr.embed.encoder import Encoder
from harr.errors import IndexMismatch, ModelError, ParamsError, one_line
from harr.index.corpus import Corpus
from harr.io.files import read_json
from harr.io.model_folder import FORMAT
from harr.params import Params
from harr.params.embed import EncoderParams
from harr.params.faults import read_section
from harr.params.fields import PathOrName, Section
from harr.params.index import IndexParams
from harr.params.retriever import RetrieverParams
from harr.services.model_registry import is_registered, local_folder
from harr.types import Hop, Passage, Question, Retrieval, Retriever, Search


class TrainedRetriever:
    """An arm that answers searches with passages of its corpus. Use it in a ``with`` statement, or :meth:`close` it.

    Several threads may call it; it answers one after the other.
    """

    def __init__(self, policy: Retriever, *, statuses: bool = False, opened: ExitStack | None = None) -> None:
        """Wrap a policy. ``statuses``: whether its states have hop statuses; ``opened``: what :meth:`close` closes."""
        self.policy = policy
        self.statuses = statuses
        self._opened = opened or ExitStack()
        self._lock = threading.Lock()

    @classmethod
    def load(cls, folder: str | Path, index: str | Path | AbstractContextManager[Corpus] = ".") -> "TrainedRetriever":
        """Open a retriever, trained or not.

        Args:
            folder: stage merge's output, models/retriever, wherever it is now; or a model in MLflow's registry,
                ``models:/NAME@champion``. The registry is the project's, or else that of MLFLOW_TRACKING_URI; the
                folder is kept in the project's .harr/registry.
            index: a project's folder, with data/corpus, data/vectors and data/index; its params.yaml names the Milvus
                server, if any. The corpus may differ from that of training if the same encoder embedded it. Or a
                corpus that another package opens without a project, closed with the retriever.

        Raises:
            ModelError: stage merge did not write the folder for a retriever that searches a corpus.
            IndexMismatch: the index is another encoder's.
            DamagedFile: a file changed since it was written.
            ServiceUnavailable: Milvus or MLflow does not answer.
            ParamsError: it is another package's retriever, and that package is not installed.
        """
        project = Path(index if isinstance(index, str | Path) else ".").expanduser().resolve()
        registered = is_registered(folder)
        place = local_folder(str(folder), project) if registered else Path(folder).expanduser().resolve()
        facts, section = read_facts(place)
        with ExitStack() as opened:
            corpus = opened.enter_context(_corpus_of(project) if isinstance(index, str | Path) else index)
            policy = open_retriever(facts, section, place, corpus, project)
            return cls(policy, statuses=facts["statuses"], opened=opened.pop_all())
        raise AssertionError

    def session(self, question: str) -> "Session":
        """Begin a session about one question, which remembers its hops."""
        return Session(self, Question("", question))

    def search(self, searches: Sequence[Search | str]) -> list[tuple[Passage, ...]]:
        """Return the passages of many searches at once, best first; a text is a question's first search.

        :meth:`Session.asking` returns the searches of sessions.
        """
        return [retrieval.passages for retrieval in self.retrieve([_as_search(search) for search in searches])]

    async def asearch(self, searches: Sequence[Search | str]) -> list[tuple[Passage, ...]]:
        """Call :meth:`search` in a thread, without blocking the event loop."""
        return await asyncio.to_thread(self.search, searches)

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        """Return passages with their scores and the state that was read (:class:`harr.types.Retrieval`)."""
        with self._lock:
            return self.policy.retrieve(searches)

    def close(self) -> None:
        """Close the index."""
        self._opened.close()

    def __enter__(self) -> "TrainedRetriever":
        """Return the retriever."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the index."""
        self.close()


@dataclass
class Session:
    """One question and its finished hops; the next search reads all of them."""

    retriever: TrainedRetriever
    question: Question
    hops: list[Hop] = field(default_factory=list)
    excluded: set[str] = field(default_factory=set)
    """Ids of passages that searches no longer return."""
    _asked: str | None = None

    @property
    def searched(self) -> bool:
        """Return whether the last search still waits for its answer (:meth:`learned`)."""
        return self._asked is not None

    def asking(self, query: str = "", *, k: int = 0, thought: str = "") -> Search:
        """Return this session's search for a query, or for the question itself.

        ``k``: number of passages, 0 for as many as in training. ``thought``: what the agent wrote right before, for a
        retriever that reads it.
        """
        self._asked = query or self.question.text
        return Search(self.question, self._asked, (*self.hops,), frozenset(self.excluded), k=k, thought=thought)

    def search(self, query: str = "", *, k: int = 0, thought: str = "") -> tuple[Passage, ...]:
        """Return the passages for a query; takes the arguments of :meth:`asking`."""
        return self.retriever.search([self.asking(query, k=k, thought=thought)])[0]

    async def asearch(self, query: str = "", *, k: int = 0, thought: str = "") -> tuple[Passage, ...]:
        """Call :meth:`search` in a thread."""
        return (await self.retriever.asearch([self.asking(query, k=k, thought=thought)]))[0]

    def learned(self, answer: str, status: str = "") -> None:
        """Remember the answer to the last search, "" if its passages did not tell.

        ``status`` is FOUND, NOT_FOUND or AMBIGUOUS, for a retriever whose states have it; by default the answer
        decides.

        Raises:
            ParamsError: nothing was searched since the last answer.
        """
        if self._asked is None:
            raise ParamsError("learned() without a search before it; call search() first")
        self.hops.append(finish_hop(self._asked, answer, status, statuses=self.retriever.statuses))
        self._asked = None

    def picked(self, passages: Iterable[Passage]) -> None:
        """Remember picked passages, in order, for a retriever of pipeline ``pick``; searches no longer return them."""
        for passage in passages:
            self.hops.append(Hop("", passage.content))
            self.excluded.add(passage.id)


def finish_hop(query: str, answer: str, status: str, *, statuses: bool) -> Hop:
    """Return a finished hop; ``statuses``: whether the retriever's states have a hop's status.

    >>> finish_hop("Who?", "", "", statuses=True).status, finish_hop("Who?", "Ada", "", statuses=False).status
    ('NOT_FOUND', '')
    """
    return Hop(query, answer, (status or ("FOUND" if answer else "NOT_FOUND")) if statuses else "")


def conversation(messages: Sequence[tuple[str, str]]) -> tuple[str, list[tuple[str, str]]]:
    """Return the user's last message, and every earlier one with its reply, from pairs of role and text.

    Messages of other roles, such as system, are left out.

    >>> conversation([("user", "Who founded Acme?"), ("assistant", "Ada Brown"), ("user", "Where was she born?")])
    ('Where was she born?', [('Who founded Acme?', 'Ada Brown')])
    """
    turns: list[tuple[str, list[str]]] = []
    for role, text in messages:
        if role == "user":
            turns.append((text, []))
        elif role == "assistant" and turns:
            turns[-1][1].append(text)
    *before, (question, _) = turns
    return question, [(query, " ".join(replies)) for query, replies in before]


def _as_search(search: Search | str) -> Search:
    return Search(Question("", search), search) if isinstance(search, str) else search


def _corpus_of(project: Path) -> AbstractContextManager[Corpus]:
    """Return a context manager that opens a project's corpus."""
    settings = project / "params.yaml"
    searched = Params.load(settings).index if settings.exists() else IndexParams()
    return open_corpus(searched, Places.of_project(project))


def read_facts(folder: Path) -> tuple[dict[str, Any], RetrieverParams]:
    """Return a retriever's harr.json, and section ``retriever`` from it.

    Raises:
        ModelError: this version cannot read the file, or the folder is another method's.
    """
    path = folder / "harr.json"
    if not path.exists():
        raise ModelError(f"{folder} holds no harr.json; name the folder models/retriever that stage merge wrote")
    facts = read_json(path)
    if "positions" in facts:
        raise ModelError(
            f"{folder} holds towers of train.method pqn, which pick from the passages given with a question and search "
            "no corpus; use harr.builders.retrievers.trained_towers"
        )
    if facts.get("format") != FORMAT:
        raise ModelError(
            f"{path} has format {facts.get('format', 1)}, and {FORMAT} is read, which says which arm it is; "
            "run `dvc repro -f -s merge`"
        )
    try:
        return facts, RetrieverParams(**facts["retriever"])
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(
            f"{path} does not say how the retriever searches ({one_line(error, 300)}); run `dvc repro -f -s merge`"
        ) from None


def arm_of(facts: Mapping[str, Any]) -> Arm:
    """Return the record of a folder's arm, limited to how it searches."""
    other = {name: facts[name] for name in ("function", "settings") if name in facts}
    return Arm("", **{name: facts[name] for name in ("trained", "search", "query", "history")}, **other)


def searches_words(facts: Mapping[str, Any], section: RetrieverParams) -> bool:
    """Return whether a retriever may use the full-text index, as another package's may; ``facts`` and ``section`` are
    from :func:`read_facts`."""
    return "function" in facts or (facts["search"] or section.search) != "dense"


def open_retriever(
    facts: dict[str, Any],
    section: RetrieverParams,
    folder: Path,
    corpus: Corpus,
    project: Path,
    prepare: Callable[[Encoder], Encoder] = lambda encoder: encoder,
) -> Retriever:
    """Return the retriever over a corpus; ``facts`` and ``section`` are from :func:`read_facts`.

    ``prepare`` is applied to the encoder, if there is one.

    Raises:
        IndexMismatch: another encoder embedded the passages.
        ParamsError: it is another package's, and that package is not installed.
    """
    _check_vectors(corpus, facts, folder, project)
    arm = arm_of(facts)
    if arm.function:
        retriever_function(arm.function, str(folder / "harr.json"))
    encoder = None
    if arm.reads_vectors:
        encoder = prepare(trained_encoder(EncoderParams(model=str(folder), **facts["encoder"]), folder))
    return arm_retriever(arm, section, encoder, corpus, "corpus", folder if arm.trained else None)


class TrainedFolder(Section):
    """The ``settings`` of :func:`search_by_folder`."""

    folder: PathOrName
    """Stage merge's output ``models/retriever``, of this project or another one with the same vectors."""


def search_by_folder(inputs: RetrieverInputs) -> Retriever:
    """Return a trained retriever, over the run's index, for an agent that learns (``retriever.function``).

    Raises:
        ParamsError: the settings are invalid.
        ModelError, IndexMismatch: as :meth:`TrainedRetriever.load`.
    """
    place = read_section(TrainedFolder, inputs.settings, "settings of search_by_folder").folder
    folder, project = Path(place).expanduser().resolve(), Path.cwd()
    facts, section = read_facts(folder)
    corpus = Corpus(inputs.passages, inputs.vectors, inputs.index, inputs.tables)
    return open_retriever(facts, section.model_copy(update={"k": inputs.k}), folder, corpus, project)


def _check_vectors(corpus: Corpus, facts: dict[str, Any], folder: Path, project: Path) -> None:
    """Refuse an index whose passages another encoder embedded.

    Raises:
        IndexMismatch: another encoder did; names it.
    """
    if corpus.check:
        corpus.check(folder, facts)
        return
    identity = corpus.vectors.manifest["encoder"]
    if facts["documents"] != identity:
        raise IndexMismatch(
            f"{folder} reads states for vectors of encoder {facts['documents']}, but those of {project} were made by "
            f"{identity}; name the project that it was trained in, or embed this corpus with the same section encoder"
        )
