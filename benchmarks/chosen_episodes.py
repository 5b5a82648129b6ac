"""What choosing among sampled answers gives, by who chooses: ``python -m benchmarks.chosen_episodes FOLDER``.

FOLDER is a project of ``recipes/agent_small.yaml`` whose stages were run. Its trained model plays the test questions
greedily, and ``evaluate.samples`` times by sampling. A majority chooses among the samples, and so do the arms of
``plugins/selectors`` with two graders. One is a rule that follows the question through the passages by the fictional
world's grammar and never errs in a fact. The other is a small language model, whose folder in ``work`` also serves as
their ``selector``: it starts from the player's warm start and was taught on other worlds to write the rule's findings
and score. Printed are exact match with 95 % intervals over questions (one trained model), the paired difference to
``trained``, and tokens per question: written by the player, written by the grader, and read by the grader.
Options: ``--steps``, updates of the taught grader; ``--out``, where the table is kept.
"""

import argparse
import json
import os
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

import torch
import torch.nn.functional as F
from harr_encyclopaedia import grammar, scripted
from harr_encyclopaedia.traces import Oracle, Reader, game_of, open_world
from harr_selectors import beam, best_of
from harr_selectors.samples import Group, majority, play_samples

from harr.arms import ARMS, TRAINED
from harr.builders.generators import language_model_facts
from harr.builders.pipeline import build_pipeline
from harr.builders.places import Places
from harr.builders.players import open_generator, open_players, open_samplers
from harr.characters import normalise
from harr.compute.products import use_onednn
from harr.corpus.passages import read_questions
from harr.evaluate.intervals import resample
from harr.evaluate.play import Game
from harr.io.files import draft, write_json
from harr.io.progress import bar
from harr.params import Params
from harr.rag.generation.local_model import LocalGenerator, load_model
from harr.rag.pipelines.replies import messages, passages_text
from harr.rag.rollout import play
from harr.rag.scoring.judge import grade_of
from harr.rag.scoring.terms import answer_em
from harr.types import Episode, Generate, Generator, Passage, Question
from tasks.samples import count_tokens

TEMPLATE = "{% for message in messages if message.role == 'user' %}{{ message.content }}\n{% endfor %}"
"""The chat template of the taught grader, which needs no instructions."""
TOKENS, RATE, WARM_UP = 4096, 1e-3, 0.05
MISSING = 0.3
"""Share of the lessons' searches that do not find what they look for: a beam has to recognise these."""
WORLDS = range(-8, 0)
"""Worlds in which the taught grader is tested, on ``TRIED`` lessons each."""
TRIED = 50
RESAMPLES = 10_000
_PASSAGE = re.compile(r"^\[\d+\] (.*)\n(.*)$", re.MULTILINE)


@dataclass
class Choice:
    """The episodes chosen for the questions, all that were played for them, and the grader's tokens per question."""

    episodes: list[Episode]
    played: list[Group]
    grader: dict[str, float] = field(default_factory=dict)


def graded(content: str) -> str:
    """Return the reply of a grader that follows the question through the passages: every fact, then the score."""
    chain = grammar.parse(content.partition("Question: ")[2].partition("\n")[0])
    if chain is None:
        return '{"score": 0.0}'
    hops = scripted.follow(chain, _PASSAGE.findall(content))
    found = [value for _, _, value in hops if value != "unknown"]
    answer_json = content.rpartition("\n\nAnswer: ")[2] if "\n\nAnswer: " in content else ""
    left = len(chain.relations) - len(found)
    if not answer_json:
        score = 1.0 if not left else 0.75 if left == 1 and found else 0.25
    elif left:
        score = 0.5
    else:
        answer, *found = (normalise(grammar.split_mention(name)[0]) for name in (json.loads(answer_json), *found))
        score = 1.0 if answer == found[-1] else 0.25 if answer in found else 0.0
    thoughts = "".join(f"{grammar.phrase(relation, subject)} is {value}. " for relation, subject, value in hops)
    return thoughts + json.dumps({"score": score})


