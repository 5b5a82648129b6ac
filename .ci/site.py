"""What mkdocs adds to docs/: pages from elsewhere, the commands of `harr`, and blank lines before lists."""

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
ELSEWHERE = {"recipes.md": "recipes/README.md", "contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
ELSEWHERE |= {
    f"plugin_{path.parent.name}.md": f"plugins/{path.parent.name}/README.md"
    for path in ROOT.glob("plugins/*/README.md")
}
"""Pages of the site, with the project files that they show."""
COMMANDS = "<!-- commands -->"
"""Mark in docs/commands.md at which the site lists the commands."""
BLOCK = re.compile(r"(\||([-*]|\d+\.) )\S?")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages outside docs/."""
    for page, path in ELSEWHERE.items():
        files.append(File.generated(config, page, content=(ROOT / path).read_text(encoding="utf-8")))
    return files


def on_page_markdown(text: str, page: Any, **_: Any) -> str:
    """Return a page with its links into the project fixed, commands listed, and blank lines before lists."""
    path = page.file.src_path
    beside = Path(ELSEWHERE.get(path, f"docs/{path}")).parent
    text = re.sub(r"(\]\()([^)\s#]+)(#[^)\s]*)?\)", lambda link: _link(link, beside), text)
    return _spaced(text.replace(COMMANDS, _commands() if COMMANDS in text else ""))


def on_page_content(html: str, **_: Any) -> str:
    """Return a page without the Sphinx roles before names in docstrings."""
    return re.sub(r":(?:meth|class|func|mod):(?=<code>)", "", html)


def _link(link: re.Match[str], beside: Path) -> str:
    """Return a link to a project file as a link to its page."""
    start, path, anchor = link[1], link[2], link[3] or ""
    if "://" in path:
        return link[0]
    target = (ROOT / beside / path).resolve()
    pages = {(ROOT / file).resolve(): page for page, file in ELSEWHERE.items()}
    if target in pages:
        path = pages[target]
    elif target.is_relative_to(ROOT / "docs"):
        path = target.relative_to(ROOT / "docs").as_posix()
    return f"{start}{path}{anchor})"


def _spaced(text: str) -> str:
    """Return Markdown with a blank line between a paragraph and a list or a table, which GitHub does not require."""
    lines: list[str] = []
    code = False
    for line in text.splitlines():
        before = lines[-1] if lines else ""
        if line.lstrip().startswith("```"):
            if not code and before.strip() and not line.startswith(" "):
                lines.append("")
            code = not code
        elif not code and BLOCK.match(line) and before.strip() and not BLOCK.match(before) and before[0] not in " |":
            lines.append("")
        lines.append(line)
    return "\n".join(lines)


def _commands() -> str:
    """Return every command of `harr` with its help."""
    sys.path.insert(0, str(ROOT))
    from typer.main import get_command

    from flows.cli import add_plugins, app

    add_plugins()
    return "\n".join(_command("harr", get_command(app)))


def _command(name: str, command: Any) -> list[str]:
    lines = [f"## {name}", "", _prose(command.help or ""), ""]
    for option in command.params:
        if "--help" in option.opts:
            continue
        names = ", ".join(f"`{one}`" for one in [*option.opts, *option.secondary_opts])
        default = "" if option.required or option.default in (None, False, ()) else f"; default `{option.default}`"
        lines.append(f"- {names}{' (required)' if option.required else default}: {_prose(option.help or '')}")
    for name_below, below in getattr(command, "commands", {}).items():
        if not below.hidden:
            lines += ["", *_command(f"{name} {name_below}", below)]
    return lines


def _prose(text: str) -> str:
    return re.sub(r"<(\w+)>", r"`<\1>`", " ".join(text.split()))
