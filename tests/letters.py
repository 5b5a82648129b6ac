"""A language model of single letters, and a game small enough to learn in seconds."""

import string
from collections.abc import Generator as PyGenerator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from harr.params import Params
from harr.params.loop import CheckpointParams, OptimizerParams
from harr.params.train import AgentParams
from harr.rag.scoring.reward import Reward
from harr.rag.setup import Setup
from harr.types import Episode, Generate, Outcome, Passage, Question, Request, Retrieval, Search

TEMPLATE = "{% for m in messages %}{{ m.role[0] }}{{ m.content }}{% endfor %}a"
SHOWN = "xyz"
"""What the environment adds to the text after a search."""


def save_letters(folder: Path, *, spread: float, room: int = 64, printable: bool = False, head: int = 8) -> Path:
    """Write a random model whose tokens are single letters, or all ``printable`` ones; ``spread``: of its weights.

    ``head``: width of an attention head; vLLM needs at least 32.
    """
    letters_ = string.printable if printable else string.ascii_lowercase
    words = {letter: number for number, letter in enumerate(["<eos>", "<pad>", *letters_])}
    letters = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    letters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    letters.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=letters, eos_token="<eos>", pad_token="<pad>")
    tokenizer.chat_template = TEMPLATE
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(words),
        hidden_size=2 * head,
        intermediate_size=4 * head,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=head,
        max_position_embeddings=room,
        initializer_range=spread,
        eos_token_id=0,
        pad_token_id=1,
        bos_token_id=None,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def sampling_params() -> Params:
    """Return the small agent's recipe with three samples per question."""
    found = Params.load(Path("recipes/agent_small.yaml"))
    return found.model_copy(update={"evaluate": found.evaluate.model_copy(update={"samples": 3})})


def one_answer(answer: str) -> Any:
    """Return a model that gives one answer."""
    return SimpleNamespace(complete=lambda requests: [f"<answer>{answer}" for _ in requests])


def spell(question: Question) -> PyGenerator[Request, Any, Outcome]:
    """Write letters up to an s, search, then write letters up to a t: the answer."""
    first: str = yield Generate(prompt=question.text, stop=("s",))
    yield Search(question, first)
    answer: str = yield Generate(prompt=f"{question.text}{first}s{SHOWN}", stop=("t",))
    return Outcome(answer)


def share_of_a(episode: Episode) -> float:
    return (episode.answer or "").count("a") / max(4, len(episode.answer or ""))


def variety(episode: Episode) -> float:
    """Return the share of the alphabet that the model used."""
    return len(set("".join(turn.completion for turn in episode.turns))) / 26


def half(episode: Episode) -> float:
    return 0.5


def share_without_a(episode: Episode) -> float:
    return 1.0 - share_of_a(episode)


def share_of_a_unless_q(episode: Episode) -> float | None:
    """Return no reward for the question "q"."""
    return None if episode.question.text == "q" else share_of_a(episode)


def logprobs(model: Any, prompt: list[int], ids: list[int], temperature: float = 1.0) -> list[float]:
    """Return the log-probability of every id after a prompt."""
    with torch.no_grad():
        logits = model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1] / temperature
    found: list[float] = logits.log_softmax(-1).gather(-1, torch.tensor(ids)[:, None])[:, 0].tolist()
    return found


class OnePassage:
    """A corpus of one passage."""

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        return [Retrieval((Passage("p", SHOWN),)) for _ in searches]


QUESTIONS = [Question(f"q{number}", text) for number, text in enumerate(["q", "w", "e", "r"])]


AGENT = AgentParams(
    method="agent",
    steps=12,
    questions_per_step=4,
    group_size=8,
    optimizer=OptimizerParams(learning_rate=3e-2),
    episodes_per_pass=8,
    max_tokens=6,
    checkpoints=CheckpointParams(every=4),
    lora=None,
)
"""A training that takes seconds."""


def letters_setup(folder: Path) -> Setup:
    """Return a game whose model, written to the folder, is rewarded for each a in its answer."""
    language_model = save_letters(folder, spread=0.5)
    reward = Reward({"letters:share_of_a": 1.0})
    return Setup(QUESTIONS, spell, OnePassage(), None, reward, "letters", language_model=str(language_model))  # type: ignore[arg-type]


def nothing(step: int, values: object) -> None:
    """Log nowhere."""
