"""What choosing among sampled answers gives, by who chooses: ``python -m benchmarks.selectors FOLDER``.

FOLDER is a project of ``recipes/agent_small.yaml`` whose stages were run. Its trained model plays the test questions
greedily, and ``evaluate.samples`` times by chance. Among the samples choose a majority, and the arms ``best_of`` and
``beam`` with two graders: one that follows the facts of the fictional world through the passages by its grammar, the
ceiling of every grader that reads; and a small language model that was taught to do the same, with words, on other
worlds, from the model that the warm start left (``work/selector``, a folder for ``evaluate.selector``). Exact match
with 95 % intervals over questions, the paired difference to ``full``, and tokens. Option: ``--steps``, updates of the
grader.
"""

import argparse
import json
import os
import random
import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, AutoTokenizer

from harr.arms import ARMS, FULL
from harr.builders.pipeline import build_pipeline
from harr.builders.places import Places
from harr.builders.setup import open_players, open_samplers, open_writer
from harr.builders.writers import written_by
from harr.compute.products import by_onednn
from harr.corpus.passages import read_questions
from harr.evaluate.beam import play_beam
from harr.evaluate.intervals import resample
from harr.evaluate.play import Game
from harr.evaluate.samples import Group, best_of, majority, play_samples, written_tokens
from harr.generator.traces import MISSING, Oracle, Reader, game_of, open_world
from harr.io.files import write_json
from harr.io.progress import bar
from harr.params import Params
from harr.rag.generation.local_model import LocalGenerator
from harr.rag.pipelines.replies import chat, passages_text
from harr.rag.rollout import play
from harr.rag.scoring.terms import answer_em
from harr.types import Episode, Generate, Generator, Passage
from harr.world import grammar, scripted

TEMPLATE = "{% for message in messages if message.role == 'user' %}{{ message.content }}\n{% endfor %}"
"""The chat template of the taught grader, which has no need of instructions."""
TOKENS, RATE, WARM_UP = 4096, 1e-3, 0.05
RESAMPLES = 10_000
_PASSAGE = re.compile(r"^\[\d+\] (.*)\n(.*)$", re.MULTILINE)


def graded(content: str) -> str:
    """Return the reply of who follows the question through the passages: every fact, then the score."""
    chain = grammar.parse(content.partition("Question: ")[2].partition("\n")[0])
    if chain is None:
        return '{"score": 0.0}'
    hops = scripted.follow(chain, _PASSAGE.findall(content))
    found = [value for _, _, value in hops if value != "unknown"]
    told = content.rpartition("\n\nAnswer: ")[2] if "\n\nAnswer: " in content else ""
    left = len(chain.relations) - len(found)
    if not told:
        score = 1.0 if not left else 0.75 if left == 1 and found else 0.25
    elif left:
        score = 0.5
    else:
        answer = json.loads(told)
        score = 1.0 if answer == found[-1] else 0.25 if answer in found else 0.0
    thoughts = "".join(f"{grammar.phrase(relation, subject)} is {value}. " for relation, subject, value in hops)
    return thoughts + json.dumps({"score": score})


def lesson(reader: Reader, rng: random.Random, k: int) -> tuple[Generate, str]:
    """Return what a grader is asked, of a part of an episode that a teacher played, and the reply."""
    question = rng.choice(reader.questions)
    teacher: Any = SimpleNamespace(complete=lambda asked: [scripted.turn(request.prompt) for request in asked])
    searches = len(question.gold_ids)
    [episode] = play([question], game_of("search_r1", searches), Oracle(reader, rng, k, MISSING), teacher)
    steps = episode.steps[: rng.randint(1, len(episode.steps))]
    shown = tuple({passage.id: passage for step in steps for passage in step.retrieval.passages}.values())
    text, _ = passages_text(shown)
    if rng.random() < 1 / 3:
        asked = chat("promising", question=question.text, passages=text)
    else:
        right = rng.random() < 0.5
        answer = question.answers[0] if right else wrong(question.text, shown, rng)
        asked = chat("choose", question=question.text, passages=text, answer=json.dumps(answer, ensure_ascii=False))
    return asked, graded(asked.messages[-1]["content"])


def wrong(question: str, shown: Sequence[Passage], rng: random.Random) -> str:
    """Return what a careless reader might answer: what a passage says of somebody else, or a title."""
    chain = grammar.parse(question)
    assert chain
    names = [grammar.split_title(passage.title)[0] for passage in shown]
    told = [
        scripted.facts(relation, name, [(p.title, p.text) for p in shown])
        for relation in chain.relations
        for name in names
    ]
    return rng.choice([*sorted({value for values in told for value in values}), *names[:1]])


