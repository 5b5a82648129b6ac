"""Every path and every dotted name that a text of the project mentions exists."""

import ast
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXTS = sorted(
    [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "params.yaml", "dvc.yaml", "pyproject.toml")),
        *(path for folder in ("docs", "docker", "recipes") for path in (ROOT / folder).glob("*.*")),
        *(path for top in ("harr", "tasks", "flows", "examples", "benchmarks") for path in (ROOT / top).rglob("*.py")),
    ]
)
FOLDERS = r"harr|tasks|flows|tests|docs|examples|benchmarks|recipes|docker|\.ci"
MENTIONED = re.compile(rf"(?<![\w/.<>-])((?:{FOLDERS})/[a-zA-Z_.*][\w./*-]*\w)")
DOTTED = re.compile(r"(?<![\w/.\"-])((?:harr|tasks|flows)(?:\.[a-zA-Z_]\w*){2,})")
STARTED = re.compile(r"python -m ((?:harr|flows|benchmarks)(?:\.\w+)+)")
MADE_BY_YOU = {"docker/.env"}
IN_THE_WHEEL = "harr/project/files/"
"""Where hatch puts the files of a project that `harr init` makes."""


def defined(file: Path) -> set[str]:
    """Names that a module defines or imports at its top; of what is imported when it is asked for, its stub tells."""
    stub = file.with_suffix(".pyi")
    found = set()
    for node in ast.parse((stub if stub.exists() else file).read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node)]
        for one in [*targets, *getattr(node, "names", [])]:
            found.add(getattr(one, "asname", None) or getattr(one, "name", getattr(one, "id", "")))
    return found


def there(name: str) -> bool:
    """Whether a path, which may hold stars, or a dotted name is one of the tree."""
    if "/" in name:
        return bool(list(ROOT.glob(name))) or name in MADE_BY_YOU or name.startswith(IN_THE_WHEEL)
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        folder = ROOT.joinpath(*parts[:count])
        file = folder.with_suffix(".py") if folder.with_suffix(".py").is_file() else folder / "__init__.py"
        if file.is_file():
            return count == len(parts) or parts[count] in defined(file)
    return False


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_what_a_text_mentions_exists(path: Path) -> None:
    text = path.read_text(encoding="utf-8", errors="replace")
    names = {*MENTIONED.findall(text), *DOTTED.findall(text)}
    assert not {name for name in names if not there(name)}
    assert not {name for name in STARTED.findall(text) if not find_spec(name)}, "no module, or hidden by another one"


def test_a_path_that_is_gone_is_seen() -> None:
    assert there("harr/types.py") and there("harr.types.Episode") and there("tests/harr/*/test_*.py")
    assert not there("harr/types") and not there("harr.types.Nothing") and not there("harr.nothing")
