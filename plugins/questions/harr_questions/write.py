"""`harr questions`: questions with gold from the documents of section download, for a person to read and edit."""

from collections.abc import Sequence
from pathlib import Path

from harr.errors import CorpusError, ParamsError
from harr.params import Params
from tasks.paths import PLACES


def write_questions(params: Params, hops: Sequence[int], out: Path) -> list[str]:
    """Write questions into the new folder ``out``; return lines on what was written and dropped.

    ``hops``: numbers of passages that questions need; if empty, those of section plugins.questions.

    Raises:
        ParamsError: section plugins.questions has no writer or another fault, or the data set has questions.
        CorpusError: ``out`` exists, or what :func:`harr_questions.author.write_questions_of` raises.
    """
    from harr.builders.generators import build_reader
    from harr.datasets import dataset_of
    from harr_questions.author import SPLITS, write_questions_of
    from harr_questions.params import WritingParams
    from harr_questions.sift import counted

    section = params.of_plugin("questions", WritingParams)
    if out.exists():
        raise CorpusError(f"{out} exists and is left as it is: it may hold edits; remove it, or name another --out")
    found, own = dataset_of(params.download)
    if found.vast:
        raise ParamsError(
            f"download.dataset {params.download.dataset} has questions; harr questions is for documents and jsonl"
        )
    section = section.model_copy(update={"hops": tuple(hops)}) if hops else section
    source = found.load(own)
    every = list(source.passages)
    passages = [passage for passage in every if not source.searchable or source.searchable(passage)]
    writer = build_reader(section.writer, params.seed, PLACES, "plugins.questions.writer")
    assert writer
    written = write_questions_of(section, passages, writer, params.seed, out)
    lines = [f"{len(passages):,} passages" + (f"; left out {len(source.left_out)} files" if source.left_out else "")]
    for split in SPLITS:
        kinds = counted(str(draft.row["type"]) for draft in written.kept[split])
        lines.append(f"{split}: {len(written.kept[split])} questions ({kinds or 'none'})")
    reasons = counted(str(row["reason"]).partition(" q-")[0] for row in written.dropped)
    lines.append(f"dropped: {len(written.dropped)}" + (f" ({reasons})" if reasons else ""))
    lines += [f"fewer than asked for: {name}: {count} are missing" for name, count in written.missing.items()]
    used = ", ".join(f"{count:,.0f} {name.replace('_', ' ')}" for name, count in writer.usage().items() if count)
    return [*lines, f"asked: {used}", f"written: {out}/; read the files and edit them, then `harr preview`"]
