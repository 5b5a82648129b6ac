"""One generator for all processes that train together."""

from collections.abc import Callable, Mapping, Sequence

from harr.compute.distributed import main_process_only
from harr.types import Generate, Generator


class SharedGenerator:
    """A generator that only the main process makes and asks; the others hear its answers.

    >>> from harr.datasets.world.people_player import Scripted
    >>> SharedGenerator(Scripted).complete([])
    []
    """

    def __init__(self, make: Callable[[], Generator]) -> None:
        self._made: list[Generator] = []
        main_process_only(lambda: self._made.append(make()))

    def complete(self, requests: Sequence[Generate]) -> list[str]:
        """Return one completion per request, in order, in every process."""
        return main_process_only(lambda: self._made[0].complete(requests))

    def usage(self) -> Mapping[str, float]:
        """Return the generator's counts; nothing beside the main process."""
        return self._made[0].usage() if self._made else {}
