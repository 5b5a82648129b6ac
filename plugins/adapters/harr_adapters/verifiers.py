"""An environment of ``verifiers``: a language model learns to answer with a trained retriever as its search tool."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import verifiers as vf
from datasets import Dataset

from harr.builders.trained import TrainedRetriever
from harr.corpus.passages import read_questions
from harr.rag.scoring.text import token_f1
from harr_adapters.openai_tool import DESCRIPTION, answer_call

PROMPT = "Search as often as you need. Then answer with one line: `Answer: ...`"


async def search(query: str, learned: str, session: Any) -> str:
    """Search with the arguments of verifiers' tool call and the rollout's session."""
    return await asyncio.to_thread(answer_call, session, json.dumps({"query": query, "learned": learned}))


search.__doc__ = DESCRIPTION


async def answer_f1(completion: Any, info: dict[str, Any]) -> float:
    """Return the token F1 of the line `Answer: ...` in the last message, as harr's own reward; 0.0 without one."""
    found = re.findall(r"Answer:[ \t]*(.*)", str(completion[-1].content or "")) if completion else []
    return token_f1(found[-1], info["answers"]) if found else 0.0


class SearchEnv(vf.StatefulToolEnv):
    """Questions to answer by searching; each rollout has its own session, which remembers its searches."""

    def __init__(self, retriever: TrainedRetriever, questions: Path, **options: Any) -> None:
        """Take an open retriever and a question file, data/questions/train.jsonl; ``options`` are verifiers' own."""
        self._retriever = retriever
        asked = [one for one in read_questions(questions) if one.answers]
        rows = [{"question": one.text, "info": {"id": one.id, "answers": list(one.answers)}} for one in asked]
        settings = {"system_prompt": PROMPT, "rubric": vf.Rubric(funcs=[answer_f1])} | options
        super().__init__(dataset=Dataset.from_list(rows), **settings)
        self.add_tool(search, args_to_skip=["session"])

    async def setup_state(self, state: Any) -> Any:
        """Start the session of a rollout."""
        state["session"] = self._retriever.session(state["prompt"][-1].content)
        return await super().setup_state(state)

    def update_tool_args(self, tool_name: str, tool_args: Any, messages: Any, state: Any, **_: Any) -> Any:
        """Add the rollout's session, which the model does not see, to a call."""
        return {**tool_args, "session": state["session"]}


def load_environment(folder: str = "models/retriever", index: str = ".", **options: Any) -> SearchEnv:
    """Return the environment of a project's training questions, as `vf-eval` and trainers load it."""
    return SearchEnv(TrainedRetriever.load(folder, index=index), Path(index) / "data/questions/train.jsonl", **options)
