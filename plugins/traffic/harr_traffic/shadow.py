"""A shadow candidate: it ranks answered searches after the answer was sent, and nobody sees its ranking.

``harr serve --observer harr_traffic.shadow:Shadow=MODEL`` starts it (:class:`harr.serve.observer.Observer`).
"""

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from harr.errors import HarrError, ParamsError, one_line
from harr.rag.policies import plackett_luce
from harr.rag.policies.dense import DensePolicy, unique
from harr.rag.retrieval.hybrid import pad
from harr.serve.follower import Follower
from harr.serve.observer import Answered, Observer
from harr.serve.searcher import Serving
from harr.serve.service import RetrieverService
from harr.services.model_registry import CACHE, URI
from harr.types import Retrieval, Retriever
from harr_traffic.log import TrafficLog, now
from harr_traffic.recorder import Recorder
from harr_traffic.shadows import SHADOWS, Shadowed

ROOM = 1000
"""Number of answered searches that may wait to be ranked; beyond that the oldest are left out."""
BATCH = 8
"""Number of searches ranked at a time."""
PAUSE_SECONDS = 0.002
"""Seconds to wait before an answered search is ranked, and between checks that nobody is being answered."""


class Shadow(Observer):
    """A thread that ranks answered searches by a candidate, over the same vectors, while nobody is being answered.

    A state is encoded while answers are sent; only the scan of the vectors, a tenth of the time, delays an answer.
    Under constant load, searches are left out and counted.

    Args:
        service: the server whose corpus is searched, whose model is compared, and whose :class:`Recorder` has the log
            for what the candidate finds.
        model: the candidate, named as for :class:`Follower` and followed like the served model.
    """

    def __init__(self, service: RetrieverService, model: str) -> None:
        """Load the candidate and start.

        Raises:
            ParamsError: the server keeps no log. HarrError: there is no such model, or it cannot search this corpus.
        """
        recorder = next((one for one in service.observers.values() if isinstance(one, Recorder)), None)
        if recorder is None:
            raise ParamsError(
                "the shadow logs what another model would have answered; name a log before it: "
                "--observer harr_traffic.recorder:Recorder=FOLDER"
            )
        self._log = TrafficLog(recorder.recording, (SHADOWS,))
        self._prefix = _prefix(model, service.follower.model)
        self._searcher, self._batches = service.searcher, service.batches
        self.serving: Serving | None = None
        self.ranked = self.left_out = 0
        """Numbers of searches ranked, and left out."""
        self._problem = ""
        self._waiting: deque[Answered] = deque()
        self._changed = threading.Condition()
        self._closed = False
        project = self._searcher.project
        cache = project / CACHE / "shadow"
        self._follower = Follower(model, project, cache, self.load, self._renewed)
        self._follower.start()
        self._worker = threading.Thread(target=self._work, name="shadow", daemon=True)
        self._worker.start()

    def load(self, folder: Path, version: str) -> None:
        """Rank by this candidate from now on.

        Raises:
            ModelError, IndexMismatch: it cannot search this corpus.
        """
        self.serving = self._searcher.open_candidate(folder, self._prefix + version)

    def answered(self, one: Answered) -> None:
        """Queue a champion's search for ranking; a candidate that became champion is idle."""
        candidate, passages = self.serving, one.found.passages
        if candidate is None or candidate.version == one.version or not passages or one.body.model != "champion":
            return
        with self._changed:
            self._waiting.append(one)
            if len(self._waiting) > ROOM:
                self._waiting.popleft()
                self.left_out += 1
            self._changed.notify()

    def health(self) -> dict[str, Any]:
        """Return the candidate, its counts and the last problem."""
        return {
            "model": self._follower.model,
            "version": self.serving.version if self.serving else "",
            "ranked": self.ranked,
            "left_out": self.left_out,
            "waiting": len(self._waiting),
            "problem": self._follower.problem or self._problem,
        }

    def close(self) -> None:
        """Rank what is waiting, then stop."""
        self._follower.close()
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._worker.join()

    def _renewed(self) -> bool:
        """Return whether the serving model now searches another corpus."""
        ours, theirs = self.serving, self._searcher.serving
        return ours is not None and theirs is not None and ours.corpus is not theirs.corpus

    def _work(self) -> None:
        while part := self._next():
            try:
                kept = self._rank(part)
                self._problem = ""
            except Exception as error:  # whatever a library or server raises must not affect answers
                kind = "" if isinstance(error, HarrError) else f"{type(error).__name__}: "
                kept, self._problem = 0, kind + one_line(error, 300)
            self.ranked += kept
            self.left_out += len(part) - kept

    def _next(self) -> list[Answered]:
        """Return the next searches, once nobody is being answered; none after closing."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            while not self._closed:
                self._changed.wait_for(lambda: self._closed, PAUSE_SECONDS)
                if self._batches.idle:
                    break
            return [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]

    def _rank(self, part: Sequence[Answered]) -> int:
        """Log what the candidate finds for some searches; return how many, none of those of another corpus."""
        candidate = self.serving
        if candidate is None or not (part := [one for one in part if one.corpus is candidate.corpus]):
            return 0
        searches = [replace(one.body.search(statuses=candidate.statuses), k=len(one.found.passages)) for one in part]
        policy: Retriever = candidate.policy
        chances: list[float | None] = [None] * len(part)
        if isinstance(policy, DensePolicy):
            policy = replace(policy, frozen=True, _cache={})  # caches the vectors of this batch
            states, state_of = unique(policy.write_states(searches)[0])
            states_UD = torch.from_numpy(policy.encode(states))
        with self._searcher.pause_answers(candidate.corpus) as ours:
            if not ours:
                return 0
            found = policy.retrieve(searches)
            if isinstance(policy, DensePolicy):
                chances = _chances(policy, states_UD, torch.from_numpy(state_of), [one.found for one in part])
        for one, own, logprob in zip(part, found, chances, strict=True):
            chosen = tuple(passage.id for passage in own.passages)
            if "id" not in one.response:  # the log could not be written
                continue
            self._log.append(SHADOWS, Shadowed(one.response["id"], now(), candidate.version, chosen, logprob))
        return len(part)


def _chances(
    policy: DensePolicy, states_UD: torch.Tensor, state_of_B: torch.Tensor, served: Sequence[Retrieval]
) -> list[float | None]:
    """Return the log-probability under a policy of every choice that was drawn, among the candidates of that time.

    The kept passages are given; whether the policy would keep the same ones is seen from its own first passages.

    None where the best was served, and for a policy that weighs links, which a served choice does not contain.
    """
    if policy.link_features or not any(one.pool for one in served):
        return [None] * len(served)
    with torch.no_grad():
        logits_BN = policy.logits(states_UD, state_of_B, pad([one.pool for one in served])).double()
    chosen_B = torch.tensor([len(one.passages) for one in served])
    logprobs = plackett_luce.log_prob(logits_BN, chosen_B, torch.tensor([one.kept for one in served])).tolist()
    return [value if one.pool else None for value, one in zip(logprobs, served, strict=True)]


def _prefix(model: str, served: str) -> str:
    """Return what precedes a candidate's version: its registered name, unless the served model has the same.

    Versions are numbered within one registered model.

    >>> _prefix("models:/other@candidate", "models:/harr@champion"), _prefix("models:/harr/2", "models:/harr@champion")
    ('other/', '')
    """
    own, other = URI.fullmatch(model), URI.fullmatch(served)
    return f"{own['name']}/" if own and not (other and other["name"] == own["name"]) else ""
