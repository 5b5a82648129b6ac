"""The table of the arms: what every reader asks of it is there, and no other file knows an arm by its name."""

import ast
import re
from pathlib import Path
from typing import get_args

from harr.arms import ARMS, FULL, Rewriting
from harr.params.train import RETRIEVERS
from harr.rag.retrieval.rewritten import RULES
from harr.report.plots import OF_ARMS

ROOT = Path(__file__).parents[2]
OTHERS = {"infonce", "history", "hybrid", "mention", "thought", "warmstart"}
"""Also the names of a method, of what a reader sees, of searches, of a state and of a generator."""


def test_a_record_fits_its_readers() -> None:
    for arm in ARMS.values():
        colour, marker = arm.look.split()
        assert colour in OF_ARMS and len(marker) == 1 and not arm.says.endswith("."), arm
        assert not (arm.inside or arm.method or {*arm.overrides} - {"state", "scores"}) or arm.trained, arm
        assert not (arm.search and arm.trained) and not arm.function, arm


def test_arms_that_do_not_learn_bound_or_rival_the_trained_one() -> None:
    """An oracle bounds; no arm is drawn alike another that the same run may compare it with."""
    assert {"", *RULES} == {*get_args(Rewriting)} == {arm.query for arm in ARMS.values()}
    assert [name for name, arm in ARMS.items() if arm.ceiling] == ["oracle_query", "bm25_oracle_query"]
    looks = [ARMS[name].look for name in RETRIEVERS]
    assert len(set(looks)) == len(looks)


def test_no_other_file_asks_for_an_arm_by_its_name() -> None:
    """A comparison with an arm's name, alone or among others, is a fact that belongs into its record."""
    asked = []
    for path in (path for room in ("harr", "tasks", "flows") for path in (ROOT / room).rglob("*.py")):
        text = path.read_text()
        if not re.search(rf"[\"']({'|'.join(set(ARMS) - OTHERS)})[\"']", text):
            continue
        for node in ast.walk(ast.parse(text)):
            sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
            sides += [node.left, node.right] if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd) else []
            names = {part.value for side in sides for part in ast.walk(side) if isinstance(part, ast.Constant)}
            asked += [f"{path.relative_to(ROOT)}:{node.lineno} {name}" for name in names & (set(ARMS) - OTHERS)]
    assert asked == []
    assert FULL in ARMS