def lesson(reader: Reader, rng: random.Random, k: int) -> tuple[Generate, str]:
    """Return a request to a grader about part of an episode that a teacher played, and the reply."""
    question = rng.choice(reader.questions)
    teacher: Any = SimpleNamespace(complete=lambda asked: [scripted.turn(request.prompt) for request in asked])
    searches = len(question.gold_ids)
    [episode] = play([question], game_of("search_r1", searches), Oracle(reader, rng, k, MISSING), teacher)
    steps = episode.steps[: rng.randint(1, len(episode.steps))]
    shown = tuple({passage.id: passage for step in steps for passage in step.retrieval.passages}.values())
    text, _ = passages_text(shown)
    if rng.random() < 1 / 3:
        asked = messages(beam.PROMPT, question=question.text, passages=text)
    else:
        right = rng.random() < 0.5
        answer = question.answers[0] if right else careless(question.text, shown, rng)
        asked = messages(
            best_of.PROMPT, question=question.text, passages=text, answer=json.dumps(answer, ensure_ascii=False)
        )
    return asked, graded(asked.messages[-1]["content"])


def careless(question: str, shown: Sequence[Passage], rng: random.Random) -> str:
    """Return a careless reader's answer: what a passage says about somebody, or a title."""
    chain, pairs = grammar.parse(question), [(passage.title, passage.text) for passage in shown]
    assert chain
    names = [grammar.split_title(title)[0] for title, _ in pairs]
    values = {value for one in chain.relations for name in names for value in scripted.facts(one, name, pairs)}
    return rng.choice([*sorted(values), names[0]])


def teach(start: Path, out: Path, steps: int, k: int) -> None:
    """Teach a small language model to grade, and write its folder."""
    model, tokenizer = load_model(str(start))
    tokenizer.chat_template = TEMPLATE
    use_onednn(model)
    optimizer = torch.optim.AdamW(model.parameters(), RATE, betas=(0.9, 0.95), weight_decay=0.0)
    with bar(total=steps, desc="grader", unit="step") as progress:
        for step in range(steps):
            done = step / steps
            optimizer.param_groups[0]["lr"] = RATE * min(done / WARM_UP + 0.01, 1.0 - done)
            loss = _update(model, optimizer, _rows(tokenizer, step, k))
            progress.set_postfix(loss=f"{loss:.3f}", refresh=False)
            progress.update()
    with draft(out.with_suffix(".new"), out) as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def _rows(tokenizer: Any, step: int, k: int) -> list[tuple[list[int], int]]:
    """Return the token ids of a step's lessons, of about equal length, and how many of them are the prompt's."""
    rng, reader = random.Random(f"selector/{step}"), open_world(500_000 + step, (1, 2))
    batches: list[list[tuple[list[int], int]]] = [[]]
    lessons = [lesson(reader, rng, k) for _ in range(40)]
    given = [tokenizer.apply_chat_template(list(asked.messages), return_dict=False) for asked, _ in lessons]
    own = [[*tokenizer(reply)["input_ids"], tokenizer.eos_token_id] for _, reply in lessons]
    for begun, ids in sorted(zip(given, own, strict=True), key=lambda row: len(row[0]) + len(row[1])):
        if (len(batches[-1]) + 1) * (len(begun) + len(ids)) > TOKENS:
            batches.append([])
        batches[-1].append((begun + ids, len(begun)))
    return rng.choice(batches)


def _update(model: Any, optimizer: torch.optim.Optimizer, rows: Sequence[tuple[list[int], int]]) -> float:
    ids_BT = torch.zeros(len(rows), max(len(ids) for ids, _ in rows), dtype=torch.long)
    own_BT = torch.zeros_like(ids_BT, dtype=torch.bool)
    for place, (ids, given) in enumerate(rows):
        ids_BT[place, : len(ids)] = torch.tensor(ids)
        own_BT[place, given : len(ids)] = True
    hidden_BTD = model.model(input_ids=ids_BT[:, :-1]).last_hidden_state
    loss = F.cross_entropy(model.lm_head(hidden_BTD[own_BT[:, 1:]]), ids_BT[:, 1:][own_BT[:, 1:]])
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


class Rule:
    """A grader that replies with :func:`graded`."""

    def complete(self, requests: Sequence[Generate]) -> list[str]:
        """Grade all requests."""
        return [graded(request.messages[-1]["content"]) for request in requests]

    def usage(self) -> dict[str, float]:
        """Return zeros: it reads and writes nothing that costs."""
        return {"completion_tokens": 0.0, "prompt_tokens": 0.0}


