"""Markdown, HTML, text and PDF files: the text under each heading, without markup.

The libraries (markdown-it-py, trafilatura, pypdf) are imported by the first file of their kind.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harr.errors import CorpusError, one_line
from harr.io.folders import FETCH, is_pointer
from harr.io.jsonl import CONTROL

FRONT_MATTER = re.compile(r"\A---[ \t]*\n(?!\s*\n)(.*?)^(---|\.\.\.)[ \t]*$", re.DOTALL | re.MULTILINE)
TITLE = re.compile(r"^title:[ \t]*(.+)$", re.MULTILINE)
HYPHEN = re.compile(r"(?<=[a-z])-\n(?=[a-z])")
"""A word that a line of a PDF ends in; what is no letter on either side is no such word."""
TAG = re.compile(r"</?([A-Za-z][A-Za-z0-9-]*)")
INLINE = frozenset(
    "a abbr acronym area audio b bdi bdo big br button canvas cite code data datalist del dfn em embed font i iframe "
    "img input ins kbd label map mark math meter noscript object output picture pre progress q rp rt ruby s samp "
    "script select slot small source span strike strong style sub sup svg template textarea time tt u var video "
    "wbr".split()
)
"""HTML's elements but those that CommonMark lists, which begin a block."""
MOST = 64_000_000
"""Maximum size of a file that is read, in bytes."""


@dataclass(frozen=True, slots=True)
class Part:
    """What is under one heading: the headings above it, outermost first, and its text, one block per line."""

    headings: tuple[str, ...]
    text: str


Mark = tuple[int, str]
"""A heading with its level, 1 or more, or a block of text with level 0."""


def read_parts(path: Path) -> list[Part]:
    """Return the parts of a document that have text, by the suffix of its name (:data:`KINDS`).

    The first heading is the document's title: from its metadata, else its first heading of level one, else the file
    name.

    Raises:
        CorpusError: it cannot be read or has no text; the message is only the reason.
    """
    kind = path.suffix.lower()
    if kind not in KINDS:
        raise CorpusError(f"files named {kind or 'without a dot'} are not read")
    data = _bytes(path)
    try:
        title, marks = KINDS[kind](data)
        parts = list(_parts(title or _first_heading(marks) or _fold(path.stem), marks))
    except CorpusError:
        raise
    except RecursionError:
        raise CorpusError("its parts are nested too deeply") from None
    except Exception as error:  # whatever a damaged file makes a parser raise
        raise CorpusError(f"damaged ({type(error).__name__}: {one_line(error, 120)})") from None
    if not parts:
        raise CorpusError("no text in it" + "; of scanned pages make text first (OCR)" * (kind == ".pdf"))
    return parts


