"""The files that make a registered folder a model to MLflow: yaml, JSON and texts around the model folder, no pickle.

Both flavours are MLflow's own: `sentence_transformers` loads the folder, `python_function` serves it. None runs code of
the folder, which holds none.
"""

import platform
from importlib import metadata
from pathlib import Path

from harr.io.files import read_json, write_json, write_text
from harr.merge.card import example_state
from harr.services.model_registry import LOADABLE

NEEDED = ("mlflow", "sentence-transformers", "transformers", "torch")
"""What a server of the model installs."""
EXAMPLE, SERVING_EXAMPLE, ENVIRONMENT = "input_example.json", "serving_input_example.json", "python_env.yaml"


MLMODEL = """\
flavors:
  python_function:
    data: {folder}
    env:
      virtualenv: {environment}
    loader_module: mlflow.sentence_transformers
    python_version: {python}
  sentence_transformers:
    sentence_transformers_version: {sentence_transformers}
mlflow_version: {mlflow}
model_size_bytes: {size}
saved_input_example_info:
  artifact_path: {example}
  serving_input_path: {serving_example}
  type: json_object
signature:
  inputs: '[{{"type": "string", "required": true}}]'
  outputs: '[{{"type": "tensor", "tensor-spec": {{"dtype": "float32", "shape": [-1, -1]}}}}]'
  params: '[{{"name": "task", "type": "string", "default": "query", "shape": null}},
    {{"name": "prompt_name", "type": "string", "default": "query", "shape": null}}]'
"""
"""What MLflow 3 writes itself, but for a time and a random name. A prediction is `encode_query` as it stands; with both
parameters "document" it is `encode_document`."""
PYTHON = """\
python: {python}
build_dependencies:
- pip
- setuptools
- wheel
dependencies:
- -r requirements.txt
"""


def write_mlmodel(folder: Path, model: Path) -> None:
    """Write the files around a model folder in MLflow's registry into ``folder``.

    MLflow itself is not asked: what it needs for that takes seconds to import, and warns of its own types.

    Args:
        folder: where MLmodel goes; the model folder goes below it, as ``LOADABLE``.
        model: what stage merge wrote.
    """
    # A local label, such as +cpu, is no version of the package index.
    versions = {name: metadata.version(name).partition("+")[0] for name in NEEDED}
    texts = [example_state(read_json(model / "harr.json"))]
    described = MLMODEL.format(
        folder=LOADABLE,
        environment=ENVIRONMENT,
        python=platform.python_version(),
        sentence_transformers=versions["sentence-transformers"],
        mlflow=versions["mlflow"],
        size=sum(path.stat().st_size for path in model.rglob("*") if path.is_file()),
        example=EXAMPLE,
        serving_example=SERVING_EXAMPLE,
    )
    write_text(folder / "MLmodel", described)
    write_json(folder / EXAMPLE, texts)
    write_json(folder / SERVING_EXAMPLE, {"inputs": texts})
    write_text(folder / "requirements.txt", "".join(f"{name}=={version}\n" for name, version in versions.items()))
    write_text(folder / ENVIRONMENT, PYTHON.format(python=platform.python_version()))
