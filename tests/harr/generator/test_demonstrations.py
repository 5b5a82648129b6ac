"""Demonstrations become tokens, of which only the model's own are learnt; a faulty file gives one line."""

import json
from pathlib import Path
from typing import Any

import pytest
from letters import save_letters

from harr.errors import CorpusError, ModelError
from harr.generator.demonstrations import read_demonstrations
from harr.rag.generation.local_model import LanguageModel, load_model

TURNS = (
    "{% for m in messages %}{{ m.role[0] }}{{ m.content }}<eos>z{% endfor %}{% if add_generation_prompt %}a{% endif %}"
)
NO_ENDS = "{% for m in messages %}{{ m.role[0] }}{{ m.content }}{% endfor %}{% if add_generation_prompt %}a{% endif %}"
FORGETS = (
    "{% for m in messages %}{{ m.role[0] }}{{ m.content if loop.last or m.role == 'user' else '' }}<eos>{% endfor %}"
    "{% if add_generation_prompt %}a{% endif %}"
)
STRICT = "{{ raise_exception('roles must alternate') }}"


def talk(*turns: str) -> dict[str, Any]:
    """Return a conversation: user, assistant, user, ..."""
    return {"messages": [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(turns)]}


@pytest.fixture(scope="module")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    folder = save_letters(tmp_path_factory.mktemp("letters"), spread=0.5)
    return LanguageModel(*load_model(str(folder)), name="letters")


def written(rows: list[Any], tmp_path: Path) -> Path:
    path = tmp_path / "demonstrations.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def read(rows: list[Any], tmp_path: Path, language_model: LanguageModel) -> list[tuple[str, str]]:
    """Return each row's text, and its learnt letters with dots for the others."""
    found = []
    for ids, own in read_demonstrations(written(rows, tmp_path), language_model):
        letters = [language_model.tokenizer.decode([token]).replace("<eos>", "!") for token in ids]
        learnt = "".join(letter if mine else "." for letter, mine in zip(letters, own, strict=True))
        found.append(("".join(letters), learnt))
    return found


def test_pieces_marked_true_and_the_assistants_turns_are_learnt_with_their_ends(
    tmp_path: Path, language_model: LanguageModel, monkeypatch: Any
) -> None:
    row = {"pieces": [["q", False], ["abs", True], ["xyz", False], ["ct", True]]}
    assert read([row], tmp_path, language_model) == [("qabsxyzct", ".abs...ct")]
    monkeypatch.setattr(language_model.tokenizer, "chat_template", TURNS)
    assert read([talk("q", "bc", "r", "de")], tmp_path, language_model) == [("uq!zabc!zur!zade!", ".....bc!......de!")]
    monkeypatch.setattr(language_model.tokenizer, "chat_template", NO_ENDS)  # otherwise it would never learn to stop
    assert read([talk("q", "bc")], tmp_path, language_model) == [("uqabc!", "...bc!")]


@pytest.mark.parametrize(
    ("row", "line"),
    [
        ({"text": "q"}, "demonstrations.jsonl:2: a demonstration with neither messages nor pieces"),
        ({**talk("q", "a"), "pieces": [["a", True]]}, ":2: a demonstration with both messages and pieces"),
        ({"pieces": [["q", False], ["a", False]]}, ":2: nothing is learnt from this demonstration"),
        ({"pieces": [["q", True]]}, ":2: nothing is learnt"),
        (talk("q"), ":2: nothing is learnt"),
        ({"pieces": [["q", 1]]}, r":2: pieces is .* expected a list of \[text, true or false\]"),
        ({"messages": [{"role": "user"}]}, ":2: messages is .* expected a list of objects with role and content"),
        ([1], ":2: a JSON list"),
    ],
)
def test_a_bad_row_is_one_line(row: Any, line: str, tmp_path: Path, language_model: LanguageModel) -> None:
    with pytest.raises(CorpusError, match=line) as error:
        read_demonstrations(written([{"pieces": [["q", False], ["a", True]]}, row], tmp_path), language_model)
    assert "\n" not in str(error.value)


def test_what_cannot_be_read_is_one_line(tmp_path: Path, language_model: LanguageModel, monkeypatch: Any) -> None:
    for template, error, line in (
        (FORGETS, CorpusError, ":1: the model's chat template changes earlier text at message 4"),
        (STRICT, CorpusError, ":1: the model's chat template refuses this conversation: .*roles must alternate"),
        (None, ModelError, "has no chat template"),
    ):
        monkeypatch.setattr(language_model.tokenizer, "chat_template", template)
        with pytest.raises(error, match=line):
            read([talk("q", "bc", "r", "de")], tmp_path, language_model)
    with pytest.raises(CorpusError, match=r"gone\.jsonl is missing; set generator\.warmstart\.demonstrations"):
        read_demonstrations(tmp_path / "gone.jsonl", language_model)
    with pytest.raises(CorpusError, match="holds no demonstration"):
        read_demonstrations(written([], tmp_path), language_model)
