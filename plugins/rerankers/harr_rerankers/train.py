"""Train a cross-encoder on the pool of the untrained retriever, by the trainer of sentence-transformers."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harr.builders.retrievers import fixed_retriever, open_corpus
from harr.builders.setup import open_encoder
from harr.compute.precision import choose_precision
from harr.errors import CorpusError, ModelError, ParamsError
from harr.io.files import draft, fingerprint, finish, note_published
from harr.io.model_folder import find_folder, load_safely, needs_package
from harr.params import Params
from harr.types import Question, Retriever, Search
from tasks.paths import PLACES, QUESTIONS, VALIDATION

BATCH = 32
"""Number of pairs per update."""
TOKENS = 128
"""Maximum length of a pair, in tokens."""


def train(params: Params, out: Path, model: str, epochs: int, negatives: int, rate: float) -> str:
    """Write a cross-encoder to ``out``; return a line about it.

    Every gold passage is a pair of label 1, ``negatives`` others of the question's pool are pairs of label 0 (binary
    cross-entropy; Nogueira and Cho, arXiv 1901.04085). The epoch with the best nDCG@10 on the validation pools is kept.
    A killed call continues after its last epoch.

    Raises:
        ParamsError: the folder exists. CorpusError: no question has gold in its pool.
        IndexMismatch: vectors or index are of another corpus or encoder. ModelError: the model cannot be found.
    """
    from harr.corpus.passages import read_questions

    if out.exists():
        raise ParamsError(f"{out} is there already; remove it, or name another folder")
    begun = find_folder(model or params.encoder.model, "--model" if model else "encoder.model")
    if needs_package(begun):
        raise ModelError(f"{begun} has no weights to train; name an encoder or a cross-encoder by --model")
    section = params.retriever
    with open_corpus(params.index, PLACES) as corpus:
        encoder = open_encoder(params, corpus, PLACES)
        base = fixed_retriever(section, section.search, encoder, corpus, section.candidates)
        pools, asked = (
            _pools(read_questions(path), base, section.pool) for path in (QUESTIONS / "train.jsonl", VALIDATION)
        )
    if not (pools and asked):
        raise CorpusError(
            f"no question of {VALIDATION if pools else QUESTIONS / 'train.jsonl'} has gold in its pool, and other "
            "passages; raise retriever.pool"
        )
    pairs = _pairs(pools, negatives, params.seed)
    run = {
        "pairs": fingerprint(pairs),
        "validation": fingerprint(asked),
        "from": str(begun),
        "epochs": epochs,
        "negatives": negatives,
        "rate": rate,
    }
    work = Path("work/reranker") / fingerprint(run)
    cross_encoder, figures = _learn(begun, pairs, asked, work, epochs, negatives, rate, params.seed)
    with draft(out.with_name(f".{out.name}"), out) as folder:
        cross_encoder.save_pretrained(str(folder))
    note_published(work)
    finish(work.parent)
    before, after = (100 * figures[f"pool_{name}ndcg@10"] for name in ("base_", ""))
    return (
        f"{out}: learnt from {len(pools):,} questions; nDCG@10 of the pools of {len(asked):,} validation questions "
        f"{after:.1f}, as they were found {before:.1f}. Set it in the arm rerank: settings: {{model: {out}}}"
    )


def _learn(
    begun: Path,
    pairs: list[dict[str, Any]],
    asked: list[dict[str, Any]],
    work: Path,
    epochs: int,
    negatives: int,
    rate: float,
    seed: int,
) -> tuple[Any, dict[str, float]]:
    """Return the cross-encoder of the best epoch, and its figures on the pools of validation questions."""
    from datasets import Dataset
    from sentence_transformers.cross_encoder import CrossEncoder, CrossEncoderTrainer, CrossEncoderTrainingArguments
    from sentence_transformers.cross_encoder.evaluation import CrossEncoderRerankingEvaluator
    from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss
    from transformers.trainer_utils import get_last_checkpoint

    torch.manual_seed(seed)
    kind: Any = partial(CrossEncoder, num_labels=1, max_length=TOKENS)
    cross_encoder = load_safely(kind, str(begun), begun, None)
    evaluator = CrossEncoderRerankingEvaluator(asked, at_k=10, name="pool", show_progress_bar=False)
    each_epoch: Any = {"eval_strategy": "epoch", "save_strategy": "epoch"}
    trainer = CrossEncoderTrainer(
        model=cross_encoder,
        args=CrossEncoderTrainingArguments(
            output_dir=str(work),
            num_train_epochs=epochs,
            per_device_train_batch_size=BATCH,
            learning_rate=rate,
            warmup_steps=0.1,
            use_cpu=not torch.cuda.is_available(),
            bf16=choose_precision("auto") == "bfloat16",
            dataloader_pin_memory=torch.cuda.is_available(),
            load_best_model_at_end=True,
            metric_for_best_model="eval_pool_ndcg@10",
            save_total_limit=1,
            report_to="none",
            logging_strategy="no",
            seed=seed,
            **each_epoch,
        ),
        train_dataset=Dataset.from_list(pairs),
        evaluator=evaluator,
        loss=BinaryCrossEntropyLoss(cross_encoder, pos_weight=torch.tensor(float(negatives))),
    )
    for state in (one / "trainer_state.json" for one in work.glob("checkpoint-*")):
        if not state.exists():  # it is written last: a kill came first
            shutil.rmtree(state.parent)
    last: Any = get_last_checkpoint  # untyped in transformers
    trainer.train(resume_from_checkpoint=last(str(work)) if work.exists() else None)
    return cross_encoder, {name: float(value) for name, value in evaluator(cross_encoder).items()}


def _pools(questions: Sequence[Question], base: Retriever, depth: int) -> list[dict[str, Any]]:
    """Return, per question with gold, its text, the gold texts and what the retriever finds, in order."""
    asked = [question for question in questions if question.gold_ids]
    found = base.retrieve([replace(Search(question, question.text), k=depth) for question in asked])
    pools = []
    for question, retrieval in zip(asked, found, strict=True):
        gold = [passage.content for passage in retrieval.passages if passage.document in question.gold_documents]
        if 0 < len(gold) < len(retrieval.passages):
            texts = [passage.content for passage in retrieval.passages]
            pools.append({"query": question.text, "positive": gold, "documents": texts})
    return pools


def _pairs(pools: Sequence[dict[str, Any]], negatives: int, seed: int) -> list[dict[str, Any]]:
    """Return the pairs of all pools, with their labels."""
    rng = np.random.default_rng([seed, 71])
    pairs = []
    for pool in pools:
        others = [text for text in pool["documents"] if text not in pool["positive"]]
        drawn = rng.permutation(len(others))[: negatives * len(pool["positive"])]
        texts = [(text, 1.0) for text in pool["positive"]] + [(others[row], 0.0) for row in drawn]
        pairs += [{"query": pool["query"], "passage": text, "label": label} for text, label in texts]
    return pairs
