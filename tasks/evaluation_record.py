"""The record of what an evaluation was played with, next to its rows; every user of the rows compares it.

Files have their own hashes; the record ties them together. Stage evaluate writes it, stage merge and the registry
compare it with the files here, a version carries it, and the gate reads it instead of params.yaml.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import harr
from harr.errors import DamagedFile, StaleState
from harr.io.files import SUMS, digest_of, fingerprint, read_manifest, read_state, sha256
from harr.params import Params
from tasks.common import read_vectors_manifest
from tasks.paths import ADAPTER, ARMS, EVALUATION, GENERATOR, METRICS, QUESTIONS, TRAINED_ON

PLAYED, FIGURES = "played.json", "figures"
WORDS = {
    "model": f"the adapter ({ADAPTER})",
    "arms": f"the other trained arms ({ARMS})",
    "generator": f"the language model ({GENERATOR})",
    "corpus": "the corpus",
    "index": "the vectors",
    "questions": "the test questions",
    "game": "the parameters of the game",
    "scoring": "the code that plays and scores",
    "rules": "the parameters of the comparison",
}
"""What is compared, in words."""
SAME_GAME = ("generator", "corpus", "index", "questions", "game", "scoring")
"""What two models must share for their rows to be compared."""
SCORING = ("rag/pipelines", "rag/scoring", "evaluate")
"""Packages of harr that turn replies into rows."""
REACHED = ("server", "batch_size")
"""Parameters of a language model that affect how it is reached, not what it writes."""
AGAIN = "run `dvc repro -f -s evaluate`"


def record_game(params: Params) -> dict[str, Any]:
    """Return the record of an evaluation played here and now; None for what is missing."""
    facts, test = corpus_facts(), QUESTIONS / "test.jsonl"
    return {
        "model": content_of(ADAPTER),
        "arms": content_of(ARMS),
        "generator": None if params.language_model_learns else content_of(GENERATOR),
        "corpus": facts["identity"],
        "passages": facts["passages"],
        "trained_on": facts["trained_on"]["identity"] if TRAINED_ON.exists() else None,
        "index": read_vectors_manifest()["identity"],
        "questions": sha256(test) if test.exists() else None,
        "game": game(params),
        "scoring": scoring(),
        "rules": rules(params),
    }


def game(params: Params) -> dict[str, Any]:
    """Return the parameters that two models must share to be compared: all but who plays and how a server is reached.

    A language model that learns is the player.
    """
    from harr.rag.sources.router import source_facts

    away = dict.fromkeys(REACHED, True)
    sections: dict[str, Any] = {"pipeline": True, "retriever": True, "evaluate": True, "reward": True, "seed": True}
    values = params.model_dump(
        mode="json",
        include=sections | ({} if params.language_model_learns else {"generator": True}),
        exclude={"retriever": {"encoder"}, "generator": away, "reward": {"judge": away, "reranker": away}},
    )
    evaluate, reward = values.pop("evaluate"), values.pop("reward")
    reader = {key: value for key, value in (evaluate["reader"] or {}).items() if key not in REACHED}
    settings = {"max_questions": evaluate["max_questions"], "candidates": evaluate["candidates"], "reader": reader}
    judged = {"terms": sorted(reward["terms"]), "judge": reward["judge"], "reranker": reward["reranker"]}
    return {**values, **settings, **judged, "sources": source_facts(params.sources) if params.sources else []}


def rules(params: Params) -> dict[str, Any]:
    """Return how the rows are compared: against which arms, with which draws."""
    from harr.evaluate.summary import is_untrained

    table, asked = params.evaluate.arm_table, params.tracking.baseline
    return {
        "baseline": params.baseline,
        "untrained": [asked] if asked else [name for name in table if is_untrained(name, table)],
        "arms": len(params.proposals),
        "resamples": params.evaluate.resamples,
        "seed": params.seed,
    }


def scoring() -> str:
    """Return the hash of the code that plays and scores; the rest of harr may change."""
    root = Path(harr.__file__).parent
    files = sorted(path for place in SCORING for path in (root / place).rglob("*.py"))
    return fingerprint({path.relative_to(root).as_posix(): sha256(path) for path in files})


def content_of(folder: Path) -> str | None:
    """Return the hash of a folder's files: of their list of hashes if there is one, which changes with the files."""
    if not folder.exists():
        return None
    if not (folder / SUMS).exists():
        return digest_of(folder)
    return sha256(folder / SUMS)


