"""Log lines of `harr lengths`, by how the gold was picked: at once, late, never."""

from typing import Any


def row(gold: list[int], picked: list[int], values: list[float]) -> dict[str, Any]:
    texts = [f"sentence {place}" for place in picked]
    return {"id": str(picked), "gold": gold, "picked": picked, "texts": texts, "values": values}


FOUND = row([1, 4], [1, 4, 9], [0.9, 0.8, 0.2])
LATE = row([1, 4], [4, 7, 1], [0.9, 0.3, 0.6])
NEVER = row([1, 4], [1, 5, 6], [0.9, 0.1, 0.1])
