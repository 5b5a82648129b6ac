"""Whatever is edited, swapped, restored, promoted, rolled back or killed, the champion is what was measured.

In a state machine hypothesis draws sequences of what people and machines do to a project, and checks the invariants
after each. Folders hold a few bytes and the registry is in memory; what decides is real: the record next to the
evaluation, registration, the gate, promotion, rollback and the notes of champions.

200 steps in every test run; ``HARR_STEPS=10000 pytest -o timeout=0`` for a long one.
"""

import json
import os
import shutil
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from registries import Killed, Registry, look_up

from harr.errors import HarrError, IndexMismatch, PromotionRefused
from harr.io.files import digest_of, publish, sha256, write_json, write_text
from harr.params import Params
from tasks import evaluation_record, merge
from tasks.registry import attempts, candidate, history, promote as promotion, register as registration, replay
from tasks.registry.gate import record_of

ROOT = Path(__file__).parents[3]
FOLDERS = ["data/evaluation", "models/adapter", "models/retriever", "data/corpus", "data/vectors"]
STEPS = int(os.environ.get("HARR_STEPS", "200"))
EACH = 20
NAME = "harr-smoke"


class Reported:
    """A run that stores its files at once."""

    def __init__(self, client: Registry) -> None:
        self.client, self.run_id = client, client.run()

    def artifact(self, path: Path, folder: str = "") -> None:
        self.client.log_artifact(self.run_id, str(path), folder)

    def headline(self, *given: Any) -> None: ...

    def send(self) -> None: ...

    def tag(self, **tags: str) -> None: ...


def level_of(model: str) -> float:
    """Return a model's quality, derived from its bytes so that figures of different models differ."""
    return int(json.loads(model).split()[1]) / 40


