"""What `harr status` and `harr preview` print: lines, tables, and colours on a terminal."""

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from flows.finding import Finding
    from flows.status import Status
    from harr.datasets.preview import Preview

COLOURS = {
    "ok": 32, "fresh": 32, "running": 36, "fail": 31,
    "warn": 33, "changed": 33, "follows": 33, "never run": 33,
}  # fmt: skip
BOLD, FAINT = 1, 2


def show(answer: Mapping[str, Any], lines: Sequence[str], *, as_json: bool, code: int = 0) -> None:
    """Print an answer as JSON or as lines, with the time it took, and leave the process with ``code``."""
    try:
        took = paint(f"{time.time() - psutil.Process().create_time():.2f} s", FAINT)
        print(json.dumps(answer, indent=2) if as_json else "\n".join([*lines, took]))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe
        pass
    except OSError as error:
        print(f"error: the output cannot be written ({error.strerror}); write it to another place", file=sys.stderr)
        code = 1
    os._exit(code)  # a pending look-up of a server's name would keep the interpreter waiting


def preview_lines(page: "Preview", export: Path | None) -> list[str]:
    """Return lines on a split: numbers first, then examples."""
    left_out = f"  ({page.left_out:,} more stand in another split)" if page.left_out else ""
    counts = [("level", page.levels), ("kind", page.kinds)]
    return [
        f"{paint(f'{page.questions:,} {page.split} questions', BOLD)}{left_out}",
        f"corpus: {page.corpus}",
        *[f"{name}: " + ", ".join(f"{word} {n:,}" for word, n in tally.items()) for name, tally in counts if tally],
        "",
        *[
            f"{row['id']}: {row['question']}\n    {' | '.join(row['answers']) or paint('no gold answer', FAINT)}"
            for row in page.examples
        ],
        *([f"written: {export}"] if export else []),
        "",
    ]


def check_lines(findings: Sequence["Finding"]) -> list[str]:
    """Return a line per finding, followed by the fix of a problem."""
    if not findings:
        return []
    width = max(len(finding.subject) for finding in findings)
    lines = []
    for finding in findings:
        level = paint(finding.level) + " " * (4 - len(finding.level))
        lines.append(f"{level}  {finding.subject:<{width}}  {finding.found}")
        lines += [f"{'':<4}  {'':<{width}}  {paint('fix:', BOLD)} {finding.fix}"] if finding.fix else []
    return [*lines, ""]


def status_lines(state: "Status") -> list[str]:
    """Return the sections of `harr status`, each a table."""
    stages = [(one.name, paint(one.state), moment(one.ended), shorten(one.reasons)) for one in state.stages]
    versions = [
        (
            one.alias,
            f"version {one.number}, {one.arm}",
            one.figure,
            f"index {one.index}" if one.index else "",
            moment(one.created),
        )
        for one in state.versions
    ]
    return [
        *([] if state.trouble and not stages else section("stages", stages, "dvc.yaml names none")),
        *([paint("fail") + f"  {state.trouble}", ""] if state.trouble else []),
        *section(
            "corpus", [(state.training,)] if state.training else [], "as it was when training began, or not trained yet"
        ),
        *section(f"model {state.model}", versions, "none registered yet"),
        *([f"  {paint('warn')}  {state.stray}", ""] if state.stray else []),
        *section("unfinished", [(one,) for one in state.unfinished], "nothing"),
    ]


def section(title: str, rows: Sequence[Sequence[str]], empty: str) -> list[str]:
    """Return a title and a table with aligned columns.

    >>> section("a", [("x", "1"), ("long", "2")], "")
    ['a', '  x     1', '  long  2', '']
    """
    widths = [max(map(visible, column)) for column in zip(*rows, strict=True)]
    padded = [[cell + " " * (wide - visible(cell)) for cell, wide in zip(row, widths, strict=True)] for row in rows]
    lines = ["  ".join(row) for row in padded]
    return [paint(title, BOLD), *(f"  {line}".rstrip() for line in lines or [paint(empty, FAINT)]), ""]


def shorten(reasons: Sequence[str]) -> str:
    """Return the first few reasons.

    >>> shorten(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    return ", ".join(reasons[:3]) + (f" and {len(reasons) - 3} more" if len(reasons) > 3 else "")


def moment(seconds: float) -> str:
    """Return a local date and time; empty for 0."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds)) if seconds else ""


def visible(text: str) -> int:
    """Return the length of a text without colours."""
    return len(text.split("m", 1)[1]) - len("\033[0m") if text.startswith("\033[") else len(text)


def paint(text: str, code: int | None = None) -> str:
    """Return a text in a colour, or a state in its own, if stdout is a terminal with colours and NO_COLOR is unset."""
    code = COLOURS.get(text, 0) if code is None else code
    plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb" or not sys.stdout.isatty()
    return text if plain else f"\033[{code}m{text}\033[0m"
