"""A small causal language model, trained from scratch in minutes on Search-R1 or R-Search traces of fictional worlds.

It replaces a download of gigabytes: it really plans, searches, reads and answers, in the process or behind any server
of transformers models. The architecture is Qwen3, the loss covers the model's own tokens only, and the optimizers are
Muon for the hidden matrices (kellerjordan.github.io/posts/muon) and AdamW for the rest.

Copying is the hard part. A transformer that starts from noise spends thousands of steps on its first induction head
(arXiv 2209.11895). This one starts with a rough one (:func:`start_with_induction`) and learns to use it on random
tokens before it reads any text.
"""

import random
import shutil
import time
from collections.abc import Iterator
from itertools import accumulate, count
from pathlib import Path
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from harr.compute.checkpoints import Checkpoints
from harr.compute.products import use_onednn
from harr.errors import ParamsError
from harr.io.files import draft, fingerprint, note_published
from harr.io.progress import bar, should_stop, stoppable
from harr.params import Params
from harr.params.faults import read_section
from harr.params.fields import Positive, Section
from harr.params.generator import TrainedParams
from harr.params.pipeline import PipelineParams
from harr.rag.generation.local_model import LocalGenerator
from harr.rag.pipelines.tags import TAGS
from harr.rag.rollout import play
from harr.types import Log
from harr_encyclopaedia.query_styles import QUERY_HOPS, examples, share_as_taught
from harr_encyclopaedia.relations import SOURCES
from harr_encyclopaedia.traces import MISSING, Oracle, Reader, game_of, open_world, practice, recitation, trace

END = "<|endoftext|>"
HEADS, CONTEXT, TOKENS_PER_STEP = 4, 2048, 4096
TOGETHER = 8
"""Number of steps whose texts are sorted by length and dealt out together, so that each step has little padding."""
MUON_RATE, ADAMW_RATE, WEIGHT_DECAY = 0.01, 2e-3, 0.01
RECALL, RECITATION, PRACTICE, ONE_HOP, TWO_HOPS = 0.08, 0.2, 0.4, 0.5, 0.6
"""Share of the steps at which each lesson ends; three-hop traces come last."""
REVISION = 0.15
"""Share of practice among the traces."""
TESTED = 300
"""Number of questions, from worlds not trained on, that the finished model answers given the right passages."""
SAVE_EVERY = 50
BASE = "base"
"""Folder of the untrained model within that of the trained one."""
Row = tuple[list[int], list[bool]]
"""Token ids, and which of them the model learns to write."""


class SmallLMParams(Section):
    """Settings of the small language model (``generator.settings``)."""

    plays: Literal["search_r1", "r_search", "leret"] = "search_r1"
    """Pipeline whose traces it learns from (for leret, queries in several styles); it plays no other."""
    steps: Positive = 1500
    """Number of updates, each of 4,096 tokens."""
    vocabulary: int = Field(2600, ge=300)
    """Maximum number of different tokens."""
    width: int = Field(128, ge=32, multiple_of=32)
    """Width of the hidden states."""
    layers: int = Field(4, ge=2)
    """Number of transformer layers."""


def train_small_lm(params: Params, out: Path, work: Path, log: Log) -> dict[str, float]:
    """Train the model of ``generator`` for the pipeline of ``params``: the function for ``generator.kind: trained``.

    Returns:
        The figures of :func:`train`.

    Raises:
        ParamsError: its settings are wrong, or the pipeline is not the one it is taught.
    """
    section = params.generator
    if section.kind != "trained":
        raise ParamsError(f"generator.kind is {section.kind}; train_small_lm is for kind trained")
    own = read_section(SmallLMParams, section.settings, "generator.settings")
    check_pipeline(own.plays, params.pipeline)
    return train(own, section, params.retriever.k, out, work, log, params.seed)


def check_pipeline(plays: str, pipeline: PipelineParams) -> None:
    """Check that a model taught one format, without instructions, plays no other.

    Raises:
        ParamsError: it plays another.
    """
    if pipeline.foreign:
        return
    if pipeline.name != plays:
        raise ParamsError(
            f"the small language model plays {plays}, not {pipeline.name}; set generator.settings.plays and "
            "pipeline.name to the same"
        )
    if (template := getattr(pipeline, "template", "bare")) != "bare":
        raise ParamsError(
            f"the small language model never saw the instructions of pipeline.template {template}; set bare"
        )
    tools = list(dict.fromkeys(SOURCES.values())) if plays == "r_search" else []
    if unknown := {*tools} - {*getattr(pipeline, "tools", ())}:
        raise ParamsError(f"the small language model asks {', '.join(tools)}; add {min(unknown)} to pipeline.tools")


