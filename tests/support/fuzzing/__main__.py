"""Look for inputs that a reader does not expect: make fuzz MINUTES=60, or python -m support.fuzzing --only otlp.

Each target gets its share of the time. An input that gives an error which is not documented, or that does not end, is
written to the corpus: from then on the tests try it, until nobody finds it any more. An input that takes far longer
than docs/performance.md allows is written to standard output.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from support.fuzzing.mutations import mutated
from support.fuzzing.targets import CORPUS, TARGETS, Target, corpus_of, finding

HANG_S = 20
"""After so many seconds an input counts as one that does not end."""

FACTOR = 40.0
"""An input is slow if it takes so many times what a record of its size may: a target does more than to read it."""


class Report(NamedTuple):
    """What the inputs of a target gave: the first finding at each place, and slow inputs with their seconds."""

    inputs: int
    found: dict[str, tuple[Exception, bytes]]
    slow: list[tuple[float, bytes]]


def fuzz(
    name: str,
    target: Target,
    corpus: Sequence[bytes],
    *,
    seconds: float,
    seed: int,
    clock: Callable[[], float] = time.monotonic,
    processor: Callable[[], float] = time.process_time,
) -> Report:
    """Run a target with its corpus, and with changed inputs of it for so many seconds of `clock`.

    What an input takes is measured in seconds of `processor`.
    """
    report, until = Report(0, {}, []), clock() + seconds

    def timed(data: bytes) -> tuple[Exception | None, float]:
        began = processor()
        error = finding(target, data)
        return error, processor() - began

    for data in _inputs(name, corpus, seed, lambda: clock() < until):
        report = report._replace(inputs=report.inputs + 1)
        error, took = timed(data)
        if error is not None:
            report.found.setdefault(_place(error), (error, data))
        elif took > _allowed(data):
            again = min(timed(data)[1] for _ in range(3))
            if again > _allowed(data):
                report.slow.append((again, data))
    return report


def _inputs(name: str, corpus: Sequence[bytes], seed: int, goes_on: Callable[[], bool]) -> Iterator[bytes]:
    yield from corpus
    number = 0
    while goes_on():
        yield mutated(random.Random(f"{name} {seed} {number}"), corpus)
        number += 1


def _place(error: Exception) -> str:
    """Return what was raised, and where in our code."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "tallystream" in frame.filename]
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    return f"{type(error).__name__} at {place}"


def _allowed(data: bytes) -> float:
    """Return the seconds after which an input is slow."""
    return FACTOR * (0.001 + 0.050 * len(data) / 65_536) * (1 + data.count(b"\n"))


def keep(folder: Path, data: bytes) -> Path:
    """Write an input to the corpus, and return its file."""
    path = folder / f"found-{hashlib.sha256(data).hexdigest()[:8]}"
    path.write_bytes(data)
    return path


def _hangs(*_: object) -> None:
    raise TimeoutError(f"it takes more than {HANG_S} s")


def _guarded(target: Target) -> Target:
    """Return a target that raises TimeoutError if it does not end."""

    def run(data: bytes) -> None:
        signal.setitimer(signal.ITIMER_REAL, HANG_S)
        try:
            target.run(data)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    return target._replace(run=run)


def main() -> int:
    """Run all targets, or some, and return 1 if something was found."""
    parser = argparse.ArgumentParser(prog="support.fuzzing", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--only", default=",".join(TARGETS), help="targets, separated by commas")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    options = parser.parse_args()
    logging.disable()
    signal.signal(signal.SIGALRM, _hangs)
    names = options.only.split(",")
    share_s, total = 60 * options.minutes / len(names), 0
    print(f"{len(names)} targets, {share_s:.0f} s each, seed {options.seed}", flush=True)
    for name in names:
        report = fuzz(name, _guarded(TARGETS[name]), corpus_of(name), seconds=share_s, seed=options.seed)
        total += len(report.found)
        speed = report.inputs / max(share_s, 0.001)
        print(f"{name}: {report.inputs:,} inputs, {speed:,.0f} a second, {len(report.found)} findings", flush=True)
        for place, (error, data) in report.found.items():
            print(f"  {place}: {str(error)[:200]}\n  {keep(CORPUS / name, data)}", flush=True)
        for took, data in sorted(report.slow, reverse=True)[:3]:
            print(
                f"  {len(report.slow)} slow: {1000 * took:.0f} ms for {len(data):,} bytes, {data[:200]!r}", flush=True
            )
    print(f"{total} findings")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
