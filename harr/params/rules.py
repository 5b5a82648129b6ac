"""What fits with what among the sections of params.yaml."""

from harr.params.evaluate import EvaluateParams
from harr.params.retriever import RetrieverParams


def check_search(retriever: RetrieverParams, evaluate: EvaluateParams, *, full_text: bool) -> None:
    """See that the index has what is searched, and that what is told of a search is read.

    Raises:
        ValueError: it is not.
    """
    search, by_words = retriever.search, {name: arm.search for name, arm in evaluate.arm_table.items() if arm.search}
    if (by_words or search != "dense") and not full_text:
        what = f"the arm {min(by_words)}" if by_words else f"retriever.search {search}"
        raise ValueError(f"{what} needs the BM25 index; set index.full_text: true")
    if search != "dense" and retriever.candidates == "question":
        raise ValueError(
            f"retriever.search {search} is for candidates: corpus; given passages are not searched, "
            "they all compete; set retriever.search: dense"
        )
    unread = {"fusion", "weights"} & retriever.model_fields_set
    if unread and search != "hybrid" and "hybrid" not in by_words.values():
        raise ValueError(
            f"retriever.{min(unread)} is for search: hybrid and the arm hybrid, search is {search}; leave it out"
        )
