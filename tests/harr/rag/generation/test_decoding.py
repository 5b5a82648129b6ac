"""Samples follow the model's probabilities, and the end of a text is found however its tokens split it."""

import pytest
import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import PreTrainedTokenizerFast

from harr.rag.generation.decoding import MANY_ROWS, Draw, StopRows, TokenTexts


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_draws_have_the_chances_of_the_model(temperature: float, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    rows = 10_000
    logits = torch.randn(50)
    logits[7] = -torch.inf
    drawn = Draw(temperature, [str(row) for row in range(rows)], 1)(torch.zeros(0), logits.expand(rows, -1).clone())
    counts = torch.bincount(drawn.argmax(dim=1), minlength=50)
    expected = rows * torch.softmax(logits / temperature, dim=0)
    seen = expected > 0
    chi_square = ((counts - expected)[seen] ** 2 / expected[seen]).sum()
    assert chi_square < 85.4  # 48 degrees of freedom, p .001 is 84.0
    assert counts[7] == 0 and torch.isfinite(drawn).sum() == rows
    monkeypatch.setattr(torch, "rand", lambda count, **_: torch.full((count,), 1 - 2**-24))
    scores = torch.tensor([[0.0, 1.0, -torch.inf]])
    assert Draw(1.0, ["a"], 1)(torch.zeros(0), scores).argmax() == 1, "the largest number, too, draws what has a chance"


def bytewise(text: str) -> PreTrainedTokenizerFast:
    """Train a byte-level tokenizer on a text; it splits non-ASCII letters into several tokens."""
    learnt = ByteLevelBPETokenizer()
    learnt.train_from_iterator([text] * 3, vocab_size=300, min_frequency=2)
    return PreTrainedTokenizerFast(tokenizer_object=learnt._tokenizer)


@pytest.mark.parametrize("stop", ["</search>", "\n\n", "é", "ende.", "日本"])
def test_a_stop_string_is_found_at_the_token_that_completes_it(stop: str) -> None:
    text = f"a search for something {stop} and more"
    tokenizer = bytewise(text)
    texts, ids = TokenTexts(tokenizer), tokenizer(text)["input_ids"]
    criterion = StopRows(texts, 0, [("never",), (stop,), ()])
    for size in range(1, len(ids) + 1):
        never, done, without = criterion(torch.tensor([ids[:size]] * 3), None).tolist()
        assert done == (stop in tokenizer.decode(ids[:size])) and not never and not without


@pytest.mark.parametrize(("width", "ends"), [(1, True), (9, False)])
def test_a_batch_of_which_half_has_ended_ends_where_rows_may_write_more_than_they_read(width: int, ends: bool) -> None:
    tokenizer = bytewise("a search")
    end = tokenizer("z")["input_ids"][0]
    criterion = StopRows(TokenTexts(tokenizer), width, [()] * MANY_ROWS, max_tokens=10, ends={end})
    ids_BT = torch.full((MANY_ROWS, width + 1), end)
    ids_BT[: MANY_ROWS // 2, -1] = tokenizer("a")["input_ids"][0]
    assert criterion(ids_BT, None).tolist() == [ends] * MANY_ROWS