def figures() -> dict[str, str]:
    """Return the hashes of the figures in metrics/ that a version carries."""
    return {name: sha256(METRICS / name) for name in ("evaluate.json", "contrasts.json")}


def corpus_facts() -> dict[str, Any]:
    """Return the corpus played on and, if noted, the one that the player was trained on as ``trained_on``."""
    vectors = read_vectors_manifest()
    facts = {"identity": vectors["corpus"], "passages": vectors["rows"]}
    if not TRAINED_ON.exists():
        return facts
    keys = {"corpus": str, "passages": int}
    trained = read_manifest(TRAINED_ON, "dvc repro -f -s index", shards=False, keys=keys)
    return facts | {"trained_on": {"identity": trained["corpus"], "passages": trained["passages"]}}


def describe_corpus(facts: Mapping[str, Any]) -> str:
    """Return the corpora of :func:`corpus_facts` in one line.

    >>> was = {"identity": "0123456789abcdef", "passages": 1000}
    >>> describe_corpus({**was, "trained_on": was})
    '01234567 (1,000 passages), on which it was trained'
    >>> describe_corpus({"identity": "fedcba9876543210", "passages": 1010, "trained_on": was})
    'fedcba98 (1,010 passages); trained on 01234567 (1,000 passages)'
    """
    corpora = [
        f"{row['identity'][:8]} ({row['passages']:,} passages)" for row in (facts, facts.get("trained_on")) if row
    ]
    if len(set(corpora)) == 1:
        return corpora[0] + (", on which it was trained" if len(corpora) > 1 else "")
    return "; trained on ".join(corpora)


def same_game(record: dict[str, Any]) -> str:
    """Return the hash of what two models must share for their rows to be compared."""
    return fingerprint({name: record.get(name) for name in SAME_GAME})


def read_played(folder: Path = EVALUATION) -> dict[str, Any]:
    """Return the record of an evaluation.

    Raises:
        DamagedFile: it is damaged, or missing as in evaluations by an older harr.
    """
    return read_state(folder / PLAYED, AGAIN, corpus=str, index=str, game=dict, rules=dict)


def check_played(params: Params) -> dict[str, Any]:
    """Return the record of the evaluation here, checked against the files here.

    What is missing here, such as a corpus that was not pulled, is not compared.

    Raises:
        StaleState: the evaluation is of another model, corpus, index, questions or parameters.
        DamagedFile: as in :func:`read_played`; or the list of hashes is gone, so rows may have been replaced; or the
            figures in metrics/ are not those of the rows.
    """
    here, record = record_game(params), read_played()
    if not (EVALUATION / SUMS).exists():
        raise DamagedFile(f"{EVALUATION / SUMS} is missing, which tells rows that were played; {AGAIN}")
    changed = [words for name, words in WORDS.items() if here[name] is not None and record.get(name) != here[name]]
    if changed:
        raise StaleState(
            f"{EVALUATION} was played with another state of {', '.join(changed)} than lies here, so its figures are "
            "not of this model; run `dvc repro`, or `dvc checkout` for what was there"
        )
    for name, digest in record.get(FIGURES, {}).items():  # an older record has none
        if not (METRICS / name).exists() or sha256(METRICS / name) != digest:
            raise DamagedFile(f"{METRICS / name} is not what stage evaluate wrote; run `dvc checkout evaluate`")
    return record