def agreement(grader: Generator, k: int) -> dict[str, float]:
    """Return how often a grader gives the rule's score in worlds new to it, and the commonest score's share."""
    rng, lessons = random.Random("held out"), []
    for number in WORLDS:
        reader = open_world(number, (1, 2))
        lessons += [lesson(reader, rng, k) for _ in range(TRIED)]
    scores = [grade_of(reply) for _, reply in lessons]
    replies = grader.complete([asked for asked, _ in lessons])
    equal = [grade_of(reply) == score for reply, score in zip(replies, scores, strict=True)]
    return {"agreement": fmean(equal), "commonest": max(map(scores.count, scores)) / len(scores), "n": len(scores)}


def choices(
    params: Params, places: Places, small: Generator, questions: Sequence[Question]
) -> tuple[dict[str, Choice], list[Group]]:
    """Play the questions, and return by arm what was chosen, what was played for it and its grader's tokens; and the
    samples."""
    trained, size = Path("models/adapter"), params.evaluate.batch_size
    pipeline, arm = build_pipeline(params.pipeline, params.generator, places), ARMS[TRAINED]
    with open_players(params, places, questions, candidates="corpus") as player:
        game = Game(TRAINED, pipeline, player(arm, trained), open_generator(params, places, arm, trained))
        greedy = game.play(questions, batch_size=size)
        samplers = open_samplers(params, places, trained, params.evaluate.samples)
        groups = play_samples(questions, game, samplers, batch_size=size)
        found = {TRAINED: Choice(greedy, [(episode,) for episode in greedy])}
        found["majority"] = Choice([majority(group) for group in groups], groups)
        for name, grader in {"taught": small, "rule": Rule()}.items():
            for arm_name in ("best_of", "beam"):
                before, ended, paid = dict(grader.usage()), groups, groups
                if arm_name == "beam":
                    ended, paid = beam.play_beam(questions, game, samplers, grader, batch_size=size)
                chosen, after = best_of.choose_best(ended, grader), grader.usage()
                took = {key: (after[key] - before[key]) / len(questions) for key in after if key.endswith("tokens")}
                found[f"{arm_name}, {name}"] = Choice(chosen, paid, took)
    return found, groups


def main() -> None:
    """Teach, play and choose, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--out", type=Path, default=Path("results/selectors.json"))
    asked = parser.parse_args()
    out = asked.out.absolute()
    os.chdir(asked.folder)
    params, places = Params.load(Path("params.yaml")), Places.of_project(Path.cwd())
    taught = Path(f"work/selector-{asked.steps}")
    if not taught.exists():
        teach(places.generator, taught, asked.steps, params.retriever.k)
    small = LocalGenerator(str(taught), temperature=0.0, max_tokens=96, batch_size=32, seed=0)
    tried = agreement(small, params.retriever.k)
    print("the taught grader gives the rule's score for {agreement:.1%} of {n} lessons".format(**tried), end="; ")
    print("the commonest score is {commonest:.1%}".format(**tried), flush=True)
    questions = list(read_questions(Path("data/questions/test.jsonl")))
    found, groups = choices(params, places, small, questions)
    tokens, golds = language_model_facts(params.generator, places).tokens, [question.gold_ids for question in questions]
    right = {name: [100 * float(answer_em(one) or 0.0) for one in choice.episodes] for name, choice in found.items()}
    right["pass@n"] = [100.0 * any(answer_em(episode) == 1.0 for episode in group) for group in groups]
    kept: dict[str, Any] = {"grader": tried}
    for name, values in right.items():
        ahead = [own - once for own, once in zip(values, right[TRAINED], strict=True)]
        draws = resample([values, ahead], golds, resamples=RESAMPLES, seed=0)
        em, gain = ([mean, *limits] for mean, limits in zip(draws.means.tolist(), draws.interval(), strict=True))
        choice = found.get(name, Choice([], groups))
        wrote = fmean(count_tokens(group, tokens) for group in choice.played)
        kept[name] = {"em": em, "ahead": gain, "n": len(values), "written": wrote, **choice.grader}
        cells = "{:5.1f} [{:.1f}, {:.1f}]".format(*em), "{:+5.1f} [{:+.1f}, {:+.1f}]".format(*gain)
        grader = " + ".join(f"{key.split('_')[0]} {value:.0f}" for key, value in choice.grader.items())
        print(f"{name:16} {cells[0]:22} {cells[1]:22} tokens {wrote:.0f}  {grader}", flush=True)
    write_json(out, kept)


if __name__ == "__main__":
    main()
