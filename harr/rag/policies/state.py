"""The state that the retriever encodes: question, history or thought, and the current query.

There are four styles: ``json`` is HARR's (three labelled lines, arXiv 2602.03645), ``lines`` is the same in about half
the tokens (a line per hop, without its status), ``sep`` is Q-RAG's (question and picked passages joined by [SEP], arXiv
2511.07328; a query that differs from the question comes first, and hops are queries with their answers), and
``thought`` replaces the hops by the agent's text right before the search, with AgentIR's labels (arXiv 2603.04384,
which has no question before them).
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from harr.types import Hop, Question, Search, Shortened


def state_text(search: Search, *, style: str, history: bool, separator: str = "[SEP]") -> str:
    """Return the text of one state. Without ``history`` it is only the current query.

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
    >>> print(state_text(search, style="sep", history=True, separator="|"))
    Where was she born? | Where was the founder of Acme born? | Who founded Acme? Ada Brown
    >>> print(state_text(replace(search, thought="Ada Brown founded it."), style="thought", history=True))
    Original Question: Where was the founder of Acme born?
    Reasoning: Ada Brown founded it.
    Query: Where was she born?
    >>> state_text(search, style="json", history=False)
    'Query: Where was she born?'
    """
    if style == "sep":
        question = [search.question.text] * (search.question.text not in ("", search.query))
        parts = [*question, *(f"{hop.query} {hop.answer}".strip() for hop in search.hops)] if history else []
        return f" {separator} ".join([search.query, *parts])
    if not history:
        return f"Query: {search.query}"
    if style == "lines":
        context = "".join(f"{hop.query} {hop.answer or 'unknown'}\n" for hop in search.hops)
        return f"{search.question.text}\n{context}Query: {search.query}"
    if style == "thought":
        context = f"Reasoning: {search.thought}\n" if search.thought else ""
        return f"Original Question: {search.question.text}\n{context}Query: {search.query}"
    entries = json.dumps([_entry(hop) for hop in search.hops], ensure_ascii=False)
    return f"Original Question: {search.question.text}\nHistory: {entries}\nQuery: {search.query}"


def reads(style: str, history: bool) -> str:
    """Return a description of the states that a model reads, to compare two models.

    >>> reads("sep", True)
    'sep with history'
    """
    return f"{style} with history" if history else style


FinishedHop = Hop | tuple[str, str] | tuple[str, str, str] | str
"""A finished hop: query, answer and (optionally) status, or the picked text alone."""


def state(
    question: str,
    hops: Sequence[FinishedHop] = (),
    query: str = "",
    *,
    style: str = "json",
    history: bool = True,
    thought: str = "",
    tokenizer: Any = None,
    max_tokens: int = 256,
    prompt: str = "",
) -> str:
    """Return the text that a trained retriever reads instead of a query.

    Args:
        question: what the user asked.
        hops: queries and answers so far, the first one first.
        query: the current query; without it, the question.
        style: ``json``, ``lines``, ``sep`` or ``thought``, as in harr.json of the model (``retriever.state``).
        history: whether the state contains more than the query, as for every trained model except one arm.
        thought: the agent's text right before this search, for style ``thought``.
        tokenizer: the model's tokenizer; with it a state longer than ``max_tokens`` loses its first hops, as in
            training. Without it a model cuts a long state at its end, where the query is.
        max_tokens: maximum length of the state with its prompt (``retriever.max_tokens``).
        prompt: the model's prompt before the state, for its length.

    >>> print(state("Where was the founder of Acme born?", [("Who founded Acme?", "Ada Brown")], "Where was she born?"))
    Original Question: Where was the founder of Acme born?
    History: [{"sub_query": "Who founded Acme?", "answer": "Ada Brown"}]
    Query: Where was she born?
    >>> state("Who founded Acme?", ["Acme: A firm in Ashford."], style="sep")
    'Who founded Acme? [SEP] Acme: A firm in Ashford.'
    """
    past = tuple(hop if isinstance(hop, Hop) else Hop("", hop) if isinstance(hop, str) else Hop(*hop) for hop in hops)
    search = Search(Question("", question), query or question, past, thought=thought)
    if tokenizer is None:
        return state_text(search, style=style, history=history)
    form = StateFormat(style, history, max_tokens, prompt, separator=separator_of(tokenizer))
    return form.texts([search], _Counting(tokenizer))[0][0]


def separator_of(tokenizer: Any) -> str:
    """Return a model's separator between two texts: its [SEP] token, or else its end-of-text token."""
    return getattr(tokenizer, "sep_token", None) or getattr(tokenizer, "eos_token", None) or "[SEP]"


class StateReader(Protocol):
    """A reader of states, which measures their length: an encoder (:class:`harr.embed.encoder.Encoder`)."""

    def token_counts(self, texts: Sequence[str], *, prompt: str) -> NDArray[np.int64]:
        """Return the number of tokens of each text with the prompt, shape (n,)."""
        ...

    def cut(self, texts: Sequence[str], tokens: int) -> list[str]:
        """Return each text up to the end of its first ``tokens`` tokens."""
        ...


