"""What a model card says that both the merged folder and the hub show."""

from collections.abc import Mapping


def purpose(facts: Mapping[str, str]) -> str:
    """Return what a merged model is for, from its harr.json: queries for an index of its base, or one of two towers."""
    base = facts["base_model"]
    if "positions" not in facts:
        return (
            "It encodes *queries* for an index that was built with its base encoder,\n"
            f"{base}; passages keep the vectors of the base."
        )
    return (
        "It is one of two towers: `retriever` reads the question and the passages picked so far, joined by [SEP];\n"
        "`retriever/action` reads the passages that may be picked next. Values need both, and positions as named\n"
        f"below (harr/rag/policies/q_values.py). Base encoder: {base}."
    )
