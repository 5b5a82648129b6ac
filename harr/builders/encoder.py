"""Build encoders from section ``encoder`` and from trained folders."""

from pathlib import Path

from harr.builders.fit import facts_of
from harr.compute import distributed
from harr.embed.encoder import Encoder
from harr.errors import ModelError
from harr.io.model_folder import DOCUMENT, find_folder, query_tower
from harr.params.embed import EncoderParams
from harr.rag.policies.encoder_adapter import load_adapter


def build_encoder(section: EncoderParams, model: str = "") -> Encoder:
    """Return the encoder of params.yaml, or another ``model`` with the same limits and prompts."""
    return Encoder(
        model or section.model,
        max_tokens=section.max_tokens,
        query_prompt=section.query_prompt,
        plain_prompt=section.plain_prompt,
        passage_prompt=section.passage_prompt,
        normalize=section.normalize,
        device=distributed.device(),
    )


def query_section(section: EncoderParams, model: str) -> EncoderParams:
    """Return the section of the encoder that reads states: ``encoder``, or it with the folder ``retriever.encoder``.

    Such a folder has its own prompt, with which its map was learnt.
    """
    if not model:
        return section
    folder = find_folder(model, "retriever.encoder")
    if (tower := query_tower(folder)) != folder:
        model = str(tower)
    return section.model_copy(update={"model": model, "query_prompt": None, "plain_prompt": None})


def trained_encoder(section: EncoderParams, folder: Path) -> Encoder:
    """Return an encoder from the folder of an adapter, which is merged, or of a merged model.

    ``section`` is that of the encoder that reads states.

    Raises:
        ModelError: there is no such folder.
    """
    if not folder.is_dir():
        raise ModelError(f"trained model {folder} does not exist; run `dvc repro`, or name a folder that does")
    if (folder / "modules.json").exists():
        return build_encoder(section, str(query_tower(folder)))
    encoder = build_encoder(section)
    if adapter := load_adapter(encoder, folder):
        adapter.merge_and_unload()
    return encoder


def action_folder(folder: Path) -> Path | None:
    """Return the folder of the trained action tower in an adapter or merged model, or None.

    In a merged model it is the document tower.
    """
    names = ("action", DOCUMENT) if "positions" in facts_of(folder) else ("action",)
    return next((folder / name for name in names if (folder / name).is_dir()), None)
