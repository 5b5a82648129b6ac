"""Model cards: the README of a merged folder."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from huggingface_hub import ModelCardData

from harr.arms import ARMS, retriever_arm
from harr.rag.policies.state import state_text
from harr.types import Hop, Question, Search

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
"""Library, task and tags of a model, as the hub reads them."""

EXAMPLE = Search(
    Question("", "Where was the founder of Acme born?"),
    "Where was she born?",
    (Hop("Who founded Acme?", "Ada Brown", "FOUND"),),
    thought="Ada Brown founded Acme.",
)
PASSAGES = ("Ada Brown: She was born in Ashford.", "Acme: A firm in Bath, founded by Ada Brown.")
QUERIES_ALONE = """\
Passages are embedded by its base encoder, {base_model}; this model has no tower of documents."""
OLDER = """\
It loads in sentence-transformers 5 and newer. Older versions load its folder `query`, which encodes queries alone."""


SEARCHES = """\
```python
import harr

with harr.Retriever.load("{name}", index="PROJECT") as retriever:
    [passages] = retriever.search(["Who founded Acme?"])
```"""
"""The usage of an arm that nobody trained; ``PROJECT`` is the folder with the corpus."""
USAGE = """\
It was trained on *states*: a query together with what is known already. A bare query is another text to it.

```python
{code}
```

The state is this text, which any language can write:

```text
{state}
```"""


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
    """Return the card of a model: what it is, its usage, and the scalar ``facts`` of its harr.json.

    ``body`` stands before the facts; ``metadata`` are further fields of ``ModelCardData``, which the hub reads.
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
    """Return a hub name as it is, and only the last part of a folder: a card shows no paths of its author's machine.

    >>> plain_name("Qwen/Qwen3-Embedding-0.6B"), plain_name("/data/models/mine"), plain_name("./mine")
    ('Qwen/Qwen3-Embedding-0.6B', 'mine', 'mine')
    """
    is_path = model.startswith((".", "/", "~")) or model.count("/") > 1
    return model.rstrip("/").rsplit("/", 1)[-1] if is_path else model


def usage(facts: Mapping[str, Any], name: str = HERE) -> str:
    """Return the usage of a retriever from its harr.json: the code, and the state that it writes.

    A retriever of `harr bridge`, which was never trained on states, reads plain queries.
    """
    if not facts.get("trained", True):
        return SEARCHES.format(name=name)
    load = f'from sentence_transformers import SentenceTransformer\n\nmodel = SentenceTransformer("{name}")\n'
    if "retriever" not in facts:
        return f'```python\n{load}vectors = model.encode_query(["Who founded Acme?"])\n```'
    style, search = facts["retriever"]["state"], _example(facts)
    arguments = [
        *_arguments(search, style),
        *([] if facts["history"] else ["history=False"]),
        "tokenizer=model.tokenizer",
    ]
    arguments.append(f"max_tokens={facts['retriever']['max_tokens']}")
    if facts.get("encoder", {}).get("query_prompt"):
        arguments.append('prompt=model.prompts["query"]')
    code = ["import harr", f"{load}state = harr.state(", *(f"    {argument}," for argument in arguments), ")"]
    code.append("query = model.encode_query(state)")
    suffix = f"\n\n{QUERIES_ALONE.format(base_model=facts['base_model'])}"
    if facts["towers"] == "both":
        code += [f"passages = model.encode_document({json.dumps(list(PASSAGES))})"]
        code += ["print(model.similarity(query, passages))"]
        suffix = f"\n\n{OLDER}"
    return USAGE.format(code="\n".join(code), state=example_state(facts)) + suffix


def example_state(facts: Mapping[str, Any]) -> str:
    """Return an example of a state that a retriever reads, from its harr.json."""
    return state_text(_example(facts), style=facts["retriever"]["state"], history=facts["history"])


def _example(facts: Mapping[str, Any]) -> Search:
    """Return the search of the example, with what the retriever's states show."""
    style = facts["retriever"]["state"]
    if style == "sep" and facts.get("pipeline", "pick") == "pick":
        return replace(EXAMPLE, query=EXAMPLE.question.text, hops=(Hop("", PASSAGES[1]),))
    shows_status = facts["statuses"] and style == "json"
    return replace(EXAMPLE, hops=tuple(replace(hop, status=hop.status if shows_status else "") for hop in EXAMPLE.hops))


def _arguments(search: Search, style: str) -> list[str]:
    """Return the arguments of ``harr.state``, as code, that write the state of a search."""
    extra = [] if style == "json" else [f'style="{style}"']
    question = json.dumps(search.question.text)
    if style == "thought":
        return [question, f"query={json.dumps(search.query)}", f"thought={json.dumps(search.thought)}", *extra]
    if not any(hop.query for hop in search.hops):
        return [question, json.dumps([hop.answer for hop in search.hops]), *extra]
    parts = [tuple(filter(None, (hop.query, hop.answer, hop.status))) for hop in search.hops]
    hops = ", ".join(f"({', '.join(map(json.dumps, hop))})" for hop in parts)
    return [question, f"[{hops}]", json.dumps(search.query), *extra]


def purpose(facts: Mapping[str, Any]) -> str:
    """Return the purpose of a retriever from its harr.json: what the untrained arm is, queries for an index of its base,
    or two towers."""
    base = facts["base_model"]
    if not facts.get("trained", True):
        arm = ARMS.get(facts["arm"]) or retriever_arm(facts["function"], {})
        return f"It is the arm {facts['arm']}, which {arm.says}; nothing was trained."
    if "positions" not in facts:
        return (
            "`encode_query` reads states for an index that was built with the base encoder,\n"
            f"{base}; passages keep the vectors of the base."
        )
    return (
        "It is two towers: `query` reads the question and the passages picked so far, joined by [SEP];\n"
        "`document` reads the passages that may be picked next. Values need both, and positions as named\n"
        f"below (harr/rag/policies/q_values.py). Base encoder: {base}."
    )
