"""params.yaml as types: one closed class per section, so that a typo is an error and not a default.

Each file defines a section (``harr/params/train.py``: section ``train``). Only flows, tasks and ``harr.builders`` see
:class:`Params`; the rest of the library takes the section it needs or plain values. Nothing else imports pydantic.
"""

from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from harr.errors import ParamsError
from harr.io.yaml_file import read_yaml
from harr.params.download import DatasetParams
from harr.params.embed import EmbedParams, EncoderParams
from harr.params.evaluate import EvaluateParams
from harr.params.faults import SomeSection, read_section
from harr.params.fields import Section, Seed
from harr.params.filter import FilterParams
from harr.params.generator import GeneratorParams
from harr.params.index import IndexParams
from harr.params.pipeline import PipelineParams
from harr.params.retriever import RetrieverParams
from harr.params.reward import RewardParams
from harr.params.rule_words import LANGUAGE_MODEL
from harr.params.rules import RULES
from harr.params.servers import ServerParams, resolve_servers
from harr.params.sources import SourceParams
from harr.params.tracking import MergeParams, TrackingParams
from harr.params.train import TrainParams


class Params(Section):
    """All parameters of params.yaml, one field per section."""

    seed: Seed = 0
    """Seed of all random draws, except those of the data set."""
    download: DatasetParams
    """Data set, with its corpus and questions."""
    encoder: EncoderParams = EncoderParams()
    """Embedding model that passages are indexed with and that training starts from."""
    embed: EmbedParams = EmbedParams()
    """Computation of the passage vectors."""
    index: IndexParams = IndexParams()
    """Index in which the vectors are searched."""
    retriever: RetrieverParams = RetrieverParams()
    """Player that finds passages."""
    servers: dict[str, ServerParams] = Field({})
    """Servers of language models, embeddings, rerankers and passages by name; other sections name them."""
    sources: dict[str, SourceParams] = Field({})
    """Sources that are searched instead of the index, by name: where searches name a tool, by the name of the tool."""
    pipeline: PipelineParams
    """RAG pipeline that plays a question."""
    generator: GeneratorParams
    """Language model that writes queries and answers."""
    reward: RewardParams = RewardParams()
    """Reward of an episode, from which the player learns."""
    filter: FilterParams = FilterParams()
    """Choice of training questions worth learning from."""
    train: TrainParams
    """Method by which the player learns."""
    evaluate: EvaluateParams = EvaluateParams()
    """Comparison of the trained model with others."""
    merge: MergeParams = MergeParams()
    """Folding of the adapter into the model."""
    tracking: TrackingParams = TrackingParams()
    """Record of runs, and what a promotion requires."""
    plugins: dict[str, dict[str, Any]] = Field({})
    """Sections of plug-ins by their names, each read only by its plug-in, not by stages."""

    @model_validator(mode="before")
    @classmethod
    def _servers_stand_for_their_names(cls, values: Any) -> Any:
        servers = values.get("servers") if isinstance(values, dict) else None
        return resolve_servers(values, servers) if isinstance(servers, dict) else values

    @model_validator(mode="after")
    def _sections_fit(self) -> "Params":
        for rule in RULES:
            rule(self)
        return self

    @property
    def language_model_learns(self) -> bool:
        """Return whether the language model learns, not the retriever."""
        return self.train.learns == LANGUAGE_MODEL

    @property
    def proposals(self) -> list[str]:
        """Return the arms that can be champion: those that search the corpus without a server and are no ceiling."""
        if self.language_model_learns or self.sources or self.train.positions:
            return ["trained"]
        return [name for name, arm in self.evaluate.arm_table.items() if arm.can_be_served]

    @property
    def baseline(self) -> str:
        """Return the arm that `trained` is compared with: what it was before training."""
        if not self.language_model_learns:
            return "frozen"
        return "warmstart" if self.generator.taught and "warmstart" in self.train.arms else "base"

    def of_plugin(self, name: str, section: type[SomeSection]) -> SomeSection:
        """Return the section of a plug-in, ``plugins.<name>``, as its type; with defaults if it is missing.

        Raises:
            ParamsError: the section has a wrong key or value; one line per fault.

        >>> class Count(Section):
        ...     most: int = 10
        >>> Params.model_construct(plugins={"count": {"most": 3}}).of_plugin("count", Count).most
        3
        """
        return read_section(section, self.plugins.get(name, {}), f"params.yaml: section plugins.{name}")

    @classmethod
    def load(cls, path: Path = Path("params.yaml")) -> "Params":
        """Read and check a parameter file.

        Raises:
            ParamsError: the file is missing, is not YAML, or has a wrong key or value; one line
                per fault with the key's full name and, for an unknown key, the nearest known one.
        """
        values = read_yaml(path, mend="copy one of recipes/*.yaml there")
        if not isinstance(values, dict):
            raise ParamsError(f"{path}: expected sections such as `train:`, found {type(values).__name__}")
        return read_section(cls, values, str(path))
