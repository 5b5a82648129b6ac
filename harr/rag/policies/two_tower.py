"""Two encoders as a policy: one reads the state, one the sentences that may be picked next (Q-RAG, arXiv 2511.07328).

A question has its own document: its candidate passages, in order. A sentence is encoded once for all its documents and
places; only the rotation by position differs.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harr.compute import distributed
from harr.corpus.passages import Passages
from harr.embed.encoder import Encoder
from harr.rag.policies.dense import unique
from harr.rag.policies.q_values import SCALE, positions, rotary_q_values, select_action
from harr.rag.policies.sentence_vectors import Sentences
from harr.rag.policies.state import StateFormat, separator_of
from harr.types import Hop, Passage, Question, Retrieval, Search, Shortened

BLOCK = 1024
"""Number of sentences scored at a time: their vectors stay in the processor's cache."""


@dataclass(frozen=True, slots=True)
class Document:
    """The candidates of one question: its id, passages in order, and the place of each passage's id."""

    name: str
    passages: tuple[Passage, ...]
    place: Mapping[str, int]

    def picked(self, search: Search) -> list[int]:
        """Return the places picked before this search, ascending."""
        return sorted(self.place[name] for name in search.exclude_ids)

    def available(self, picked: Sequence[int]) -> Tensor:
        """Return which places may still be picked, (N,)."""
        available_N = torch.ones(len(self.passages), dtype=torch.bool)
        available_N[list(picked)] = False
        return available_N


