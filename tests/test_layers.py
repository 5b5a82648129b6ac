"""House rules that no tool checks: sizes, names, sentences. pyproject.toml says who may import whom."""

import ast
import re
from collections import Counter
from collections.abc import Callable

import pytest
from texts import ROOT, Found, faults, name, nodes, python

CODE = python("harr", "tasks", "flows")
SAME_STEM = {
    "leret": "the program of the paper is a pipeline, its training a method",
}
"""Names that two modules of harr may share, with a reason; files of params and builders are named after sections."""
FOLDERS = {"data", "models", "metrics", "plots", "reports", "work", "gx", ".harr"}
"""A project's folders; tasks/paths.py names what lies in them."""
DEFINES = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def sizes(source: str) -> Found:
    if source.count("\n") > 400:
        yield 401, "the file is longer than 400 lines"
    for node in nodes(source):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (node.end_lineno or 0) - node.lineno >= 60:
            yield node.lineno, f"{node.name} is longer than 60 lines"


def written_paths(source: str) -> Found:
    for node in nodes(source):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Path":
            words = [str(one.value) for one in node.args if isinstance(one, ast.Constant)]
            if {word.split("/")[0] for word in words} & FOLDERS:
                yield node.lineno, f"writes the path {words}, which is one of tasks/paths.py"


def fragments(source: str) -> Found:
    """Find docstrings, including those of attributes, that are not sentences of their own."""
    for node in nodes(source):
        for place, statement in enumerate(node.body if isinstance(node, DEFINES) else []):
            after = place == 0 or isinstance(node.body[place - 1], ast.Assign | ast.AnnAssign)
            text = statement.value if after and isinstance(statement, ast.Expr) else None
            if isinstance(text, ast.Constant) and re.match(r"\s*(Of|So|As)\b", str(text.value)):
                yield statement.lineno, f"a docstring begins with Of, So or As: {str(text.value).splitlines()[0]}"


def test_files_are_small_and_name_no_path_twice_and_their_sentences_are_whole() -> None:
    found = faults([path for path in CODE if name(path) != "tasks/paths.py"], sizes, written_paths, fragments)
    found += faults(python("benchmarks"), sizes) + faults(python("examples"), fragments)
    found += faults(python("plugins"), sizes, fragments)
    assert not found, "\n".join(found)


def test_a_name_is_of_one_thing_and_few_modules_are_loose() -> None:
    """No two public classes and no two modules of harr share a name."""
    texts = [path.read_text(encoding="utf-8") for path in CODE]
    classes = Counter(one for text in texts for one in re.findall(r"^class (\w+)", text, re.MULTILINE))
    found = [f"class {one}" for one, count in classes.items() if count > 1 and not one.startswith("_")]
    harr = [path for path in python("harr") if not name(path).startswith(("harr/params/", "harr/builders/"))]
    stems = Counter(path.stem for path in harr)
    found += [f"module {stem}" for stem, count in stems.items() if count > 1 and stem not in {*SAME_STEM, "__init__"}]
    assert not found, found
    assert len(list((ROOT / "harr").glob("*.py"))) <= 6


@pytest.mark.parametrize(
    ("check", "source", "lines"),
    [
        (sizes, "def f():\n" + "    x = 1\n" * 60, [1]),
        (sizes, "def f():\n" + "    x = 1\n" * 59, []),
        (sizes, "x = 1\n" * 401, [401]),
        (written_paths, "a = Path('x/data')\nb = Path('data/x')\nc = Path(root, 'work')\n", [2, 3]),
        (fragments, '"""As before."""\nX = 1\n"""So many."""\n\ndef f():\n    """Often."""\n', [1, 3]),
    ],
)
def test_what_is_wrong_is_seen(check: Callable[[str], Found], source: str, lines: list[int]) -> None:
    assert [line for line, _ in check(source)] == lines
