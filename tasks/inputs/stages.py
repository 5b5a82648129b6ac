"""What a stage's result depends on besides data, written as data/inputs/<stage>.json before DVC compares anything.

That is every parameter that the stage reads, defaults included; a hash of every module that these parameters choose;
the major version of each package that computes; and for stage download the local files that its section names. DVC
compares this file, so dvc.lock records what ran, whatever params.yaml says by then.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import metadata
from typing import Any

from harr.params import Params
from tasks.inputs.code import Chosen, Code, named_modules, packages_of

RETRIEVAL = ("seed", "encoder", "retriever", "sources", "pipeline", "generator", "reward")
READS: dict[str, tuple[str, ...]] = {
    "download": ("download",),
    "embed": ("encoder", "embed"),
    "index": ("index", "retriever.pool"),
    "generator": ("seed", "generator", "retriever.k", "pipeline.picks"),
    "filter": (*RETRIEVAL, "filter", "train.method", "train.function", "train.temperature", "train.max_tokens"),
    "train": (*RETRIEVAL, "train"),
    "arms": (*RETRIEVAL, "filter", "train", "evaluate.arms", "evaluate.seeds"),
    "evaluate": (*RETRIEVAL, "train.method", "evaluate"),
    "report": (*RETRIEVAL, "download.dataset", "train", "evaluate"),
    "merge": (
        "download.dataset",
        "encoder",
        "merge",
        "pipeline",
        "retriever",
        "train.method",
        "tracking.registered_model",
    ),
}
"""Parameters that each stage reads, in the order of dvc.yaml: sections, or single ones by dotted name."""
WHERE = frozenset("server token_variable concurrency timeout_seconds deadline_seconds".split())
"""Parameters that say where a server is and how patiently it is asked; they change no result. ``index.uri`` is not one,
since an index must be built where it is searched."""
ASIDE = (
    *("harr.errors", "harr.params", "harr.report", "harr.services"),
    *(f"harr.io.{name}" for name in "digests extras files folders progress resume retry yaml_file".split()),
    *("tasks.common", "tasks.expectations", "tasks.inputs", "tasks.paths", "tasks.registry", "tasks.sentences"),
    *("tasks.runtime.output", "tasks.tracking"),
)
"""Code that affects no result: messages, parameter types (their values count), pages and plots (how a result looks
makes no stage stale), retries, atomic file writes, and reports to MLflow."""
USED_IF: dict[str, Callable[[Params], Any]] = {
    "harr.preferences": lambda params: params.train.prefers,
    "harr.rag.pipelines.leret": lambda params: params.train.prefers,
    "harr.rag.sources": lambda params: params.sources,
}
"""Code that all runs import, but use only if parameters ask for it."""
ONLY_IN = {"harr.train": ("train", "arms")}
"""Code that counts for these stages only: others just ask a method what it needs."""
COMPUTES = (
    "peft",
    "pypdf",
    "sentence_transformers",
    "tokenizers",
    "torch",
    "trafilatura",
    "transformers",
    "trl",
)
"""Import names of packages whose numbers or texts go into a result. Their major version counts (0.21 for 0.21.2): a
minor release changes at most the last bits, which also differ between machines."""


def stage_inputs(stage: str, params: Params, code: Code, files: Mapping[str, str]) -> dict[str, Any]:
    """Return what a stage's result depends on besides data.

    Args:
        stage: a name of ``READS``.
        params: all parameters.
        code: the modules.
        files: hashes of the local files that section download names, for stage download.
    """
    unused = [name for name, used in USED_IF.items() if not used(params)]
    aside = [*ASIDE, *unused, *(name for name, stages in ONLY_IN.items() if stage not in stages)]
    elsewhere = filter(code.has, named_modules(sections(stage, params)))
    modules, packages = code.hashes({f"tasks.{stage}", *elsewhere}, list_entries(stage, params), aside)
    return {
        "parameters": dict(parameters(stage, params)),
        "code": modules,
        "packages": {name: major(name) for name in COMPUTES if name in packages},
        **({"files": dict(files)} if stage == "download" else {}),
    }


def all_inputs(params: Params, files: Mapping[str, str], code: Code | None = None) -> dict[str, dict[str, Any]]:
    """Return the inputs of every stage."""
    code = code or Code(packages_of(named_modules(params.model_dump())))
    return {stage: stage_inputs(stage, params, code, files) for stage in READS}


def parameters(stage: str, params: Params) -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and value of every parameter that a stage reads and that can change its result."""
    for name, value in flatten(sections(stage, params)):
        if WHERE.isdisjoint(name.split(".")):
            yield name, value


def sections(stage: str, params: Params) -> dict[str, Any]:
    """Return the values of params.yaml that a stage reads, by their names in ``READS``."""
    values = params.model_dump(mode="json")
    if stage == "arms":  # untrained arms do not concern it
        entries = zip(values["evaluate"]["arms"], params.evaluate.arm_table.values(), strict=True)
        values["evaluate"]["arms"] = [entry for entry, arm in entries if arm.trained]
    return {name: at(values, name) for name in READS[stage]}


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted names and values of all leaves.

    >>> list(flatten({"train": {"steps": 3}, "seed": 0}))
    [('train.steps', 3), ('seed', 0)]
    """
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def at(values: Any, name: str) -> Any:
    """Return the value at a dotted name, or None.

    >>> at({"train": {"steps": 3}}, "train.steps"), at({}, "train.steps")
    (3, None)
    """
    for key in name.split("."):
        values = values.get(key) if isinstance(values, dict) else None
    return values


def list_entries(stage: str, params: Params) -> Chosen:
    """Return the entries of our tables that a stage uses."""
    arms = params.evaluate.arm_table
    trained = {name for name, arm in arms.items() if arm.trained} | {"trained"}
    arms_played = {"arms": trained, "evaluate": {*arms, "trained"}, "report": {*arms, "trained"}}.get(
        stage, {"trained"}
    )
    methods = {params.train.method} | {arms[name].method for name in trained & arms.keys() if stage == "arms"}
    return {
        ("harr.arms", "ARMS"): frozenset(arms_played),
        ("harr.builders.methods", "METHODS"): frozenset(methods),
        ("harr.datasets", "DATASETS"): frozenset({params.download.dataset}),
        ("harr.rag.pipelines", "PIPELINES"): frozenset({params.pipeline.name}),
    }


@cache
def major(package: str) -> str:
    """Return the first number of a package's version, and the second if that is 0; "" if it is not installed."""
    try:
        first, second, *_ = f"{metadata.version(package.replace('_', '-'))}.".split(".")
    except metadata.PackageNotFoundError:
        return ""
    return first if first != "0" else f"0.{second}"
