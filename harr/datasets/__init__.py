"""Stage download: one file per kind of data set, and :data:`DATASETS`, the table of all.

Another package's is named in params.yaml: ``download: {dataset: function, function: "mine.data:load", settings: {}}``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harr.datasets.local import jsonl
from harr.datasets.source import Source
from harr.errors import ParamsError
from harr.params.download import DatasetParams, FunctionDatasetParams, QuestionsParams
from harr.params.faults import read_section
from harr.params.functions import function_of, import_named


@dataclass(frozen=True, slots=True)
class Dataset:
    """A data set as stage download and `harr preview` read it.

    Args:
        load: turns section ``download`` into a :class:`Source`.
        origin: returns a text that says where its passages come from.
        preview: like ``load``, for data sets whose ``load`` would ask other machines.
        vast: whether its questions can be read without its passages, of which there may be millions.
        apart: whether it guarantees that no passage is gold in two splits.
        settings: another package's class for ``download.settings``, which the functions then take.
    """

    load: Callable[..., Source]
    origin: Callable[[Any], str]
    preview: Callable[..., Source] | None = None
    vast: bool = False
    apart: bool = False
    settings: type[QuestionsParams] | None = None


def _function(params: Any) -> Source:
    settings = params.settings
    load = function_of(params.function, key="download.function", shape="returns a Source", takes=0, settings=settings)
    source = load(**settings)
    if not isinstance(source, Source):
        raise ParamsError(
            f"download.function: {params.function} returned {type(source).__name__}; return a Source "
            "(harr/datasets/source.py)"
        )
    return source


DATASETS = {
    "jsonl": Dataset(jsonl, lambda params: f"the files {', '.join(params.passages)}"),
    "function": Dataset(_function, lambda params: f"what {params.function} gives"),
}


def dataset_of(params: DatasetParams) -> tuple[Dataset, Any]:
    """Return the data set named by section ``download``, and the section that it reads.

    Raises:
        ParamsError: another package's record cannot be imported, or takes other settings.
    """
    if isinstance(params, FunctionDatasetParams):
        record = import_named(params.function, key="download.function")
        if isinstance(record, Dataset) and record.settings:
            values = {"validation_questions": params.validation_questions, **params.settings}
            return record, read_section(record.settings, values, "download.settings")
    return DATASETS[params.dataset], params
