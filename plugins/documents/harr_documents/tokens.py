"""The tokens of an encoder, without its weights: for cutting texts before anything is embedded."""

from typing import Any

from transformers import AutoTokenizer

from harr.errors import ModelError, one_line
from harr.io.model_folder import UNLOADABLE, find_folder
from harr_documents.chunks import Spans


def token_spans(name: str) -> Spans:
    """Return a function that finds the start and end of a text's tokens, by the tokenizer of model ``name``.

    Raises:
        ModelError: there is no such model, or its tokenizer gives no offsets.
    """
    folder = find_folder(name)
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except UNLOADABLE as error:
        raise ModelError(f"the tokeniser of {name} in {folder} cannot be loaded: {one_line(error)}") from None
    if not tokenizer.is_fast:
        raise ModelError(
            f"the tokeniser of {name} has no tokenizer.json, which is needed to cut texts; use a model with"
        )

    def spans(text: str) -> list[tuple[int, int]]:
        offsets = tokenizer(
            text, add_special_tokens=False, truncation=False, return_offsets_mapping=True, verbose=False
        )["offset_mapping"]
        return [(begin, end) for begin, end in offsets if end > begin]

    return spans
