"""Replay of the champion on the candidate's game, so that a changed corpus or parameter does not end the succession."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harr.arms import TRAINED
from harr.errors import PromotionRefused
from harr.io.files import read_state, write_text
from harr.params import Params
from harr.services.model_registry import CACHE, SCHEME, fetch, resolve
from tasks.evaluation_record import SAME_GAME, record_game
from tasks.paths import QUESTIONS
from tasks.play import draw_test_questions, play_arms
from tasks.registry.gate import Row, record_of
from tasks.tracking.errors import uploading

PLAYER = ("state", "max_tokens", "search", "fusion", "weights", "link_features", "learns")
"""Keys of section retriever that belong to a champion: how it reads states and ranks, not how much it returns."""


def replay_of(client: Any, params: Params, candidate: Any, champion: Any) -> Callable[[], list[Row]]:
    """Return a call that plays the champion as ``trained`` on the candidate's questions, corpus and index.

    The rows are kept with the candidate's run, under ``gate``.

    Raises:
        PromotionRefused: the candidate was not played on the files here, or the two are of different kinds.
    """
    record, here = record_of(client, candidate), record_game(params)
    other = [name for name in SAME_GAME if record.get(name) != here[name]]
    if other:
        raise PromotionRefused(
            f"version {candidate.version} was played on another {', '.join(other)} than is here, so the champion "
            "cannot be played on it; `dvc checkout` what it was made with, or run `dvc repro`"
        )
    if champion.tags.get("kind") != candidate.tags.get("kind"):
        raise PromotionRefused(
            f"champion {champion.version} is a {champion.tags.get('kind')}, version {candidate.version} a "
            f"{candidate.tags.get('kind')}; give the candidate a tracking.registered_model of its own"
        )

    def replay() -> list[Row]:
        folder = fetch(client, resolve(client, f"{SCHEME}{champion.name}/{champion.version}"), Path(CACHE))
        section = read_state(folder / "harr.json", "run `harr pull`").get("retriever", {})
        player_fields = {name: section[name] for name in PLAYER if isinstance(section, dict) and name in section}
        own = {
            "retriever": params.retriever.model_copy(update=player_fields),
            "evaluate": params.evaluate.model_copy(update={"arms": (TRAINED,)}),
        }
        questions = draw_test_questions(params, QUESTIONS / "test.jsonl")
        print(f"champion {champion.version} is played on the questions and corpus of version {candidate.version}")
        rows, _ = play_arms(params.model_copy(update=own), questions, lambda step, values: None, model=folder)
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows[TRAINED][0])
        with tempfile.TemporaryDirectory() as place, uploading("gate"):
            path = Path(place) / f"champion-{champion.version}.jsonl"
            write_text(path, text)
            client.log_artifact(candidate.run_id, str(path), "gate")
        return rows[TRAINED][0]

    return replay
