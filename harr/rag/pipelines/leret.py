"""LeReT: a language model writes the query of one hop, again and again (arXiv 2410.23214, section 3).

In each hop the model reads the question and the passages found so far, and writes a line, which is searched for.
Passages accumulate in one ranking, which is scored and in whose order they are shown. :func:`render` writes every
prompt, in sampling, training and evaluation alike.
"""

from bisect import bisect_left
from collections.abc import Callable, Generator as PyGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harr.io.progress import bar
from harr.rag.pipelines.replies import chatml, passages_text, prompt, prompt_file, said, short_answer, strip_thoughts
from harr.rag.pipelines.search_r1 import documents
from harr.rag.pipelines.tags import escape
from harr.types import (
    Episode,
    Generate,
    Generator,
    Hop,
    Outcome,
    Passage,
    Pipeline,
    Question,
    Request,
    Retrieval,
    Search,
)

RAW = ("bare", "plain")
"""Raw-text templates, in which a query ends with its line; in a conversation it ends with the turn."""


@dataclass(frozen=True, slots=True)
class Demonstration:
    """An example in a few-shot prompt: a question, the passages retrieved so far, and the next query."""

    question: str
    context: tuple[Passage, ...]
    query: str

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Demonstration":
        """Read a demonstration from its JSON form, that of ``dataclasses.asdict``."""
        return cls(row["question"], tuple(Passage(**passage) for passage in row["context"]), row["query"])


@dataclass(frozen=True, slots=True)
class LeReT:
    """LeReT as a pipeline: called with a question, it writes and searches ``hops`` queries. It gives no answer.

    Args:
        hops: number of hops. order: order of the passages (:func:`accumulate`).
        template: ``bare`` adds nothing, ``plain`` puts instructions first, ``chatml`` wraps both in Qwen's chat markup,
            ``chat`` in the model's own.
        demonstrations: examples of a few-shot prompt; () is zero-shot.
        fits: whether a prompt without demonstrations is short enough; a longer one loses its last passages. shows:
            whether a prompt with demonstrations is; a longer one loses its last demonstrations.

    A hop without a query finds nothing and is a fault.
    """

    hops: int
    order: str = "rank"
    template: str = "plain"
    demonstrations: tuple[Demonstration, ...] = ()
    fits: Callable[[str], bool] = lambda text: True
    shows: Callable[[str], bool] = lambda text: True

    def __call__(self, question: Question) -> PyGenerator[Request, Any, Outcome]:
        """Play all hops."""
        retrievals: tuple[Retrieval, ...] = ()
        outcome = Outcome(turns=self.hops)
        for _ in range(self.hops):
            retrieval, step = yield from self.hop(question, self.rank(retrievals), outcome.hops)
            retrievals = (*retrievals, retrieval)
            outcome = replace(
                outcome,
                hops=(*outcome.hops, *step.hops),
                faults=(*outcome.faults, *step.faults),
                escaped=outcome.escaped + step.escaped,
            )
        return outcome

    def hop(
        self, question: Question, context: Sequence[Passage], hops: tuple[Hop, ...] = ()
    ) -> PyGenerator[Request, Any, tuple[Retrieval, Outcome]]:
        """Write one query, given the passages in ``context``, and search for it; return the retrieval and the hop."""
        text, escaped = self.prompt(question, context)
        reply: str = yield request(text, self.template)
        query, thought = query_of(reply), said(reply.rpartition("</think>")[0])
        retrieval: Retrieval = (yield Search(question, query, hops, thought=thought)) if query else Retrieval(())
        faults = () if query else ("no query",)
        return retrieval, Outcome(None, (Hop(query, ""),), escaped=escaped, turns=1, faults=faults)

    def one_hop(self, context: Sequence[Passage]) -> Pipeline:
        """Return a pipeline that plays one hop alone."""

        def play(question: Question) -> PyGenerator[Request, Any, Outcome]:
            _, outcome = yield from self.hop(question, context)
            return outcome

        return play

    def rank(self, retrievals: Sequence[Retrieval]) -> tuple[Passage, ...]:
        """Return the passages of the hops so far as one ranking."""
        return accumulate(retrievals, self.order)

    def prompt(self, question: Question, context: Sequence[Passage]) -> tuple[str, int]:
        """Return the prompt with as many of the first passages as fit, and how many control tags were escaped in it.

        The number of passages shown does not depend on the demonstrations, so both prompts present the same situation.
        """
        text, examples = question.text, self.demonstrations
        n_passages = _find_largest(len(context), lambda count: self.fits(render(text, context[:count])[0]))
        n_examples = _find_largest(
            len(examples), lambda n: self.shows(render(text, context[:n_passages], examples[:n])[0])
        )
        return render(text, context[:n_passages], examples[:n_examples])


