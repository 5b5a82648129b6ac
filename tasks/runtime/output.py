"""What a run prints: a stage's first and last line, and what the result means."""

import contextlib
import os
import resource
import shutil
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

from tqdm import tqdm

from harr.io.yaml_file import read_yaml
from harr.params import Params
from tasks.paths import METRICS, REPORT
from tasks.sentences import SENTENCES

WIDEST = 100


@contextlib.contextmanager
def block(stage: str, params: Params) -> Iterator[None]:
    """Print before a stage what it does, and afterwards what that took and where its results are."""
    began = time.monotonic()
    say(f"{stage}: {SENTENCES[stage](params)}")
    yield
    took = f"{tqdm.format_interval(time.monotonic() - began)} and {peak_mib():,.0f} MiB of memory"
    say(f"{stage}: done in {took}; see {', '.join(results(stage))}")


def peak_mib() -> float:
    """Return the peak resident memory of this process in MiB, without further processes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024**2 if sys.platform == "darwin" else 1024)


def say(text: str) -> None:
    """Print a sentence that fits the terminal; words are never broken."""
    print(textwrap.fill(text, width(), subsequent_indent="  ", break_long_words=False, break_on_hyphens=False))


def width() -> int:
    """Return the number of columns: at most 100, and 100 if unknown."""
    return min(WIDEST, shutil.get_terminal_size((WIDEST, 24)).columns)


def results(stage: str) -> list[str]:
    """Return a stage's outputs by dvc.yaml, folders first, without those that only say that nothing was trained."""
    entry = read_yaml(Path("dvc.yaml"), mend="restore it")["stages"][stage] if Path("dvc.yaml").exists() else {}
    outputs = [name for out in entry.get("outs", ()) for name in ([out] if isinstance(out, str) else out)]
    folders = [name for name in outputs if not (name.startswith("metrics/") or Path(name, "untrained.json").exists())]
    return [*folders, str(METRICS / f"{stage}.json")]


def end_of_run(params: Params) -> str:
    """Return the table of arms, what it means, where its page is, and what to do next.

    Raises:
        DamagedFile: the evaluation is missing or damaged.
    """
    from tasks.evaluation_outputs import show, summary_here
    from tasks.headline import headline_figures, headline_words

    summary = summary_here()
    page = f"report: {REPORT.resolve()}" if REPORT.exists() else "no report page yet; run `dvc repro evaluate`"
    words = "\n".join(textwrap.fill(line, width()) for line in headline_words(summary).splitlines())
    installed, here = Path(sys.executable).with_name("harr"), Path.cwd()
    on_path = "VIRTUAL_ENV" in os.environ or not installed.is_relative_to(here)
    harr = "harr" if on_path else str(installed.relative_to(here))  # as the shell finds it
    use = (
        ('harr ask "Who ...?"', "answer a question with it")
        if params.language_model_learns
        else ("harr serve --model models/retriever", "answer searches with it")
    )
    promote = ("harr promote", "make the best arm the champion, if the gate lets it")
    look = ("harr preview", "whether questions, gold passages and reward fit")
    doubts = [look] if headline_figures(summary).get("gain_low", 1.0) <= 0 else []
    steps = [promote, *doubts, use, ("harr up", "pages of all runs, and schedules")]
    commands = [(command.replace("harr", harr, 1), what) for command, what in steps]
    longest = max(len(command) for command, _ in commands)
    lines = [f"  {command:<{longest}}  {what}" for command, what in commands]
    if max(map(len, lines)) > width():
        lines = [f"  {command}\n      {what}" for command, what in commands]
    return "\n".join([show(width()), "", *([words] if words else []), page, "next:", *lines])
