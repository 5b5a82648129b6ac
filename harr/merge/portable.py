"""Model folders that every loader reads: sentence-transformers 5 and 6, AutoModel, vLLM, text-embeddings-inference.

sentence-transformers 6 writes class paths and keys that older versions refuse; it still reads theirs.
"""

from pathlib import Path
from typing import Any

from harr.io.files import read_json, write_json
from harr.io.model_folder import DOCUMENT, QUERY, ROUTER_FILE

LEGACY = "sentence_transformers.models"
CLASSES = ("Transformer", "Pooling", "Normalize", "Dense", "StaticEmbedding", "LayerNorm", "Dropout", "Router")
"""Modules with the same names in version 5."""
MODES = {
    "cls": "cls_token",
    "mean": "mean_tokens",
    "max": "max_tokens",
    "mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "weightedmean": "weightedmean_tokens",
    "lasttoken": "lasttoken",
}
"""Pooling modes, and their names in the keys ``pooling_mode_...``."""
MODULE_KEYS = {"module_input_name", "module_output_name"}
"""Version 6 keys that have their defaults in a module over whole texts."""


def make_portable(folder: Path, max_tokens: int) -> None:
    """Rewrite a folder saved by version 6 so that older loaders read it as the same model.

    Pooling is written in both spellings, except its width, whose new name version 5 refuses; class paths are the old
    ones. A module that version 5 lacks stays unchanged.
    """
    modules = read_json(folder / "modules.json")
    for module in modules:
        name = module["type"].rsplit(".", 1)[-1]
        path = folder / module["path"] / "config.json"
        if module["type"].startswith("sentence_transformers.") and name in CLASSES:
            module["type"] = f"{LEGACY}.{name}"
        if name == "Transformer":
            _rewrite_transformer(folder / module["path"] / "sentence_bert_config.json", max_tokens)
        elif name == "Pooling":
            write_json(path, pooling(read_json(path)))
        elif name == "Dense":
            write_json(path, {key: value for key, value in read_json(path).items() if key not in MODULE_KEYS})
    write_json(folder / "modules.json", modules)


def pooling(config: dict[str, Any]) -> dict[str, Any]:
    """Return a pooling configuration in both spellings.

    >>> config = pooling({"embedding_dimension": 384, "pooling_mode": "mean", "include_prompt": True})
    >>> config["word_embedding_dimension"], config["pooling_mode_mean_tokens"], config["pooling_mode_cls_token"]
    (384, True, False)
    >>> config["pooling_mode"], "embedding_dimension" in config
    ('mean', False)
    """
    mode = config["pooling_mode"]
    modes = [mode] if isinstance(mode, str) else mode
    flags = {f"pooling_mode_{key}": name in modes for name, key in MODES.items()}
    mode_entry = {"pooling_mode": mode} if isinstance(mode, str) else {}  # version 5 reads only one name
    width = config["embedding_dimension"]
    return {"word_embedding_dimension": width, **flags, **mode_entry, "include_prompt": config["include_prompt"]}


def _rewrite_transformer(path: Path, max_tokens: int) -> None:
    """Write a text transformer's configuration for version 5, which refuses other keys."""
    config = read_json(path)
    reads = config.get("modality_config", {}).get("text", {}).get("method_output_name")
    if (config.get("transformer_task"), reads) == ("feature-extraction", "last_hidden_state"):
        write_json(path, {"max_seq_length": max_tokens, "do_lower_case": False})


def write_router(folder: Path) -> None:
    """Combine a folder's two towers into one model, without copying their weights.

    Text without a route is a document: a query encoded as a document is merely no better than before training, but a
    document encoded as a query gets a useless vector.
    """
    types: dict[str, str] = {}
    structure: dict[str, list[str]] = {}
    for tower in (QUERY, DOCUMENT):
        modules = {
            Path(tower, module["path"]).as_posix(): module["type"]
            for module in read_json(folder / tower / "modules.json")
        }
        types |= modules
        structure[tower] = list(modules)
    parameters = {"default_route": DOCUMENT, "allow_empty_key": True}
    write_json(folder / ROUTER_FILE, {"types": types, "structure": structure, "parameters": parameters})
    write_json(folder / "modules.json", [{"idx": 0, "name": "0", "path": "", "type": f"{LEGACY}.Router"}])
    settings = read_json(folder / QUERY / "config_sentence_transformers.json")
    documents = read_json(folder / DOCUMENT / "config_sentence_transformers.json")["prompts"]["document"]
    settings["prompts"] = {"query": settings["prompts"]["query"], "document": documents}
    write_json(folder / "config_sentence_transformers.json", settings)