def _find_largest(count: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number up to ``count`` that ``fits``, a monotone test; 0 is never tested.

    >>> [_find_largest(9, lambda number: number < 4), _find_largest(3, lambda number: True)]
    [3, 3]
    >>> _find_largest(3, lambda number: False), _find_largest(0, lambda number: False)
    (0, 0)
    """
    return count if not count or fits(count) else bisect_left(range(1, count), True, key=lambda n: not fits(n))


def by_hop(episode: Episode) -> Iterator[Retrieval]:
    """Yield the retrieval of every hop of an episode; an empty one for a hop without a query."""
    steps = iter(episode.steps)
    for hop in episode.outcome.hops:
        yield next(steps).retrieval if hop.query else Retrieval(())


def add_answers(
    episodes: Sequence[Episode], program: LeReT, reader: Generator, *, batch_size: int, desc: str
) -> list[Episode]:
    """Return the episodes with the answers of a ``reader``, which sees the question and all passages, ranked.

    An episode without passages is not read: its answer is "".
    """
    complete: list[Episode] = []
    with bar(total=len(episodes), desc=desc, unit="question") as progress:
        for start in range(0, len(episodes), batch_size):
            batch = episodes[start : start + batch_size]
            texts = [passages_text(program.rank(list(by_hop(episode)))) for episode in batch]
            prompts = [prompt("read", e.question, (), passages=text) for e, (text, _) in zip(batch, texts, strict=True)]
            replies = iter(
                reader.complete([request for request, (text, _) in zip(prompts, texts, strict=True) if text])
            )
            for episode, (text, escaped) in zip(batch, texts, strict=True):
                answer = short_answer(next(replies)) if text else ""
                outcome = replace(episode.outcome, answer=answer, escaped=episode.outcome.escaped + escaped)
                complete.append(replace(episode, outcome=outcome))
            progress.update(len(batch))
    return complete


def accumulate(retrievals: Sequence[Retrieval], order: str) -> tuple[Passage, ...]:
    """Return the passages of all hops as one ranking without repeats.

    ``score``: by the retriever's score, as published; scores of different queries are compared. ``rank``: by rank
    within each search, the earlier hop first if ranks are equal.

    >>> first, second = (Retrieval(tuple(Passage(name, "") for name in names)) for names in ("ab", "ca"))
    >>> [passage.id for passage in accumulate([first, second], "rank")]
    ['a', 'c', 'b']
    """
    ranked = [
        (-retrieval.scores[rank] if order == "score" else rank, number, passage)
        for number, retrieval in enumerate(retrievals)
        for rank, passage in enumerate(retrieval.passages)
    ]
    first: dict[str, Passage] = {}
    for *_, passage in sorted(ranked, key=lambda place: place[:2]):
        first.setdefault(passage.id, passage)
    return tuple(first.values())


def render(question: str, context: Sequence[Passage], demonstrations: Sequence[Demonstration] = ()) -> tuple[str, int]:
    """Return a hop's prompt, and how many control tags were escaped; a passage, on one line, cannot fake a question.

    >>> found = (Passage("p", "Born in Bath.", "Ada Brown"),)
    >>> print(render("Who?", found, [Demonstration("When?", (), "year")])[0])
    Question: When?
    Query: year
    <BLANKLINE>
    Question: Who?
    Doc 1(Title: Ada Brown) Born in Bath.
    Query:
    """
    examples = [f"{_write_hop(example.question, example.context)} {example.query}\n\n" for example in demonstrations]
    return escape("".join(examples) + _write_hop(question, context))


def request(text: str, template: str) -> Generate:
    """Return the request for a prompt of :func:`render`.

    >>> request("Question: Who?\\nQuery:", "bare")
    Generate(messages=(), prompt='Question: Who?\\nQuery:', stop=('\\n',), past=())
    """
    if template == "bare":
        return Generate(prompt=text, stop=("\n",))
    text = f"{prompt_file('leret').strip()}\n\n{text}"
    match template:
        case "plain":
            return Generate(prompt=text, stop=("\n",))
        case "chatml":
            return Generate(prompt=chatml(text))
    return Generate(({"role": "user", "content": text},))


def query_of(completion: str) -> str:
    """Return the first non-empty line of a completion after its thoughts; "" without one.

    >>> query_of(" mother of Ada Brown\\nQuestion:"), query_of("<think>well</think>\\n\\nAda Brown")
    ('mother of Ada Brown', 'Ada Brown')
    """
    return next((" ".join(line.split()) for line in strip_thoughts(completion).splitlines() if line.strip()), "")


def completion_text(query: str, template: str) -> str:
    """Return a query as the model writes it, without the token that ends a turn.

    >>> completion_text("Ada Brown", "bare"), completion_text("Ada Brown", "chat")
    (' Ada Brown\\n', 'Ada Brown')
    """
    return f" {query}\n" if template in RAW else query


def _write_hop(question: str, context: Sequence[Passage]) -> str:
    return "\n".join([f"Question: {' '.join(question.split())}", *documents(context), "Query:"])
