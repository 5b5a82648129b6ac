"""What another model would have earned on logged traffic, without serving it: `harr replay`."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from harr.errors import CorpusError, ParamsError
from harr.io.progress import bar
from harr.rag.policies import plackett_luce
from harr.rag.policies.dense import DensePolicy, unique
from harr.rag.policies.state import reads
from harr_traffic.estimate import Estimate, apart_line, check_kept, check_support, effective, estimates, interval
from harr_traffic.log import Feedback, LoggedSearch

BATCH = 256
DRAWS = 32
"""Number of the candidate's choices over which a prediction is averaged."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What the log says about a model.

    Args:
        rows: searches that explored and have an outcome.
        effective: number of rows they count as, weighted for the model.
        outside: share of the model's own first passages over the whole corpus that are no candidates in the log.
        served: what the rows earned, with its interval.
        found: estimates by name.
        lost: searches among passages that the corpus no longer has, which are left out.
        apart: searches with kept first ranks that the model would fill otherwise, which are left out.
    """

    rows: int
    effective: float
    outside: float
    served: tuple[float, float, float]
    found: dict[str, Estimate]
    lost: int = 0
    apart: int = 0

    def figures(self) -> dict[str, Any]:
        """Return plain values for a json file."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Return the table, in percent."""
        mean, low, high = (100 * value for value in self.served)
        rows = [f"{'served':<8}{mean:6.1f} [{low:.1f}, {high:.1f}]"]
        for name, one in self.found.items():
            span = f"{100 * one.mean:6.1f} [{100 * one.low:.1f}, {100 * one.high:.1f}]"
            gain = f"{100 * one.gain:+.1f} [{100 * one.gain_low:+.1f}, {100 * one.gain_high:+.1f}]"
            rows.append(f"{name:<8}{span:<24}gain {gain}")
        rows.append(
            f"{self.rows:,} explored searches with an outcome, which count as {self.effective:,.0f}; of what the model "
            f"would take first {100 * self.outside:.1f} % was no candidate in the log"
        )
        if self.lost:
            rows.append(f"left out: {self.lost:,} searches among passages that the corpus has no more")
        if self.apart:
            rows.append(apart_line(self.apart))
        return rows


def replay(policy: DensePolicy, searches: Sequence[LoggedSearch], outcomes: dict[str, Feedback]) -> Replayed:
    """Return what a model would have earned if it had sampled the passages, as exploration does.

    Searches of one question are a group. A choice can only be weighed among the logged candidates. One whose kept first
    ranks the model would fill otherwise is not a choice of the model; such searches are left out if they are few.

    Raises:
        ParamsError: the log has no texts, or its states are not those that the model reads.
        CorpusError: too little was explored, most of it in another corpus, or too little of it says anything about this
            model.
    """
    rows = [one for one in searches if one.logprob is not None and one.pool and one.id in outcomes]
    if not rows:
        raise CorpusError(
            f"no search of {len(searches):,} was both explored and has an outcome; log with explore=0.05, and send "
            "outcomes to /outcome"
        )
    _check_states(policy, rows)
    row_of = policy.passages.rows_of({pid for one in rows for pid in one.pool})
    whole = [one for one in rows if row_of.keys() >= {*one.pool}]
    if 2 * (lost := len(rows) - len(whole)) > len(rows):
        raise CorpusError(
            f"{lost:,} of {len(rows):,} searches were among passages that this corpus does not have; name the project "
            "whose data was searched (--index)"
        )
    rows = whole
    weights, features, expected, outside, same = [], [], [], [], []
    with bar(total=len(rows), desc="replay", unit="row") as progress:
        for start in range(0, len(rows), BATCH):
            part = rows[start : start + BATCH]
            logits_BN, chosen_B, missing_B = _weighed(policy, part)
            kept_B = torch.tensor([one.kept for one in part])
            logged_B = torch.tensor([one.logprob for one in part], dtype=torch.float64)
            weights.append((plackett_luce.log_prob(logits_BN, chosen_B, kept_B) - logged_B).exp())
            features.append(_features(logits_BN, chosen_B))
            expected.append(_expected(logits_BN, chosen_B, kept_B, seed=start))
            outside.append(missing_B)
            same.append(plackett_luce.keeps(logits_BN, kept_B))
            progress.update(len(part))
    same_B = torch.cat(same).numpy()
    check_kept(same_B)
    rows = [one for one, own in zip(rows, same_B, strict=True) if own]
    weights_B, features_BF, expected_BF = (torch.cat(one).numpy()[same_B] for one in (weights, features, expected))
    groups_B = unique([one.question or one.state for one in rows])[1]
    scores_B = np.array([outcomes[one.id].score for one in rows], dtype=np.float64)
    check_support(weights_B, groups_B)
    return Replayed(
        rows=len(rows),
        effective=effective(weights_B),
        outside=float(np.concatenate(outside).mean()),
        served=interval(scores_B, groups_B),
        found=estimates(weights_B, scores_B, groups_B, features_BF, expected_BF),
        lost=lost,
        apart=int((~same_B).sum()),
    )


