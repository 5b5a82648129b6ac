"""The filtered questions and the merged retriever to the hub."""

import json
import os
from pathlib import Path

from harr.errors import CorpusError, ParamsError
from harr.files import read_json, read_jsonl
from tasks.filter import FILTERED, statistics_rows
from tasks.merge import RETRIEVER

EVALUATE, CONTRASTS = Path("metrics/evaluate.json"), Path("metrics/contrasts.json")


def push(dataset: str, model: str, *, private: bool, dry_run: bool, license: str) -> None:
    """Send data/filtered to ``dataset`` and models/retriever to ``model`` (empty: not that one), or only say what.

    Everything is read and checked before the first byte is sent.

    Raises:
        CorpusError: a folder or file is missing.
        ParamsError: no HF_TOKEN, HF_HUB_OFFLINE, or the hub refuses.
        ServiceUnavailable: no answer from the hub.
    """
    questions = [FILTERED / "questions.jsonl", FILTERED / "statistics.jsonl"] if dataset else []
    known = [RETRIEVER / "harr.json", EVALUATE, CONTRASTS] if model else []
    if model and (RETRIEVER / "untrained.json").exists():
        raise CorpusError(f"{RETRIEVER} was not trained; train.method agent trains models/llm, which is not pushed yet")
    for path in (*questions, *known):
        if not path.exists():
            raise CorpusError(f"{path} is missing, so there is nothing to push; run `dvc repro` first")
    from harr.hub_push import Upload, check_name, check_online, send, told

    for name in (dataset, model):
        if name:
            check_name(name)
    token = os.environ.get("HF_TOKEN", "").strip()
    if not dry_run:
        check_online()
        if not token:
            raise ParamsError("the environment variable HF_TOKEN is not set; put a hub token with write access there")
    from harr.hub_card import dataset_card, model_card, plain_facts

    uploads = []
    if dataset:
        card = dataset_card(dataset, statistics_rows(), len(read_jsonl(FILTERED / "questions.jsonl")), license)
        uploads.append(Upload("dataset", dataset, private, {path.name: path for path in questions}, card))
    if model:
        # The cards of stage merge name the base encoder as this machine does, by its path; so does harr.json.
        paths = sorted(path for path in RETRIEVER.rglob("*") if path.is_file() and path.name != "README.md")
        files: dict[str, Path | bytes] = {path.relative_to(RETRIEVER).as_posix(): path for path in paths}
        for path in (path for path in paths if path.name == "harr.json"):
            text = json.dumps(plain_facts(read_json(path)), indent=2, ensure_ascii=False) + "\n"
            files[path.relative_to(RETRIEVER).as_posix()] = text.encode()
        card = model_card(model, read_json(RETRIEVER / "harr.json"), read_json(EVALUATE), read_json(CONTRASTS), license)
        uploads.append(Upload("model", model, private, files, card))
    for upload in uploads:
        print(told(upload) if dry_run else f"pushed {upload.kind} {upload.name}: {send(upload, token)}", flush=True)
