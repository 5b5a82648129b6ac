"""The language model that learns, as a generator that keeps its tokens.

Training needs exactly the sampled tokens. A completion therefore carries the ids that the model read and wrote, and the
next turn of its episode continues those ids: text is never encoded a second time. The environment's text between two
turns (passages, corrections) is encoded once and masked.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import takewhile
from typing import Any

from harr.errors import ModelError
from harr.rag.generation.chat_template import keeps_turns
from harr.rag.generation.local_model import NO_SETTINGS, LanguageModel, load_model
from harr.types import Episode, Generate, Turn

GenerateIds = Callable[[Sequence[Sequence[int]], Sequence[tuple[str, ...]]], list[list[int]]]
"""A function of (contexts, stops) that returns the ids that follow every context, ended as
:meth:`LanguageModel.generate` ends them."""
_REPLY = "\ue000reply\ue000"
"""A placeholder for a reply while a chat template writes the text around it."""


class Scored(list[int]):
    """Ids that another program sampled, each with its log-probability (nats) in that program, or None if not given.

    Importance sampling corrects for differences between that program and the trainer.
    """

    logprobs: list[float | None]

    @classmethod
    def of(cls, ids: Sequence[int], logprobs: Sequence[float | None]) -> "Scored":
        """Return ids with their log-probabilities."""
        scored = cls(ids)
        scored.logprobs = [value for _, value in zip(ids, logprobs, strict=True)]
        return scored


class Completion(str):
    """A completion with its tokens: ``context``, the ids that the model read, and ``ids``, those that it wrote.

    ``ids`` may include more than the text: ``ending``, a stop string or the end token, or "" if a limit cut the
    completion off.
    """

    context: list[int]
    ids: list[int]
    ending: str

    @classmethod
    def of(cls, text: str, context: list[int], ids: list[int], ending: str) -> "Completion":
        """Return a completion that carries its tokens."""
        completion = cls(text)
        completion.context, completion.ids, completion.ending = context, ids, ending
        return completion


@dataclass(frozen=True)
class Trace:
    """The tokens of an episode: ``prompt``, and ``ids``, all that followed it.

    ``own`` is 1 for the model's tokens, 0 for the environment's. ``logprobs`` are those of :class:`Scored` ids,
    otherwise 0.0. ``whole``: the model ended its last turn itself.
    """

    prompt: list[int]
    ids: list[int]
    own: list[int]
    logprobs: list[float | None]
    whole: bool

    @classmethod
    def of(cls, episode: Episode) -> "Trace":
        """Return the tokens of an episode that a :class:`Sampler` wrote.

        They end before the text for a turn that had no room: the model never read it.
        """
        turns = [turn.completion for turn in episode.turns if isinstance(turn.completion, Completion)]
        trace = cls(turns[0].context, [], [], [], whole=bool(turns[-1].ending))
        for number, completion in enumerate(turns):
            if number and not completion.ids:
                break
            trace.observe(completion.context[len(trace.prompt) + len(trace.ids) :])
            ids = completion.ids
            trace.ids.extend(ids)
            trace.own.extend([1] * len(ids))
            trace.logprobs.extend(ids.logprobs if isinstance(ids, Scored) else [0.0] * len(ids))
        return trace

    def observe(self, ids: Sequence[int]) -> None:
        """Append tokens of the environment."""
        self.ids.extend(ids)
        self.own.extend([0] * len(ids))
        self.logprobs.extend([0.0] * len(ids))


def rollout_keys(seed: object, contexts: Sequence[Sequence[int]]) -> list[str]:
    """Return keys for :meth:`LanguageModel.generate` that differ between repeats of a context, such as rollouts.

    They depend on the seed, the context and its number of earlier repeats, not on the other contexts.

    >>> first, other, again = rollout_keys(0, [[5], [6], [5]])
    >>> first != again, rollout_keys(0, [[5], [5]]) == [first, again]
    (True, True)
    """
    seen: Counter[tuple[int, ...]] = Counter()
    keys = []
    for ids in map(tuple, contexts):
        keys.append(f"{seed}/{seen[ids]}/{ids}")
        seen[ids] += 1
    return keys


class Sampler:
    """A generator whose model learns; one call of ``generate`` answers all requests.

    Args:
        language_model: encodes and decodes. generate: samples. max_tokens: limit of a completion.
        grows: whether an episode is one growing text; otherwise every request is a separate text.

    An episode without room for another completion gets an empty one, which is counted.
    """

    def __init__(
        self, language_model: LanguageModel, generate: GenerateIds, *, max_tokens: int, grows: bool = True
    ) -> None:
        self._grows = grows
        self._language_model, self._generate, self._max_tokens = language_model, generate, max_tokens
        self._keeps_turns = keeps_turns(language_model.tokenizer)
        self._usage = {"requests": 0, "prompt_tokens": 0, "completion_tokens": 0, "without_room": 0}

    def complete(self, requests: Sequence[Generate]) -> list[str]:
        """Return one completion per request, in order, each a :class:`Completion`.

        Raises:
            ModelError: the pipeline changed what the model had said, so its tokens no longer match the text.
        """
        contexts = [self.context(request) for request in requests]
        rows = [row for row, ids in enumerate(contexts) if len(ids) + self._max_tokens <= self._language_model.room]
        samples = self._generate([contexts[row] for row in rows], [requests[row].stop for row in rows]) if rows else []
        ids_of: dict[int, list[int]] = dict(zip(rows, samples, strict=True))
        self._usage["requests"] += len(rows)
        self._usage["without_room"] += len(requests) - len(rows)
        self._usage["prompt_tokens"] += sum(len(contexts[row]) for row in rows)
        self._usage["completion_tokens"] += sum(map(len, samples))
        return [
            self._completion(request, context, ids_of.get(row, []))
            for row, (request, context) in enumerate(zip(requests, contexts, strict=True))
        ]

    def usage(self) -> Mapping[str, float]:
        """Return the counts so far: requests, their tokens, and requests without room."""
        return dict(self._usage)

    def _completion(self, request: Generate, context: list[int], ids: list[int]) -> Completion:
        decoded_text = self._language_model.decode(ids)
        text = request.cut(decoded_text)
        has_end = text != decoded_text or (ids and ids[-1] in self._language_model.ends)
        full_text = self._language_model.tokenizer.decode(ids, clean_up_tokenization_spaces=False)
        return Completion.of(text, context, ids, ending=full_text[len(text) :] if has_end else "")

    def context(self, request: Generate) -> list[int]:
        """Return the ids that a request continues: those of the last turn, and the environment's since."""
        if not (self._grows and request.past):
            return self._language_model.encode(request)
        last = request.past[-1]
        completion, new_text = last.completion, self._text_since(request, last)
        if not isinstance(completion, Completion) or new_text is None:
            raise ModelError(
                "the pipeline (or the model's chat template) changed what the model had said, so its tokens cannot be "
                "trained on; use pipeline search_r1, or a template that keeps earlier turns as they are"
            )
        markers = (*last.request.stop, *map(self._language_model.tokenizer.decode, self._language_model.ends))
        if any(completion.ending.startswith(marker) and new_text.startswith(marker) for marker in markers):
            pairs = zip(new_text, completion.ending, strict=False)
            new_text = new_text[sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs)) :]  # the model's own
        ids: list[int] = (
            self._language_model.tokenizer(new_text, add_special_tokens=False)["input_ids"] if new_text else []
        )
        return [*completion.context, *completion.ids, *ids]

    def _text_since(self, request: Generate, last: Turn) -> str | None:
        """Return the text of a request after the last completion; None if the text before it was changed.

        A chat template may tidy up the reply itself (white space around thoughts); its tokens stay as sampled.
        """
        reply, count = last.completion, len(last.request.messages)
        if not request.messages:
            whole = last.request.prompt + reply
            return request.prompt[len(whole) :] if request.prompt.startswith(whole) else None
        earlier, since = request.messages[:count], request.messages[count + 1 :]
        continuing = [
            turn
            for turn in request.messages[count : count + 1]
            if turn["role"] == "assistant" and turn["content"].startswith(reply)
        ]
        if earlier != last.request.messages or not continuing or not self._keeps_turns:
            return None
        marked = {"role": "assistant", "content": f"{_REPLY}{continuing[0]['content'][len(reply) :]}"}
        return self._language_model.render(Generate((*earlier, marked, *since))).partition(_REPLY)[2]