def _bytes(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise CorpusError("no file, or a link to nothing")
        if path.stat().st_size > MOST:
            raise CorpusError(f"more than {MOST // 1_000_000} MB")
        data = path.read_bytes()
    except OSError as error:
        raise CorpusError(f"cannot be read ({error.strerror})") from None
    if not data.strip():
        raise CorpusError("empty")
    if is_pointer(path):
        raise CorpusError(FETCH)
    return data


def _parts(title: str, marks: Iterable[Mark]) -> Iterator[Part]:
    """Yield the parts that have text; a heading that repeats the title is left out."""
    above: dict[int, str] = {}
    blocks: list[str] = []

    def part() -> Part:
        names = [name for _, name in sorted(above.items())]
        return Part(tuple([title] * (names[:1] != [title]) + names), "\n".join(blocks))

    for level, text in marks:
        if not level:
            blocks += [text] * bool(text)
            continue
        if blocks:
            yield part()
        blocks = []
        above = {other: name for other, name in above.items() if other < level} | ({level: text} if text else {})
    if blocks:
        yield part()


def _first_heading(marks: Iterable[Mark]) -> str:
    """Return the first heading of level one."""
    return next((text for level, text in marks if level == 1), "")


def _fold(text: str) -> str:
    """Return a text on one line, without characters that no file can hold or that would control a terminal."""
    return " ".join(CONTROL.sub(" ", text.encode("utf-8", "replace").decode()).split())


def _lines(text: str) -> str:
    """Return a text whose lines matter, such as code, without trailing white space and empty lines."""
    return "\n".join(line for line in (CONTROL.sub(" ", line).rstrip() for line in text.splitlines()) if line)


def _decode(data: bytes) -> str:
    """Return a text in UTF-8, or in UTF-16 with a byte order mark."""
    wide = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    try:
        text = data.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError:
        raise CorpusError("binary" if b"\0" in data else "not UTF-8; convert it") from None
    if "\0" in text:
        raise CorpusError("binary")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def plain(data: bytes) -> tuple[str, list[Mark]]:
    """Return the paragraphs of a text, separated by empty lines."""
    return "", [(0, _fold(block)) for block in re.split(r"\n[ \t]*\n", _decode(data))]


def markdown(data: bytes) -> tuple[str, list[Mark]]:
    """Return the headings, paragraphs, items, rows and code of Markdown (CommonMark with tables).

    The title is that of its front matter, which is not text. Blocks of HTML are read without their tags.
    """
    from markdown_it import MarkdownIt

    title, text = _split_front_matter(_decode(data))
    parser = MarkdownIt("commonmark").enable("table")
    marks: list[Mark] = []
    level, cells, rows = 0, [""], False
    for token in parser.parse(text):
        match token.type:
            case "heading_open":
                level = int(token.tag[1:])
            case "tr_open":
                cells, rows = [], True
            case "tr_close":
                marks.append((0, " | ".join(cells)))
                rows = False
            case "fence" | "code_block":
                marks.append((0, _lines(token.content)))
            case "html_block":
                marks.append((0, _html_text(token.content)))
            case "inline" if rows:
                cells.append(_inline(token))
            case "inline":
                marks.append((level, _inline(token)))
                level = 0
    return title, marks


def _split_front_matter(text: str) -> tuple[str, str]:
    """Return the title in a text's front matter, if any, and the rest; a first line `---` may also be a rule.

    What is not valid YAML, such as a title with a colon and no quotes, is front matter if it has a title.

    >>> _split_front_matter("---\\ntitle: 'Pump: P7' # draft\\n---\\nTurn it on.")
    ('Pump: P7', '\\nTurn it on.')
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    if (front := FRONT_MATTER.match(text)) is None:
        return "", text
    try:
        facts = YAML(typ="base").load(front[1])  # every value is a text
    except YAMLError:
        facts = {"title": line[1].strip("\"' ")} if (line := TITLE.search(front[1])) else None
    if not isinstance(facts, dict):
        return "", text
    return _fold(str(facts.get("title") or "")), text[front.end() :]


def _inline(token: Any) -> str:
    """Return the words of a line, with the text of links and the alternative text of images."""
    words = []
    for part in token.children:
        match part.type:
            case "text" | "code_inline" | "image" | "text_special":
                words.append(part.content)
            case "softbreak" | "hardbreak":
                words.append(" ")
            case "html_inline":
                words.append(_tag_text(part.content))
    return _fold("".join(words))


def _tag_text(tag: str) -> str:
    """Return a space for a line break, and a tag of no HTML element as it stands; nothing for other tags and comments.

    >>> [_tag_text(tag) for tag in ("<br/>", "<String>", "</b>", "<!-- a comment -->")]
    [' ', '<String>', '', '']
    """
    from markdown_it.common.html_blocks import block_names

    name = found[1].lower() if (found := TAG.match(tag)) else ""
    if name == "br":
        return " "
    return tag if name and name not in INLINE and name not in block_names else ""


def _html_text(block: str) -> str:
    """Return the words of a block of HTML in Markdown, without scripts (trafilatura).

    It is a piece of a page, often with half of its tags, in which :func:`html` would look for a main text.
    """
    from trafilatura import html2txt

    return _fold(html2txt(f"<html><body>{block}</body></html>"))


def html(data: bytes) -> tuple[str, list[Mark]]:
    """Return title, headings and blocks of a page's main text, without menus, footers and scripts (trafilatura).

    trafilatura writes it as Markdown. The encoding is the one that the page declares, else guessed. A short page is
    read like a long one. Where nothing says which part is the main one, it is the whole body: trafilatura would take
    paragraphs and tables alone.
    """
    from lxml.etree import Element, tostring
    from trafilatura import extract_with_metadata, load_html
    from trafilatura.settings import use_config

    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)  # we report errors ourselves
    config = use_config()
    config.read_dict({"DEFAULT": {"MIN_EXTRACTED_SIZE": "1", "MIN_OUTPUT_SIZE": "1"}})
    page: Any = load_html(data)
    if page is not None and page.tag != "html":  # a piece of a page
        page = load_html(f"<html><body>{tostring(page, encoding='unicode')}</body></html>")
    body = None if page is None else page.find("body")
    if body is not None and not body.xpath(".//main | .//article | .//*[@role='main']"):
        main = Element("main")
        main.text, body.text = body.text, None
        main.extend(list(body))
        body.append(main)
    found: Any = extract_with_metadata(page, config=config, output_format="markdown", include_comments=False, fast=True)
    return (_fold(found.title or ""), markdown(found.text.encode())[1]) if found else ("", [])


def pdf(data: bytes) -> tuple[str, list[Mark]]:
    """Return the title, the bookmarks as headings, and the text of each page as one block (pypdf).

    Words divided at line ends are joined.

    Raises:
        CorpusError: a password is needed.
    """
    from io import BytesIO

    from pypdf import PdfReader

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    reader: Any = PdfReader(BytesIO(data))
    if reader.is_encrypted and not reader.decrypt(""):
        raise CorpusError("needs a password")
    heads: dict[int, list[Mark]] = {}
    for level, entry in _bookmarks(reader.outline, 2):
        page = reader.get_destination_page_number(entry)
        heads.setdefault(-1 if page is None else page, []).append((level, _fold(str(entry.title))))
    marks: list[Mark] = []
    for number, page in enumerate(reader.pages):
        marks += heads.get(number, [])
        marks.append((0, _fold(HYPHEN.sub("", page.extract_text()))))
    return _fold(str((reader.metadata or {}).get("/Title") or "")), marks


def _bookmarks(outline: Iterable[Any], level: int) -> Iterator[tuple[int, Any]]:
    """Yield the bookmarks of a PDF with their levels."""
    for entry in outline:
        if isinstance(entry, list):
            yield from _bookmarks(entry, level + 1)
        else:
            yield level, entry


KINDS: Mapping[str, Any] = {
    ".md": markdown,
    ".markdown": markdown,
    ".html": html,
    ".htm": html,
    ".xhtml": html,
    ".txt": plain,
    ".text": plain,
    ".pdf": pdf,
}
"""File suffixes and their readers, from bytes to the title, if any, and the headings and blocks."""
