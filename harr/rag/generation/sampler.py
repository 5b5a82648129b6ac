"""The language model that learns, as a generator that remembers tokens.

What is trained must be what was sampled. A completion therefore carries the ids that the model read and wrote, and
the next turn of its episode goes on from those ids: text is never encoded a second time. What the environment put
between two turns (passages, corrections) is encoded once, and is told apart from what the model wrote.
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
"""A text that stands for a reply while a chat template writes what surrounds it."""


class Scored(list[int]):
    """A list of ids that another program sampled, with the log-probability (nats) of each as that program had it.

    None: it had none. Importance sampling corrects for what that program computes otherwise than the trainer.
    """

    logprobs: list[float | None]

    @classmethod
    def of(cls, ids: Sequence[int], logprobs: Sequence[float | None]) -> "Scored":
        """Return ids that carry as many log-probabilities."""
        scored = cls(ids)
        scored.logprobs = [value for _, value in zip(ids, logprobs, strict=True)]
        return scored


def first_of(ids: list[int], count: int) -> list[int]:
    """Return the first ``count`` ids (0: all), which are a sample of so many; with their log-probabilities, if any."""
    if not count or len(ids) <= count:
        return ids
    return Scored.of(ids[:count], ids.logprobs[:count]) if isinstance(ids, Scored) else ids[:count]


class Completion(str):
    """A completion with its tokens: ``context``, the ids that the model read, and ``ids``, those that it wrote.

    ``ids`` may hold more than the text: ``ending``, a stop string or the token that ended it. It is "" where a limit
    cut the completion off.
    """

    context: list[int]
    ids: list[int]
    ending: str

    @classmethod
    def of(cls, text: str, context: list[int], ids: list[int], ending: str) -> "Completion":
        """Return a completion that carries its tokens."""
        written = cls(text)
        written.context, written.ids, written.ending = context, ids, ending
        return written


@dataclass(frozen=True)
class Trace:
    """The tokens of an episode: those of its ``prompt``, and all that followed, ``ids``.

    ``own`` is 1 where the model wrote, 0 where the environment did. ``logprobs`` are those of :class:`Scored` ids, and
    0.0 where there are none. ``whole``: the model ended its last turn itself.
    """

    prompt: list[int]
    ids: list[int]
    own: list[int]
    logprobs: list[float | None]
    whole: bool

    @classmethod
    def of(cls, episode: Episode) -> "Trace":
        """Return the tokens of an episode that a :class:`Sampler` wrote.

        They end before what was told to a turn that had no room: the model has never read it, and could not.
        """
        turns = [turn.completion for turn in episode.turns if isinstance(turn.completion, Completion)]
        trace = cls(turns[0].context, [], [], [], whole=bool(turns[-1].ending))
        for number, written in enumerate(turns):
            if number and not written.ids:
                break
            trace.observe(written.context[len(trace.prompt) + len(trace.ids) :])
            ids = written.ids
            trace.ids.extend(ids)
            trace.own.extend([1] * len(ids))
            trace.logprobs.extend(ids.logprobs if isinstance(ids, Scored) else [0.0] * len(ids))
        return trace

    def observe(self, ids: Sequence[int]) -> None:
        """Put in what the environment said."""
        self.ids.extend(ids)
        self.own.extend([0] * len(ids))
        self.logprobs.extend([0.0] * len(ids))


def independent(seed: object, contexts: Sequence[Sequence[int]]) -> list[str]:
    """Return keys for :meth:`LanguageModel.generate` that differ where a context comes again, as rollouts do.

    They follow from the seed, the context and how often it came before; the other contexts change nothing.

    >>> one, other, again = independent(0, [[5], [6], [5]])
    >>> one != again, independent(0, [[5], [5]]) == [one, again]
    (True, True)
    """
    seen: Counter[tuple[int, ...]] = Counter()
    keys = []
    for ids in map(tuple, contexts):
        keys.append(f"{seed}/{seen[ids]}/{ids}")
        seen[ids] += 1
    return keys


class Sampler:
    """A generator whose model learns; ``generate`` is asked once for all requests.

    Args:
        writer: encodes and decodes. generate: samples. max_tokens: of a completion.
        grows: the text of an episode is one that grows; else every request is a text of its own.

    An episode that has no room for another completion is given an empty one, which is counted.
    """

    def __init__(self, writer: LanguageModel, generate: GenerateIds, *, max_tokens: int, grows: bool = True) -> None:
        self._grows = grows
        self._writer, self._generate, self._max_tokens = writer, generate, max_tokens
        self._keeps_turns = keeps_turns(writer.tokenizer)
        self._usage = {"requests": 0, "prompt_tokens": 0, "completion_tokens": 0, "without_room": 0}

    def complete(self, requests: Sequence[Generate]) -> list[str]:
        """Return one completion per request, in order, each a :class:`Completion`.

        Raises:
            ModelError: the pipeline changed what the model had said; its tokens are no longer those of the text.
        """
        contexts = [self.context(request) for request in requests]
        fits = [row for row, ids in enumerate(contexts) if len(ids) + self._max_tokens <= self._writer.room]
        written = self._generate([contexts[row] for row in fits], [requests[row].stop for row in fits]) if fits else []
        written = [first_of(ids, requests[row].max_tokens) for row, ids in zip(fits, written, strict=True)]
        own: dict[int, list[int]] = dict(zip(fits, written, strict=True))
        self._usage["requests"] += len(fits)
        self._usage["without_room"] += len(requests) - len(fits)
        self._usage["prompt_tokens"] += sum(len(contexts[row]) for row in fits)
        self._usage["completion_tokens"] += sum(map(len, written))
        return [
            self._completion(request, context, own.get(row, []))
            for row, (request, context) in enumerate(zip(requests, contexts, strict=True))
        ]

    def usage(self) -> Mapping[str, float]:
        """Return requests, their tokens, and how many found no room, so far."""
        return dict(self._usage)

    def _completion(self, request: Generate, context: list[int], ids: list[int]) -> Completion:
        written = self._writer.decode(ids)
        text = request.cut(written)
        ended = text != written or (ids and ids[-1] in self._writer.ends)
        decoded = self._writer.tokenizer.decode(ids, clean_up_tokenization_spaces=False)
        return Completion.of(text, context, ids, ending=decoded[len(text) :] if ended else "")

    def context(self, request: Generate) -> list[int]:
        """Return the ids that a request goes on from: those of the last turn, and what the environment said since."""
        if not (self._grows and request.past):
            return self._writer.encode(request)
        last = request.past[-1]
        written, observed = last.completion, self._text_since(request, last)
        if not isinstance(written, Completion) or observed is None:
            raise ModelError(
                "the pipeline (or the model's chat template) changed what the model had said, so its tokens cannot be "
                "trained on; use pipeline search_r1, or a template that keeps earlier turns as they are"
            )
        markers = (*last.request.stop, *map(self._writer.tokenizer.decode, self._writer.ends))
        if any(written.ending.startswith(marker) and observed.startswith(marker) for marker in markers):
            pairs = zip(observed, written.ending, strict=False)
            observed = observed[sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs)) :]  # the model's own
        ids: list[int] = self._writer.tokenizer(observed, add_special_tokens=False)["input_ids"] if observed else []
        return [*written.context, *written.ids, *ids]

    def _text_since(self, request: Generate, last: Turn) -> str | None:
        """Return the text of a request after the last completion; None where something before it was changed.

        A chat template may tidy up the reply itself (white space around thoughts), in which its tokens do not follow.
        """
        reply, count = last.completion, len(last.request.messages)
        if not request.messages:
            whole = last.request.prompt + reply
            return request.prompt[len(whole) :] if request.prompt.startswith(whole) else None
        kept, since = request.messages[:count], request.messages[count + 1 :]
        goes_on = [
            turn
            for turn in request.messages[count : count + 1]
            if turn["role"] == "assistant" and turn["content"].startswith(reply)
        ]
        if kept != last.request.messages or not goes_on or not self._keeps_turns:
            return None
        marked = {"role": "assistant", "content": f"{_REPLY}{goes_on[0]['content'][len(reply) :]}"}
        return self._writer.render(Generate((*kept, marked, *since))).partition(_REPLY)[2]


class Samplers:
    """A language model that learns, as it is sampled: a :class:`Sampler` per temperature, opened when asked for.

    The model of a folder, or a cached hub name, is loaded once, with the first of them. Rollouts of a question are
    independent, and the same whatever else is asked for at the time.

    Args:
        model: folder or name. max_tokens: of a completion. batch_size: completions that are sampled together.
        grows: as for :class:`Sampler`; prompts of LeReT do not. chat_template_kwargs: as for :func:`load_model`.
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
        """Return the sampler of a temperature.

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
            keys=independent(self._seed, contexts),
            max_tokens=self._max_tokens,
            batch_size=self._batch_size,
        )
