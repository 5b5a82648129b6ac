"""Two processes hand each other objects by a group of their own, so that none waits for another in NCCL."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from launching import launch

from harr.compute import distributed
from harr.io.files import read_json, write_json

OBJECTS = ("broadcast_object_list", "all_gather_object")


@pytest.mark.services
def test_objects_go_by_gloo_and_not_by_the_group_of_the_gpus(tmp_path: Path) -> None:
    done = launch(__file__, str(tmp_path))
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        assert read_json(tmp_path / f"{rank}.json") == {"told": "by 0", "joined": [0, 1], "groups": ["gloo", "gloo"]}


def tell(out: Path, patch: pytest.MonkeyPatch) -> None:
    """Write down what one process heard, and by the backend of which group, unless that is the one of gradients."""
    groups = []

    def heard(ask: Callable[..., None], *args: Any, group: Any = None) -> None:
        groups.append(group and torch.distributed.get_backend(group))
        ask(*args, group=group)

    for name in OBJECTS:
        patch.setattr(torch.distributed, name, partial(heard, getattr(torch.distributed, name)))
    told = distributed.main_process_only(lambda: f"by {distributed.number()}")
    joined = distributed.joined([distributed.number()])
    write_json(out / f"{distributed.number()}.json", {"told": told, "joined": joined, "groups": groups})


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        tell(Path(sys.argv[1]), patch)
