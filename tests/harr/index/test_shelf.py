"""Passages of an adopted collection that are held as they are found."""

from unittest.mock import MagicMock

import pytest

from harr.index import shelf as shelf_module
from harr.index.shelf import Shelf
from harr.params.index import AdoptParams


def test_what_one_search_found_is_held_however_much_it_is_and_the_rest_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shelf_module, "HELD", 10)
    shelf = Shelf(MagicMock(), AdoptParams(collection="theirs"), number=False, width=2)

    def put(*numbers: int) -> dict[str, int]:
        return dict(shelf.put([(f"p{n}", {"text": f"Town {n}.", "vector": [1.0, 0.0]}) for n in numbers]))

    first = {}
    for number in range(30):  # one search of 30 queries
        first |= put(number)
    assert [shelf.passage(row).id for row in first.values()] == [f"p{number}" for number in range(30)]
    shelf.make_room()
    second = put(3, 40)
    assert second["p3"] == first["p3"] and shelf.passage(first["p4"]).id == "p4", "rows of the search before are read"
    shelf.make_room()
    assert shelf.passage(first["p3"]).id == "p3", "seen again, so among the last"
    with pytest.raises(KeyError):
        shelf.passage(first["p4"])
