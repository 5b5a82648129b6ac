"""The table of the arms: what every reader asks of it is there, and no other file knows an arm by its name."""

import ast
from pathlib import Path

import pytest

from harr.arms import ARMS, FULL
from harr.report.plots import OF_ARMS

ROOT = Path(__file__).parents[2]
OTHERS = {"infonce", "hybrid", "warmstart"}
"""Also the names of a method, of a search and of a generator."""


@pytest.mark.parametrize("name", ARMS)
def test_a_record_fits_its_readers(name: str) -> None:
    arm = ARMS[name]
    colour, marker = arm.look.split()
    assert colour in OF_ARMS and len(marker) == 1 and not arm.says.endswith(".")
    assert not (arm.inside or arm.method or arm.overrides) or arm.trained
    assert not (arm.search and arm.trained) and not arm.function


def test_no_other_file_asks_for_an_arm_by_its_name() -> None:
    """A comparison with an arm's name, alone or among others, is a fact that belongs into its record."""
    asked = []
    for path in (path for room in ("harr", "tasks", "flows") for path in (ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
            sides += [node.left, node.right] if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd) else []
            names = {part.value for side in sides for part in ast.walk(side) if isinstance(part, ast.Constant)}
            asked += [f"{path.relative_to(ROOT)}:{node.lineno} {name}" for name in names & (set(ARMS) - OTHERS)]
    assert asked == []
    assert FULL in ARMS