class Project(RuleBasedStateMachine):
    """A project in its own folder."""

    def __init__(self) -> None:
        super().__init__()
        self.before = Path.cwd()
        self.folder = tempfile.TemporaryDirectory()
        self.patched = pytest.MonkeyPatch()
        self.measured: dict[str, set[tuple[str, str]]] = {}
        """By a merged model's bytes: the (corpus, parameters) with which its adapter was really played."""

    @initialize()
    def start(self) -> None:
        root = Path(self.folder.name)
        os.chdir(root)
        shutil.copy(ROOT / "recipes/smoke.yaml", "params.yaml")
        self.client = client = Registry(root)
        patch = self.patched.setattr
        for module in (registration, candidate, promotion):
            patch(module, "service", nullcontext)
            patch(module, "look_up", look_up)
        for module in (promotion, candidate):
            patch(module, "open_client", lambda params: client)
        for module in (history, attempts):
            patch(module, "look_up", look_up)
        patch(registration, "done_once", lambda call, *values, **named: call(*values, **named))
        for module in (registration, promotion, replay):
            patch(module, "uploading", lambda name: nullcontext())
        patch(promotion, "propose_arm", lambda params, arm: "")
        patch(promotion, "lock_promotion", lambda client, name: nullcontext())
        patch(registration, "requirements", lambda: "a==1\n")
        patch(registration, "write_mlmodel", lambda around, folder: write_json(around / "MLmodel", {}))
        for name in ("figure_tags", "headline_figures", "plain_facts"):
            patch(registration, name, lambda *given: {})
        for name in ("describe", "evaluation_note", "purpose"):
            patch(registration, name, lambda *given, **named: "")
        patch(candidate, "tracked_run", lambda stage, params: nullcontext(Reported(client)))
        patch(candidate, "check_settings", lambda params: None)
        patch(candidate, "summary_here", dict)
        patch(merge, "revisions", dict)
        patch(merge, "count_expectations", lambda params, trained: {"corpus": 5.0})
        patch(replay, "fetch", self.fetched)
        patch(replay, "play_arms", self.played_again)
        patch(replay, "draw_test_questions", lambda params, path: [])
        self.corpus_is(0)
        self.trained(8)
        self.evaluated()
        self.merged()
        self.registered()

    # What stages do, in miniature.

    @rule(number=st.integers(0, 2))
    def corpus_is(self, number: int) -> None:
        """Replace the corpus, with its vectors and questions."""
        for folder in ("corpus", "vectors"):
            manifest = {"identity": f"{folder}-{number}", "corpus": f"corpus-{number}", "rows": 4, "dtype": "float32"}
            write_json(Path(f"work/{folder}/manifest.json"), manifest)
            publish(Path(f"work/{folder}"), Path(f"data/{folder}"))
        write_json(Path("data/questions/test.jsonl"), {"id": f"q{number}"})

    @rule(number=st.integers(0, 40))
    def trained(self, number: int) -> None:
        """Replace the adapter, as stage train or a person might."""
        write_json(Path("work/adapter/weights.json"), f"model {number}")
        publish(Path("work/adapter"), Path("models/adapter"))

    @rule()
    def evaluated(self) -> None:
        """Write rows of the current adapter; like stage evaluate, refuse another corpus's vectors."""
        params, model = Params.load(), Path("models/adapter/weights.json").read_text()
        try:
            record = evaluation_record.record_game(params)
        except IndexMismatch:
            return
        work = Path("work/evaluation")
        shutil.rmtree(work, ignore_errors=True)
        for arm, level in (("trained", level_of(model)), ("frozen", 0.1)):
            write_text(work / f"{arm}.jsonl", "".join(json.dumps(row) + "\n" for row in self.rows(level)))
        write_json(work / "played.json", record)
        publish(work, Path("data/evaluation"))
        self.measured.setdefault(evaluation_record.content_of(Path("models/adapter")) or "", set()).add(self.here())

    @rule()
    def merged(self) -> None:
        """Do the first half of stage merge: a folder from the adapter."""
        write_json(Path("work/model/harr.json"), {"adapter": evaluation_record.content_of(Path("models/adapter"))})
        publish(Path("work/model"), Path("models/retriever"))

    @rule(kill=st.integers(-1, 12))
    def registered(self, kill: int = -1) -> None:
        """Do `harr record --register`, as `harr run` and `harr promote` first do; it may be killed."""
        self.step(lambda: candidate.keep_candidate(Params.load(), by_hand=True), kill)

    @rule(number=st.integers(0, 40), kill=st.integers(-1, 24), skipped=st.sampled_from(["", "evaluated", "merged"]))
    def ran(self, number: int, kill: int, skipped: str) -> None:
        """Do `harr run --promote` on the current state, or the stages without DVC, with one forgotten."""
        self.trained(number)
        for stage in ("evaluated", "merged"):
            if stage != skipped:
                getattr(self, stage)()
        self.step(lambda: (candidate.keep_candidate(Params.load()), promotion.promote(Params.load())), kill)

    @rule(number=st.integers(10, 40))
    def ran_to_its_end(self, number: int) -> None:
        """Do the same with a decent model, no kill, and nothing forgotten."""
        self.ran(number=number, kill=-1, skipped="")

    # What people do.

    @rule(seed=st.integers(0, 2))
    def params_are(self, seed: int) -> None:
        """Write another seed to params.yaml."""
        lines = Path("params.yaml").read_text().splitlines()
        kept = [f"seed: {seed}" if line.startswith("seed:") else line for line in lines]
        Path("params.yaml").write_text("\n".join(kept) + "\n")

    @rule()
    def thresholds_are_lowered(self) -> None:
        """Try to get past the gate by params.yaml."""
        text = Path("params.yaml").read_text().replace("min_questions: 30", "min_questions: 1")
        Path("params.yaml").write_text(text)

    @rule()
    def kept_aside(self) -> None:
        """Copy the state, as `dvc push` or a person does."""
        shutil.rmtree("aside", ignore_errors=True)
        for name in ("data", "models"):
            shutil.copytree(name, f"aside/{name}")

    @rule(what=st.sampled_from(FOLDERS))
    def restored(self, what: str) -> None:
        """Restore one folder of the copy, but not the others."""
        if Path("aside", what).exists():
            shutil.rmtree(what)
            shutil.copytree(f"aside/{what}", what)

    @rule(arm=st.sampled_from(["trained", "frozen"]))
    def rows_are_edited(self, arm: str) -> None:
        """Improve the figures in the project by hand."""
        write_text(Path(f"data/evaluation/{arm}.jsonl"), "".join(json.dumps(row) + "\n" for row in self.rows(1.0)))

    @rule()
    def kept_rows_are_edited(self) -> None:
        """Improve the figures in the artifact store by hand."""
        for path in sorted(Path("kept").glob("*/evaluation/trained.jsonl"))[-1:]:
            write_text(path, "".join(json.dumps(row) + "\n" for row in self.rows(1.0)))

    @rule(number=st.integers(1, 6), alias=st.sampled_from(["champion", "candidate", "previous_champion"]))
    def alias_is_moved(self, number: int, alias: str) -> None:
        """Move an alias in MLflow's page; nobody can prevent that for ``champion``, so it is put back after a check."""
        if str(number) not in self.client.versions:
            return
        before = dict(self.client.aliases)
        self.client.aliases[alias] = str(number)
        if alias != "champion" or before.get("champion") == str(number):
            return
        with pytest.raises(PromotionRefused):
            promotion.promote(Params.load())
        self.client.aliases = before

    @rule()
    def champion_is_deleted(self) -> None:
        """Delete the champion's version; if no earlier champion is left, the next one is the first again."""
        if "champion" in self.client.aliases:
            self.client.delete_version(self.client.aliases["champion"])
            params = Params.load()
            if history.champions(self.client, params.tracking.registered_model):
                with pytest.raises(PromotionRefused):
                    promotion.promote(params)

    @rule(kill=st.integers(-1, 8), again=st.booleans())
    def promoted(self, kill: int, again: bool) -> None:
        self.step(lambda: promotion.promote(Params.load(), again=again), kill)

    @rule(kill=st.integers(-1, 6), to=st.sampled_from(["", "1", "2", "3"]))
    def rolled_back(self, kill: int, to: str) -> None:
        """Do `harr rollback`, also to a version that was never champion."""
        self.step(lambda: promotion.rollback(Params.load(), to=to), kill)

    # What must hold.

    @invariant()
    def the_champion_is_what_was_measured(self) -> None:
        """Its registered rows and record belong to this very model, corpus and parameters, and a promotion made it."""
        if not hasattr(self, "client"):
            return
        version = look_up(self.client.get_model_version_by_alias, NAME, "champion")
        if version is None:
            return
        kept = self.client.kept(version.run_id)
        folder = kept / registration.place_of("retriever")
        assert digest_of(folder) == version.tags["model"], "the files are those that were registered"
        adapter = json.loads((folder / "harr.json").read_text())["adapter"]
        record = json.loads((kept / "evaluation/played.json").read_text())
        assert record["model"] == adapter, "the rows are of the adapter that it was made of"
        assert (record["corpus"], self.params_of(record)) in self.measured[adapter], "and were really played so"
        assert (
            record["corpus"] == version.tags["corpus"]
            and evaluation_record.same_game(record) == version.tags["evaluation"]
        )
        assert json.loads(version.tags["rules"])["min_questions"] in (1, 30)
        moving = (self.client.tags or {}).get(history.MOVING)
        noted = history.read_list((self.client.tags or {}).get(history.TAG, ""))
        assert version.version in (*noted, moving), "no champion but by a promotion"

    @invariant()
    def every_version_is_whole(self) -> None:
        """No version's record belongs to a model other than its files: it would be promoted one day."""
        for version in self.client.versions.values() if hasattr(self, "client") else ():
            kept = self.client.kept(version.run_id)
            names = {path.name: sha256(path) for path in (kept / "evaluation").iterdir()}
            try:
                record = record_of(self.client, version)
            except PromotionRefused:
                assert registration.fingerprint(names) != version.tags["results"], "only edited rows are refused"
                continue
            own = json.loads((kept / registration.place_of("retriever") / "harr.json").read_text())
            assert record["model"] == own["adapter"]

    def teardown(self) -> None:
        os.chdir(self.before)
        self.patched.undo()
        self.folder.cleanup()

    def step(self, call: Any, kill: int) -> None:
        """Do what may end with an error message, or with a kill before its ``kill``-th write."""
        self.client.left = kill
        try:
            call()
        except (HarrError, Killed):
            pass
        finally:
            self.client.left = -1

    def here(self) -> tuple[str, str]:
        """Return the current corpus and the parameters of the game."""
        record = evaluation_record.record_game(Params.load())
        return str(record["corpus"]), self.params_of(record)

    @staticmethod
    def params_of(record: dict[str, Any]) -> str:
        return str(registration.fingerprint(record["game"]))

    @staticmethod
    def rows(level: float) -> list[dict[str, Any]]:
        return [{"id": f"q{i}", "answer_f1": level - (i % 5) / 50} for i in range(32)]

    def fetched(self, client: Any, version: Any, cache: Path) -> Path:
        return Path("kept") / version.run / registration.place_of("retriever")

    def played_again(self, params: Params, asked: Any, log: Any, *, model: Path) -> Any:
        """Return the champion's rows on this game, by its quality."""
        return {"trained": [self.rows(0.5)]}, {}


TestProject = Project.TestCase
TestProject.settings = settings(
    max_examples=max(1, STEPS // EACH),
    stateful_step_count=EACH,
    deadline=None,
    derandomize=STEPS == 200,
    database=None,
    suppress_health_check=list(HealthCheck),
)
