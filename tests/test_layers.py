"""The house holds: direction of imports, who may import what, and sizes."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


FILES = sorted(path for top in ("harr", "tasks", "flows", "benchmarks") for path in (ROOT / top).rglob("*.py"))
RANK = {"harr": 0, "tasks": 1, "flows": 2}
ONLY = {
    "pydantic": {name(path) for path in FILES if name(path).startswith("harr/params/")},
    "pymilvus": {"harr/services/milvus_client.py", "harr/index/passage_index.py"},
    "great_expectations": {"tasks/expectations/suites.py"},
    "mlflow": {"tasks/tracking/errors.py", "tasks/tracking/run.py", "tasks/tracking/traces.py"},
    "openai": {"harr/services/openai_client.py"},
    "exa_py": {"harr/rag/sources/providers.py"},
    "dvc": set(),
    "pickle": set(),
    "joblib": set(),
    "dill": set(),
    "cloudpickle": set(),
}


def imports(path: Path) -> set[str]:
    """Top names of all imports of a file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("path", FILES, ids=name)
def test_imports_point_down(path: Path) -> None:
    own = RANK.get(name(path).split("/")[0], 9)
    assert not {top for top in imports(path) if RANK.get(top, -1) > own}
    if own == 0:
        assert not imports(path) & {"prefect", "mlflow", "dvc", "great_expectations"}


@pytest.mark.parametrize("path", FILES, ids=name)
def test_each_service_has_one_door(path: Path) -> None:
    for package, allowed in ONLY.items():
        assert package not in imports(path) or name(path) in allowed, f"{name(path)} imports {package}"


@pytest.mark.parametrize("path", FILES, ids=name)
def test_files_and_functions_stay_small(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno - node.lineno < 60, f"{node.name} is longer than 60 lines"
