"""Convert a checkpoint of Q-RAG's own code (github.com/griver/Q-RAG) to a two-tower model folder as of stage merge."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from sentence_transformers.sentence_transformer.modules import Dense
from torch import Tensor

from harr.embed.encoder import Encoder
from harr.errors import ModelError, one_line
from harr.io.files import draft, write_json, write_text
from harr.io.model_folder import DOCUMENT, QUERY
from harr.merge.card import model_card, purpose, usage
from harr.merge.portable import write_router
from harr.merge.retriever import save_stock

WEIGHTS = {QUERY: "state_embed.model.", DOCUMENT: "action_embed.model.model."}
"""Keys under which a checkpoint's critic keeps the transformer of each tower."""
UNREAD = ("pooler.", "embeddings.position_ids")
"""Parts of a transformer that no vector depends on."""


def convert(
    checkpoint: Path, states: Encoder, actions: Encoder, out: Path, work: Path, facts: Mapping[str, Any]
) -> None:
    """Write the towers of ``checkpoint`` to the model folder ``out``, which plays like one from stage merge.

    Only numbers are read from the checkpoint, a pickle. The encoders are two of the base that it was trained from, and
    become its towers. If ``facts`` encodes positions, a fixed layer reorders the numbers in both vectors: Q-RAG's code
    rotates neighbouring numbers together, ours those half a critic apart.

    Raises:
        ModelError: it is no such checkpoint, or of another base; or vectors are not the mean of their tokens.
    """
    critic = _critic(checkpoint)
    with draft(work / "qrag", out) as folder:
        for name, encoder in ((QUERY, states), (DOCUMENT, actions)):
            _fill(encoder, critic, WEIGHTS[name], checkpoint)
            if facts["positions"] != "none":
                encoder.model.append(_reordered(encoder.width))
            save_stock(encoder.model, folder / name, encoder)
        write_router(folder)
        write_json(folder / "harr.json", dict(facts))
        title = "A retriever that Q-RAG's own code trained"
        card = model_card("retriever", facts, title=title, what=purpose(facts), use=usage(facts))
        write_text(folder / "README.md", card)


def _critic(checkpoint: Path) -> Mapping[str, Tensor]:
    """Return the weights of both towers.

    Raises:
        ModelError: the file has none, or more than numbers.
    """
    if not checkpoint.is_file():
        raise ModelError(f"checkpoint {checkpoint} does not exist; expected model_last.pt or model_best.pt of Q-RAG")
    try:
        critic = torch.load(checkpoint, map_location="cpu", weights_only=True)["critic"]
        return {str(name): weight for name, weight in critic.items()}
    except Exception as error:  # a damaged or foreign file can fail in any way
        raise ModelError(
            f"{checkpoint} is no checkpoint of Q-RAG's code, whose critic holds two towers: {one_line(error, 200)}"
        ) from None


def _fill(encoder: Encoder, critic: Mapping[str, Tensor], prefix: str, checkpoint: Path) -> None:
    """Load the weights of a tower into an encoder of its base."""
    model: Any = encoder.model
    pooling = model[1].get_config_dict().get("pooling_mode") if len(model) > 1 else ""
    if encoder.normalize or pooling != "mean":
        raise ModelError(
            f"Q-RAG's BERT towers are the plain mean of their tokens; {encoder.name} pools by {pooling or 'nothing'}; "
            "set encoder.normalize: false, and encoder.model to a base without a later layer"
        )
    own = {name.removeprefix(prefix): weight for name, weight in critic.items() if name.startswith(prefix)}
    loaded = model[0].auto_model.load_state_dict(own, strict=False) if _fits(model[0].auto_model, own) else None
    strange = [] if loaded is None else [*loaded.missing_keys, *loaded.unexpected_keys]
    if loaded is None or [name for name in strange if not name.startswith(UNREAD)]:
        raise ModelError(
            f"{checkpoint} was not trained from {encoder.name}: its weights under {prefix} have other names or shapes; "
            "set encoder.model to the base that it was trained from"
        )


def _fits(model: torch.nn.Module, weights: Mapping[str, Tensor]) -> bool:
    """Return whether weights with the same name have the same shape."""
    own = model.state_dict()
    return bool(weights) and all(own[name].shape == weight.shape for name, weight in weights.items() if name in own)


def _reordered(width: int) -> Dense:
    """Return a layer that puts neighbouring numbers of a critic half a critic apart.

    >>> layer = _reordered(8)
    >>> layer({"sentence_embedding": torch.arange(8.0)[None]})["sentence_embedding"].tolist()
    [[0.0, 2.0, 1.0, 3.0, 4.0, 6.0, 5.0, 7.0]]
    """
    order = torch.arange(width).view(2, width // 4, 2).transpose(1, 2).flatten()
    layer = Dense(width, width, bias=False, activation_function=torch.nn.Identity())
    layer.linear.weight.data = torch.eye(width)[order]
    return layer
