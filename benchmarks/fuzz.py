"""A million cases of broken input of every kind: ``python -m benchmarks.fuzz [--cases 1000000] [--seed 0]``.

The cases are from ``benchmarks/fuzz_cases.py``. Prints by kind how many were read, which errors refused the rest, and
the seeds of cases that broke something: there should be none. ``TMPDIR=/dev/shm`` spares the disk.
"""

import argparse
import random
import sys
import time
import traceback
from collections import Counter

from benchmarks.fuzz_cases import outcome

SHARES = {
    "passages": 0.15,
    "questions": 0.25,
    "replies": 0.25,
    "web pages": 0.316,
    "HTTP bodies": 0.02,
    "vectors of a server": 0.01,
    "parameters": 0.004,
}
"""Weights of the cases; slow ones come last."""


def main() -> None:
    """Make the cases and print the outcomes; exit with 1 if one broke something."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    options.add_argument("--cases", type=int, default=1_000_000)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--only", choices=tuple(SHARES))
    options.add_argument("--slow", type=float, default=5.0, help="a case that takes so many CPU seconds is broken, too")
    chosen = options.parse_args()
    broken = 0
    for kind, share in SHARES.items():
        if chosen.only not in (None, kind):
            continue
        cases, counts, begin = (
            round(chosen.cases * (1.0 if chosen.only else share)),
            Counter[str](),
            time.perf_counter(),
        )
        for number in range(cases):
            seed, began = f"{kind} {chosen.seed} {number}", time.process_time()
            try:
                counts[outcome(kind, random.Random(seed))] += 1
                if (took := time.process_time() - began) > chosen.slow:
                    raise TimeoutError(f"{took:.1f} s")
            except Exception as error:
                broken += 1
                counts[f"BROKEN {type(error).__name__}"] += 1
                if broken <= 20:
                    print(f"{seed!r}: {''.join(traceback.format_exception(error)[-4:])}", flush=True)
        seconds = time.perf_counter() - begin
        print(f"{kind}: {cases:,} cases, {seconds:.0f} s: {dict(counts.most_common())}", flush=True)
    print(f"{broken} broken")
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
