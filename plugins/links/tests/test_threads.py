"""Several threads of a process, as those of a server, open the tables of one corpus."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harr_links.tables import open_mentions

from harr.corpus.passages import Passages, write_passages
from harr.types import Passage


def test_a_table_is_made_by_one_thread(tmp_path: Path) -> None:
    towns = [Passage(f"p{n}", f"Town {n} lies near Town {n + 1}.", f"Town {n}") for n in range(200)]
    write_passages(towns, tmp_path / "corpus")
    opened = [Passages.open(tmp_path / "corpus") for _ in range(8)]
    with ThreadPoolExecutor(len(opened)) as pool:
        tables = list(pool.map(lambda passages: open_mentions(passages, tmp_path / "tables"), opened))
    assert len(tables) == 8 and len(list((tmp_path / "tables").glob("*/*"))) == 1
