"""A model folder that every loader reads: sentence-transformers 5 and 6, AutoModel, vLLM, text-embeddings-inference.

Version 6 of sentence-transformers writes class paths and keys that nothing older knows; it still reads the older ones.
"""

from pathlib import Path
from typing import Any

from harr.io.files import read_json, write_json
from harr.io.model_folder import DOCUMENT, QUERY, ROUTER_FILE

LEGACY = "sentence_transformers.models"
CLASSES = ("Transformer", "Pooling", "Normalize", "Dense", "StaticEmbedding", "LayerNorm", "Dropout", "Router")
"""Modules that version 5 knows by the same name."""
MODES = {
    "cls": "cls_token",
    "mean": "mean_tokens",
    "max": "max_tokens",
    "mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "weightedmean": "weightedmean_tokens",
    "lasttoken": "lasttoken",
}
"""Ways to pool, and how the keys ``pooling_mode_...`` name them."""
MODULE_KEYS = {"module_input_name", "module_output_name"}
"""Keys of version 6 that a module over whole texts has at their defaults."""


def make_portable(folder: Path, max_tokens: int) -> None:
    """Rewrite a folder saved by version 6, so that older loaders read it as the same model.

    Both spellings of pooling are written, but for its width, whose new name version 5 refuses; class paths are the old
    ones. A module that version 5 lacks stays as it is.
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
    """Return the configuration of a pooling in both spellings.

    >>> told = pooling({"embedding_dimension": 384, "pooling_mode": "mean", "include_prompt": True})
    >>> told["word_embedding_dimension"], told["pooling_mode_mean_tokens"], told["pooling_mode_cls_token"]
    (384, True, False)
    >>> told["pooling_mode"], "embedding_dimension" in told
    ('mean', False)
    """
    mode = config["pooling_mode"]
    modes = [mode] if isinstance(mode, str) else mode
    flags = {f"pooling_mode_{spelt}": name in modes for name, spelt in MODES.items()}
    one = {"pooling_mode": mode} if isinstance(mode, str) else {}  # version 5 reads one name only
    width = config["embedding_dimension"]
    return {"word_embedding_dimension": width, **flags, **one, "include_prompt": config["include_prompt"]}


def _rewrite_transformer(path: Path, max_tokens: int) -> None:
    """Say of a transformer of plain texts what version 5 reads, which refuses any other key."""
    config = read_json(path)
    reads = config.get("modality_config", {}).get("text", {}).get("method_output_name")
    if (config.get("transformer_task"), reads) == ("feature-extraction", "last_hidden_state"):
        write_json(path, {"max_seq_length": max_tokens, "do_lower_case": False})


def write_router(folder: Path) -> None:
    """Make one model of the two towers in a folder, without a second copy of their weights.

    Text is a document where nobody says what it is: a query that is taken for one is merely not better than before
    training, while a document that is taken for a query has a vector that no query looks for.
    """
    types: dict[str, str] = {}
    structure: dict[str, list[str]] = {}
    for tower in (QUERY, DOCUMENT):
        modules = {
            Path(tower, one["path"]).as_posix(): one["type"] for one in read_json(folder / tower / "modules.json")
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