class Samplers:
    """Samplers of a language model that learns: a :class:`Sampler` per temperature, created at first use.

    The model (a folder or a cached hub name) is loaded once, with the first sampler. Rollouts of a question are
    independent of each other and of other requests.

    Args:
        model: folder or name. max_tokens: limit of a completion. batch_size: completions sampled together.
        grows: as for :class:`Sampler`; false for LeReT's prompts. chat_template_kwargs: as for :func:`load_model`.
    """

    def __init__(
        self,
        model: str,
        *,
        max_tokens: int,
        batch_size: int,
        seed: int,
        grows: bool = False,
        chat_template_kwargs: Mapping[str, Any] = NO_SETTINGS,
    ) -> None:
        self.opened: dict[float, Sampler] = {}
        load = partial(load_model, model, chat_template_kwargs=chat_template_kwargs)
        self._model = cache(lambda: LanguageModel(*load(), name=model))
        self._max_tokens, self._batch_size, self._seed, self._grows = max_tokens, batch_size, seed, grows

    def __call__(self, temperature: float) -> Sampler:
        """Return the sampler for a temperature.

        Raises:
            ModelError: the model cannot be loaded.
        """
        if temperature not in self.opened:
            generate = partial(self._generate, temperature)
            self.opened[temperature] = Sampler(self._model(), generate, max_tokens=self._max_tokens, grows=self._grows)
        return self.opened[temperature]

    def _generate(
        self, temperature: float, contexts: Sequence[Sequence[int]], stops: Sequence[tuple[str, ...]]
    ) -> list[list[int]]:
        return self._model().generate(
            contexts,
            stops,
            temperature=temperature,
            keys=rollout_keys(self._seed, contexts),
            max_tokens=self._max_tokens,
            batch_size=self._batch_size,
        )
