"""Numbers that HARR's own functions compute, for our tests: `python -m benchmarks.peers.harr_code FOLDER`.

FOLDER is a copy of github.com/zyc140345/HARR (commit 50cfd09). Its modules need servers, so none is imported:
functions, and the statements between two marks in longer ones, are taken from its files unchanged and run with torch
alone; vectors stand in for its encoder, and one process for several. Inputs and outputs are written to
tests/harr/train/harr_numbers.json, which tests/harr/train/test_arithmetic.py compares with ours.
"""

import ast
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional, Union

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence

from harr.io.files import write_json

KEPT = Path(__file__).resolve().parents[2] / "tests/harr/train/harr_numbers.json"
TEMPERATURE, GROUP, CHOSEN, POOL, WIDTH = 0.05, 4, 3, 6, 8
DRAWS = 100_000
Names = dict[str, Any]


def nodes(folder: Path, file: str) -> list[ast.AST]:
    """Return all nodes of one of their files."""
    return list(ast.walk(ast.parse((folder / file).read_text(encoding="utf-8"))))


def run(body: list[ast.stmt], names: Names) -> Names:
    """Run statements of theirs, and return the names defined afterwards."""
    exec(compile(ast.Module(body, []), "theirs", "exec"), names)
    return names


def function(folder: Path, file: str, name: str, names: Names) -> Any:
    """Return one of their functions or methods."""
    (found,) = [node for node in nodes(folder, file) if isinstance(node, ast.FunctionDef) and node.name == name]
    return run([found], names)[name]


def between(folder: Path, file: str, first: str, last: str) -> list[ast.stmt]:
    """Return a block's statements from the one that begins with ``first`` to the one that begins with ``last``."""
    for node in nodes(folder, file):
        if not isinstance(block := getattr(node, "body", None), list):
            continue
        texts = [ast.unparse(one) for one in block]
        starts = [place for place, text in enumerate(texts) if text.startswith(first)]
        ends = [place for place, text in enumerate(texts) if text.startswith(last)]
        if starts and ends:
            return block[starts[0] : next(end for end in ends if end >= starts[0]) + 1]
    raise SystemExit(f"{file} has no block from {first!r} to {last!r}; is it of commit 50cfd09?")


def choosing(folder: Path, names: Names) -> Names:
    """Return log-probabilities of orders, and how often each order is drawn."""
    logits_BN = torch.randn(5, POOL, dtype=torch.float64)
    order_BK = torch.stack([torch.randperm(POOL)[:CHOSEN] for _ in range(5)])
    logs_B = names["plackett_luce_logprob"](logits_BN, order_BK)
    scores = [0.02, 0.05, 0.0, 0.08]
    draw = function(folder, "llama_index_hacked/query_engine.py", "_sample", {"torch": torch, "F": F})
    engine = SimpleNamespace(_temperature=TEMPERATURE, _similarity_top_k=2)
    listed = [SimpleNamespace(score=score, place=place) for place, score in enumerate(scores)]
    drawn = Counter(str([node.place for node in draw(engine, listed)[0]]) for _ in range(DRAWS))
    figures = {"logits": logits_BN.tolist(), "orders": order_BK.tolist(), "log_probs": logs_B.tolist()}
    return figures | {"scores": scores, "temperature": TEMPERATURE, "draws": dict(sorted(drawn.items()))}


def advantages(folder: Path, names: Names) -> list[Names]:
    """Return advantages for one reward per rollout, with and without division by the deviation."""
    file = "trl_hacked/trainer/grpo_trainer.py"
    body = between(folder, file, "rewards_per_func = gather(", "advantages = advantages.flip(")
    rows = []
    for scale, rewards in ((True, [1, 0, 0, 0, 0.3, 0.9, 0.2, 0.3]), (False, [1, 0, 0, 0, 0.5, 0.5, 0.5, 0.5])):
        own = SimpleNamespace(num_generations=GROUP, scale_rewards=scale, reward_weights=torch.ones(1))
        given = {
            "gather": lambda tensor: tensor,
            "self": own,
            "rewards_per_func": torch.tensor(rewards, dtype=torch.float32).view(-1, 1, 1),
            "all_sequence_lengths": torch.zeros(len(rewards), dtype=torch.int64),
            "device": "cpu",
        }
        out = run(body, names | given)["advantages"]
        rows.append({"scale": scale, "rewards": rewards, "advantages": out[:, 0].tolist()})
    return rows


