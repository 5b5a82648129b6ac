"""The house holds: direction of imports, who may import what, and sizes."""

import ast
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


FILES = sorted(path for top in ("harr", "tasks", "flows", "benchmarks") for path in (ROOT / top).rglob("*.py"))
RANK = {"harr": 0, "tasks": 1, "flows": 2}
ONLY = {
    "pydantic": {
        *(name(path) for path in FILES if name(path).startswith("harr/params/")),
        *("harr/serve/bodies.py", "harr/serve/mcp_tools.py"),  # FastAPI and MCP describe their bodies with it
    },
    "pymilvus": {"harr/services/milvus_client.py", "harr/index/build.py"},
    "great_expectations": {"tasks/expectations/suites.py"},
    "mlflow": {
        "harr/services/model_registry.py",
        *(f"tasks/tracking/{stem}.py" for stem in ("client", "errors", "report", "traces")),
    },
    "openai": {"harr/services/openai_client.py"},
    "exa_py": {"harr/rag/sources/providers.py"},
    "dvc": set(),
    "pickle": set(),
    "joblib": set(),
    "dill": set(),
    "cloudpickle": set(),
}
FLOORS = (
    *("harr/errors.py", "harr/types.py", "harr/arms.py", "harr/io", "harr/params", "harr/compute", "harr/services"),
    *("harr/corpus", "harr/traffic/log.py", "harr/world", "harr/datasets", "harr/embed", "harr/index"),
    *("harr/rag/rollout.py", "harr/rag/pipelines", "harr/rag/scoring", "harr/rag/retrieval"),
    *("harr/rag/policies", "harr/rag/sources", "harr/rag/generation", "harr/rag/setup.py", "harr/rag/validation.py"),
    *("harr/questions", "harr/filter.py", "harr/preferences", "harr/generator", "harr/train", "harr/merge"),
    "harr/evaluate",
    *("harr/bridge", "harr/diagnose", "harr/report", "harr/builders", "harr/library", "harr/adapters", "harr/project"),
    "harr/traffic",
    "harr/serve",
)
"""The rooms of harr from the lowest to the highest; a room imports from rooms below it only."""
SAME_STEM = {
    "haystack": "a framework has the name of facts hidden in a long text",
    "leret": "the program of the paper is a pipeline, its training a method",
}
"""Names that two modules of harr may have, with a reason; files of params and builders are named after sections."""

FOLDERS = {"data", "models", "metrics", "plots", "reports", "work", "gx", ".harr"}
"""Folders of a project; what lies in them is named in tasks/paths.py."""


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
        assert not imports(path) & {"prefect", "dvc", "great_expectations"}


@pytest.mark.parametrize("path", FILES, ids=name)
def test_each_service_has_one_door(path: Path) -> None:
    for package, allowed in ONLY.items():
        assert package not in imports(path) or name(path) in allowed, f"{name(path)} imports {package}"


def test_the_library_reads_the_registry_only_when_it_is_asked_to() -> None:
    """Its one door to MLflow imports it inside a function; see ONLY."""
    assert {path for path in ONLY["mlflow"] if path.startswith("harr/")} == {"harr/services/model_registry.py"}
    tree = ast.parse((ROOT / "harr/services/model_registry.py").read_text())
    assert not [
        one for one in tree.body if isinstance(one, ast.ImportFrom | ast.Import) and "mlflow" in ast.unparse(one)
    ]


@pytest.mark.parametrize("path", FILES, ids=name)
def test_files_and_functions_stay_small(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno - node.lineno < 60, f"{node.name} is longer than 60 lines"


def floor(name: str) -> int | None:
    """Number of the room that a file, or a module written as a path, lies in; None for harr itself."""
    rooms = [room for room in FLOORS if f"{name}/".startswith(f"{room.removesuffix('.py')}/") or name == room]
    return FLOORS.index(rooms[0]) if rooms else None


HARR = [path for path in FILES if name(path).startswith("harr/")]


@pytest.mark.parametrize("path", HARR, ids=name)
def test_rooms_import_from_below(path: Path) -> None:
    own = floor(name(path))
    assert own is not None or path.name == "__init__.py", f"{name(path)} lies in no room of FLOORS"
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "harr":
            for module in (f"{node.module}.{alias.name}".replace(".", "/") for alias in node.names):
                other = floor(module)
                assert own is None or other is None or other <= own, f"{name(path)} imports {module} from above"


def test_few_modules_are_loose() -> None:
    assert len(list((ROOT / "harr").glob("*.py"))) <= 5


def test_a_name_is_of_one_thing() -> None:
    """No two public classes and no two modules of harr share a name."""
    trees = [ast.parse(path.read_text()) for path in FILES if not name(path).startswith("benchmarks/")]
    classes = Counter(node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef))
    assert not {one for one, count in classes.items() if count > 1 and not one.startswith("_")}
    stems = Counter(path.stem for path in HARR if not name(path).startswith(("harr/params/", "harr/builders/")))
    assert not {stem for stem, count in stems.items() if count > 1} - {*SAME_STEM, "__init__"}


@pytest.mark.parametrize("path", [path for path in FILES if not name(path).startswith("benchmarks/")], ids=name)
def test_paths_of_the_project_stand_in_one_file(path: Path) -> None:
    if name(path) == "tasks/paths.py":
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Path":
            words = [str(one.value) for one in node.args if isinstance(one, ast.Constant)]
            assert not {word.split("/")[0] for word in words} & FOLDERS, f"{name(path)} writes the path {words}"
