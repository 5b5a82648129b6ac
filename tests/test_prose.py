"""Docstrings are sentences that stand on their own: none begins with Of, So or As."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted(path for top in ("harr", "tasks", "flows", "examples") for path in (ROOT / top).rglob("*.py"))
FRAGMENT = re.compile(r"\s*(Of|So|As)\b")
DEFINES = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of every docstring of a file: of modules, classes, functions and attributes."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, DEFINES):
            continue
        for place, statement in enumerate(node.body):
            after = place == 0 or isinstance(node.body[place - 1], ast.Assign | ast.AnnAssign)
            text = statement.value if after and isinstance(statement, ast.Expr) else None
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                yield statement.lineno, text.value


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_docstring_begins_as_a_fragment(path: Path) -> None:
    name = path.relative_to(ROOT).as_posix()
    found = [f"{name}:{line}: {text.splitlines()[0]}" for line, text in docstrings(path) if FRAGMENT.match(text)]
    assert not found, found


def test_the_check_finds_fragments(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text('"""As before."""\nX = 1\n"""So many."""\n\ndef f():\n    """Often."""\n')
    assert [line for line, text in docstrings(path) if FRAGMENT.match(text)] == [1, 3]
