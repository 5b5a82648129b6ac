"""What every recipe achieves unchanged: ``python -m benchmarks.recipes smoke harr_grpo``.

Each named recipe is run by `dvc repro` in a clone of the last commit, work/recipes/<recipe>/harr, and its figures are
kept in results/<recipe>/. A stopped call can be resumed, even after other commits: DVC runs again what they changed.
Then recipes/README.md is written from all kept results; without a name only that is done. A result is marked if the
recipe, or the code that its stages depend on, has changed since the commit of the run.

``--all`` runs the marked ones, one after the other; ``--check`` lists them, and fails if there are any. Two hours of
them a night: ``timeout --signal=INT 2h python -m benchmarks.recipes --all``.
"""

import contextlib
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime
from functools import cache
from itertools import takewhile
from pathlib import Path
from textwrap import wrap
from typing import Any

from harr.evaluate.tables import table
from harr.io.files import fingerprint, read_json, write_json, write_text
from harr.params import Params
from tasks.inputs.stages import READS, all_inputs

ROOT = Path(__file__).resolve().parents[1]
KEPT, PAGE = ROOT / "results", ROOT / "recipes" / "README.md"
QUICKSTART = "params"
"""The name of params.yaml here."""
FIGURES = ("evaluate.json", "contrasts.json")
HEAD = """# Recipes and what they reach

Written by `python -m benchmarks.recipes` from the figures in `results/`; do not edit.
Every table is one run of the recipe as it stands, by

```
cp recipes/<recipe>.yaml params.yaml && dvc repro && harr report
```

on the machine and in the time below its name; where one thread is named, after
`export OMP_NUM_THREADS=1`. The same commit, number of threads and kind of processor give the same
digits; elsewhere sums are rounded otherwise, and trained arms differ as if by another seed. The
[start page](../docs/index.md#the-whole-table) says how to read a table, and the
[glossary](../docs/glossary.md) what a word means.

## All recipes

"""
AGAIN = "**To be run again**: the recipe or the code it depends on has changed since."
RECORD_SECONDS = 10
"""How often the time spent on a recipe is recorded."""
UNKNOWN = "Run before the inputs of stages were kept, so that whether its code has changed since is not known."


def run(recipe: str) -> None:
    """Run a recipe in a clone of the last commit and keep its figures, resuming a stopped call."""
    place = ROOT / "work" / "recipes" / recipe
    tree, shared, spent = place / "harr", place / "shared", place / "minutes.json"
    place.mkdir(parents=True, exist_ok=True)
    if not shared.is_symlink():  # recipes on real data name files there
        shared.symlink_to(ROOT.parent / "shared")
    if not tree.exists():
        git("clone", "--quiet", "--no-checkout", str(ROOT), str(tree))
    git("fetch", "--quiet", "origin", "HEAD", tree=tree)
    git("checkout", "--quiet", "--force", "FETCH_HEAD", tree=tree)
    if recipe != QUICKSTART:
        shutil.copy(tree / file(recipe), tree / "params.yaml")
    began = time.monotonic() - 60 * (read_json(spent) if spent.exists() else 0.0)
    with subprocess.Popen(["dvc", "repro"], cwd=tree, env={**os.environ, "PYTHONPATH": str(tree)}) as process:
        while process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(RECORD_SECONDS)
            write_json(spent, (time.monotonic() - began) / 60)  # while it runs: a kill leaves no time for it
    if process.returncode:
        sys.exit(
            f"error: dvc repro of {recipe} failed in {tree}; its message is above, and the same command goes on there"
        )
    for name in FIGURES:
        write_json(KEPT / recipe / name, read_json(tree / "metrics" / name))
    ran = {stage: read_json(tree / "data/inputs" / f"{stage}.json") for stage in READS}
    run_facts = facts(git("rev-parse", "--short=10", "HEAD", tree=tree), read_json(spent))
    write_json(KEPT / recipe / "run.json", run_facts | {"inputs": marks(ran)})
    shutil.rmtree(place)


def file(recipe: str) -> str:
    """Return the parameter file of a recipe."""
    return "params.yaml" if recipe == QUICKSTART else f"recipes/{recipe}.yaml"


def facts(commit: str, minutes: float) -> dict[str, Any]:
    """Return when, where and from which commit a recipe was run, and how long that took."""
    from harr.compute.precision import choose_precision  # imports torch, which only a run needs

    threads = os.environ.get("OMP_NUM_THREADS", str(os.cpu_count()))
    many = "one thread" if threads == "1" else f"{threads} threads"
    return {
        "commit": commit,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{many} of {os.cpu_count()} cores, {processor()}, {choose_precision('auto')}",
        "minutes": round(minutes, 1),
    }


