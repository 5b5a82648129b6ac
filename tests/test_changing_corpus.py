"""A corpus that changes while a loop searches it, in small; `python -m benchmarks.changing_corpus` is the large one."""

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
    figures = changing_corpus.run(220, 12, 5, 3, tmp_path, embed, IndexParams(batch_size=100))
    assert figures["again_inserted"] == 227
    assert (figures["first_embedded"], figures["again_embedded"], figures["again_reused"]) == (220, 15, 212)
    assert (figures["rows"], figures["rows_expected"], figures["removed_found"]) == (227, 227, 0)
    assert figures["bytes_equal"] == 1.0
    assert figures["search_errors"] == 0 and 0 < figures["searches_beside"] < figures["searches"]
