"""The encoder of a server, and of a corpus in bfloat16, gives the ordinary encoder's vectors."""

import copy

import numpy as np
import pytest
import torch

from harr.embed.encoder import Encoder
from harr.embed.inference import InferenceEncoder, for_inference, is_bert

TEXTS = [f"Where was the founder of firm {n} born? " * (1 + n % 7) for n in range(40)] + [
    "",
    "x",
    "a " * 4000,
    "Ähre\n日本",
]


@pytest.fixture(scope="module")
def encoder(tiny: str) -> Encoder:
    return Encoder(tiny, max_tokens=128)


@pytest.mark.parametrize(("dtype", "least"), [(torch.float32, 0.999999), (torch.bfloat16, 0.9995)])
def test_vectors_are_those_of_the_ordinary_encoder(encoder: Encoder, dtype: torch.dtype, least: float) -> None:
    found = for_inference(encoder, dtype)
    assert isinstance(found, InferenceEncoder) and found.identity == encoder.identity
    for prompt, max_tokens in (("", None), ("query: ", 32)):
        wanted_ND = encoder.encode(TEXTS, prompt=prompt, max_tokens=max_tokens)
        vectors_ND = found.encode(TEXTS, prompt=prompt, max_tokens=max_tokens)
        assert vectors_ND.dtype == np.float32 and float((wanted_ND * vectors_ND).sum(-1).min()) > least
    assert found.encode([]).shape == (0, encoder.width)


def test_alone_a_text_has_the_same_bytes_whatever_is_encoded_beside_it(encoder: Encoder) -> None:
    found = for_inference(encoder, torch.bfloat16)
    together_ND = found.encode(TEXTS, batch_size=8, alone=True)
    apart_ND = np.concatenate([found.encode([text], batch_size=8, alone=True) for text in TEXTS[:12]])
    np.testing.assert_array_equal(apart_ND, together_ND[:12])


def test_another_model_keeps_the_ordinary_way(encoder: Encoder) -> None:
    other = copy.copy(encoder)
    other.model = copy.deepcopy(encoder.model)
    other.model[0].auto_model.config.hidden_act = "relu"
    assert is_bert(encoder) and not is_bert(other)
    assert for_inference(other, torch.float32) is other
    assert not isinstance(for_inference(other, torch.bfloat16), InferenceEncoder)


def test_one_whose_vectors_are_others_is_not_taken(encoder: Encoder) -> None:
    other = copy.copy(encoder)
    other.model = copy.deepcopy(encoder.model)
    other.model[0].auto_model.embeddings.LayerNorm.forward = lambda x: x.flip(-1)  # unknown to the copy for inference
    assert is_bert(other) and for_inference(other, torch.float32) is other