def train(
    params: SmallLMParams, section: TrainedParams, k: int, out: Path, work: Path, log: Log, seed: int
) -> dict[str, float]:
    """Train the model and write it to ``out`` as a folder for transformers; a killed run resumes in ``work``.

    A search shows ``k`` passages, as it will in play: a model taught on three and given two repeated what the last
    one states. ``out/base`` is the model before any training.

    Returns:
        Tokens, seconds and parameters; the mean loss of the last steps; and the exact match on questions of unseen
        worlds with up to three hops, when every search finds its gold passage. For queries of ``leret``, instead, the
        share that is as the teacher writes them, after one demonstration.
    """
    run = work / fingerprint({"shape": params.model_dump(), "k": k, "seed": seed})
    torch.manual_seed(seed)
    tokenizer = _tokenizer(params.vocabulary, params.plays)
    model = _model(len(tokenizer), params.width, params.layers)
    _save_model(model, tokenizer, run / BASE)  # identical when a killed run resumes
    optimizers = _optimizers(model)
    checkpoints = Checkpoints(run)
    fresh = {"step": 0.0, "tokens": 0.0, "seconds": 0.0, "loss": 0.0}
    figures: dict[str, float] = (checkpoints.load(model, None, optimizers) or [fresh])[0]
    start = int(figures["step"])
    if start:
        print(f"resuming the generator at step {start}/{params.steps}")
    texts: list[list[Row]] = []
    with bar(total=params.steps, desc="generator", unit="step", initial=start) as progress:
        for step in stoppable(range(start, params.steps)):
            began = time.perf_counter()
            if not texts or step % TOGETHER == 0:
                texts = _dealt(tokenizer, step // TOGETHER, params, k, seed)
            ids_BT, own_BT = _pad(texts[step % TOGETHER])
            loss, right = _learn(model, optimizers, ids_BT, own_BT, step / params.steps)
            figures["step"], figures["tokens"] = step + 1.0, figures["tokens"] + ids_BT.numel()
            figures["seconds"] += time.perf_counter() - began
            figures["loss"] = 0.95 * figures["loss"] + 0.05 * loss if step else loss
            log(step, {"loss": loss, "accuracy": right})
            progress.set_postfix(loss=f"{loss:.2f}", right=f"{right:.1%}", refresh=False)
            progress.update()
            if (step + 1) % SAVE_EVERY == 0 or should_stop():
                checkpoints.save(step + 1, model, None, optimizers, [figures], best=step + 1)
    with draft(run / "model", out) as folder:
        _save_model(model, tokenizer, folder)
        shutil.move(run / BASE, folder / BASE)
        figures |= {"parameters": float(model.num_parameters()), **_test(folder, params.plays, section, k)}
        note_published(run)
    return figures


def _save_model(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write a folder that transformers can load, replacing an existing one."""
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _tokenizer(vocabulary: int, plays: str) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE in which most names are one token; the tags are tokens of their own."""
    tags = [f"<{slash}{name}>" for name in TAGS.get(plays, ()) for slash in ("", "/")]
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(tags),
        special_tokens=[END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(_texts(plays), trainer)
    bpe.add_tokens([AddedToken(tag, normalized=False) for tag in tags])
    return PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token=END, pad_token=END)


def _texts(plays: str) -> Iterator[str]:
    rng = random.Random(0)
    for number in range(100):
        reader = open_world(number, hops=(1, 2, 3))
        yield from (f" {passage.title} {passage.text}" for passage in reader.passages.values())
        for question in reader.questions[:6]:
            pieces = examples(reader, rng, 1) if plays == "leret" else trace(question, Oracle(reader, rng, 1), plays)
            yield "".join(text for text, _ in pieces)


def _model(vocabulary: int, width: int, layers: int) -> Qwen3ForCausalLM:
    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        head_dim=width // HEADS,
        max_position_embeddings=CONTEXT,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        attention_bias=True,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
    )
    model = Qwen3ForCausalLM(config)
    start_with_induction(model)
    for layer in model.model.layers:  # stays zero: vLLM ignores it (docs/serving.md)
        layer.self_attn.o_proj.bias.requires_grad_(False)
    use_onednn(model)
    return model


@torch.no_grad()
def start_with_induction(model: Qwen3ForCausalLM) -> None:
    """Set initial weights that form a rough induction head.

    Layer 0: two heads look one and two tokens back (their query and key are biases that rotary positions bring into
    phase) and write what they see into a random subspace. Later layers: keys read that subspace as queries read the
    token itself, so a token attends to places that followed an equal token; their output projection is the transposed
    value projection, so what is seen there is copied.
    """
    width, size = model.config.hidden_size, model.config.head_dim
    half, std = size // 2, width**-0.5
    frequency = 10_000.0 ** (-torch.arange(half) / half)
    torch.nn.init.normal_(model.model.embed_tokens.weight, std=std)
    seen_DD = torch.empty(0)
    for depth, layer in enumerate(model.model.layers):
        attention = layer.self_attn
        for part in (attention.q_proj, attention.k_proj, attention.v_proj):
            torch.nn.init.normal_(part.weight, std=std)
        if depth == 0:
            for head, distance in enumerate((1, 2)):
                rows = slice(head * size, (head + 1) * size)
                attention.q_proj.weight[rows] *= 0.1
                attention.k_proj.weight[rows] *= 0.1
                fast = frequency[:4] * distance  # the fastest-turning pairs tell neighbours apart
                attention.k_proj.bias[rows][:4] = 1.0
                attention.q_proj.bias[rows][:4] = torch.cos(fast)
                attention.q_proj.bias[rows][half : half + 4] = -torch.sin(fast)
            seen_DD = attention.o_proj.weight[:, :size] @ attention.v_proj.weight[:size]
        else:
            key = attention.q_proj.weight @ seen_DD.T
            attention.k_proj.weight.copy_(key * attention.q_proj.weight.norm() / key.norm())
            attention.o_proj.weight.copy_(0.1 * attention.v_proj.weight.T)
        for norm in (attention.q_norm, attention.k_norm):
            norm.weight.fill_(1.3 if depth else 1.6)


def _optimizers(model: Qwen3ForCausalLM) -> list[torch.optim.Optimizer]:
    hidden = [w for name, w in model.named_parameters() if w.ndim == 2 and "embed" not in name]
    rest = [w for name, w in model.named_parameters() if w.ndim != 2 or "embed" in name]
    return [
        torch.optim.Muon(hidden, lr=MUON_RATE, weight_decay=WEIGHT_DECAY),
        torch.optim.AdamW(rest, lr=ADAMW_RATE, weight_decay=0.0, betas=(0.9, 0.95)),
    ]


def _dealt(tokenizer: PreTrainedTokenizerFast, block: int, params: SmallLMParams, k: int, seed: int) -> list[list[Row]]:
    """Return the texts of ``TOGETHER`` steps: of similar length within a step, with as many tokens in each."""
    steps = range(block * TOGETHER, (block + 1) * TOGETHER)
    rows = sorted(
        (row for step in steps for row in _rows(tokenizer, step, params, k, seed)), key=lambda row: len(row[0])
    )
    ends = list(accumulate(len(ids) for ids, _ in rows))
    dealt: list[list[Row]] = [[] for _ in steps]
    for row, end in zip(rows, ends, strict=True):
        dealt[(end - 1) * TOGETHER // ends[-1]].append(row)
    random.Random(f"{seed}/{block}").shuffle(dealt)
    return dealt


def _rows(tokenizer: PreTrainedTokenizerFast, step: int, params: SmallLMParams, k: int, seed: int) -> Iterator[Row]:
    """Yield texts from a world of the step's own, ``TOKENS_PER_STEP`` tokens in total."""
    rng, done = random.Random(f"{seed}/{step}"), step / params.steps
    hops = (1,) if done < ONE_HOP else (1, 2) if done < TWO_HOPS else (1, 2, 3)
    hops = QUERY_HOPS if params.plays == "leret" else hops
    reader = open_world(seed * 100_000 + 100 + step, hops)
    length = rng.randint(16, 64)
    tokens = 0
    for number in count():
        if done < RECALL:
            row = _recall(len(tokenizer), rng, length)
        else:
            row = _lesson(tokenizer, reader, rng, done, number, params.plays, k)
        tokens += len(row[0])
        if number and tokens > TOKENS_PER_STEP:
            return
        yield row


def _lesson(
    tokenizer: PreTrainedTokenizerFast, reader: Reader, rng: random.Random, done: float, number: int, plays: str, k: int
) -> Row:
    """Return one row of the lesson that is due after the share ``done`` of all steps."""
    documents, dice = rng.randint(1, 4), rng.random()
    if done < RECITATION:
        return _encode(tokenizer, recitation(reader, rng, documents, plays))
    if done < PRACTICE and dice < 0.2:
        return _recall(len(tokenizer), rng, rng.randint(50, 150))
    if done < PRACTICE or dice < REVISION:
        return _encode(tokenizer, practice(reader, rng, documents, plays))
    if plays == "leret":
        return _encode(tokenizer, examples(reader, rng, k))
    question = reader.questions[number % len(reader.questions)]
    return _encode(tokenizer, trace(question, Oracle(reader, rng, k, MISSING), plays))


def _recall(vocabulary: int, rng: random.Random, length: int) -> Row:
    """Return random tokens, twice: in the second half each follows from the one before."""
    tokens = [rng.randrange(1, vocabulary) for _ in range(length)]
    return tokens * 2, [False] * (length + 1) + [True] * (length - 1)


def _encode(tokenizer: PreTrainedTokenizerFast, pieces: list[tuple[str, bool]]) -> Row:
    ids: list[int] = []
    own: list[bool] = []
    for coded, (_, learnt) in zip(tokenizer([text for text, _ in pieces])["input_ids"], pieces, strict=True):
        ids += coded
        own += [learnt] * len(coded)
    return ids, own


def _pad(rows: list[Row]) -> tuple[Tensor, Tensor]:
    """Return token ids (B, T), padded on the right, and which to learn."""
    ids_BT = torch.zeros(len(rows), max(len(ids) for ids, _ in rows), dtype=torch.long)
    own_BT = torch.zeros_like(ids_BT, dtype=torch.bool)
    for place, (ids, own) in enumerate(rows):
        ids_BT[place, : len(ids)] = torch.tensor(ids)
        own_BT[place, : len(own)] = torch.tensor(own)
    return ids_BT, own_BT


def _learn(
    model: Qwen3ForCausalLM, optimizers: list[torch.optim.Optimizer], ids_BT: Tensor, own_BT: Tensor, done: float
) -> tuple[float, float]:
    """Make one update; return the loss (nats per token) and the share of tokens predicted correctly."""
    for optimizer, rate in zip(optimizers, (MUON_RATE, ADAMW_RATE), strict=True):
        optimizer.param_groups[0]["lr"] = rate * min(1.0, done / 0.03 + 0.01, (1.0 - done) / 0.7)
    hidden_BTD = model.model(input_ids=ids_BT[:, :-1]).last_hidden_state  # right padding: no mask needed
    logits_LV, target_L = model.lm_head(hidden_BTD[own_BT[:, 1:]]), ids_BT[:, 1:][own_BT[:, 1:]]
    loss = F.cross_entropy(logits_LV, target_L)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
    return loss.item(), (logits_LV.argmax(-1) == target_L).float().mean().item()


def _test(folder: Path, plays: str, section: TrainedParams, k: int) -> dict[str, float]:
    """Return exact match on questions of unseen worlds when the oracle searches, or the share of queries as taught."""
    generator = LocalGenerator(
        str(folder), temperature=0.0, max_tokens=section.max_tokens, batch_size=section.batch_size, seed=0
    )
    if plays == "leret":
        return {"queries_as_taught": share_as_taught(generator, open_world(-1, QUERY_HOPS), TESTED, k)}
    pipeline = game_of(plays, searches=3)
    right: list[bool] = []
    number = 0
    while len(right) < TESTED:
        number -= 1
        reader = open_world(number, hops=(1, 2, 3))
        episodes = play(reader.questions, pipeline, Oracle(reader, random.Random(number), k), generator)
        right += [episode.answer in episode.question.answers for episode in episodes]
    return {"em_with_gold_passages": sum(right) / len(right)}
