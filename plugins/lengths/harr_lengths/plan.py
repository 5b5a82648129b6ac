"""Plans of several picks: a beam over Q instead of the best pick each time (the planning variant of Q-RAG)."""

from dataclasses import dataclass

from harr.rag.policies.two_tower import TwoTowerPolicy
from harr.types import Episode, Hop, Outcome, Passage, Question, Retrieval, Search, Step


@dataclass(frozen=True, slots=True)
class Plan:
    """Passages in pick order, and the value of each."""

    picked: tuple[Passage, ...] = ()
    values: tuple[float, ...] = ()

    def search(self, question: Question) -> Search:
        """Return the search for the next pick."""
        hops = tuple(Hop("", passage.content) for passage in self.picked)
        return Search(question, question.text, hops, frozenset(passage.id for passage in self.picked))


def plan(question: Question, towers: TwoTowerPolicy, *, picks: int, width: int) -> Episode:
    """Return the episode of the best of ``width`` plans that are followed at a time.

    A plan's score is the value of its last pick, which stands for all that is still to be earned; of plans with the
    same picks the best is followed. A width of 1 is the greedy play of pipeline pick.
    """
    beam = [Plan()]
    document = towers.document(question)
    for _ in range(min(picks, len(document.passages))):
        searches = [path.search(question) for path in beam]
        texts, _ = towers.state_texts(searches)
        towers.prepare_documents([question])
        longer: dict[frozenset[str], Plan] = {}
        for path, search, state_D in zip(beam, searches, towers.encode_states(texts), strict=True):
            done = document.picked(search)
            q_N = towers.critics(state_D, document, done).sum(0).masked_fill(~document.available(done), -float("inf"))
            best = q_N.topk(min(width, len(q_N) - len(done)))
            for value, place in zip(best.values.tolist(), best.indices.tolist(), strict=True):
                grown = Plan((*path.picked, document.passages[place]), (*path.values, value))
                same = frozenset(passage.id for passage in grown.picked)
                if same not in longer or value > longer[same].values[-1]:
                    longer[same] = grown
        beam = sorted(longer.values(), key=lambda path: -path.values[-1])[:width]
    top = zip(beam[0].picked, beam[0].values, strict=True)
    query = Search(question, question.text)
    return Episode(
        question, tuple(Step(query, Retrieval((passage,), value=value)) for passage, value in top), Outcome()
    )
