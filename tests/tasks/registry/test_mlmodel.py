"""A registered retriever is a model to MLflow: both flavours give the vectors of the folder, and a server answers."""

import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest
from exported import export_moved
from sentence_transformers import SentenceTransformer
from servers import Server, free_port

from harr.io.files import read_json
from harr.services.model_registry import LOADABLE
from tasks.registry.mlmodel import write_mlmodel

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # mlflow.pyfunc warns of its own types
TEXTS = ["Query: Where was she born?", "Acme was founded by Ada Brown."]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, tiny: str) -> Path:
    """What the registry keeps of a retriever with a moved encoder and prompts."""
    return keep(tmp_path_factory, tiny, "both")


def keep(made: pytest.TempPathFactory, tiny: str, towers: str) -> Path:
    """One of both towers, or of queries alone (``query``)."""
    folder = made.mktemp("kept")
    export_moved(folder / LOADABLE, made.mktemp("work"), towers, tiny)
    write_mlmodel(folder, folder / LOADABLE)
    return folder


def cosine(found: Any, wanted: Any) -> float:
    """The lowest cosine of rows."""
    one, other = (np.asarray(each, dtype=np.float64) for each in (found, wanted))
    return float(((one * other).sum(-1) / np.linalg.norm(one, axis=-1) / np.linalg.norm(other, axis=-1)).min())


@pytest.mark.parametrize("towers", ["both", "query"])
def test_both_flavours_give_the_vectors_of_the_folder(
    towers: str, tmp_path_factory: pytest.TempPathFactory, tiny: str
) -> None:
    kept = keep(tmp_path_factory, tiny, towers)
    own = SentenceTransformer(str(kept / LOADABLE))
    queries, documents = own.encode_query(TEXTS), own.encode_document(TEXTS)
    loaded = mlflow.sentence_transformers.load_model(str(kept))
    assert cosine(loaded.encode_query(TEXTS), queries) >= 0.9999
    assert cosine(loaded.encode_document(TEXTS), documents) >= 0.9999
    model = mlflow.pyfunc.load_model(str(kept))
    assert cosine(model.predict(TEXTS), queries) >= 0.9999, "as it stands a prediction is a query"
    tower = {"task": "document", "prompt_name": "document"}
    assert cosine(model.predict(TEXTS, params=tower), documents) >= 0.9999
    assert cosine(queries, documents) < 0.99, "the towers, or their prompts, differ"
    (example,) = model.input_example
    assert example.endswith("\nQuery: Where was she born?") and model.predict(model.input_example).shape == (1, 64)
    assert model.predict(TEXTS).dtype == np.float32


def test_mlflow_reads_what_stands_in_the_file_and_no_file_can_run_code(kept: Path) -> None:
    model = mlflow.models.Model.load(str(kept / "MLmodel"))
    assert set(model.flavors) == {"python_function", "sentence_transformers"}
    assert [one["type"] for one in model.get_input_schema().to_dict()] == ["string"]
    assert model.signature.outputs.to_dict()[0]["tensor-spec"]["dtype"] == "float32"
    assert {one.name: one.default for one in model.get_params_schema().params} == {
        "task": "query",
        "prompt_name": "query",
    }
    assert "code" not in model.flavors["python_function"] and not (kept / "code").exists()
    assert model.mlflow_version == mlflow.__version__
    names = [path.name for path in kept.rglob("*") if path.is_file()]
    assert {Path(name).suffix for name in names} == {".safetensors", ".json", ".yaml", ".txt", ".md", ""}
    assert [name for name in names if not Path(name).suffix] == ["MLmodel"], "yaml, too"
    pinned = (kept / "requirements.txt").read_text().splitlines()
    assert [line.split("==")[0] for line in pinned] == ["mlflow", "sentence-transformers", "transformers", "torch"]
    assert not any("+" in line for line in pinned)


@pytest.mark.services
def test_mlflow_serves_it(kept: Path, tmp_path: Path) -> None:
    """`mlflow models serve` of it on loopback answers."""
    port = free_port()
    command = [sys.executable, "-m", "mlflow", "models", "serve", "-m", str(kept), "--env-manager", "local"]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    server = Server(tmp_path, [*command, "-h", "127.0.0.1", "-p", str(port)], port, os.environ | {"PATH": path})

    def ask(body: Any) -> Any:
        text = json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/invocations", text, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["predictions"]

    own = SentenceTransformer(str(kept / LOADABLE))
    server.start()
    try:
        assert cosine(ask({"inputs": TEXTS}), own.encode_query(TEXTS)) >= 0.9999
        assert cosine(ask({"dataframe_records": [{"text": text} for text in TEXTS]}), own.encode_query(TEXTS)) >= 0.9999
        documents = {"inputs": TEXTS, "params": {"task": "document", "prompt_name": "document"}}
        assert cosine(ask(documents), own.encode_document(TEXTS)) >= 0.9999
        assert len(ask(read_json(kept / "serving_input_example.json"))) == 1
        with pytest.raises(urllib.error.HTTPError, match="400"):
            ask({"nonsense": 1})
    finally:
        server.stop()
