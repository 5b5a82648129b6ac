"""LeReT's game of letters: prompts, preferences among the tried queries, and parameters that learn in seconds."""

import json
from pathlib import Path
from typing import Any

from letters import OnePassage, save_letters

from harr.io.files import write_json
from harr.params.train import LeReTParams
from harr.rag.pipelines.leret import LeReT, render
from harr.rag.scoring.reward import Reward
from harr.rag.setup import Setup
from harr.types import Question

QUESTIONS = [f"{first}{second}?" for first in "qwer" for second in "tyu"]


def preference(number: int, split: str = "train") -> dict[str, Any]:
    """Return a preference: a query with the question's letter over one without."""
    question = QUESTIONS[number]
    row = {"id": f"q{number}/1", "question_id": f"q{number}", "hop": 1, "split": split}
    tried = {"responses": ["zz", "mm", question[0] * 2], "scores": [0.0, 0.5, 1.0], "pairs": [[1, 0], [2, 1]]}
    return row | tried | {"prompt": render(question, ())[0], "sft_target": question[0] * 2}


def quick_leret(**changes: Any) -> LeReTParams:
    """Return parameters that learn in seconds."""
    given = {"sft_epochs": 6, "sft_batch": 4, "sft_learning_rate": 3e-3, "ipo_epochs": 3, "ipo_learning_rate": 3e-3}
    return LeReTParams(method="leret", **{**given, "warmup_steps": 2, "max_tokens": 4, "lora": None, **changes})


def preferred_game(folder: Path) -> Setup:
    """Return a game with ten prompts to learn and two held out; ``folder`` gets them and the letters model."""
    rows = [preference(number, "train" if number < 10 else "held_out") for number in range(12)]
    letters = save_letters(folder / "letters", spread=0.3, room=96, printable=True)
    data = folder / "filtered"
    data.mkdir()
    (data / "preferences.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    write_json(data / "manifest.json", {"index": "index-1", "settings": {}})
    questions = [Question(f"q{number}", text) for number, text in enumerate(QUESTIONS)]
    pipeline, reward = LeReT(1, template="bare"), Reward({"recall": 1.0})
    return Setup(questions, pipeline, OnePassage(), None, reward, "game", "index-1", data, str(letters))
