"""Stage index: vectors and texts into Milvus."""

from pathlib import Path

from prefect import task

from harr.params import Params
from tasks.common import TASK
from tasks.download import CORPUS
from tasks.embed import VECTORS

INDEX, WORK = Path("data/index"), Path("work/index")


@task(**TASK)
def index_passages(params: Params) -> dict[str, float]:
    """Build the collection, or go on where a killed build stopped; the count is checked at the end."""
    from harr.corpus.store import Passages
    from harr.retrieval.index import build_index
    from harr.retrieval.vectors import Vectors

    return build_index(Passages.open(CORPUS), Vectors.open(VECTORS), params.index, INDEX, WORK)
