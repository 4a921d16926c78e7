"""What the commands in the terminal print, and the points that `compare` reads."""

from __future__ import annotations

import io
import re
from typing import Any

from tallystream_aggregator.sinks.base import Point
from tallystream_aggregator.sinks.stores import StoreSettings
from tallystream_dashboards.terminal.compare import CompareSettings
from tallystream_dashboards.terminal.show import TableSettings, show

NOW_MS = 1_700_000_000_000
"""The time at which the commands run, epoch ms."""


def printed(settings: TableSettings, *, now_ms: int = NOW_MS) -> tuple[int, list[str]]:
    """Run a command, and return its exit code and its lines."""
    out = io.StringIO()
    return show(settings, out, clock=lambda: now_ms / 1000), out.getvalue().splitlines()


def cells(line: str) -> list[str]:
    return re.split("  +", line.strip())


def counted(name: str, count: int, ts_ms: int = NOW_MS, app: str = "orders", **tags: str) -> Point:
    """Return the sum of a counter."""
    return Point(name, {"app": app, "metric_type": "counter", **tags}, {"count": count}, ts_ms)


def position(name: str, partition: str, start: int, at: int, **point: Any) -> Point:
    """Return from which offset a partition of `in` was counted, and up to which. `point` has its time and tags."""
    tags = {"app": "orders", "metric_type": "position", "topic": "in", "partition": partition}
    ts_ms = point.pop("ts_ms", NOW_MS)
    return Point(name, tags | point, {"start": start, "position": at}, ts_ms)


def processed(count: int, covered: int, taken: int, ts_ms: int = NOW_MS) -> list[Point]:
    """Return what the consumers of `in` report: what they counted, the offsets that they cover, and what they took."""
    names = ("billing.processed", "billing.processed.taken")
    points = [counted(name, number, ts_ms, "billing") for name, number in zip(names, (count, taken), strict=True)]
    return points + [position(f"{name}.position", "0", 0, covered, ts_ms=ts_ms, app="billing") for name in names]


def sent(count: int, ts_ms: int = NOW_MS) -> list[Point]:
    """Return what the producers to `in` report."""
    return [counted("orders.sent", count, ts_ms), position("orders.sent.position", "0", 0, count, ts_ms=ts_ms)]


def of_group(start: int, end: int, committed: int, ago_ms: int) -> Point:
    """Return the offsets of the only partition of a group, so long ago."""
    fields = {"start": start, "end": end, "committed": committed}
    return Point("tallystream.lag", {"group": "billing", "topic": "in", "partition": "0"}, fields, NOW_MS - ago_ms)


def compared(store: StoreSettings, *names: str, **settings: Any) -> tuple[int, list[str]]:
    """Run the command, and return its exit code and its lines."""
    return printed(CompareSettings(store=store, names=names, **settings))
