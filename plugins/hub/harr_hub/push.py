"""Push the filtered questions and the merged model to the hub."""

import json
import os
from pathlib import Path

from harr.errors import CorpusError, ParamsError
from harr.io.files import SUMS, read_json, read_jsonl, read_state
from harr.merge.card import plain_facts
from harr_hub.cards import dataset_card, language_model_card, retriever_card
from harr_hub.upload import CARD, Upload, check_name, check_online, describe, list_hashes, send
from tasks.filter_outputs import statistics_rows
from tasks.paths import FILTERED, LANGUAGE_MODEL, METRICS, RETRIEVER

EVALUATE, CONTRASTS = METRICS / "evaluate.json", METRICS / "contrasts.json"


def push_to_hub(dataset: str, model: str, *, private: bool, dry_run: bool, license: str) -> None:
    """Push data/filtered to ``dataset`` and the trained model to ``model`` (skip an empty one), or only describe it.

    The trained model is models/retriever or, after method agent, models/language_model. Everything is read and checked
    before the first byte is sent.

    Raises:
        CorpusError: a folder or file is missing.
        ParamsError: no HF_TOKEN, HF_HUB_OFFLINE is set, or the hub refuses.
        ServiceUnavailable: no answer from the hub.
    """
    questions = [FILTERED / "questions.jsonl", FILTERED / "statistics.jsonl"] if dataset else []
    folder = LANGUAGE_MODEL if (RETRIEVER / "untrained.json").exists() else RETRIEVER
    known = [folder / "harr.json", EVALUATE, CONTRASTS] if model else []
    for path in (*questions, *known):
        if not path.exists():
            raise CorpusError(f"{path} is missing, so there is nothing to push; run `dvc repro` first")
    for name in (dataset, model):
        if name:
            check_name(name)
    token = os.environ.get("HF_TOKEN", "").strip()
    if not dry_run:
        check_online()
        if not token:
            raise ParamsError("the environment variable HF_TOKEN is not set; put a hub token with write access there")
    uploads = []
    if dataset:
        card = dataset_card(dataset, statistics_rows(), len(read_jsonl(FILTERED / "questions.jsonl")), license)
        uploads.append(Upload("dataset", dataset, private, {path.name: path for path in questions}, card))
    if model:
        # The cards of stage merge name the base encoder by this machine's path; so does harr.json.
        paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in {CARD, SUMS})
        files: dict[str, Path | bytes] = {path.relative_to(folder).as_posix(): path for path in paths}
        for path in (path for path in paths if path.name == "harr.json"):
            text = json.dumps(plain_facts(read_json(path)), indent=2, ensure_ascii=False) + "\n"
            files[path.relative_to(folder).as_posix()] = text.encode()
        again = "run `dvc repro -f -s evaluate`"
        figures = (read_state(EVALUATE, again, arms=dict), read_state(CONTRASTS, again), license)
        facts = read_json(folder / "harr.json")
        training = facts.pop("training", None)
        if folder == LANGUAGE_MODEL and training is None:
            raise CorpusError(f"{folder / 'harr.json'} does not say how it was trained; run `dvc repro -f -s merge`")
        card = (
            language_model_card(model, facts, training, *figures)
            if training
            else retriever_card(model, facts, *figures)
        )
        files[SUMS] = list_hashes({**files, CARD: card.encode()})  # stage merge noted those of its own card
        uploads.append(Upload("model", model, private, files, card))
    for upload in uploads:
        print(describe(upload) if dry_run else f"pushed {upload.kind} {upload.name}: {send(upload, token)}", flush=True)
