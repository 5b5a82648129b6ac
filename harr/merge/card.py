"""Model cards: the README of a merged folder, and with more in it that of the hub."""

from collections.abc import Mapping

RETRIEVER = """---
{head}library_name: sentence-transformers
pipeline_tag: sentence-similarity
{base_model}tags: [sentence-transformers, harr, dense-retrieval]
---
# {title}

{what}

```python
from sentence_transformers import SentenceTransformer

queries = SentenceTransformer("{name}").encode_query(["Query: Where was Ada Brown born?"])
```

{body}| fact | value |
|---|---|
{facts}
"""

LLM = """---
{head}library_name: transformers
pipeline_tag: text-generation
{base_model}tags: [{tags}]
---
# {title}

{what}

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("{name}", use_safetensors=True)
tokenizer = AutoTokenizer.from_pretrained("{name}")
```

{body}| fact | value |
|---|---|
{facts}
"""


def folder_card(template: str, facts: Mapping[str, str], **values: str) -> str:
    """Return the card of a merged folder: a template with no more in it than the ``facts`` of its harr.json."""
    table = "\n".join(f"| {name} | {value} |" for name, value in facts.items())
    return template.format(name="path/of/this/folder", head="", base_model="", body="", facts=table, **values)


def purpose(facts: Mapping[str, str]) -> str:
    """Return what a merged model is for, from its harr.json: queries for an index of its base, or one of two towers."""
    base = facts["base_model"]
    if "positions" not in facts:
        late = (
            "\nIt was trained to rank by its vector and its *tokens*, half each (harr/rag/policies/maxsim.py: MaxSim);"
            "\nthe vector, which sentence-transformers tells, brings the candidates."
        )
        return (
            "It encodes *queries* for an index that was built with its base encoder,\n"
            f"{base}; passages keep the vectors of the base.{late * (facts.get('scores') == 'maxsim')}"
        )
    return (
        "It is one of two towers: `retriever` reads the question and the passages picked so far, joined by [SEP];\n"
        "`retriever/action` reads the passages that may be picked next. Values need both, and positions as named\n"
        f"below (harr/rag/policies/q_values.py). Base encoder: {base}."
    )
