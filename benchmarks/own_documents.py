"""From a folder of documents to a trained retriever, like a new user: `python -m benchmarks.own_documents FOLDER`.

FOLDER is a copy of the tree (`git clone`). It gets documents/ (the project's own pages), params.yaml
(`recipes/own_documents.yaml`) and the outputs of the commands. `harr questions` asks a stand-in for a language model, a
real HTTP server. Its replies come from a template, not a model: keywords of a sentence in the passage, with a rare word
as the answer; some are spoiled in one of six ways. They are recorded in FOLDER/replies.jsonl, from which prompts in the
file are answered. So the figures show that the procedure works, but not how good a language model's questions are, or
what training with them adds.
"""

import hashlib
import json
import re
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

DULL = frozenset(
    """
    about above after again against because before being below between could doing during every first found given have
    having into itself more most much never other others over own same several should since such than that their them
    then there these they this those through under until upon very what when where which while whose with without
    would your are and the for not was were has had its out can one two three may only from each also else by in
    """.split()
)
"""Words that do not say what a sentence is about."""


def collect(root: Path, folder: Path) -> int:
    """Copy the project's pages into a new folder, and return how many there are."""
    folder.mkdir()
    names = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "recipes/README.md")
    pages = [*sorted((root / "docs").glob("*.md")), *(root / name for name in names)]
    for page in pages:
        (folder / page.relative_to(root).as_posix().replace("/", "-")).write_bytes(page.read_bytes())
    return len(pages)


class StandIn:
    """Recorded replies from a template; see the docstring of this file."""

    def __init__(self, file: Path) -> None:
        self._file, self._lock = file, threading.Lock()
        rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        self._replies: dict[str, str] = {row["prompt"]: row["reply"] for row in rows}
        self._book: dict[str, tuple[str, list[str]]] = {row["asked"]: row["told"] for row in rows if "asked" in row}
        self.replayed = 0

    def reply(self, user: str) -> str:
        """Return the recorded reply to a prompt, or record one from the template."""
        key = hashlib.sha256(user.encode()).hexdigest()[:16]
        with self._lock:
            if key in self._replies:
                self.replayed += 1
                return self._replies[key]
            row: dict[str, Any] = {"prompt": key}
            if "Questions:" in user:
                question, answer, needed = _written(user)
                if question:
                    row |= {"asked": question, "told": [answer, needed]}
                    self._book[question] = answer, needed
                said: dict[str, Any] = {"questions": [{"question": question, "answer": answer}] if question else []}
            else:
                said = {"answer": self._answer(user)}
            row["reply"] = self._replies[key] = json.dumps(said, ensure_ascii=False)
            with self._file.open("a", encoding="utf-8") as out:
                out.write(json.dumps(row, ensure_ascii=False) + "\n")
            return row["reply"]

    def _answer(self, user: str) -> str:
        """Return the answer if the passages it needs are shown; some answers are known by heart, or never found."""
        asked = user.rpartition("Question: ")[2].removesuffix("\nAnswer:")
        answer, needed = self._book.get(asked, ("", [""]))
        luck = _draw(asked, 30)
        if luck == 0 or (luck == 1 and "Passages:" not in user):
            return "" if luck == 0 else answer
        return answer if "Passages:" in user and all(one in user for one in needed) else ""


def _draw(text: str, sides: int) -> int:
    return int(hashlib.sha256(text.encode()).hexdigest(), 16) % sides


def _words(text: str) -> list[str]:
    """Return the distinct meaningful words, rare-looking ones first."""
    found = dict.fromkeys(word for word in re.findall(r"[A-Za-z][\w-]{3,}", text) if word.lower() not in DULL)
    return sorted(found, key=lambda word: (-len(word), word))


def _written(user: str) -> tuple[str, str, list[str]]:
    """Return a question, its answer, and the text of each passage that must be shown for it."""
    shown = user.partition("\nNumber of questions")[0]
    passages = [text.partition("\n") for text in re.split(r"^\[\d\] ", shown, flags=re.MULTILINE)[1:]]
    title, _, last = passages[-1]
    sentences = [one for one in re.split(r"(?<=[.;:|]) ", last.strip()) if len(_words(one)) >= 5]
    if not sentences:
        return "", "", []
    sentence = sentences[_draw(last, len(sentences))]
    answer, *words = _words(sentence)
    about = title.rpartition(" > ")[2].lower()
    hints = sorted(words[:3])
    if len(passages) > 1:
        first = _words(passages[0][2])[:3]
        question = f"With {first[0]} and {first[-1]} in mind, what goes with {', '.join(hints[:2])}?"
    else:
        question = f"Concerning {about}: what goes with {', '.join(hints)}?"
    spoiled = {
        0: (f"{question} Is it {answer}?", answer),
        1: (f"{' '.join(sentence.split()[:12])}, is that so?", answer),
        2: (f"According to the passage, {question}", answer),
        3: (question, "something else altogether"),
    }
    question, answer = spoiled.get(_draw(sentence, 24), (question, answer))
    return question, answer, [text.strip()[:80] for _, _, text in passages]


def serve(stand_in: StandIn) -> ThreadingHTTPServer:
    """Start the stand-in as an OpenAI-compatible server on a free port of loopback."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            message = {"role": "assistant", "content": stand_in.reply(body["messages"][-1]["content"])}
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            reply = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
            data = json.dumps(reply).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def main() -> None:
    """Follow docs/own_documents.md, and print the minutes of each step."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        raise SystemExit("usage: python -m benchmarks.own_documents FOLDER")
    place = Path(sys.argv[1]).resolve()
    began = time.monotonic()
    print(f"{collect(place, place / 'documents')} documents")
    stand_in = StandIn(place / "replies.jsonl")
    server = serve(stand_in)
    recipe = (place / "recipes/own_documents.yaml").read_text()
    address = f"http://127.0.0.1:{server.server_port}/v1"
    (place / "params.yaml").write_text(recipe.replace("http://127.0.0.1:8000/v1", address))
    for words in (["questions", "--hops", "1", "2"], ["preview"], ["run"], ["report"]):
        start = time.monotonic()
        done = subprocess.run([sys.executable, "-m", "flows.cli", *words], cwd=place)
        print(f"harr {' '.join(words)}: exit {done.returncode}, {(time.monotonic() - start) / 60:.1f} minutes")
        if done.returncode:
            raise SystemExit(done.returncode)
    server.shutdown()
    print(f"in all {(time.monotonic() - began) / 60:.1f} minutes; {stand_in.replayed} replies were recorded before")


if __name__ == "__main__":
    main()