def _check_states(policy: DensePolicy, rows: Sequence[LoggedSearch]) -> None:
    if not all(one.state for one in rows):
        raise ParamsError("the log has no states (texts=no); no other model can be judged by it")
    if policy.link_features:
        raise ParamsError("the model weighs links of its candidates (retriever.link_features), which no log holds")
    own = reads(policy.style, policy.history)
    if others := sorted({one.reads for one in rows} - {own}):
        raise ParamsError(
            f"the log has states of {others[0]}, and the model reads {own}; replay a model that reads them"
        )


def _weighed(
    policy: DensePolicy, rows: Sequence[LoggedSearch]
) -> tuple[torch.Tensor, torch.Tensor, NDArray[np.float64]]:
    """Return the model's logits of every logged pool, (B, N), how many were chosen, (B,), and the share of the model's
    own first passages that are outside the pool."""
    states, state_of = unique([one.state for one in rows])
    states_UD = policy.encode(states)
    row_of = policy.passages.rows_of({pid for one in rows for pid in one.pool})
    pool_BN = np.full((len(rows), max(len(one.pool) for one in rows)), -1, dtype=np.int64)
    for pool_N, one in zip(pool_BN, rows, strict=True):
        pool_N[: len(one.pool)] = [row_of[pid] for pid in one.pool]
    with torch.no_grad():
        logits_BN = policy.logits(torch.from_numpy(states_UD), torch.from_numpy(state_of), pool_BN).double()
    deepest = max(len(one.chosen) for one in rows)
    best_UN, _ = policy.index.search(states_UD[:, : policy.vectors.width], deepest)
    outside = [
        np.mean(~np.isin(best_N[: len(one.chosen)], pool_N))
        for best_N, pool_N, one in zip(best_UN[state_of], pool_BN, rows, strict=True)
    ]
    return logits_BN, torch.tensor([len(one.chosen) for one in rows]), np.array(outside)


def _features(logits_BN: torch.Tensor, chosen_B: torch.Tensor) -> torch.Tensor:
    """Return what predicts a score: the chosen passages' chances to be first, their sum and the first one's, (B, 2)."""
    first_BN = logits_BN.softmax(-1)
    taken_BN = torch.arange(logits_BN.shape[-1]) < chosen_B.unsqueeze(-1)
    return torch.stack([(first_BN * taken_BN).sum(-1), first_BN[:, 0]], dim=-1)


def _expected(logits_BN: torch.Tensor, chosen_B: torch.Tensor, kept_B: torch.Tensor, seed: int) -> torch.Tensor:
    """Return the mean of :func:`_features` over choices that the model draws, (B, 2)."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.zeros(len(logits_BN), 2, dtype=torch.float64)
    for _ in range(DRAWS):
        order_BN = plackett_luce.sample(logits_BN, generator, kept_B)
        drawn += _features(logits_BN.gather(-1, order_BN), chosen_B)
    return drawn / DRAWS
