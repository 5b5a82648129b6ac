"""The files that make a registered folder an MLflow model: YAML, JSON and texts around the model folder, no pickle.

`python_function` is the retriever over the index of a project (harr/builders/pyfunc.py). `sentence_transformers` is
MLflow's own and loads the encoder, if the folder has one. Neither runs code from the folder, which contains none.
"""

import platform
from importlib import metadata
from pathlib import Path

from harr import __version__
from harr.io.files import write_json, write_text
from harr.services.model_registry import LOADABLE

NEEDED = ("mlflow", "sentence-transformers", "transformers", "torch")
"""Packages that a model server installs besides harr."""
EXAMPLE, SERVING_EXAMPLE, ENVIRONMENT = "input_example.json", "serving_input_example.json", "python_env.yaml"
QUESTIONS = ["Where was the founder of Acme born?"]


MLMODEL = """\
flavors:
  python_function:
    config:
      index: .
    data: {folder}
    env:
      virtualenv: {environment}
    loader_module: harr.builders.pyfunc
    python_version: {python}
{encoder}mlflow_version: {mlflow}
model_size_bytes: {size}
saved_input_example_info:
  artifact_path: {example}
  serving_input_path: {serving_example}
  type: json_object
signature:
  inputs: '[{{"type": "string", "required": true}}]'
"""
"""What MLflow 3 writes itself, except a time and a random name."""
ENCODER = """\
  sentence_transformers:
    sentence_transformers_version: {version}
"""
"""Flavour of a folder with an encoder."""
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
    """Write into ``folder`` the files around a model folder in MLflow's registry.

    MLflow itself is not used: what it imports for this takes seconds, and warns about its own types.

    Args:
        folder: where MLmodel goes; the model folder goes below it, as ``LOADABLE``.
        model: what stage merge wrote.
    """
    # The package index has no versions with a local label, such as +cpu.
    versions = {name: metadata.version(name).partition("+")[0] for name in NEEDED}
    encoder = ENCODER.format(version=versions["sentence-transformers"]) if (model / "modules.json").exists() else ""
    described = MLMODEL.format(
        folder=LOADABLE,
        environment=ENVIRONMENT,
        python=platform.python_version(),
        encoder=encoder,
        mlflow=versions["mlflow"],
        size=sum(path.stat().st_size for path in model.rglob("*") if path.is_file()),
        example=EXAMPLE,
        serving_example=SERVING_EXAMPLE,
    )
    write_text(folder / "MLmodel", described)
    write_json(folder / EXAMPLE, QUESTIONS)
    write_json(folder / SERVING_EXAMPLE, {"inputs": QUESTIONS})
    needed = {"harr": __version__, **versions}
    write_text(folder / "requirements.txt", "".join(f"{name}=={version}\n" for name, version in needed.items()))
    write_text(folder / ENVIRONMENT, PYTHON.format(python=platform.python_version()))