def processor() -> str:
    """Return the processor's name as the system reports it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def git(*words: str, tree: Path = ROOT) -> str:
    """Return what a git command prints in a tree."""
    return subprocess.run(["git", *words], cwd=tree, check=True, capture_output=True, text=True).stdout.strip()


def marks(inputs: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Return a hash of the inputs of every stage that figures come from; if it is unchanged today, so are they.

    The content of local files is left out: the files are not kept here.
    """
    return {
        stage: fingerprint([one["parameters"], one["code"], one["packages"]])
        for stage, one in inputs.items()
        if stage not in ("report", "merge")
    }


def comment(recipe: str) -> str:
    """Return what a parameter file says about itself at its top."""
    if recipe == QUICKSTART:
        return "The quickstart: people without names, a warm start by InfoNCE, then GRPO."
    lines = (ROOT / file(recipe)).read_text().splitlines()
    head = [line[2:] for line in takewhile(lambda line: line.startswith("#"), lines) if "$schema" not in line]
    marked = [f"`{line.strip()}`." if line.startswith(" ") else line for line in head]
    return re.sub(r"(?<!`)([\w/]*<\w+>[\w.]*)", r"`\1`", " ".join(marked))


def wrapped(text: str, first: str = "") -> list[str]:
    """Return a paragraph or an item in lines of at most 100 characters."""
    rest = " " * len(first)
    return wrap(text, 100, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False)


def overview() -> str:
    """Return one item per parameter file: its name, what it is, and where its figures are."""
    lines = []
    for path in [ROOT / "params.yaml", *sorted((ROOT / "recipes").glob("*.yaml"))]:
        name = path.stem
        where = f" [Figures](#{name})." if (KEPT / name).is_dir() else ""
        lines += wrapped(f"**{name}**: {comment(name)}{where}", "- ")
    return "\n".join(lines)


@cache
def staleness(recipe: str) -> str:
    """Return what makes a kept result stale; "" if it is what the recipe achieves today."""
    ran = read_json(KEPT / recipe / "run.json")
    if "inputs" not in ran:
        return UNKNOWN
    now = marks(all_inputs(Params.load(ROOT / file(recipe)), {}))
    return "" if now == {stage: ran["inputs"].get(stage) for stage in now} else AGAIN


def kept_table(recipe: str) -> str:
    """Return the table of arms of a kept result."""
    figures, contrasts = (read_json(KEPT / recipe / name) for name in FIGURES)
    return table(figures | {"contrasts": contrasts})


def section(recipe: str) -> str:
    """Return a recipe's part of the page: what it is, how it was run, and its table."""
    ran, path = read_json(KEPT / recipe / "run.json"), ROOT / file(recipe)
    seeds = Params.load(path).evaluate.seeds
    lines = [
        f"## {recipe}",
        "",
        *wrapped(comment(recipe)),
        "",
        *wrapped(
            f"{ran['date']}, commit `{ran['commit']}`, {ran['machine']}, {ran['minutes']:g} minutes; {seeds} "
            f"{'run' if seeds == 1 else 'seeds'} of each trained arm. {staleness(recipe)}".rstrip()
        ),
        "",
        "```",
        kept_table(recipe),
        "```",
    ]
    return "\n".join(lines)


def page() -> str:
    """Return the page of all recipes and their kept results."""
    return "\n\n".join([HEAD + overview(), *map(section, kept())]) + "\n"


def kept() -> list[str]:
    """Return the recipes that have figures."""
    return sorted(path.name for path in KEPT.iterdir() if path.name in recipes())


def recipes() -> set[str]:
    """Return the names of all recipes, and of params.yaml."""
    return {QUICKSTART, *(path.stem for path in (ROOT / "recipes").glob("*.yaml"))}


def main(names: list[str]) -> None:
    """Run the recipes named, and write the page."""
    if names == ["--check"]:
        if stale := [name for name in kept() if staleness(name)]:
            sys.exit(f"{len(stale)} of {len(kept())} results are stale: {', '.join(stale)}; run --all")
        return
    if names == ["--all"]:
        names = [name for name in kept() if staleness(name)]
    if unknown := sorted(set(names) - recipes()):
        sys.exit(f"error: no recipe {unknown[0]}; choose from --all, --check, {', '.join(sorted(recipes()))}")
    for name in names:
        run(name)
    staleness.cache_clear()
    write_text(PAGE, page())


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit("stopped; the same command goes on from here")
