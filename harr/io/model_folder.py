"""What a model folder may hold: weights in safetensors, and texts about them; nothing that runs or lies elsewhere."""

import os.path
from pathlib import Path

from harr.errors import ModelError
from harr.io.files import read_json

KINDS = {".safetensors", ".json", ".txt", ".md", ".model", ".jinja"}
"""Endings of the files of a model that harr publishes."""
CODE = {".py", ".pyc", ".so", ".dll", ".dylib", ".exe", ".sh"}
PICKLES = {".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib", ".dill"}


def check_loadable(folder: Path) -> None:
    """Look at a folder before anything in it is opened: what it says of itself, and the names of its files.

    Pickles beside safetensors are left alone: they are never read.

    Raises:
        ModelError: it holds code, or pickles in place of safetensors, or names files outside.
    """
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    code = [path for path in files if path.suffix.lower() in CODE]
    if code:
        raise ModelError(
            f"model folder {folder} holds code ({code[0].relative_to(folder)}), which is never run; use a model without"
        )
    for path in files:
        weights = any(other.suffix == ".safetensors" for other in files if other.parent == path.parent)
        if path.suffix.lower() in PICKLES and not weights:
            raise ModelError(f"{path} is a pickle, which can run code; save the model as safetensors")
    for listing in files:
        if listing.name.endswith(".safetensors.index.json"):
            for name in _shards(listing):
                check_inside(name, listing)


def check_inside(name: str, listing: Path) -> None:
    """Refuse a path, named in a file of a model, that leads out of the folder of that file.

    >>> check_inside("1_Pooling", Path("model/modules.json"))
    >>> check_inside("../m.safetensors", Path("m/modules.json"))
    Traceback (most recent call last):
        ...
    harr.errors.ModelError: m/modules.json names '../m.safetensors', which is outside its folder; use a whole model
    """
    if os.path.isabs(name) or os.path.normpath(name).split(os.sep)[0] == ".." or "\\" in name:
        raise ModelError(f"{listing} names {name[:100]!r}, which is outside its folder; use a whole model")


def check_publishable(folder: Path) -> None:
    """Look at a folder before it goes into the registry.

    Raises:
        ModelError: names the first file that no model of harr has, or a link.
    """
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or (path.is_file() and path.suffix not in KINDS):
            what = "a link" if path.is_symlink() else "a file of another kind"
            raise ModelError(
                f"{path} is {what}; a registered model holds {', '.join(sorted(KINDS))} only; nothing was registered; "
                "remove it, or run `dvc repro -f -s merge`"
            )


def _shards(listing: Path) -> list[str]:
    """The files that an index of shards names."""
    try:
        return [str(name) for name in read_json(listing)["weight_map"].values()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise ModelError(f"{listing} is no index of shards; fetch the model again") from None
