"""Build the pipeline and the reward from their sections."""

from functools import partial

from harr.builders.encoder import build_encoder
from harr.builders.generators import GeneratorSection, build_judge, language_model_facts
from harr.builders.places import Places
from harr.compute import distributed
from harr.params.embed import EncoderParams
from harr.params.pipeline import PickParams, PipelineParams
from harr.params.reward import RewardParams
from harr.rag.pipelines import PIPELINES
from harr.rag.scoring.reranker import open_reranker
from harr.rag.scoring.reward import SIMILARITY, Reward
from harr.rag.scoring.similarity import Encode
from harr.types import Pipeline


def build_pipeline(section: PipelineParams, generator: GeneratorSection, places: Places) -> Pipeline:
    """Return the pipeline with its settings; ``generator``'s tokenizer limits its prompts, its template frames them.

    Raises:
        ModelError: ``pipeline.template`` is chat, but the model has no usable chat template.
    """
    return PIPELINES[section.name](section, language_model_facts(generator, places))


def for_training(section: PipelineParams) -> PipelineParams:
    """Return the section as training plays it: a pick without its ranking's tail, which would only add noise."""
    return section.model_copy(update={"depth": 0}) if isinstance(section, PickParams) else section


def build_reward(section: RewardParams, encoder: EncoderParams, seed: int, places: Places) -> Reward:
    """Return the weighted reward terms, with the judge, reranker and untrained ``encoder`` if they are named."""
    judge = build_judge(section.judge, seed, places)
    encode = _encode(encoder) if SIMILARITY in section.terms else None
    rerank = open_reranker(section.reranker, "reward.reranker") if section.reranker else None
    return Reward(section.terms, judge, encode, rerank, mix=section.mix, filter_by_mean=section.filter_by_mean)


def _encode(section: EncoderParams) -> Encode:
    """Return an encoding function with its own encoder, which nothing trains; several processes share the work."""
    encoder = build_encoder(section)
    return lambda texts: distributed.all_gather(texts, partial(encoder.encode, prompt=encoder.plain_prompt))