@dataclass(frozen=True, slots=True)
class StateFormat:
    """The format of states for one reader, which puts ``prompt`` before each and reads ``max_tokens`` of them.

    A query alone has no label after a prompt that does not end a line (``query: ``). ``pick_tokens``: maximum number of
    tokens of each hop in a state joined by ``separator``, the reader's own token; 0: all.
    """

    style: str
    history: bool
    max_tokens: int
    prompt: str = ""
    pick_tokens: int = 0
    separator: str = "[SEP]"

    def texts(self, searches: Sequence[Search], reader: StateReader) -> tuple[list[str], list[Shortened]]:
        """Return the states of many searches, each within ``max_tokens``, and what they lost to that limit.

        The first hops, or the beginning of the thought, are dropped first. Then the question is cut in the middle, or
        dropped. The current query is never cut here: if it alone exceeds the limit, the reader cuts its end.
        """
        drafts = self._shorten_picks(searches, reader)
        texts = [self._text(draft) for draft in drafts]
        losses = [Shortened() for _ in drafts]
        pending = list(range(len(texts)))
        while pending:
            lengths = reader.token_counts([texts[i] for i in pending], prompt=self.prompt)
            too_long = [i for i, length in zip(pending, lengths, strict=True) if length > self.max_tokens]
            for i in too_long:
                if hops := drafts[i].hops:
                    drafts[i] = self._keep_last_hops(drafts[i], reader)
                    texts[i] = self._text(drafts[i])
                    losses[i] = replace(losses[i], dropped=len(hops) - len(drafts[i].hops))
                elif drafts[i].thought:
                    drafts[i] = self._cut_thought(drafts[i], reader)
                    texts[i], losses[i] = self._text(drafts[i]), replace(losses[i], thought_cut=True)
                else:
                    texts[i], query_fits = self._cut_question(drafts[i], reader)
                    losses[i] = replace(
                        losses[i], question=self.history and bool(drafts[i].question.text), query=not query_fits
                    )
            pending = [i for i in too_long if not (losses[i].question or losses[i].query)]
        return texts, losses

    def _text(self, search: Search) -> str:
        labelled = not self.history and self.prompt and not self.prompt.endswith("\n")
        style = "sep" if labelled else self.style
        return state_text(search, style=style, history=self.history, separator=self.separator)

    def _visible(self, search: Search) -> Search:
        """Return a search with only what its state shows: its hops, its thought, or neither."""
        thinks = self.style == "thought"
        if self.style == "sep" and search.question.text == search.query:
            search = replace(search, question=replace(search.question, text=""))
        hops = search.hops if self.history and not thinks else ()
        return replace(search, hops=hops, thought=search.thought if self.history and thinks else "")

    def _shorten_picks(self, searches: Sequence[Search], reader: StateReader) -> list[Search]:
        """Return the searches with only what their states show, each pick cut to ``pick_tokens``."""
        visible = [self._visible(search) for search in searches]
        if not self.pick_tokens:
            return visible
        answers = list({hop.answer: None for search in visible for hop in search.hops})
        short = dict(zip(answers, reader.cut(answers, self.pick_tokens), strict=True))
        return [replace(s, hops=tuple(replace(hop, answer=short[hop.answer]) for hop in s.hops)) for s in visible]

    def _cut_question(self, search: Search, reader: StateReader) -> tuple[str, bool]:
        """Return the state with as much of both ends of the question as fits, and whether the query fits."""

        def write(length: int) -> str:
            return self._text(replace(search, question=replace(search.question, text=cut_middle(question, length))))

        question = search.question.text
        if not (self.history and question) or not self._fits(write(0), reader):
            query_text = replace(self, history=False)._text(search)
            return query_text, self._fits(query_text, reader)
        return write(self._longest(write, len(question), reader)), True

    def _keep_last_hops(self, search: Search, reader: StateReader) -> Search:
        """Return a search with as many of its last hops as fit into the state, by bisection."""

        def keep(count: int) -> Search:
            return replace(search, hops=search.hops[len(search.hops) - count :])

        return keep(self._longest(lambda count: self._text(keep(count)), len(search.hops), reader))

    def _cut_thought(self, search: Search, reader: StateReader) -> Search:
        """Return a search with as much of the end of its thought as fits into the state, possibly nothing."""

        def cut(length: int) -> Search:
            return replace(search, thought=f"... {search.thought[-length:]}" if length else "")

        return cut(self._longest(lambda length: self._text(cut(length)), len(search.thought), reader))

    def _fits(self, text: str, reader: StateReader) -> bool:
        return int(reader.token_counts([text], prompt=self.prompt)[0]) <= self.max_tokens

    def _longest(self, write: Callable[[int], str], limit: int, reader: StateReader) -> int:
        """Return the largest length below ``limit`` whose state fits; 0 is not checked."""
        low, high = 0, limit
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._fits(write(middle), reader) else (low, middle)
        return low


def cut_middle(text: str, length: int) -> str:
    """Return ``length`` characters of a text, half of them from each end, with dots between; "" for 0.

    >>> cut_middle("Where was the founder of Acme born?", 16)
    'Where wa ... me born?'
    """
    return f"{text[: length - length // 2]} ... {text[len(text) - length // 2 :]}" if length else ""


@dataclass(frozen=True, slots=True)
class _Counting:
    """A tokenizer that measures the length of states."""

    tokenizer: Any

    def token_counts(self, texts: Sequence[str], *, prompt: str) -> NDArray[np.int64]:
        prompted = [prompt + text for text in texts]
        if callable(self.tokenizer):
            ids = self.tokenizer(prompted, truncation=False, padding=False, verbose=False)["input_ids"]
        else:  # of a static model, which truncates by itself
            uncut = type(self.tokenizer).from_str(self.tokenizer.to_str())
            uncut.no_truncation()
            ids = [encoding.ids for encoding in uncut.encode_batch(prompted)]
        return np.asarray([len(encoding) for encoding in ids], dtype=np.int64)

    def cut(self, texts: Sequence[str], tokens: int) -> list[str]:
        raise NotImplementedError("only pick_tokens cuts")


def _entry(hop: Hop) -> dict[str, str]:
    status = {"status": hop.status} if hop.status else {}
    return {"sub_query": hop.query, **status, "answer": hop.answer}
