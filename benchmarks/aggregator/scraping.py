"""The batches and the size of the table, from `/metrics` of our side."""

from __future__ import annotations

import re
import urllib.request
from contextlib import suppress
from threading import Event, Thread
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

_LINE = re.compile(r"^(tallystream_[a-z_]+)(?:\{([^}]*)\})? ([0-9.eE+-]+)$", re.MULTILINE)
_PHASE = re.compile(r'phase="(\w+)"')
_DURATION = "tallystream_batch_duration_seconds"
BATCH = "triggerExecution"
"""Spark's name for the time of a complete batch."""
SCRAPE_INTERVAL_S = 0.25

Scraped = dict[tuple[str, str, str], float]
"""(family, phase, "sum" or "count" of a summary) → value. A text is empty if the metric has no such part."""


def scrape(port: int) -> Scraped:
    """Return the samples on `/metrics` of the command."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return parse(answer.read().decode())


def parse(text: str) -> Scraped:
    """Return the samples of Tallystream in an exposition, without quantiles."""
    found: Scraped = {}
    for name, labels, value in _LINE.findall(text):
        if "quantile=" in labels:
            continue
        phase = _PHASE.search(labels)
        family, _, part = name.rpartition("_") if name.startswith(_DURATION) else (name, "", "")
        found[family, phase[1] if phase else "", part] = float(value)
    return found


class Batches(NamedTuple):
    """The batches between two scrapes: their number, and their mean time in ms."""

    number: int
    mean_ms: float


def batches(before: Mapping[tuple[str, str, str], float], after: Scraped) -> Batches:
    """Return the batches that finished between two scrapes.

    Raises:
        ValueError: no batch finished.
    """
    keys = [(_DURATION, BATCH, name) for name in ("sum", "count")]  # missing until the first batch has finished
    total, count = (after.get(key, 0.0) - before.get(key, 0.0) for key in keys)
    if count <= 0:
        raise ValueError("no batch finished between the two scrapes")
    return Batches(int(count), total / count * 1000)


def finished_batches(port: int | None) -> float:
    """Return the number of batches that our side has finished; 0 without a port, as for another side."""
    return 0.0 if port is None else scrape(port).get((_DURATION, BATCH, "count"), 0.0)


class Slowest:
    """Measures the longest batch, in `ms`, until the block ends. It scrapes several times in each batch."""

    def __init__(self, port: int) -> None:
        self.ms = 0.0
        self._port, self._stop = port, Event()
        self._last: Scraped | None = None
        self._thread = Thread(target=self._run, name="bench-slowest", daemon=True)

    def note(self, scraped: Scraped) -> None:
        """Compare the newest scrape with the one before."""
        if self._last is not None:
            with suppress(ValueError):
                self.ms = max(self.ms, batches(self._last, scraped).mean_ms)
        self._last = scraped

    def _run(self) -> None:
        while not self._stop.wait(SCRAPE_INTERVAL_S):
            with suppress(OSError):  # the command is ending or busy: the next scrape includes the batch
                self.note(scrape(self._port))

    def __enter__(self) -> Self:
        self.note(scrape(self._port))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.note(scrape(self._port))
