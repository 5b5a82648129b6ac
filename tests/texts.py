"""The repository's texts, for the tests that read them; a fault is named as `file:line: what`."""

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
Found = Iterator[tuple[int, str]]
"""What a check finds in a text: line and words."""


def python(*tops: str) -> list[Path]:
    """Return the Python files of some folders."""
    return sorted(path for top in tops for path in (ROOT / top).rglob("*.py"))


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@lru_cache(maxsize=8)
def parsed(source: str) -> ast.Module:
    return ast.parse(source)


@lru_cache(maxsize=8)
def nodes(source: str) -> list[ast.AST]:
    return [*ast.walk(parsed(source))]


def faults(paths: Iterable[Path], *checks: Callable[[str], Found]) -> list[str]:
    """Return everything that the checks find in some files' texts."""
    texts = ((name(path), path.read_text(encoding="utf-8")) for path in paths)
    return [f"{path}:{line}: {what}" for path, text in texts for check in checks for line, what in check(text)]