def teach(start: Path, out: Path, steps: int, k: int) -> None:
    """Teach a small language model to grade, and write its folder."""
    torch.manual_seed(0)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(start), AutoTokenizer.from_pretrained(start)
    tokenizer.chat_template = TEMPLATE
    by_onednn(model)
    optimizer = torch.optim.AdamW(model.parameters(), RATE, betas=(0.9, 0.95), weight_decay=0.0)
    with bar(total=steps, desc="grader", unit="step") as progress:
        for step in range(steps):
            done = step / steps
            optimizer.param_groups[0]["lr"] = RATE * min(1.0, done / WARM_UP + 0.01, 1.0 - done)
            loss = _update(model, optimizer, _rows(tokenizer, step, k))
            progress.set_postfix(loss=f"{loss:.3f}", refresh=False)
            progress.update()
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def _rows(tokenizer: Any, step: int, k: int) -> list[tuple[list[int], int]]:
    """Return token ids of a step's lessons and how many of them are given, of about equal length."""
    rng, reader, rows = random.Random(f"selector/{step}"), open_world(500_000 + step, (1, 2)), []
    for _ in range(64):
        asked, reply = lesson(reader, rng, k)
        given = tokenizer.apply_chat_template(list(asked.messages), tokenize=True, return_dict=False)
        rows.append((given + tokenizer(reply)["input_ids"] + [tokenizer.eos_token_id], len(given)))
    rows.sort(key=lambda row: len(row[0]))
    first = rng.randrange(len(rows) - 8)
    longest = (len(rows[number][0]) for number in count(first))
    fits = next((n for n, size in enumerate(longest, start=1) if n * size > TOKENS or first + n == len(rows)), 1)
    return rows[first : first + fits]


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
    """A grader that :func:`graded` is."""

    def complete(self, requests: Sequence[Generate]) -> list[str]:
        """Grade all requests."""
        return [graded(request.messages[-1]["content"]) for request in requests]

    def usage(self) -> dict[str, float]:
        """Return that it writes nothing that costs."""
        return {"completion_tokens": 0.0}


def agreement(grader: Generator, k: int, rows: int = 300) -> float:
    """Return how often a grader gives the score of :func:`graded` in worlds that it was not taught on."""
    rng, reader = random.Random("held out"), open_world(-7, (1, 2))
    lessons = [lesson(reader, rng, k) for _ in range(rows)]
    replies = grader.complete([asked for asked, _ in lessons])
    score = partial(re.findall, r"\{.*\}")
    return fmean(score(told)[-1:] == score(reply)[-1:] for told, (_, reply) in zip(replies, lessons, strict=True))


def main() -> None:
    """Teach, play and choose, and print the table; it is also kept in FOLDER/metrics/selectors.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=600)
    asked = parser.parse_args()
    os.chdir(asked.folder)
    params, places = Params.load(Path("params.yaml")), Places.of_project(Path.cwd())
    taught, trained, k = Path("work/selector"), Path("models/adapter"), params.retriever.k
    if not taught.exists():
        teach(places.generator, taught, asked.steps, k)
    small = LocalGenerator(str(taught), temperature=0.0, max_tokens=96, batch_size=32, seed=0)
    print(
        f"the taught grader gives the score of the rule for {agreement(small, k):.1%} of 300 lessons of another world"
    )
    questions, size = list(read_questions(Path("data/questions/test.jsonl"))), params.evaluate.batch_size
    pipeline = build_pipeline(params.pipeline, params.generator, places)
    tokens = written_by(params.generator, places).tokens
    table: dict[str, tuple[list[Episode], list[Group], float]] = {}
    with open_players(params, places, questions, candidates="corpus") as player:
        game = Game(FULL, pipeline, player(ARMS[FULL], trained), open_writer(params, places, ARMS[FULL], trained))
        greedy = game.play(questions, batch_size=size)
        table[FULL] = greedy, [(episode,) for episode in greedy], 0.0
        writers = open_samplers(params, places, trained, params.evaluate.samples)
        groups = play_samples(questions, game, writers, batch_size=size)
        table["majority"] = [majority(group) for group in groups], groups, 0.0
        for name, grader in {"taught": small, "rule": Rule()}.items():
            plays: dict[str, Callable[[], tuple[list[Group], list[Group]]]] = {
                "best_of": lambda: (groups, groups),
                "beam": partial(play_beam, questions, game, writers, grader, batch_size=size),
            }
            for arm, run in plays.items():
                before = grader.usage()["completion_tokens"]
                ended, played = run()
                chosen = best_of(ended, grader)
                table[f"{arm}, {name}"] = chosen, played, grader.usage()["completion_tokens"] - before
    golds = [question.gold_ids for question in questions]
    right = {name: [100 * float(answer_em(e) or 0.0) for e in chosen] for name, (chosen, _, _) in table.items()}
    right["pass@n"] = [100.0 * any(answer_em(episode) == 1.0 for episode in group) for group in groups]
    kept = {}
    for name, values in right.items():
        draws = resample(
            [values, [a - b for a, b in zip(values, right[FULL], strict=True)]], golds, resamples=RESAMPLES, seed=0
        )
        own, ahead = draws.interval()
        _, played, graders = table.get(name, ([], groups, 0.0))
        wrote = fmean(written_tokens(group, tokens) for group in played)
        kept[name] = {"em": [fmean(values), *own], "ahead": [fmean(values) - fmean(right[FULL]), *ahead]}
        kept[name] |= {"tokens": wrote, "grader_tokens": graders / len(questions), "n": len(values)}
        figures = (
            "{:5.1f} [{:.1f}, {:.1f}]".format(*kept[name]["em"]),
            "{:+5.1f} [{:+.1f}, {:+.1f}]".format(*kept[name]["ahead"]),
        )
        print(
            f"{name:16} {figures[0]:22} {figures[1]:22} tokens {wrote:6.0f} + {graders / len(questions):6.0f}",
            flush=True,
        )
    write_json(Path("metrics/selectors.json"), kept)


if __name__ == "__main__":
    main()
