"""A pipeline of your own: a generator function that yields requests and is sent the replies.

    python examples/new_pipeline.py

With its folder on PYTHONPATH, params.yaml names it, and every stage plays it; nothing in harr changes:

    pipeline: {name: function, function: "new_pipeline:play", settings: {searches: 2}}
"""

from collections.abc import Generator, Mapping, Sequence
from typing import Any

from harr.rag.rollout import play as play_all
from harr.types import Generate, Hop, Outcome, Passage, Question, Request, Retrieval, Search


def play(question: Question, *, searches: int = 2) -> Generator[Request, Any, Outcome]:
    """Let the model write a query and search, several times, then answer; its text only grows."""
    text = f"Question: {question.text}\n"
    hops: tuple[Hop, ...] = ()
    for _ in range(searches):
        query: str = yield Generate(prompt=f"{text}Query:", stop=("\n",))
        retrieval: Retrieval = yield Search(question, query.strip() or question.text, hops)
        best = retrieval.passages[0].content if retrieval.passages else "nothing"
        text += f"Query:{query}\nFound: {best}\n"
        hops = (*hops, Hop(query.strip(), best))
    answer: str = yield Generate(prompt=f"{text}Answer:", stop=("\n",))
    return Outcome(answer.strip(), hops)


CORPUS = (Passage("p1", "Ada Brown was born in Ashford."), Passage("p2", "Ashford lies on the river Esk."))
SCRIPT = {"Query": ["birth of Ada Brown", "river of Ashford"], "Answer": ["the Esk"]}


class Words:
    """A retriever that counts the words that a passage shares with the query."""

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        """Answer all pending searches at once."""
        wanted = [{*search.query.lower().rstrip("?").split()} for search in searches]
        return [Retrieval((max(CORPUS, key=lambda p: len(one & {*p.text.lower().split()})),)) for one in wanted]


class Script:
    """A language model that follows a script."""

    def complete(self, requests: Sequence[Generate]) -> list[str]:
        """Answer all pending requests at once; ``past`` is what the same episode asked before."""
        kinds = [request.prompt.rpartition("\n")[2].rstrip(":") for request in requests]
        return [f" {SCRIPT[kind][len(r.past) % len(SCRIPT[kind])]}" for kind, r in zip(kinds, requests, strict=True)]

    def usage(self) -> Mapping[str, float]:
        """Return nothing: nothing is counted."""
        return {}


if __name__ == "__main__":
    (episode,) = play_all([Question("q", "Which river is Ada Brown's home town on?")], play, Words(), Script())
    print(*(f"{hop.query} -> {hop.answer}" for hop in episode.outcome.hops), f"answer: {episode.answer}", sep="\n")
