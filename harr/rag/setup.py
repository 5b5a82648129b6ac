"""Everything that a method needs to play and to learn, in one record."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from harr.rag.scoring.reward import Reward
from harr.types import Generator, Pipeline, Question, Retriever

if TYPE_CHECKING:  # they load transformers, which most users of Setup do not need
    from harr.rag.generation.sampler import Samplers
    from harr.rag.generation.server import ServerSamplers
    from harr.rag.policies.dense import DensePolicy
    from harr.rag.policies.two_tower import TwoTowerPolicy


@dataclass(frozen=True)
class Setup:
    """The game of one run: its questions, its pipeline, its two players, and its reward.

    ``identity`` is a hash of the questions, the index and the parameters that shape an episode: it names resumable
    work, so a run never continues a different game.
    """

    questions: Sequence[Question]
    pipeline: Pipeline
    retriever: Retriever
    generator: Generator | None
    reward: Reward
    identity: str
    index: str = ""
    """Identity of the index, and of the multi-vector model that reranks its hits."""
    data: Path | None = None
    """The questions' folder, where LeReT finds its preferences."""
    language_model: str = ""
    """Folder or hub name of the language model if it learns; ``generator`` is None then."""
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Variables of that model's chat template."""
    sample: "Samplers | ServerSamplers | None" = None
    """Samplers of that language model, by temperature."""
    temperature: float = 1.0
    """The temperature at which it is sampled in training."""
    validation: Sequence[Question] = ()
    """Questions that are played between steps and never learnt from."""
    validation_pipeline: Pipeline | None = None
    """The evaluation pipeline, for validation; None: the training pipeline."""

    @property
    def policy(self) -> "DensePolicy | TwoTowerPolicy":
        """Return the retriever that learns: it has encoders, and samples by given random numbers."""
        return cast("DensePolicy | TwoTowerPolicy", self.retriever)
