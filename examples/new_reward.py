"""A reward term of your own: a function of a whole episode.

    python examples/new_reward.py

With its folder on PYTHONPATH, params.yaml names it with a weight, next to harr's terms. Training learns from it, and it
is a metric of every arm; nothing in harr changes:

    reward:
      terms: {answer_f1: 1.0, "new_reward:grounded": 0.5}
"""

from harr.rag.scoring.reward import Reward
from harr.types import Episode, Outcome, Passage, Question, Retrieval, Search, Step


def grounded(episode: Episode) -> float | None:
    """Return the share of the answer's words that occur in a passage found; None if there is no answer.

    None means that the term does not apply to the episode and counts neither for nor against it.
    """
    words = (episode.answer or "").lower().split()
    found = {word.strip(".,") for passage in episode.retrieved for word in passage.content.lower().split()}
    return sum(word in found for word in words) / len(words) if words else None


def episode_of(answer: str) -> Episode:
    """Return an episode of one search with this answer."""
    question = Question("q", "Where was Ada Brown born?", answers=("Ashford",))
    found = Retrieval((Passage("p", "Ada Brown was born in Ashford."),))
    return Episode(question, (Step(Search(question, question.text), found),), Outcome(answer))


if __name__ == "__main__":
    reward = Reward({"answer_f1": 1.0, "new_reward:grounded": 0.5})
    for answer in ("Ashford", "in Bath", ""):
        episode = episode_of(answer)
        print(f"{answer!r}: grounded {grounded(episode)}, reward {reward(episode):.2f}")
