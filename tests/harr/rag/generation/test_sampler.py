"""Tokens of episodes: sampled tokens are kept, and the environment's are told apart."""

from collections.abc import Sequence

import pytest
from letters import SHOWN, OnePassage, save_letters, spell

from harr.errors import ModelError
from harr.rag.generation.local_model import LanguageModel, load_model
from harr.rag.generation.sampler import Completion, Sampler, Trace
from harr.rag.rollout import play
from harr.types import Episode, Generate, Outcome, Question, Turn

QUESTIONS = [Question(f"q{number}", text) for number, text in enumerate(["s", "ts", "abc", "bst", "q"])] * 4


class Recorder:
    """Samples, and records every sampled token."""

    def __init__(self, language_model: LanguageModel, max_tokens: int = 6) -> None:
        self.language_model, self.max_tokens = language_model, max_tokens
        self.sampled: list[list[int]] = []

    def __call__(self, contexts: Sequence[Sequence[int]], stops: Sequence[tuple[str, ...]]) -> list[list[int]]:
        keys = [f"{len(self.sampled)}/{row}" for row in range(len(contexts))]
        found = self.language_model.generate(
            contexts, stops, temperature=1.0, keys=keys, max_tokens=self.max_tokens, batch_size=32
        )
        self.sampled += found
        return found


@pytest.fixture(scope="module")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    folder = save_letters(tmp_path_factory.mktemp("letters"), spread=0.3)
    return LanguageModel(*load_model(str(folder)), name="letters")


def played(language_model: LanguageModel, recorder: Recorder) -> list[Episode]:
    return play(QUESTIONS, spell, OnePassage(), Sampler(language_model, recorder, max_tokens=recorder.max_tokens))


def test_sampled_ids_are_the_trained_ids(language_model: LanguageModel) -> None:
    recorder = Recorder(language_model)
    own = []
    for episode in played(language_model, recorder):
        trace = Trace.of(episode)
        assert trace.prompt == language_model.encode(Generate(prompt=episode.question.text))
        assert len(trace.ids) == len(trace.own)
        first, second = (turn.completion for turn in episode.turns)
        assert isinstance(first, Completion) and isinstance(second, Completion)
        own += [first.ids, second.ids]
        assert [token for token, mine in zip(trace.ids, trace.own, strict=True) if mine] == first.ids + second.ids
        text = language_model.tokenizer.decode([t for t, mine in zip(trace.ids, trace.own, strict=True) if not mine])
        assert text == (SHOWN if first.ending == "s" else f"s{SHOWN}"), "the model's own s is not said again"
        assert trace.whole == (language_model.tokenizer.decode(second.ids[-1:]) in ("t", "<eos>")), (
            "whether the model ended it"
        )
        assert episode.outcome == Outcome(str(second))
    assert sorted(own) == sorted(recorder.sampled)
    assert {len(ids) for ids in own} > {1, 6}, "some stop at once, some are cut"
    assert sum(map(len, own)) / len(own) > 2, "a stop string in the prompt stops nothing"


def test_an_episode_without_room_is_counted(language_model: LanguageModel) -> None:
    sampler = Sampler(language_model, Recorder(language_model, max_tokens=62), max_tokens=62)
    episodes = play(QUESTIONS[:5], spell, OnePassage(), sampler)
    assert sampler.usage()["without_room"] > 0
    assert all(Trace.of(episode).ids for episode in episodes if episode.turns[0].completion)


def test_chat_goes_on_from_its_tokens_and_a_pipeline_that_rewrites_them_is_refused(
    language_model: LanguageModel,
) -> None:
    """The template writes role and content; the reply and what follows keep their ids."""
    opening = Generate(messages=({"role": "user", "content": "bc"},))
    reply = Completion.of("de", language_model.encode(opening), [5, 6], "")
    messages = (*opening.messages, {"role": "assistant", "content": "de"}, {"role": "user", "content": "f"})
    sampler = Sampler(language_model, Recorder(language_model), max_tokens=6)
    context = sampler.context(Generate(messages=messages, past=(Turn(opening, reply),)))
    assert language_model.tokenizer.decode(context) == "ubcadeufa"
    assert context[:6] == [*reply.context, *reply.ids]
    said = Turn(Generate(prompt="ab"), Completion.of("cd", [2, 3], [4, 5], ""))
    assert sampler.context(Generate(prompt="abcde", past=(said,))) == [2, 3, 4, 5, 6]
    with pytest.raises(ModelError, match="changed what the model had said"):
        sampler.context(Generate(prompt="abdc", past=(said,)))
