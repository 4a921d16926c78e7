"""What `tallystream verify` prints: progress on stderr, a table of differences or JSON on stdout."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tallystream_aggregator.terminal import printable
from tallystream_aggregator.verify.job import VerifySettings, run

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

    from tallystream_aggregator.verify.check import Difference, Outcome

AGREE, DIFFER = 0, 1
EVERY_S = 5.0


class Progress:
    """Says on `to`, every few seconds, how many records were replayed: a short topic says nothing."""

    def __init__(self, to: TextIO, clock: Any = time.monotonic) -> None:
        self._to, self._clock = to, clock
        self._began = self._printed = clock()

    def __call__(self, records: int) -> None:
        """Take the number of records so far."""
        if records % 1000:
            return
        now = self._clock()
        if now - self._printed >= EVERY_S:
            self._printed = now
            self._to.write(f"{records:,} records replayed, {records / (now - self._began):,.0f} a second\n")
            self._to.flush()


def verify(settings: VerifySettings, *, as_json: bool, most: int) -> int:
    """Verify, print what was found, `most` differences of it, and return the exit code."""
    outcome = run(settings, progress=Progress(sys.stderr))
    if as_json:
        sys.stdout.write(json.dumps(as_dict(outcome)) + "\n")
    else:
        show(outcome, Console(soft_wrap=True), most)
    return DIFFER if outcome.differences else AGREE


def show(outcome: Outcome, console: Console, most: int) -> None:
    """Print a table of the first `most` differences, and what was compared."""
    if outcome.differences:
        table = Table("app", "metric", "field", "published", "replayed", "offsets")
        for one in outcome.differences[:most]:
            table.add_row(*(Text(printable(text)) for text in _cells(one)))
        console.print(table)
        if len(outcome.differences) > most:
            console.print(f"and {len(outcome.differences) - most:,} more: --json has them all")
    console.print(Text(printable(summary(outcome))))
    for note in notes(outcome):
        console.print(note)


def summary(outcome: Outcome) -> str:
    """Return in one sentence what was compared and whether it agrees."""
    ends = ", ".join(f"{place}: {end:,}" for place, end in _short(outcome.ends).items())
    letters = f" and {outcome.letters:,} dead letters" if outcome.letters_checked else ""
    number = len(outcome.differences)
    found = f"{number:,} difference{'s' if number > 1 else ''}" if number else "all agree"
    return f"{found}: {outcome.sums:,} sums{letters}, {outcome.records:,} records (partition: next offset {ends})"


def notes(outcome: Outcome) -> list[str]:
    """Return what could not be compared, and why."""
    content = {
        "sums: gauges and rates were compared only in part: they depend on when silence was noticed": (
            outcome.undetermined
        ),
        "sums were not compared: they are of an earlier table, or lie across another writer's batches": (
            outcome.unordered
        ),
        "metrics were not compared: only a sum later than the period is left": outcome.compacted,
        "records of metrics-agg are no sums and were passed over": outcome.unreadable,
    }
    found = [f"{number:,} {what}" for what, number in content.items() if number]
    if not outcome.letters_checked:
        found.append("dead letters were not compared: some have been deleted")
    if not outcome.complete:
        found.append("missing sums were not checked: the ledger does not say where the last batch ended")
    return found


def as_dict(outcome: Outcome) -> dict[str, Any]:
    """Return the outcome as JSON has it."""
    keys = ("records", "sums", "letters", "undetermined", "unordered", "compacted", "unreadable")
    content: dict[str, Any] = {"agree": not outcome.differences} | {key: getattr(outcome, key) for key in keys}
    content |= {"letters_checked": outcome.letters_checked, "complete": outcome.complete, "ends": outcome.ends}
    return content | {"differences": [_difference(one) for one in outcome.differences]}


def _difference(one: Difference) -> dict[str, Any]:
    app, kind, name, tags = one.identity or (None, None, None, ())
    content = {"app": app, "type": kind, "name": name, "tags": dict(tags), "field": one.field}
    return content | {"published": one.published, "replayed": one.replayed, "ends": one.ends}


def _cells(one: Difference) -> tuple[str, ...]:
    app, kind, name, tags = one.identity or ("", "", "", ())
    labels = "".join(f" {tag}={value}" for tag, value in tags)
    ends = ", ".join(f"{place}: {end - 1}" for place, end in _short(one.ends or {}).items())
    return (
        app,
        f"{name}{labels} ({kind})" if name else "",
        one.field,
        _number(one.published),
        _number(one.replayed),
        ends,
    )


def _short(ends: Mapping[str, int]) -> dict[str, int]:
    """Return the ends in order; partitions of one topic alone by their numbers, of several by their topics, too."""
    parts = {(place.rpartition(":")[0], int(place.rpartition(":")[2])): end for place, end in ends.items()}
    alone = len({topic for topic, _ in parts}) == 1
    return {str(p) if alone else f"{topic}:{p}": end for (topic, p), end in sorted(parts.items())}


def _number(value: Any) -> str:
    return "-" if value is None else str(value)
