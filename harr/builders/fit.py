"""Check whether a model folder fits the vectors and params.yaml."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harr.embed.encoder import Encoder
from harr.errors import IndexMismatch, ModelError
from harr.io.files import read_json
from harr.io.model_folder import find_folder


def facts_of(folder: Path) -> dict[str, Any]:
    """Return how a model folder was made (harr.json); {} if harr did not make it."""
    path = folder / "harr.json"
    return dict(read_json(path)) if path.exists() else {}


def made_for(model: str) -> str:
    """Return the identity of the encoder for whose vectors a folder reads states; "" if it names none."""
    return str(facts_of(find_folder(model, "retriever.encoder")).get("documents", ""))


def check_encoder(encoder: Encoder, model: str, made_by: str, vectors: Path) -> None:
    """Refuse a passage encoder or state-reading ``model`` (``retriever.encoder``) that does not fit the vectors.

    Args:
        encoder: the one of section ``encoder``.
        model: the folder that reads states instead, or "".
        made_by: the identity of the encoder that made the vectors.
        vectors: the vectors' folder.

    Raises:
        IndexMismatch: the vectors are another encoder's.
        ModelError: the folder does not say for which vectors it reads states.
    """
    if encoder.identity != made_by:
        raise IndexMismatch(
            f"{vectors} was made by encoder {made_by}, but params.yaml names "
            f"{encoder.name} ({encoder.identity}); run `dvc repro`, or set encoder back"
        )
    if not model:
        return
    if not (expected := made_for(model)):
        raise ModelError(
            f"retriever.encoder {model} does not say whose vectors it reads states for; run `harr bridge --model "
            f"{model}`, and name the folder that it writes"
        )
    if expected != made_by:
        raise IndexMismatch(
            f"retriever.encoder {model} reads states for vectors of encoder {expected}, but {vectors} was made by "
            f"{made_by}; run `harr bridge` again, or name another folder"
        )


def check_trained(folder: Path, values: Mapping[str, Any]) -> None:
    """Refuse a model that was trained with other settings than it would be played with.

    Args:
        folder: an adapter or a merged model.
        values: the settings in params.yaml, by their name in harr.json.

    Raises:
        ModelError: a setting differs; names the first one and its place in params.yaml.
    """
    facts = facts_of(folder)
    for name, value in values.items():
        if (trained := facts.get(name, value)) != value:
            key = f"{'encoder' if name == 'normalize' else 'retriever'}.{name}"
            raise ModelError(
                f"{folder} was trained with {key} {trained}, params.yaml says {value}; set it to what it was trained with"
            )
