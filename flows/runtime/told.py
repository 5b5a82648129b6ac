"""What a person reads of a run: a stage's first and last line, and what the run's end means."""

import contextlib
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tqdm import tqdm

from harr.io.files import read_json
from harr.io.yaml_file import read_yaml
from harr.params import Params
from tasks.paths import ADAPTER, CORPUS, FILTERED, METRICS, QUESTIONS, REPORT

WIDEST = 100
STAGES: dict[str, Callable[[Params], str]] = {
    "download": lambda own: f"make or fetch passages and questions: {own.download.dataset}",
    "embed": lambda own: f"turn {_passages()} into vectors by {own.encoder.model}",
    "index": lambda own: f"put the vectors of {_passages()} into {own.index.uri or 'Milvus Lite'}",
    "generator": lambda own: f"get ready who answers: generator.kind {own.generator.kind}",
    "filter": lambda own: f"choose what teaches, of {_questions('train')}",
    "train": lambda own: f"teach the {own.train.learns.replace('_', ' ')} by {own.train.method}{_kept()}",
    "arms": lambda own: f"train what full is compared with: {_rivals(own)}",
    "evaluate": lambda own: f"play {len(own.evaluate.arm_table)} arms on {_questions('test')}",
    "merge": lambda own: "fold what learnt into the model, and register it",
}
"""What every stage does, and on what."""


@contextlib.contextmanager
def block(stage: str, params: Params) -> Iterator[None]:
    """Say before a stage what it does on what, and after it how long it took and where its results are."""
    began = time.monotonic()
    say(f"{stage}: {STAGES[stage](params)}")
    yield
    say(f"{stage}: done in {tqdm.format_interval(time.monotonic() - began)}; see {', '.join(results(stage))}")


def say(text: str) -> None:
    """Print a sentence that fits the terminal; words are never broken."""
    print(textwrap.fill(text, width(), subsequent_indent="  ", break_long_words=False, break_on_hyphens=False))


def width() -> int:
    """Return how many columns there are: at most 100, and so many where nobody tells."""
    return min(WIDEST, shutil.get_terminal_size((WIDEST, 24)).columns)


def results(stage: str) -> list[str]:
    """Return what a stage has made, by dvc.yaml: folders first; none that only says that nothing was trained."""
    entry = read_yaml(Path("dvc.yaml"), mend="restore it")["stages"][stage] if Path("dvc.yaml").exists() else {}
    made = [name for out in entry.get("outs", ()) for name in ([out] if isinstance(out, str) else out)]
    folders = [name for name in made if not (name.startswith("metrics/") or Path(name, "untrained.json").exists())]
    return [*folders, str(METRICS / f"{stage}.json")]


def end_of_run(params: Params) -> str:
    """Return the table of arms, what it means, where its page is, and what to do next.

    Raises:
        DamagedFile: there is no evaluation, or it is damaged.
    """
    from tasks.evaluate import show, summary_here
    from tasks.headline import headline_words

    page = f"report: {REPORT.resolve()}" if REPORT.exists() else "no report page yet; run `dvc repro evaluate`"
    words = "\n".join(textwrap.fill(line, width()) for line in headline_words(summary_here()).splitlines())
    installed, here = Path(sys.executable).with_name("harr"), Path.cwd()
    named = "VIRTUAL_ENV" in os.environ or not installed.is_relative_to(here)
    harr = "harr" if named else str(installed.relative_to(here))  # as the shell finds it
    use = (
        ("harr push --model OWNER/NAME --dry-run", "what the hub would get of it")
        if params.writer_learns
        else ("harr serve --model models/retriever", "answer searches with it")
    )
    steps = [("harr promote", "make the model the champion, if the gate lets it"), use, ("harr ui", "see all runs")]
    commands = [(command.replace("harr", harr, 1), what) for command, what in steps]
    longest = max(len(command) for command, _ in commands)
    told = [f"  {command:<{longest}}  {what}" for command, what in commands]
    if max(map(len, told)) > width():
        told = [f"  {command}\n      {what}" for command, what in commands]
    return "\n".join([show(width()), "", *([words] if words else []), page, "next:", *told])


def _passages() -> str:
    with contextlib.suppress(OSError, ValueError, LookupError):
        return f"{read_json(CORPUS / 'manifest.json')['rows']:,} passages"
    return "passages"


def _questions(split: str) -> str:
    return f"{_count(QUESTIONS / f'{split}.jsonl')}{split} questions"


def _kept() -> str:
    return f" on {count}questions" if (count := _count(FILTERED / "questions.jsonl")) else ""


def _count(path: Path) -> str:
    with contextlib.suppress(OSError), path.open("rb") as lines:
        return f"{sum(1 for _ in lines):,} "
    return ""


def _rivals(params: Params) -> str:
    from tasks.arms import trained_runs

    folders = {folder for own in trained_runs(params).values() for folder in own if not folder.is_relative_to(ADAPTER)}
    return f"{len(folders)} run{'' if len(folders) == 1 else 's'}" if folders else "none is asked for"
