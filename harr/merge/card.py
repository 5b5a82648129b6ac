"""Model cards: the README of a merged folder."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from huggingface_hub import ModelCardData

from harr.arms import ARMS, retriever_arm
from harr.rag.policies.state import state

HERE = "path/of/this/folder"

CARD = """---
{metadata}
---
# {title}

{what}

{use}

{body}| fact | value |
|---|---|
{facts}
"""

LANGUAGE_MODEL_USAGE = """\
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("{name}", use_safetensors=True)
tokenizer = AutoTokenizer.from_pretrained("{name}")
```"""

KINDS = {
    "retriever": ("sentence-transformers", "sentence-similarity", ["sentence-transformers", "dense-retrieval"]),
    "language_model": ("transformers", "text-generation", ["transformers", "search", "question-answering"]),
}
"""Library, task and tags of a model, for the hub."""

PASSAGES = ("Ada Brown: She was born in Ashford.", "Acme: A firm in Bath, founded by Ada Brown.")
SEARCHES = """\
```python
import harr

with harr.Retriever.load("{name}", index="PROJECT") as retriever:
    [passages] = retriever.search(["Who founded Acme?"])
```"""
"""The usage of an untrained arm; ``PROJECT`` is the folder with the corpus."""
USAGE = """\
It was trained on *states*: a query together with what is known already. A bare query is another text to it.

```python
import harr
{load}state = harr.state(
{arguments}
    tokenizer=model.tokenizer,
    max_tokens={max_tokens},
    prompt=model.prompts["query"],
)
query = model.encode_query(state)
{compare}```

The state is this text, which any language can write:

```text
{state}
```{note}"""


def model_card(
    kind: Literal["retriever", "language_model"],
    facts: Mapping[str, Any],
    *,
    title: str,
    what: str,
    use: str,
    body: str = "",
    **metadata: Any,
) -> str:
    """Return a model's card: what it is, its usage, and the scalar ``facts`` of its harr.json.

    ``body`` precedes the facts; ``metadata`` are further fields of ``ModelCardData``, which the hub reads.
    """
    library, task, tags = KINDS[kind]
    data = ModelCardData(library_name=library, pipeline_tag=task, tags=["harr", *tags], **metadata)
    rows = "\n".join(f"| {name} | {value} |" for name, value in facts.items() if not isinstance(value, dict))
    return CARD.format(metadata=data.to_yaml(), title=title, what=what, use=use, body=body, facts=rows)


def plain_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the publishable facts of harr.json: ``base_model`` without its path.

    >>> plain_facts({"base": "b1", "base_model": "/data/models/mine"})
    {'base': 'b1', 'base_model': 'mine'}
    """
    return {**facts, "base_model": plain_name(facts["base_model"])}


def plain_name(model: str) -> str:
    """Return a hub name unchanged, but only the last part of a folder: a card shows no paths of its author's machine.

    >>> plain_name("Qwen/Qwen3-Embedding-0.6B"), plain_name("/data/models/mine"), plain_name("./mine")
    ('Qwen/Qwen3-Embedding-0.6B', 'mine', 'mine')
    """
    is_path = model.startswith((".", "/", "~")) or model.count("/") > 1 or Path(model).is_dir()
    return model.rstrip("/").rsplit("/", 1)[-1] if is_path else model


def usage(facts: Mapping[str, Any], name: str = HERE) -> str:
    """Return a retriever's usage from its harr.json: the code, and the state that it writes.

    A retriever from `harr bridge`, which was never trained on states, reads plain queries.
    """
    if not facts.get("trained", True):
        return SEARCHES.format(name=name)
    load = f'from sentence_transformers import SentenceTransformer\n\nmodel = SentenceTransformer("{name}")\n'
    if "retriever" not in facts:
        return f'```python\n{load}vectors = model.encode_query(["Who founded Acme?"])\n```'
    arguments = _example(facts)
    compare = note = ""
    if facts["towers"] == "both":
        compare = (
            f"passages = model.encode_document({json.dumps(PASSAGES)})\nprint(model.similarity(query, passages))\n"
        )
        note = "\n\nIt loads in sentence-transformers 5 and newer; older versions load its folder `query` alone."
    return USAGE.format(
        load=load,
        arguments="\n".join(f"    {key}={value!r}," for key, value in arguments.items()),
        max_tokens=facts["retriever"]["max_tokens"],
        compare=compare,
        state=state(**arguments),
        note=note,
    )


def _example(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return example arguments of ``harr.state`` for a retriever, from its harr.json."""
    style = facts["retriever"]["state"]
    question = "Where was the founder of Acme born?"
    own = {"style": style, "history": facts["history"]}
    if style == "sep" and facts.get("pipeline", "pick") == "pick":
        return {"question": question, "hops": [PASSAGES[1]], **own}
    status = ("FOUND",) if style == "json" and facts["statuses"] else ()
    thought = {"thought": "Ada Brown founded Acme."} if style == "thought" else {}
    hops = [("Who founded Acme?", "Ada Brown", *status)]
    return {"question": question, "hops": hops, "query": "Where was she born?", **thought, **own}


def purpose(facts: Mapping[str, Any]) -> str:
    """Return a retriever's purpose from its harr.json: untrained arm, queries for its base's index, or two towers."""
    base = facts["base_model"]
    if not facts.get("trained", True):
        arm = ARMS.get(facts["arm"]) or retriever_arm(facts["function"], {})
        return f"It is the arm {facts['arm']}, which {arm.says}; nothing was trained."
    if "positions" not in facts:
        return f"It reads states for an index whose passages were embedded by its base encoder, {base}."
    return (
        "It is two towers: `query` reads the question and the passages picked so far, joined by [SEP];\n"
        "`document` reads the passages that may be picked next. Values need both, and positions as named\n"
        f"below (harr/rag/policies/q_values.py). Base encoder: {base}."
    )