def losses(folder: Path, names: Names) -> Names:
    """Return losses of episodes of several lengths, and their gradient with respect to the state vectors."""
    steps = [2, 1, 3]
    queries_SD = F.normalize(torch.randn(sum(steps), WIDTH, dtype=torch.float64), dim=-1)
    passages_SND = F.normalize(torch.randn(sum(steps), POOL, WIDTH, dtype=torch.float64), dim=-1)
    scores_SN = (passages_SND @ queries_SD[..., None])[..., 0] / TEMPERATURE
    logs_S = names["plackett_luce_logprob"](scores_SN, torch.arange(CHOSEN).expand(sum(steps), -1))
    old_S, reference_S = logs_S + 0.4 * torch.randn_like(logs_S), logs_S + 0.4 * torch.randn_like(logs_S)
    advantages_E = torch.tensor([1.3, -0.9, 0.4], dtype=torch.float64)
    rows: list[Names] = []
    for kind, beta in (("grpo", 0.0), ("grpo", 0.1), ("bnpo", 0.1), ("dr_grpo", 0.0)):
        learnt_SD = queries_SD.clone().requires_grad_()
        given = {"forward": lambda *_, out=learnt_SD, **__: out, "pad_sequence": pad_sequence, "INVALID_LOGIT": -1e7}
        tools = {"nanmin": lambda tensor: tensor, "nanmax": lambda tensor: tensor, "INVALID_LOGPROB": 0.0}
        loss_of = function(folder, "trl_hacked/trainer/grpo_trainer.py", "_compute_loss", names | given | tools)
        trainer = SimpleNamespace(
            accelerator=SimpleNamespace(device="cpu", gather=lambda tensor: tensor),
            model=SimpleNamespace(training=True),
            _metrics={"train": {name: [] for name in METRICS}},
            temperature=TEMPERATURE,
            similarity_top_k=CHOSEN,
            beta=beta,
            epsilon_low=0.2,
            epsilon_high=0.2,
            loss_type=kind,
            args=SimpleNamespace(delta=None),
        )
        padded = {
            name: pad_sequence(list(tensor.split(steps)), batch_first=True)
            for name, tensor in (("old_logprobs", old_S), ("ref_logprobs", reference_S), ("doc_embeds", passages_SND))
        }
        lengths_E = torch.tensor(steps) - 1
        mask_ES = torch.arange(max(steps)) > lengths_E[:, None]
        rest = {"policy_inputs": None, "sequence_lengths": lengths_E, "padding_mask": mask_ES}
        loss = loss_of(trainer, None, padded | rest | {"advantages": advantages_E[:, None].expand(-1, max(steps))})
        loss.backward()
        rows.append({"kind": kind, "beta": beta, "loss": loss.item(), "gradient": learnt_SD.grad.tolist()})
    shared = {"steps": steps, "chosen": CHOSEN, "temperature": TEMPERATURE, "advantages": advantages_E.tolist()}
    tensors = {"states": queries_SD, "passages": passages_SND, "old": old_S, "reference": reference_S}
    return shared | {name: tensor.tolist() for name, tensor in tensors.items()} | {"losses": rows}


METRICS = (
    "kl clip_ratio/low_mean clip_ratio/low_min clip_ratio/high_mean clip_ratio/high_max clip_ratio/region_mean "
    "ratio/mean"
).split()


def gae(folder: Path, names: Names) -> Names:
    """Return PPO's advantages before whitening, and its critic's targets."""
    body = between(folder, "trl_hacked/trainer/ppo_trainer.py", "lastgaelam = 0", "returns = advantages")
    rewards, values = [[0.1, -0.05, 1.0]], [[0.3, 0.5, 0.7]]
    given = {"rewards": torch.tensor(rewards, dtype=torch.float64), "values": torch.tensor(values, dtype=torch.float64)}
    settings = SimpleNamespace(gamma=0.97, lam=0.9)
    out = run(body, names | given | {"args": settings, "logprobs": torch.zeros(1, 3)})
    figures = {"rewards": rewards[0], "values": values[0], "discount": settings.gamma, "lambda": settings.lam}
    return figures | {"advantages": out["advantages"][0].tolist(), "returns": out["returns"][0].tolist()}


def filtered(folder: Path) -> list[Names]:
    """Return which questions their filter keeps, by the F1 of the rollouts."""
    tests = [node for node in nodes(folder, "scripts/filter_data.py") if isinstance(node, ast.Compare)]
    (kept,) = {ast.unparse(node): node for node in tests if ast.unparse(node).startswith("f1_std")}.values()
    (spread,) = {
        ast.unparse(node): node
        for node in nodes(folder, "scripts/filter_data.py")
        if isinstance(node, ast.Assign) and ast.unparse(node).startswith("f1_std =")
    }.values()
    rows = []
    for f1s in ([0.0] * 8, [1.0] * 8, [0.7] * 8, [2 / 3] * 7, [1.0] + [0.0] * 7, [0.5] * 7 + [0.6]):
        names = run([spread], {"np": np, "f1s": f1s})
        rows.append({"f1": f1s, "kept": bool(eval(compile(ast.Expression(kept), "theirs", "eval"), names))})
    return rows


def main() -> None:
    """Compute and write everything."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    torch.manual_seed(0)
    names: Names = {"torch": torch, "F": F, "Union": Union, "Optional": Optional, "Sequence": Sequence}
    for file, name in (("utils", "plackett_luce_logprob"), ("grpo_trainer", "nanstd")):
        names[name] = function(folder, f"trl_hacked/trainer/{file}.py", name, dict(names))
    source = {"peer": "github.com/zyc140345/HARR", "commit": "50cfd096fddd57c39a3f1583b3d4f5bac832e276"}
    made = {"choosing": choosing(folder, names), "advantages": advantages(folder, names)}
    made |= {"losses": losses(folder, names), "gae": gae(folder, names), "filter": filtered(folder)}
    write_json(KEPT, source | made)


if __name__ == "__main__":
    main()
