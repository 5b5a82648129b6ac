"""Convert a checkpoint of Q-RAG's own code to a model for `harr lengths` and `harr evaluate`."""

from pathlib import Path

from harr.errors import ParamsError
from harr.params import Params
from tasks.merge import loading_facts
from tasks.paths import WORK


def convert_checkpoint(params: Params, checkpoint: Path, out: Path) -> Path:
    """Write the model folder ``out`` of a checkpoint, with the encoder and retriever it was trained with.

    Raises:
        ParamsError: ``out`` exists, or train.method trains no two towers.
        ModelError: the checkpoint is of another kind or base.
    """
    from harr.builders.encoder import build_encoder
    from harr.builders.retrievers import towers_policy
    from harr_qrag_checkpoints.checkpoint import convert

    if out.exists():
        raise ParamsError(f"{out} is there already; remove it, or name another folder")
    if not params.train.positions:
        raise ParamsError(
            f"train.method {params.train.method} trains no two towers; take a recipe qrag_..._published.yaml"
        )
    states, actions = build_encoder(params.encoder), build_encoder(params.encoder)
    states.limit(params.retriever.max_tokens)
    towers = towers_policy(params.retriever, states, actions, None)
    facts = {
        "base": states.identity,
        "base_model": states.name,
        **loading_facts(params, params.encoder, states),
        **towers.facts,
    }
    convert(checkpoint, states, actions, out, WORK / "convert", facts)
    return out
