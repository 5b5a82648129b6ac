"""The state that the retriever encodes: question, what was learnt or thought so far, and the current query.

Four ways to write it: ``json`` is HARR's (three labelled lines, arXiv 2602.03645), ``lines`` is the same in about
half the tokens (a line per hop, without its status), ``sep`` is Q-RAG's (question and picked passages joined by
[SEP], arXiv 2511.07328), and ``thought`` has in place of the hops what the agent wrote right before the search, with
AgentIR's labels (arXiv 2603.04384, which has no question before them).
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from harr.types import Hop, Question, Search, Shortened


def state_text(search: Search, *, style: str, history: bool, separator: str = "[SEP]") -> str:
    """Return the text of one state. Without ``history`` it is the current query alone.

    ``separator`` is the reader's own token between two texts, for style ``sep``.

    >>> from harr.types import Question
    >>> search = Search(Question("q", "Where was the founder of Acme born?"), "Where was she born?",
    ...                 (Hop("Who founded Acme?", "Ada Brown", "FOUND"),))
    >>> print(state_text(search, style="json", history=True))
    Original Question: Where was the founder of Acme born?
    History: [{"sub_query": "Who founded Acme?", "status": "FOUND", "answer": "Ada Brown"}]
    Query: Where was she born?
    >>> print(state_text(search, style="lines", history=True))
    Where was the founder of Acme born?
    Who founded Acme? Ada Brown
    Query: Where was she born?
    >>> print(state_text(replace(search, thought="Ada Brown founded it."), style="thought", history=True))
    Original Question: Where was the founder of Acme born?
    Reasoning: Ada Brown founded it.
    Query: Where was she born?
    >>> state_text(search, style="json", history=False)
    'Query: Where was she born?'
    """
    if style == "sep":
        return f" {separator} ".join([search.query, *(hop.answer for hop in search.hops)]) if history else search.query
    if not history:
        return f"Query: {search.query}"
    if style == "lines":
        told = "".join(f"{hop.query} {hop.answer or 'unknown'}\n" for hop in search.hops)
        return f"{search.question.text}\n{told}Query: {search.query}"
    if style == "thought":
        told = f"Reasoning: {search.thought}\n" if search.thought else ""
        return f"Original Question: {search.question.text}\n{told}Query: {search.query}"
    entries = json.dumps([_entry(hop) for hop in search.hops], ensure_ascii=False)
    return f"Original Question: {search.question.text}\nHistory: {entries}\nQuery: {search.query}"


def reads(style: str, history: bool) -> str:
    """Return what tells whether two models read the same states.

    >>> reads("sep", True)
    'sep with history'
    """
    return f"{style} with history" if history else style


Told = Hop | tuple[str, str] | tuple[str, str, str] | str
"""A finished hop: query, answer and status, without the last, or what was picked alone."""


def state(
    question: str,
    hops: Sequence[Told] = (),
    query: str = "",
    *,
    style: str = "json",
    history: bool = True,
    thought: str = "",
    tokenizer: Any = None,
    max_tokens: int = 256,
    prompt: str = "",
) -> str:
    """Return the text that a trained retriever reads in place of a query.

    Args:
        question: what the user asked.
        hops: what was asked and learnt so far, the first one first.
        query: what is asked now; without it, the question.
        style: ``json``, ``lines``, ``sep`` or ``thought``, as harr.json of the model says (``retriever.state``).
        history: whether the state tells more than the query; so it is of every trained model, but for an arm.
        thought: what the agent wrote right before this search, for style ``thought``.
        tokenizer: that of the model; with it the first hops are left out of a state that is longer than ``max_tokens``,
            as in training. Without it a model cuts a long state at its end, where the query stands.
        max_tokens: what the model reads, prompt included (``retriever.max_tokens``).
        prompt: what the model puts before the state, for its length.

    >>> print(state("Where was the founder of Acme born?", [("Who founded Acme?", "Ada Brown")], "Where was she born?"))
    Original Question: Where was the founder of Acme born?
    History: [{"sub_query": "Who founded Acme?", "answer": "Ada Brown"}]
    Query: Where was she born?
    >>> state("Who founded Acme?", ["Acme: A firm in Ashford."], style="sep")
    'Who founded Acme? [SEP] Acme: A firm in Ashford.'
    """
    told = tuple(hop if isinstance(hop, Hop) else Hop("", hop) if isinstance(hop, str) else Hop(*hop) for hop in hops)
    search = Search(Question("", question), query or question, told, thought=thought)
    if tokenizer is None:
        return state_text(search, style=style, history=history)
    written = StateFormat(style, history, max_tokens, prompt, separator=separator_of(tokenizer))
    return written.texts([search], _Counting(tokenizer))[0][0]


def separator_of(tokenizer: Any) -> str:
    """Return the token that a model knows between two texts: its own [SEP], else where its texts end."""
    return getattr(tokenizer, "sep_token", None) or getattr(tokenizer, "eos_token", None) or "[SEP]"


class StateReader(Protocol):
    """What reads states, and so knows their length: an encoder (:class:`harr.embed.encoder.Encoder`)."""

    def token_counts(self, texts: Sequence[str], *, prompt: str) -> NDArray[np.int64]:
        """Return tokens of each text behind the prompt, shape (n,)."""
        ...

    def cut(self, texts: Sequence[str], tokens: int) -> list[str]:
        """Return each text up to the end of its first so many tokens."""
        ...


@dataclass(frozen=True, slots=True)
class StateFormat:
    """How states are written for one reader, which puts ``prompt`` before each and reads ``max_tokens`` of them.

    ``pick_tokens``: of each hop in a state joined by ``separator``, the reader's own token; 0: all.
    """

    style: str
    history: bool
    max_tokens: int
    prompt: str = ""
    pick_tokens: int = 0
    separator: str = "[SEP]"

    def texts(self, searches: Sequence[Search], reader: StateReader) -> tuple[list[str], list[Shortened]]:
        """Return the states of many searches, each within ``max_tokens``, and what they lack for it.

        The first hops are dropped first, and of a thought its beginning, or all. Where nothing of either is left the
        question is cut in the middle, or dropped. The current query is never cut: only one that is longer than the
        limit on its own ends where the reader's limit is.
        """
        drafts, cut = self._with_short_picks(searches, reader)
        texts = [self._text(draft) for draft in drafts]
        lost = [Shortened(len(d.hops), own, thought=bool(d.thought)) for d, own in zip(drafts, cut, strict=True)]
        check = list(range(len(texts)))
        while check:
            lengths = reader.token_counts([texts[i] for i in check], prompt=self.prompt)
            over = [i for i, length in zip(check, lengths, strict=True) if length > self.max_tokens]
            for i in over:
                if hops := drafts[i].hops:
                    drafts[i] = self._with_last_hops(drafts[i], reader)
                    texts[i] = self._text(drafts[i])
                    lost[i] = replace(lost[i], dropped=len(hops) - len(drafts[i].hops))
                elif drafts[i].thought:
                    drafts[i] = self._with_less_thought(drafts[i], reader)
                    texts[i], lost[i] = self._text(drafts[i]), replace(lost[i], thought_cut=True)
                else:
                    texts[i], read = self._without_question(drafts[i], reader)
                    lost[i] = replace(lost[i], question=self._asks, query=not read)
            check = [i for i in over if not (lost[i].question or lost[i].query)]
        return texts, [replace(own, cut=min(own.cut, own.hops - own.dropped)) for own in lost]

    @property
    def _asks(self) -> bool:
        """Return whether a state tells the original question beside the query."""
        return self.style != "sep" and self.history

    def _text(self, search: Search) -> str:
        return state_text(search, style=self.style, history=self.history, separator=self.separator)

    def _visible(self, search: Search) -> Search:
        """Return a search with what its state shows: its hops, or its thought, or neither."""
        thinks = self.style == "thought"
        hops = search.hops if self.history and not thinks else ()
        return replace(search, hops=hops, thought=search.thought if self.history and thinks else "")

    def _with_short_picks(self, searches: Sequence[Search], reader: StateReader) -> tuple[list[Search], list[int]]:
        """Return the searches with what their states show, and how many of the hops were cut."""
        shown = [self._visible(search) for search in searches]
        if not self.pick_tokens:
            return shown, [0] * len(shown)
        answers = list({hop.answer: None for search in shown for hop in search.hops})
        short = dict(zip(answers, reader.cut(answers, self.pick_tokens), strict=True))
        drafts = [replace(s, hops=tuple(replace(hop, answer=short[hop.answer]) for hop in s.hops)) for s in shown]
        return drafts, [sum(short[hop.answer] != hop.answer for hop in search.hops) for search in shown]

    def _without_question(self, search: Search, reader: StateReader) -> tuple[str, bool]:
        """Return the state with as much of both ends of the question as has room, and whether it is read whole."""

        def asking(kept: int) -> str:
            return self._text(replace(search, question=replace(search.question, text=middle_cut(question, kept))))

        question = search.question.text
        if not self._asks or not self._fits(asking(0), reader):
            alone = state_text(search, style=self.style, history=False)
            return alone, self._fits(alone, reader)
        return asking(self._most(asking, len(question), reader)), True

    def _with_last_hops(self, search: Search, reader: StateReader) -> Search:
        """Return a search with as many of its last hops as have room in the state, found by halves."""

        def telling(kept: int) -> Search:
            return replace(search, hops=search.hops[len(search.hops) - kept :])

        return telling(self._most(lambda kept: self._text(telling(kept)), len(search.hops), reader))

    def _with_less_thought(self, search: Search, reader: StateReader) -> Search:
        """Return a search with as much of the end of its thought as has room in the state, which may be none."""

        def thinking(kept: int) -> Search:
            return replace(search, thought=f"... {search.thought[-kept:]}" if kept else "")

        return thinking(self._most(lambda kept: self._text(thinking(kept)), len(search.thought), reader))

    def _fits(self, text: str, reader: StateReader) -> bool:
        return int(reader.token_counts([text], prompt=self.prompt)[0]) <= self.max_tokens

    def _most(self, write: Callable[[int], str], limit: int, reader: StateReader) -> int:
        """Return the most characters, fewer than ``limit``, that a state can keep of something; 0 may be too many."""
        low, high = 0, limit
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._fits(write(middle), reader) else (low, middle)
        return low


def middle_cut(text: str, kept: int) -> str:
    """Return so many characters of a text, half of them from each end, with dots between; "" for none.

    >>> middle_cut("Where was the founder of Acme born?", 16)
    'Where wa ... me born?'
    """
    return f"{text[: kept - kept // 2]} ... {text[len(text) - kept // 2 :]}" if kept else ""


@dataclass(frozen=True, slots=True)
class _Counting:
    """A tokenizer that tells how long states are."""

    tokenizer: Any

    def token_counts(self, texts: Sequence[str], *, prompt: str) -> NDArray[np.int64]:
        read = [prompt + text for text in texts]
        if callable(self.tokenizer):
            ids = self.tokenizer(read, truncation=False, padding=False, verbose=False)["input_ids"]
        else:  # that of a static model, which cuts by itself
            whole = type(self.tokenizer).from_str(self.tokenizer.to_str())
            whole.no_truncation()
            ids = [one.ids for one in whole.encode_batch(read)]
        return np.asarray([len(one) for one in ids], dtype=np.int64)

    def cut(self, texts: Sequence[str], tokens: int) -> list[str]:
        raise NotImplementedError("only pick_tokens cuts")


def _entry(hop: Hop) -> dict[str, str]:
    status = {"status": hop.status} if hop.status else {}
    return {"sub_query": hop.query, **status, "answer": hop.answer}
