"""README and docs: lines and cells that fit, links that lead somewhere, and none of the words that nobody else uses."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from flows.cli import app
from flows.files import unnamed
from harr.params import Params

ROOT = Path(__file__).parents[1]
TOP = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "recipes/README.md")]
PAGES = sorted([*TOP, *(ROOT / "docs").glob("*.md")])
WIDTH, CELL = 100, 60
LINK = re.compile(r"(?<!`)!?\[[^\]]*\]\(([^)\s]+)\)")
DIALECT = """
    ask anew, be patient, bury, forgets, keeper, lies about, made anew, one that has no, papers from, sceptic, so many,
    spool, stump, stumps, taken back, tell of, the seed's, to be had, told of, whoever, without a word
"""
COMMANDS = get_command(app).commands
WORDS = [word.strip() for word in DIALECT.replace("\n", " ").split(",")]
"""Words of former texts that a reader had to learn; there is a plain one for each."""

each_page = pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield number and text of the lines that are no code, which may be as long as it has to be."""
    code = False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("```"):
            code = not code
        elif not code and not line.startswith("    "):
            yield number, line


def too_long(text: str) -> list[str]:
    """Return the lines over 100 characters that could be shorter: not one word, a table or a link."""
    lines = [(number, LINK.sub("[](", line) if line.count("](") else line) for number, line in prose(text)]
    return [
        f"{number}: {line[:60]}..."
        for number, line in lines
        if len(line) > WIDTH and not line.startswith(("|", "<", "#")) and len(line.split()) > 2
    ]


def wide_cells(text: str) -> list[str]:
    """Return the cells of tables over 60 characters, as they are read: a link is its text."""
    rows = [(number, line) for number, line in prose(text) if line.startswith("|")]
    cells = [(number, cell.strip()) for number, row in rows for cell in re.split(r"(?<!\\)\|", row.strip("|"))]
    return [f"{number}: {cell}" for number, cell in cells if len(re.sub(r"\]\([^)]*\)", "]", cell)) > CELL]


def anchors(text: str) -> set[str]:
    """Return what headings are linked by, as GitHub and the site make it."""
    found = set()
    for _, line in prose(text):
        if heading := re.match(r"#+ +(.*)", line):
            plain = re.sub(r"\]\([^)]*\)", "", heading[1])
            found.add(re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-"))
    return found


def dead_links(path: Path, text: str) -> list[str]:
    """Return the links of a page to a file or heading that is not there."""
    dead = []
    for link in LINK.findall("\n".join(line for _, line in prose(text))):
        file, _, anchor = link.partition("#")
        if "://" in file:
            continue
        target = (path.parent / file).resolve() if file else path
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            dead.append(link)
    return dead


def dialect(text: str) -> list[str]:
    """Return the words of the list that a page has, outside code."""
    plain = " ".join(re.sub(r"`[^`]*`", "", "\n".join(line for _, line in prose(text))).lower().split())
    return [word for word in WORDS if re.search(rf"\b{re.escape(word)}\b", plain)]


def unknown_commands(text: str) -> list[str]:
    """Return what a page has of `harr` that is no command, or gives it an option that it does not know."""
    known = {name: {option for one in command.params for option in one.opts} for name, command in COMMANDS.items()}
    known["init"] = {"--update"}  # runs outside a project, too (harr/project/command.py)
    wrong = []
    code = "\n".join(re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    lines = [*re.findall(r"^(harr [a-z].*)$", code, re.MULTILINE), *re.findall(r"`(harr [a-z][^`]*)`", text)]
    for line in lines:
        words = re.split(r" #|&&|[|;]", " ".join(line.split()))[0].split()
        asked = [word.partition("=")[0] for word in words[2:] if word.startswith("--")]
        if words[1] not in known or not {*asked} <= {*known[words[1]], "--help"}:
            wrong.append(" ".join(words))
    return wrong


@each_page
def test_lines_are_short(path: Path) -> None:
    assert not too_long(path.read_text(encoding="utf-8")), f"run .ci/wrap {path.relative_to(ROOT)}"


@each_page
def test_cells_are_short(path: Path) -> None:
    assert not wide_cells(path.read_text(encoding="utf-8")), "make the long rows items of a list below the table"


@each_page
def test_links_lead_somewhere(path: Path) -> None:
    assert not dead_links(path, path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", [path for path in PAGES if path.name != "parameters.md"], ids=lambda path: path.name)
def test_words_are_those_of_the_field(path: Path) -> None:
    assert not dialect(path.read_text(encoding="utf-8"))


@each_page
def test_commands_exist(path: Path) -> None:
    assert not unknown_commands(path.read_text(encoding="utf-8"))


def test_the_params_of_the_readme_are_whole() -> None:
    """Every parameter that dvc.yaml names is there, or DVC would stop at that stage."""
    for name in ("README.md", "docs/data.md"):
        (block,) = re.findall(r"```yaml\n(seed: .*?)```", (ROOT / name).read_text(encoding="utf-8"), re.DOTALL)
        values = yaml.safe_load(block)
        Params.model_validate(values)
        assert not unnamed(values, yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"])


def test_every_page_stands_in_the_navigation() -> None:
    nav = re.findall(r": (\w+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    elsewhere = {"recipes.md", "contributing.md", "changelog.md"}  # .ci/site.py puts them there
    assert sorted(nav) == sorted({*(path.name for path in (ROOT / "docs").glob("*.md"))} | elsewhere)


def test_the_readme_is_short() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 130 and max(map(len, lines)) <= WIDTH


def test_what_is_wrong_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    long = "word " * 30
    links = "[x](page.md#a-page) [y](page.md#b)"
    text = f"# A page\n{long}\n```\n{long}\n```\n| a | {'b' * 61} |\n{links}\nThe stump.\n"
    page.write_text(text)
    commands = "`harr dance`, `harr run --recipe smoke`\n\n```\nharr run --fast\n```\n"
    assert unknown_commands(commands) == ["harr run --fast", "harr dance"]
    assert [line.split(":")[0] for line in too_long(text)] == ["2"]
    assert [cell.split(":")[0] for cell in wide_cells(text)] == ["6"]
    assert dead_links(page, text) == ["page.md#b"] and dialect(text) == ["stump"]
