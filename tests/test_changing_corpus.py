"""A corpus that changes while a loop searches it, small; `python -m benchmarks.changing_corpus` is the large one."""

from pathlib import Path

import pytest

from benchmarks import changing_corpus
from harr.params.embed import EmbedParams
from harr.params.index import IndexParams


def test_only_new_texts_are_embedded_and_removed_passages_are_not_found(
    tmp_path: Path, tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changing_corpus, "PACKAGED", tiny)
    embed = EmbedParams(dtype="float32", shard_size=100)
    told = changing_corpus.run(220, 12, 5, 3, tmp_path, embed, IndexParams(batch_size=100))
    assert told["again_inserted"] == 227
    assert (told["first_embedded"], told["again_embedded"], told["again_reused"]) == (220, 15, 212)
    assert (told["rows"], told["rows_expected"], told["removed_found"]) == (227, 227, 0)
    assert told["bytes_equal"] == 1.0
    assert told["search_errors"] == 0 and 0 < told["searches_beside"] < told["searches"]
