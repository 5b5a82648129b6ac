"""A trained retriever in mteb (arXiv 2210.07316), with the history of a conversation, and tasks in folders.

The output of stage merge is also a stock model of sentence-transformers, which ``mteb.evaluate`` accepts as it is. But
mteb joins the turns of a conversation to one text, while :class:`MtebSearch` writes the state used in training.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harr_ir.beir import BeirParams, open_folder

from harr.builders.encoder import build_encoder, trained_encoder
from harr.builders.trained import conversation, finish_hop, read_facts
from harr.errors import CorpusError, ModelError, one_line
from harr.io.files import fingerprint
from harr.io.model_folder import DOCUMENT, file_hashes, find_folder
from harr.params.embed import EncoderParams
from harr.params.retriever import RetrieverParams
from harr.rag.policies.state import StateFormat, separator_of
from harr.types import Passage, Question, Search

QUERIES = 64
"""Number of queries scored against all passages at once."""


class MtebSearch:
    """A search model for mteb: passages by the untouched encoder, queries by the trained one, in memory.

    ``folder``: models/retriever, wherever it is, or an encoder, which then reads only the last turn.

    Raises:
        ModelError: the model ranks by more than vectors (``retriever.link_features``).
    """

    def __init__(self, folder: str | Path) -> None:
        import mteb

        place = Path(folder)
        if (place / "harr.json").exists():
            facts, section = read_facts(place)
            if section.link_features or facts["search"] or facts["query"]:
                raise ModelError(
                    f"{folder} ranks by more than a vector, which mteb's search cannot tell; `harr evaluate` plays it"
                )
            encoder: dict[str, Any] = facts["encoder"]
            self._states = trained_encoder(EncoderParams(model=str(place), **encoder), place)
            own = str(place / DOCUMENT) if (place / DOCUMENT).is_dir() else facts["base_model"]
            self._passages = build_encoder(EncoderParams(model=own, **encoder))
            history, self._statuses = facts["history"], facts["statuses"]
        else:
            section, history, self._statuses = RetrieverParams(state="sep"), False, False
            self._states = self._passages = build_encoder(EncoderParams(model=str(folder)))
        self._prompt = self._states.query_prompt if history else self._states.plain_prompt
        between = separator_of(self._states.model.tokenizer)
        cut = section.pick_tokens
        self._format = StateFormat(section.state, history, section.max_tokens, self._prompt, cut, between)
        meta = {"name": f"harr/{place.name}", "revision": fingerprint(file_hashes(find_folder(str(folder))))}
        self.mteb_model_meta = mteb.models.ModelMeta.create_empty(overwrites=meta)
        self._ids: list[str] = []
        self._vectors_ND = torch.empty(0)

    def index(self, corpus: Any, **options: Any) -> None:
        """Embed a corpus: rows with ``id``, ``text`` and, optionally, ``title``."""
        passages = [Passage(str(row["id"]), row["text"], row.get("title") or "") for row in corpus]
        self._ids = [passage.id for passage in passages]
        texts = [passage.content for passage in passages]
        self._vectors_ND = torch.from_numpy(self._passages.encode(texts, prompt=self._passages.passage_prompt))

    def search(
        self, queries: Any, *, top_k: int, top_ranked: Mapping[str, Sequence[str]] | None = None, **options: Any
    ) -> dict[str, dict[str, float]]:
        """Return the scores of the ``top_k`` best passages of every query; ``top_ranked``: of these passages only."""
        names = [str(row["id"]) for row in queries]
        searches = [
            as_search(name, row["text"], statuses=self._statuses) for name, row in zip(names, queries, strict=True)
        ]
        states, _ = self._format.texts(searches, self._states)
        found_QD = self._states.encode(states, prompt=self._prompt, max_tokens=self._format.max_tokens)
        row_of = {name: row for row, name in enumerate(self._ids)} if top_ranked else {}
        found: dict[str, dict[str, float]] = {}
        for first in range(0, len(names), QUERIES):
            scores_QN = torch.from_numpy(found_QD[first : first + QUERIES]) @ self._vectors_ND.T
            for name, scores_N in zip(names[first : first + QUERIES], scores_QN, strict=True):
                if top_ranked:
                    kept = torch.tensor([row_of[one] for one in top_ranked[name]])
                    scores_N = torch.full_like(scores_N, -np.inf).index_copy(0, kept, scores_N[kept])
                best, rows = scores_N.topk(min(top_k, len(top_ranked[name]) if top_ranked else len(self._ids)))
                found[name] = dict(zip((self._ids[row] for row in rows.tolist()), best.tolist(), strict=True))
        return found


def as_search(name: str, query: Any, *, statuses: bool) -> Search:
    """Return a query of mteb as a search: a text, or a conversation read as `harr serve` reads a chat, with earlier
    turns as finished hops.

    >>> said = [("user", "Who founded Acme?"), ("assistant", "Ada Brown"), ("user", "Where was she born?")]
    >>> found = as_search("q", [{"role": role, "content": text} for role, text in said], statuses=False)
    >>> found.question.text, found.query, [(hop.query, hop.answer) for hop in found.hops]
    ('Where was she born?', 'Where was she born?', [('Who founded Acme?', 'Ada Brown')])
    """
    if isinstance(query, str):
        return Search(Question(name, query), query)
    said = [(turn["role"], turn["content"]) if isinstance(turn, Mapping) else ("user", str(turn)) for turn in query]
    asked, before = conversation(said)
    return Search(Question(name, asked), asked, tuple(finish_hop(*turn, "", statuses=statuses) for turn in before))


def task_of(name: str) -> Any:
    """Return a task of mteb: a folder in BEIR's layout, or one that mteb knows by name.

    Raises:
        CorpusError: it is neither, or the folder lacks a file.
    """
    import mteb

    folder = Path(name)
    if folder.is_dir():
        return _of_folder(folder)
    try:
        return mteb.get_task(name)
    except KeyError:
        raise CorpusError(f"--tasks {name} is neither a folder in BEIR's layout nor a task of mteb") from None


def _of_folder(folder: Path) -> Any:
    """Return a task over the files of a folder; their content is its revision."""
    import mteb
    from datasets import Dataset

    source = open_folder(BeirParams(root=str(folder)))
    asked = list(source.test)
    passages = [{"id": one.id, "title": one.title, "text": one.text} for one in source.passages]
    queries = [{"id": one.id, "text": one.text} for one in asked]
    relevant = {one.id: dict(zip(one.gold_ids, one.grades, strict=True)) for one in asked}
    metadata = mteb.TaskMetadata(
        name=folder.resolve().name,
        description=f"the folder {folder}",
        dataset={
            "path": str(folder),
            "revision": fingerprint({"queries": queries, "relevant": relevant, "passages": passages}),
        },
        type="Retrieval",
        category="t2t",
        eval_splits=["test"],
        eval_langs=["eng-Latn"],  # required by mteb, not used by harr
        main_score="ndcg_at_10",
    )
    rows = Dataset.from_list
    test: Any = {
        "corpus": rows(passages),
        "queries": rows(queries),
        "relevant_docs": relevant,
        "top_ranked": None,
    }

    class FolderTask(mteb.abstasks.AbsTaskRetrieval):
        """A task whose data is already loaded."""

        def load_data(self, *_: Any, **__: Any) -> None:
            """Set the data from the files."""
            self.dataset, self.data_loaded = {"default": {"test": test}}, True

    FolderTask.metadata = metadata
    return FolderTask()


def run_tasks(model: str, tasks: Sequence[str], out: Path) -> dict[str, float]:
    """Evaluate a model on tasks, and keep mteb's results in ``out``, where its own tools read them.

    Earlier results for the same model and the same files of a task are reused.

    Returns:
        The main score of every task, 0 to 1.

    Raises:
        CorpusError: a task is missing. ModelError: there is no such model.
    """
    import mteb

    found = [task_of(name) for name in tasks]
    revisions: dict[str, str] = {}
    for data in (task.metadata for task in found):
        if revisions.setdefault(data.name, data.revision) != data.revision:
            raise CorpusError(f"--tasks: two folders are called {data.name}; rename one, or evaluate each by itself")
    searcher = MtebSearch(model)
    cache = mteb.ResultCache(out)
    scores: dict[str, float] = {}
    try:
        for task in found:
            kept = cache.load_task_result(task.metadata.name, searcher.mteb_model_meta)
            # mteb by itself reuses a result of other files
            strategy = "always" if kept and kept.dataset_revision != task.metadata.revision else "only-missing"
            result = mteb.evaluate(
                searcher, task, cache=cache, overwrite_strategy=strategy, co2_tracker=False, show_progress_bar=False
            )
            scores |= {one.task_name: float(one.get_score()) for one in result.task_results}
    except (OSError, ConnectionError, ValueError) as error:
        raise CorpusError(f"--tasks {' '.join(tasks)}: {one_line(error, 300)}; connect, or name folders") from None
    return scores
