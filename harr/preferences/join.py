"""Preferences that several machines sampled, each from a part of the questions, become one folder."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harr.errors import CorpusError, DamagedFile
from harr.io.files import SUMS, check_sums, draft, read_json, read_jsonl, write_json, write_text
from harr.io.resume import differences

JOINED = ("preferences.jsonl", "questions.jsonl", "held_out.jsonl", "statistics.jsonl")
FILES = (*JOINED, "prompts.json", "manifest.json", "figures.json")
COUNTS = ("tried", "kept", "situations", "situations_that_teach", "pairs", "pairs_held_out", "queries")
"""Figures of a sampling that add up; queries are different ones within a part."""
Part = tuple[Path, Mapping[str, Any]]
"""A folder and its manifest."""


def join_parts(folders: Sequence[Path], out: Path, work: Path) -> dict[str, float]:
    """Publish the preferences of all parts, in their order, as the folder ``out``; it may be one of ``folders``.

    Returns:
        Figures of the whole, as :func:`harr.preferences.collect.sample_preferences` tells them.

    Raises:
        CorpusError: a folder is no finished part, is of another sampling, or a part is missing or there twice.
        DamagedFile: a file is not what its folder's sums say.
    """
    found = [(folder, read_part(folder)) for folder in folders]
    for part in found[1:]:
        check_alike(part, found[0])
    parts = in_order(found)
    check_apart(parts)
    settings = found[0][1]["settings"]
    count = settings["num_partitions"]
    whole = {**settings, "num_partitions": 1, "partition": 0, "target": settings["target"] * count}
    figures = summed([read_json(part / "figures.json") for part in parts])
    with draft(work / "joined", out) as folder:
        for name in JOINED:
            write_text(folder / name, "".join((part / name).read_text(encoding="utf-8") for part in parts))
        shutil.copy(parts[0] / "prompts.json", folder / "prompts.json")
        write_json(folder / "manifest.json", {**found[0][1], "settings": whole})
        write_json(folder / "figures.json", figures)
    return figures


def read_part(folder: Path) -> dict[str, Any]:
    """Return the manifest of a finished part, whose files are as they were written."""
    for name in (*FILES, SUMS):
        if not (folder / name).exists():
            raise CorpusError(
                f"{folder / name} is missing; a part is the whole folder data/filtered of a finished `dvc repro filter`"
                " with train.method: leret; copy all of it"
            )
    try:
        check_sums(folder, "", *FILES)
    except DamagedFile as error:
        raise DamagedFile(f"{str(error).partition(';')[0]}; copy the folder of this part again") from None
    return read_json(folder / "manifest.json")


def check_alike(part: Part, other: Part) -> None:
    """See that two parts were sampled alike: the index, the settings, the seed and the prompts.

    Raises:
        CorpusError: says what differs.
    """
    (folder, manifest), (known, wanted) = part, other
    for name, here, there in differences("", _shared(manifest), _shared(wanted)):
        raise CorpusError(
            f"{folder} is no part of the sampling in {known}: {name} is {here}, there {there}; sample it again with "
            "the same index, seed and filter"
        )
    if (folder / "prompts.json").read_bytes() != (known / "prompts.json").read_bytes():
        raise CorpusError(
            f"{folder / 'prompts.json'} is not that of {known}, so other prompts were tried (another model, or floats "
            "of another machine); give all machines one prompts.json before they sample (docs/leret.md)"
        )


def in_order(found: Sequence[Part]) -> list[Path]:
    """Return the folders of parts 0, 1, and so on; all of them.

    Raises:
        CorpusError: one is missing, or there twice.
    """
    count, parts = found[0][1]["settings"]["num_partitions"], dict[int, Path]()
    if count == 1:
        raise CorpusError(f"{found[0][0]} is no part but the whole (num_partitions 1); there is nothing to join")
    for folder, manifest in found:
        number = manifest["settings"]["partition"]
        if number in parts:
            raise CorpusError(f"{parts[number]} and {folder} are both part {number} of {count}; give every part once")
        parts[number] = folder
    if missing := [number for number in range(count) if number not in parts]:
        raise CorpusError(
            f"part {missing[0]} of {count} is missing; sample it with filter.preferences.partition: {missing[0]}, or "
            "add its folder"
        )
    return [parts[number] for number in range(count)]


def check_apart(parts: Sequence[Path]) -> None:
    """See that no question was tried in two parts.

    Raises:
        CorpusError: one was, so that the parts are not of the same questions.
    """
    known: dict[str, Path] = {}
    for part in parts:
        for row in read_jsonl(part / "statistics.jsonl"):
            if row["id"] in known:
                raise CorpusError(
                    f"question {row['id']} was tried in {known[row['id']]} and in {part}; sample both parts with the "
                    "same data/questions"
                )
            known[row["id"]] = part


def summed(figures: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return figures of parts as those of the whole: counts are added, means weighed by their situations.

    >>> part = {"tried": 2.0, "kept": 1.0, "situations": 3.0, "ap_prompt_0": 0.5, "zero_shot_ap": 0.3}
    >>> summed([part, part | {"situations": 1.0, "ap_prompt_0": 0.1}])
    {'tried': 4.0, 'kept': 2.0, 'situations': 4.0, 'ap_prompt_0': 0.4, 'zero_shot_ap': 0.3, 'kept_share': 0.5}
    """
    whole = dict(figures[0])
    for name in whole:
        if name in COUNTS:
            whole[name] = sum(part[name] for part in figures)
        elif name.startswith("ap_prompt_"):
            weighted = sum(part[name] * part["situations"] for part in figures)
            whole[name] = weighted / sum(part["situations"] for part in figures)
    return whole | {"kept_share": whole["kept"] / whole["tried"]}


def _shared(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is the same in all parts."""
    settings = {name: value for name, value in manifest["settings"].items() if name != "partition"}
    return {**manifest, "settings": settings}
