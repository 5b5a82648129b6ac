"""One generator for all processes that train together."""

from collections.abc import Callable, Mapping, Sequence

from harr.compute.distributed import main_process_only
from harr.types import Generate, Generator


class SharedGenerator:
    """A generator that only the main process makes and calls; the others receive its answers.

    >>> class Echo:
    ...     def complete(self, requests):
    ...         return [request.prompt for request in requests]
    >>> SharedGenerator(Echo).complete([Generate(prompt="Who?")])
    ['Who?']
    """

    def __init__(self, make: Callable[[], Generator]) -> None:
        self._generators: list[Generator] = []
        main_process_only(lambda: self._generators.append(make()))

    def complete(self, requests: Sequence[Generate]) -> list[str]:
        """Return one completion per request, in order, in every process."""
        return main_process_only(lambda: self._generators[0].complete(requests))

    def usage(self) -> Mapping[str, float]:
        """Return the generator's counts; {} outside the main process."""
        return self._generators[0].usage() if self._generators else {}