@dataclass
class TwoTowerPolicy:
    """A retriever that picks passages of the question's own document by their value.

    Args:
        states, actions: the two towers; the same encoder twice if nothing was trained.
        passages: the corpus of the candidates; None if ``documents`` holds all of them.
        mode: kind of positions (``harr/rag/policies/q_values.py``).
        scale: factor of the inner product in a value.
        pick_order: order of the picks in a state: ``document``, or as picked.
        draw: seed of random positions, together with the document.
        temperature: temperature of the Boltzmann choice among the best five.
        max_tokens, pick_tokens: length limits of a state, and of each pick that it shows (0: none).
        sampling: random numbers for acting; None takes the best.
        sentences, documents: caches of encoded sentences and of documents.
    """

    states: Encoder
    actions: Encoder
    passages: Passages | None
    mode: str
    temperature: float
    max_tokens: int
    sampling: torch.Generator | None = None
    candidates: str = "question"
    sentences: Sentences = field(default_factory=Sentences)
    documents: dict[str, Document] = field(default_factory=dict)
    pick_tokens: int = 0
    scale: float = SCALE
    pick_order: str = "document"
    draw: tuple[int, ...] = ()

    @property
    def facts(self) -> dict[str, Any]:
        """Return the settings of values, which must be the same in training and use."""
        return {
            "positions": self.mode,
            "value_scale": self.scale,
            "pick_order": self.pick_order,
            "normalize": self.states.normalize,
        }

    @property
    def frozen(self) -> bool:
        """Return False: both towers learn."""
        return False

    link_features = query_adapter = None
    """Nothing learns but the towers: values depend on vectors and positions alone."""

    @property
    def encoder(self) -> Encoder:
        """Return the tower that reads the state."""
        return self.states

    @property
    def encoders(self) -> tuple[Encoder, ...]:
        """Return both towers."""
        return self.states, self.actions

    @property
    def prompt(self) -> str:
        """Return the prompt before a state."""
        return self.states.query_prompt

    def greedy(self) -> "TwoTowerPolicy":
        """Return the same towers, with their current weights, that take the best; sentences are encoded again."""
        return replace(self, sampling=None, sentences=Sentences())

    def encode_states(self, texts: Sequence[str]) -> Tensor:
        """Return the vectors of states, (U, D), without gradient; with several processes, each encodes a share."""
        encode = partial(self.states.encode, prompt=self.prompt, max_tokens=self.max_tokens)
        return torch.from_numpy(distributed.all_gather(texts, encode))

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        """Return one pick for every search, or its ``k`` best, and none if all were picked before.

        Distinct states and sentences are encoded once.
        """
        documents = self.prepare_documents([search.question for search in searches])
        texts, cuts = self.state_texts(searches)
        distinct, state_of = unique(texts)
        states_UD = self.encode_states(distinct)
        retrievals = []
        for search, document, text, row, cut in zip(searches, documents, texts, state_of.tolist(), cuts, strict=True):
            picked = document.picked(search)
            q_N, available_N = self.critics(states_UD[row], document, picked).sum(0), document.available(picked)
            count = min(max(search.k, 1), int(available_N.sum()))
            if count == 1:
                chosen = select_action(q_N[None], available_N[None], self.temperature, self.sampling).tolist()
            else:
                chosen = q_N.masked_fill(~available_N, -torch.inf).topk(count).indices.tolist()
            passages = tuple(document.passages[place] for place in chosen)
            value = float(q_N[chosen[0]]) if chosen else None
            retrievals.append(Retrieval(passages, state=text, value=value, shortened=cut))
        return retrievals

    def prepare_documents(self, questions: Sequence[Question]) -> list[Document]:
        """Return the candidates of several questions; their sentences are encoded together, in whole batches."""
        documents = [self.document(question) for question in questions]
        distinct = {question.id: document for question, document in zip(questions, documents, strict=True)}
        rows = [self.rows(document) for document in distinct.values()]
        self.sentences.prepare(np.concatenate(rows), self.encode_actions)
        return documents

    def document(self, question: Question) -> Document:
        """Return the candidates of a question, looked up once."""
        if question.id in self.documents or self.passages is None:
            return self.documents[question.id]
        rows = self.passages.rows_of(question.candidate_ids)
        return self.attach_document(question, tuple(self.passages.take([rows[pid] for pid in question.candidate_ids])))

    def state_texts(self, searches: Sequence[Search]) -> tuple[list[str], list[Shortened]]:
        """Return question and picks, joined by [SEP], and what they lost to the limit: the first picks."""
        ordered = list(searches)
        for number, search in enumerate(searches if self.pick_order == "document" else ()):
            document = self.document(search.question)
            picked = tuple(Hop("", document.passages[place].content) for place in document.picked(search))
            ordered[number] = replace(search, hops=picked)
        between = separator_of(self.states.model.tokenizer)
        form = StateFormat("sep", True, self.max_tokens, self.prompt, self.pick_tokens, between)
        return form.texts(ordered, self.states)

    def critics(self, state_D: Tensor, document: Document, picked: Sequence[int]) -> Tensor:
        """Return both critics of all sentences of a document, (2, N), without gradient."""
        rows_N = self.rows(document)
        self.sentences.prepare(rows_N, self.encode_actions)
        position_N = None if self.mode == "none" else self.positions(document, picked)
        critics_CN = torch.empty(2, len(rows_N))
        for start in range(0, len(rows_N), BLOCK):
            block = slice(start, start + BLOCK)
            angles = None if position_N is None else position_N[block]
            critics_CN[:, block] = rotary_q_values(state_D, self.sentences.gather(rows_N[block]), angles, self.scale)
        return critics_CN

    def positions(self, document: Document, picked: Sequence[int]) -> Tensor:
        """Return the positions of all sentences, (N,); a document's random ones change only with ``draw``."""
        rng = np.random.default_rng([zlib.crc32(document.passages[0].id.encode()), *self.draw])
        return torch.from_numpy(positions(self.mode, len(document.passages), picked, rng))

    def rows(self, document: Document) -> NDArray[np.int64]:
        """Return the row numbers of a document's sentences, (N,); looked up once."""
        return self.sentences.document(document.name, lambda: [passage.content for passage in document.passages])

    def encode_actions(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the action tower's vectors of sentences, (n, D); with several processes, each encodes a share."""
        return distributed.all_gather(texts, partial(self.actions.encode, prompt=self.actions.passage_prompt))

    def attach_document(self, question: Question, passages: tuple[Passage, ...]) -> Document:
        """Give a question its document; :meth:`clear` removes all documents."""
        place = {passage.id: number for number, passage in enumerate(passages)}
        self.documents[question.id] = Document(question.id, passages, place)
        return self.documents[question.id]

    def clear(self) -> None:
        """Drop all documents; the vectors of their sentences stay."""
        self.documents.clear()
        self.sentences.clear()

    def invalidate(self, texts: Sequence[str] | None = None) -> None:
        """Mark these sentences (None: all) for encoding again at their next use, after the action tower has changed."""
        self.sentences.invalidate(texts)
