"""What the README's snippet finds compared with harr: ``python -m benchmarks.snippet`` in an evaluated project.

The test questions are played by harr's pipeline with the retriever of models/adapter. Then every search is repeated as
in an application, by ``harr.Retriever.load("models/retriever")`` and a session: search, learned, search. Printed is the
recall of later hops both ways: whether a search finds gold that no search of harr's own had found before.
"""

from pathlib import Path
from statistics import fmean

import harr
from harr.arms import ARMS
from harr.builders.generators import build_generator
from harr.builders.pipeline import build_pipeline
from harr.builders.players import open_players
from harr.corpus.passages import read_questions
from harr.params import Params
from harr.rag.rollout import play
from harr.types import Episode
from tasks.paths import ADAPTER, PLACES, QUESTIONS, RETRIEVER


def later_recall(episode: Episode, found: list[set[str]]) -> list[float]:
    """Return for every search after the first whether it found gold that none of harr's own had found before."""
    hits, known = [], {passage.id for passage in episode.steps[0].retrieval.passages}
    for step, ids in zip(episode.steps[1:], found[1:], strict=True):
        hits.append(float(bool((set(episode.question.gold_ids) - known) & ids)))
        known |= {passage.id for passage in step.retrieval.passages}
    return hits


def main() -> None:
    """Play, search again, and print both recalls and how many searches found the same passages."""
    params = Params.load()
    questions = read_questions(QUESTIONS / "test.jsonl")
    pipeline = build_pipeline(params.pipeline, params.generator, PLACES)
    generator = build_generator(params.generator, params.seed, PLACES)
    with open_players(params, PLACES, questions, candidates="corpus") as player:
        episodes = play(questions, pipeline, player(ARMS["trained"], Path(ADAPTER)), generator)
    own, theirs, same = [], [], []
    with harr.Retriever.load(RETRIEVER, index=".") as retriever:
        for episode in (one for one in episodes if one.steps):
            session, found = retriever.session(episode.question.text), []
            for number, step in enumerate(episode.steps):
                found.append({passage.id for passage in session.search(step.search.query)})
                for hop in episode.outcome.hops[number : number + 1]:
                    session.learned(hop.answer)
            by_harr = [{passage.id for passage in step.retrieval.passages} for step in episode.steps]
            own += later_recall(episode, by_harr)
            theirs += later_recall(episode, found)
            same += [float(a == b) for a, b in zip(by_harr, found, strict=True)]
    print(f"{len(questions)} questions, {len(own)} later searches: recall {fmean(own):.1%} by harr, ", end="")
    print(f"{fmean(theirs):.1%} by the snippet ({fmean(theirs) / fmean(own):.1%}); same passages {fmean(same):.1%}")


if __name__ == "__main__":
    main()
