"""The dense retriever as a policy: the encoder reads the state, and K of the N nearest passages are chosen.

One class is the frozen, the learning and the exported retriever; they differ in their encoder and in whether they
sample. The policy embeds its own queries, so what is rolled out is what is trained.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harr.compute import distributed
from harr.corpus.passages import Passages
from harr.corpus.vectors import Vectors
from harr.embed.encoder import Encoder
from harr.index.passage_index import PassageIndex
from harr.rag.policies import plackett_luce
from harr.rag.policies.link_features import Candidates, CandidateScorer, LinkFeatures
from harr.rag.policies.query_adapter import QueryAdapter
from harr.rag.policies.state import StateFormat, separator_of
from harr.rag.retrieval.hybrid import DENSE, Fusion, pad
from harr.types import Retrieval, Search, Shortened

MAX_CACHED = 40_000_000
"""Maximum number of values in the cache of a frozen encoder's state vectors."""


@dataclass
class DensePolicy:
    """A retriever over an indexed corpus.

    Args:
        encoder: embeds states; passages were embedded by its base model and stay as they are.
        index: answers nearest-neighbour searches, in the main process. vectors: the same vectors by row number.
        k, pool, temperature: K passages are chosen from the N = ``pool`` nearest.
        fusion: which search finds candidates: by the state's vector, by the words of the query, or by both. Candidates
            are always scored, chosen and learnt by vectors.
        candidates: ``corpus`` searches the index; ``question`` ranks ``Question.candidate_ids`` only.
        style, history, max_tokens, pick_tokens: how a state is written (``harr/rag/policies/state.py``).
        sampling: random numbers for Plackett-Luce sampling; None takes the best K.
        keep: number of first ranks that are greedy while the others are sampled.
        link_features: further sources of candidates, and what scores them: a small term added to each score, or another
            package's scorer.
        frozen: whether the encoder never changes, so states are encoded once.
        query_adapter: a map of state vectors that learns over a frozen encoder.
    """

    encoder: Encoder
    index: PassageIndex
    vectors: Vectors
    passages: Passages
    k: int
    pool: int
    temperature: float
    candidates: str
    style: str
    history: bool
    max_tokens: int
    sampling: torch.Generator | None = None
    keep: int = 0
    fusion: Fusion = DENSE
    pick_tokens: int = 0
    link_features: CandidateScorer | None = None
    frozen: bool = False
    query_adapter: QueryAdapter | None = None
    _cache: dict[str, NDArray[np.float32]] = field(default_factory=dict, repr=False)

    @property
    def encoders(self) -> tuple[Encoder, ...]:
        """Return the encoders whose layers may learn."""
        return (self.encoder,)

    @property
    def prompt(self) -> str:
        """Return the prompt before a state, which depends on whether the state shows the history."""
        return self.encoder.query_prompt if self.history else self.encoder.plain_prompt

    def greedy(self) -> "DensePolicy":
        """Return the same policy, with its current weights, that takes its best K."""
        return replace(self, sampling=None)

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        """Answer all searches: every distinct state is encoded once, one index call, one gather.

        With several processes, each encodes its share of the states, and the main one chooses for all.
        """
        states, losses = self.write_states(searches)
        distinct, state_of = unique(states)
        states_UD = distributed.all_gather(distinct, self.encode)

        def choose() -> list[Retrieval]:
            pools, features_BNF = self._pools(searches, states_UD, state_of), None
            if self.link_features:
                search = self.candidates == "corpus"
                pools, features_BNF = self.link_features.links.gather(searches, pools, search=search)
            pool_BN = pad(pools)
            scores_BN = self._scores(states_UD[state_of], pool_BN)
            if self.link_features and features_BNF is not None:
                scores_BN = self.link_features.score(Candidates(searches, pool_BN, scores_BN, features_BNF))
            return self._choose(searches, states, pool_BN, scores_BN, features_BNF)

        chosen = distributed.main_process_only(choose)
        return [replace(retrieval, shortened=shortened) for retrieval, shortened in zip(chosen, losses, strict=True)]

    def write_states(self, searches: Sequence[Search]) -> tuple[list[str], list[Shortened]]:
        """Write the state of every search; return the texts and what each lost to the length limit."""
        between = separator_of(self.encoder.model.tokenizer)
        form = StateFormat(self.style, self.history, self.max_tokens, self.prompt, self.pick_tokens, between)
        return form.texts(searches, self.encoder)

    def _reached_gold(self, searches: Sequence[Search], pool_BN: NDArray[np.int64]) -> list[frozenset[str] | None]:
        """Return the gold passages among the candidates of every search."""
        row_of = self.passages.rows_of({pid for search in searches for pid in search.question.gold_ids})
        return [
            frozenset(pid for pid in search.question.gold_ids if row_of.get(pid) in pool)
            for search, pool in zip(searches, map(set, pool_BN.tolist()), strict=True)
        ]

    def encode(self, states: Sequence[str]) -> NDArray[np.float32]:
        """Return unit vectors of states, (U, D), without gradient."""
        vectors_UD = self.encode_plainly(states)
        if self.query_adapter is None:
            return vectors_UD
        with torch.no_grad():
            device = self.query_adapter.weight.device
            return self.query_adapter(torch.from_numpy(vectors_UD).to(device)).cpu().numpy()

    def encode_plainly(self, states: Sequence[str]) -> NDArray[np.float32]:
        """Return the encoder's own vectors of states, (U, D), without gradient; those of a frozen one are cached."""
        encode = partial(self.encoder.encode, prompt=self.prompt, max_tokens=self.max_tokens)
        if not self.frozen or not states:  # the share of one process may be empty
            return encode(states)
        if len(self._cache) * self.encoder.width > MAX_CACHED:
            self._cache.clear()
        if new := [state for state in dict.fromkeys(states) if state not in self._cache]:
            self._cache.update(zip(new, encode(new), strict=True))
        return np.stack([self._cache[state] for state in states])

    def _pools(
        self, searches: Sequence[Search], states_UD: NDArray[np.float32], state_of: NDArray[np.int64]
    ) -> list[NDArray[np.int64]]:
        """Return the candidate rows of every search, without those it excludes."""
        ids = {pid for search in searches for pid in search.exclude_ids}
        if self.candidates == "question":
            ids |= {pid for search in searches for pid in search.question.candidate_ids}
        rows = self.passages.rows_of(ids)
        excluded = [[rows[pid] for pid in search.exclude_ids if pid in rows] for search in searches]
        if self.candidates == "question":
            given = [[rows[pid] for pid in search.question.candidate_ids] for search in searches]
            ranked, limits = [np.asarray(given_rows, dtype=np.int64) for given_rows in given], [*map(len, given)]
        else:
            limits = [max(self.pool, search.k) for search in searches]
            depths = [limit + len(skip) for limit, skip in zip(limits, excluded, strict=True)]
            ranked = self._search(searches, states_UD, state_of, depths)
        skipped = zip(ranked, excluded, limits, strict=True)
        return [(rows_N[~np.isin(rows_N, skip)] if skip else rows_N)[:limit] for rows_N, skip, limit in skipped]

    def _search(
        self,
        searches: Sequence[Search],
        states_UD: NDArray[np.float32],
        state_of: NDArray[np.int64],
        depths: Sequence[int],
    ) -> list[NDArray[np.int64]]:
        """Return at least as many rows for each search as its depth, the same as for that search alone.

        A deeper vector search begins with the results of a shallower one, so one call answers all; a word search does
        not, since its fusion depends on the depth.
        """
        if not self.fusion.sparse:
            depths = [max(depths)] * len(depths)
        # A cut state may stand for several queries, which differ as words.
        keys = list(zip(depths, state_of.tolist(), (search.query for search in searches), strict=True))
        ranked: dict[tuple[int, int, str], NDArray[np.int64]] = {}
        for depth in dict.fromkeys(depths):
            keys_at_depth = list(dict.fromkeys(key for key in keys if key[0] == depth))
            vectors_PD = states_UD[[state for _, state, _ in keys_at_depth]]
            rows_PN = self.fusion.find(self.index, vectors_PD, [query for _, _, query in keys_at_depth], depth)
            ranked |= {key: rows_N[rows_N >= 0] for key, rows_N in zip(keys_at_depth, rows_PN, strict=True)}
        return [ranked[key] for key in keys]

    def _scores(self, states_BD: NDArray[np.float32], pool_BN: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return inner products of every state with its pool, without gradient; padding scores minus infinity."""
        rows_R, position_BN = np.unique(pool_BN, return_inverse=True)
        vectors_RD = self.vectors.take(np.maximum(rows_R, 0))
        blocks = [slice(start, start + 256) for start in range(0, len(pool_BN), 256)]
        scores = [np.einsum("bd,bnd->bn", states_BD[block], vectors_RD[position_BN[block]]) for block in blocks]
        return np.where(pool_BN < 0, -np.inf, np.concatenate(scores)).astype(np.float32)

    def _choose(
        self,
        searches: Sequence[Search],
        states: Sequence[str],
        pool_BN: NDArray[np.int64],
        scores_BN: NDArray[np.float32],
        features_BNF: NDArray[np.float32] | None,
    ) -> list[Retrieval]:
        """Order each pool (best first, or sampled), cut it to N without link features, and take its first K."""
        best_BN = np.lexsort((pool_BN, -scores_BN), axis=-1)
        if features_BNF is None:
            best_BN = best_BN[:, : max(self.pool, *(s.k for s in searches))]
        pool_BN = np.take_along_axis(pool_BN, best_BN, -1)
        scores_BN = np.take_along_axis(scores_BN, best_BN, -1)
        logits_BN = torch.from_numpy(scores_BN)
        logits_BN = torch.where(logits_BN.isneginf(), plackett_luce.MASKED, logits_BN / self.temperature)
        reached = self._reached_gold(searches, pool_BN) if self.sampling is None else [None] * len(searches)
        sizes_B = (pool_BN >= 0).sum(-1)
        chosen_B = np.minimum([search.k or self.k for search in searches], sizes_B)
        logprobs: list[float | None] = [None] * len(searches)
        if self.sampling is not None:
            kept_B = torch.from_numpy(np.minimum(self.keep, chosen_B))
            order_BN = plackett_luce.sample(logits_BN, self.sampling, kept_B)
            logits_BN = logits_BN.gather(-1, order_BN)
            scores_BN = np.take_along_axis(scores_BN, order_BN.numpy(), -1)
            pool_BN = np.take_along_axis(pool_BN, order_BN.numpy(), -1)
            best_BN = np.take_along_axis(best_BN, order_BN.numpy(), -1)
            logprobs = plackett_luce.log_prob(logits_BN, torch.from_numpy(chosen_B), kept_B).tolist()
        chosen_rows = [pool_BN[b, : chosen_B[b]] for b in range(len(searches))]
        rows = np.unique(np.concatenate(chosen_rows)).tolist()
        passage_of = dict(zip(rows, self.passages.take(rows), strict=True))
        return [
            Retrieval(
                passages=tuple(passage_of[row] for row in chosen_rows[b].tolist()),
                state=states[b],
                pool=tuple(pool_BN[b, : sizes_B[b]].tolist()) if self.sampling is not None else (),
                logprob=logprobs[b],
                kept=min(self.keep, int(chosen_B[b])) if self.sampling is not None else 0,
                scores=tuple(scores_BN[b, : chosen_B[b]].tolist()),
                features=None
                if features_BNF is None or self.sampling is None
                else features_BNF[b, best_BN[b, : sizes_B[b]]],
                reached=reached[b],
            )
            for b in range(len(searches))
        ]

    def logits(
        self,
        states_UD: Tensor,
        state_of_B: Tensor,
        pool_BN: NDArray[np.int64],
        features_BNF: NDArray[np.float32] | None = None,
    ) -> Tensor:
        """Return differentiable logits of stored pools (chosen passages first) under live state vectors.

        Args:
            states_UD: distinct states, with gradient.
            state_of_B: which of them each row belongs to.
            pool_BN: candidate rows, padded with -1.
            features_BNF: their features for the link term; None leaves it out.

        Returns: logits_BN = score / temperature; padding holds ``plackett_luce.MASKED``.
        """
        scores_BN = self.scores(states_UD, state_of_B, pool_BN)
        padding_BN = torch.from_numpy(pool_BN < 0).to(states_UD.device)
        logits_BN = scores_BN / self.temperature
        if isinstance(self.link_features, LinkFeatures) and features_BNF is not None:
            logits_BN = logits_BN + self.link_features(torch.from_numpy(features_BNF).to(states_UD))
        return logits_BN.masked_fill(padding_BN, plackett_luce.MASKED)

    def scores(self, states_UD: Tensor, state_of_B: Tensor, pool_BN: NDArray[np.int64]) -> Tensor:
        """Return inner products of states with candidate rows, (B, N), differentiable; every method learns by these.

        Scores of padding (-1) are meaningless.
        """
        vectors_BND = torch.from_numpy(self.vectors.take(np.maximum(pool_BN, 0))).to(states_UD)
        return torch.einsum("bd,bnd->bn", states_UD[state_of_B], vectors_BND)


def unique(texts: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
    """Return distinct texts in order of first appearance, and each text's position among them.

    >>> unique(["b", "a", "b"])
    (['b', 'a'], array([0, 1, 0]))
    """
    position: dict[str, int] = {}
    of = np.array([position.setdefault(text, len(position)) for text in texts], dtype=np.int64)
    return list(position), of
