"""A registered retriever is a model to MLflow: it finds passages, also behind MLflow's server; its encoder loads."""

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
from projects import make_project
from sentence_transformers import SentenceTransformer
from servers import Server, free_port

import harr
from harr.io.files import read_json
from harr.params import Params
from harr.services.model_registry import LOADABLE
from tasks.merge import export_arm
from tasks.registry.mlmodel import write_mlmodel

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # mlflow.pyfunc warns about its own types
TEXTS = ["Query: Where was she born?", "Acme was founded by Ada Brown."]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, tiny: str) -> Path:
    """The registry's copy of a retriever with a moved encoder and prompts."""
    return keep(tmp_path_factory, tiny, "both")


def keep(made: pytest.TempPathFactory, tiny: str, towers: str) -> Path:
    """Write one with both towers, or only that of queries (``query``)."""
    folder = made.mktemp("kept")
    export_moved(folder / LOADABLE, made.mktemp("work"), towers, tiny)
    write_mlmodel(folder, folder / LOADABLE)
    return folder


def cosine(found: Any, wanted: Any) -> float:
    """Return the lowest cosine of rows."""
    one, other = (np.asarray(each, dtype=np.float64) for each in (found, wanted))
    return float(((one * other).sum(-1) / np.linalg.norm(one, axis=-1) / np.linalg.norm(other, axis=-1)).min())


@pytest.mark.parametrize("towers", ["both", "query"])
def test_the_encoder_gives_the_vectors_of_the_folder(
    towers: str, tmp_path_factory: pytest.TempPathFactory, tiny: str
) -> None:
    kept = keep(tmp_path_factory, tiny, towers)
    own = SentenceTransformer(str(kept / LOADABLE))
    queries, documents = own.encode_query(TEXTS), own.encode_document(TEXTS)
    loaded = mlflow.sentence_transformers.load_model(str(kept))
    assert cosine(loaded.encode_query(TEXTS), queries) >= 0.9999
    assert cosine(loaded.encode_document(TEXTS), documents) >= 0.9999
    assert cosine(queries, documents) < 0.99, "the towers, or their prompts, differ"


def test_mlflow_reads_what_stands_in_the_file_and_no_file_can_run_code(kept: Path) -> None:
    model = mlflow.models.Model.load(str(kept / "MLmodel"))
    assert set(model.flavors) == {"python_function", "sentence_transformers"}
    assert [one["type"] for one in model.get_input_schema().to_dict()] == ["string"]
    assert "code" not in model.flavors["python_function"] and not (kept / "code").exists()
    assert model.mlflow_version == mlflow.__version__
    names = [path.name for path in kept.rglob("*") if path.is_file()]
    assert {Path(name).suffix for name in names} == {".safetensors", ".json", ".yaml", ".txt", ".md", ""}
    assert [name for name in names if not Path(name).suffix] == ["MLmodel"], "yaml, too"
    pinned = (kept / "requirements.txt").read_text().splitlines()
    needed = ["harr", "mlflow", "sentence-transformers", "transformers", "torch"]
    assert [line.split("==")[0] for line in pinned] == needed
    assert not any("+" in line for line in pinned)


@pytest.mark.services
def test_mlflow_serves_an_arm_that_has_no_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`mlflow models serve` in the project's folder answers with passages."""
    monkeypatch.chdir(tmp_path)
    make_project(links=False)
    export_arm(Params.load(), "bm25", Path("kept", LOADABLE))
    write_mlmodel(Path("kept"), Path("kept", LOADABLE))
    port = free_port()
    command = [sys.executable, "-m", "mlflow", "models", "serve", "-m", "kept", "--env-manager", "local"]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    server = Server(tmp_path, [*command, "-h", "127.0.0.1", "-p", str(port)], port, os.environ | {"PATH": path})

    def ask(body: Any) -> Any:
        text = json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/invocations", text, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["predictions"]

    asked = ["Who founded the firm?", "Where was she born?"]
    with harr.Retriever.load(Path("kept", LOADABLE)) as retriever:
        wanted = [[passage.id for passage in passages] for passages in retriever.search(asked)]
    assert wanted[0] and wanted[0] != wanted[1]
    server.start()
    try:
        for body in ({"inputs": asked}, {"dataframe_records": [{"text": text} for text in asked]}):
            assert [[passage["id"] for passage in passages] for passages in ask(body)] == wanted
        assert len(ask(read_json(Path("kept/serving_input_example.json")))) == 1
        with pytest.raises(urllib.error.HTTPError, match="400"):
            ask({"nonsense": 1})
    finally:
        server.stop()
