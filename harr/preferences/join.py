"""Join the preferences that several machines sampled from parts of the questions."""

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
"""Figures that are summed over parts; queries are distinct within a part."""
Part = tuple[Path, Mapping[str, Any]]
"""A folder and its manifest."""


def join_parts(folders: Sequence[Path], out: Path, work: Path) -> dict[str, float]:
    """Publish the preferences of all parts, in their order, as the folder ``out``; it may be one of ``folders``.

    Returns:
        Figures of the whole, as of :func:`harr.preferences.collect.sample_preferences`.

    Raises:
        CorpusError: a folder is no finished part or of another sampling, or a part is missing or a duplicate.
        DamagedFile: a file is not what its folder's sums say.
    """
    parts_read = [(folder, read_part(folder)) for folder in folders]
    for part in parts_read[1:]:
        check_same_sampling(part, parts_read[0])
    folders_in_order = order_parts(parts_read)
    check_disjoint(folders_in_order)
    settings = parts_read[0][1]["settings"]
    count = settings["num_partitions"]
    whole = {**settings, "num_partitions": 1, "partition": 0, "target": settings["target"] * count}
    figures = sum_figures([read_json(part / "figures.json") for part in folders_in_order])
    with draft(work / "joined", out) as folder:
        for name in JOINED:
            write_text(folder / name, "".join((part / name).read_text(encoding="utf-8") for part in folders_in_order))
        shutil.copy(folders_in_order[0] / "prompts.json", folder / "prompts.json")
        write_json(folder / "manifest.json", {**parts_read[0][1], "settings": whole})
        write_json(folder / "figures.json", figures)
    return figures


def read_part(folder: Path) -> dict[str, Any]:
    """Return the manifest of a finished part after checking its files."""
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


def check_same_sampling(part: Part, other: Part) -> None:
    """Check that two parts have the same index, settings, seed and prompts.

    Raises:
        CorpusError: says what differs.
    """
    (folder, manifest), (first, expected) = part, other
    for name, value, before in differences("", _shared(manifest), _shared(expected)):
        raise CorpusError(
            f"{folder} is no part of the sampling in {first}: {name} is {value}, there {before}; sample it again with "
            "the same index, seed and filter"
        )
    if (folder / "prompts.json").read_bytes() != (first / "prompts.json").read_bytes():
        raise CorpusError(
            f"{folder / 'prompts.json'} is not that of {first}, so other prompts were tried (another model, or floats "
            "of another machine); give all machines one prompts.json before they sample (docs/leret.md)"
        )


def order_parts(parts_read: Sequence[Part]) -> list[Path]:
    """Return the folders of all parts in order.

    Raises:
        CorpusError: one is missing or a duplicate.
    """
    count, parts = parts_read[0][1]["settings"]["num_partitions"], dict[int, Path]()
    if count == 1:
        raise CorpusError(f"{parts_read[0][0]} is no part but the whole (num_partitions 1); there is nothing to join")
    for folder, manifest in parts_read:
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


def check_disjoint(parts: Sequence[Path]) -> None:
    """Check that no question was sampled in two parts.

    Raises:
        CorpusError: one was, so the parts are not of the same questions.
    """
    part_of: dict[str, Path] = {}
    for part in parts:
        for row in read_jsonl(part / "statistics.jsonl"):
            if row["id"] in part_of:
                raise CorpusError(
                    f"question {row['id']} was tried in {part_of[row['id']]} and in {part}; sample both parts with the "
                    "same data/questions"
                )
            part_of[row["id"]] = part


def sum_figures(figures: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the figures of the whole from those of its parts: sums of counts, and means weighted by situations.

    >>> part = {"tried": 2.0, "kept": 1.0, "situations": 3.0, "ap_prompt_0": 0.5, "zero_shot_ap": 0.3}
    >>> sum_figures([part, part | {"situations": 1.0, "ap_prompt_0": 0.1}])
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
    """Return the entries of a manifest that are equal in all parts."""
    settings = {name: value for name, value in manifest["settings"].items() if name != "partition"}
    return {**manifest, "settings": settings}
