"""Do what docs/data.md and docs/own_documents.md say, in a project made by the wheel: .ci/release runs it there.

Commands and params.yaml come from the pages. A stand-in writes the questions (benchmarks/own_documents.py), and
training is short.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT))
from benchmarks.own_documents import StandIn, serve  # noqa: E402

FIRST = "Ada Ben Cleo Dan Eva Finn Gwen Hugo Ines Jon".split()
LAST = "Adler Brown Cole Dean Ely Ford Gray Hale Ives Jay".split()
FIRMS = "Acme Birch Cedar Delta Ember Flint Grove Haven Iris Juno".split()


def rows(line: str, numbers: range) -> str:
    """Return a line of docs/data.md once per number, each with another firm and founder."""
    lines = []
    for n in numbers:
        own = {"Acme": f"{FIRMS[n % 10]} {n}", "Ada Brown": f"{FIRST[n // 10 % 10]} {LAST[n // 30]}"}
        own |= {'"p1"': f'"p{n}"', '"q1"': f'"q{n}"'}
        lines.append(re.sub("|".join(own), lambda found, own=own: own[found[0]], line) + "\n")
    return "".join(lines)


def run(command: str) -> None:
    """Show and run a command of a page in a shell; it must succeed."""
    subprocess.run(["sh", "-xc", command], check=True)


def walk_data() -> None:
    """Write the files that docs/data.md describes, and run with its params.yaml."""
    page = (ROOT / "docs/data.md").read_text(encoding="utf-8")
    ((passage, question),) = re.findall(r"```\n(\{.*\})\n(\{.*\})\n```", page)
    (params,) = re.findall(r"```yaml\n(seed: .*?)```", page, re.DOTALL)
    for name, text in {
        "params.yaml": params,
        "passages.jsonl": rows(passage, range(300)),
        "train.jsonl": rows(question, range(200)),
        "test.jsonl": rows(question, range(200, 300)),
    }.items():
        Path(name).write_text(text, encoding="utf-8")
    run("harr preview")
    run("harr run")


def walk_own_documents() -> None:
    """Run the block of docs/own_documents.md, with this project's pages and an HTML page as the documents."""
    page = (ROOT / "docs/own_documents.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```\n(pip .*?)```", page, re.DOTALL)
    server = serve(StandIn(Path("replies.jsonl")))
    address = f"http://127.0.0.1:{server.server_port}/v1"
    for command in block.splitlines():
        run(command)
        if command.startswith("cp "):
            params = Path("params.yaml").read_text(encoding="utf-8").replace("http://127.0.0.1:8000/v1", address)
            Path("params.yaml").write_text(re.sub("(warm_start|steps): 20", r"\1: 2", params), encoding="utf-8")
        if command.startswith("mkdir "):
            for name in ("arms", "data", "decisions", "operations", "serve", "sources", "usage"):
                shutil.copy(ROOT / f"docs/{name}.md", "documents")
            text = "The pump P7 moves water from the well to the house on every day of the year. " * 5
            Path("documents/pumps.html").write_text(
                f"<html><body><article><h1>Pumps</h1><p>{text}</p></article></body>"
            )
    server.shutdown()
    left_out = Path("data/corpus/left_out.txt")
    assert not left_out.exists(), left_out.read_text(encoding="utf-8")


if __name__ == "__main__":
    walk_data()
    walk_own_documents()
