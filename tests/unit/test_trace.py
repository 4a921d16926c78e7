"""The path of a value through the modules, from `inc()` to Kafka and from Kafka to InfluxDB: docs/architecture.md."""

from __future__ import annotations

import re
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from pyspark.sql.streaming.tws_tester import TwsTester

from support.scripted_producer import KafkaBench
from support.simulation.direct import METRICS, TOPICS, Direct
from tallystream import MetricRegistry, record
from tallystream_aggregator.shipping.points import PointMapper
from tallystream_aggregator.shipping.tail import Record
from tallystream_aggregator.sinks.influxdb.sink import InfluxStore
from tallystream_aggregator.spark.epochs.processor import EpochProcessor
from tallystream_aggregator.spark.epochs.task import EpochSettings, EpochTask
from tallystream_aggregator.stream.positions import LoopId
from tallystream_aggregator.stream.restore import LoopSettings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

DOC = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text(encoding="utf-8")
VALUE = 1_295_788_826
"""A number of four different bytes, which is recognized as a number, as text, and in packed bytes."""

NEEDLES = (str(VALUE).encode(), VALUE.to_bytes(4, "big"), VALUE.to_bytes(4, "little"))
PACKAGES = ("tallystream.", "tallystream_aggregator.")
DEPTH = 6


def _holds(found: object, depth: int = DEPTH) -> bool:  # noqa: C901, PLR0911 (a case for each kind of object)
    """Return whether the value is in an object, in its contents, or in its bytes."""
    if isinstance(found, bool | type | MetricRegistry | None):  # every metric reaches the registry
        return False
    if isinstance(found, int | float):
        return found == VALUE
    if isinstance(found, str):
        return str(VALUE) in found
    if isinstance(found, bytes | bytearray | memoryview):
        return any(needle in bytes(found) for needle in NEEDLES)
    if isinstance(found, np.ndarray):
        return bool((found == VALUE).any()) if found.dtype.kind in "if" else False
    if isinstance(found, pd.DataFrame):
        return any(_holds(each, depth - 1) for each in found.to_numpy().ravel())
    if depth == 0:
        return False
    if isinstance(found, dict):
        return any(_holds(each, depth - 1) for each in [*found.keys(), *found.values()])
    if isinstance(found, list | tuple | set | frozenset):
        return any(_holds(each, depth - 1) for each in found)
    if not type(found).__module__.startswith(PACKAGES):
        return False
    names = (name for where in ("__struct_fields__", "__slots__", "__dict__") for name in getattr(found, where, ()))
    return any(_holds(getattr(found, name, None), depth - 1) for name in names)


@contextmanager
def _traced() -> Iterator[list[str]]:
    """Yield the modules of the two packages that the value enters as an argument or leaves as a result, in order."""
    entered: list[str] = []

    def profile(frame: FrameType, event: str, result: Any) -> None:
        module = frame.f_globals.get("__name__", "")
        if not module.startswith(PACKAGES) or module in entered:
            return
        if event == "call":
            code = frame.f_code
            given = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            seen = any(_holds(frame.f_locals.get(name)) for name in given if name != "self")
        else:
            seen = event == "return" and _holds(result)
        if seen:
            entered.append(module)

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield entered
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def _listed(heading: str, mark: str = r"\d+\.") -> list[str]:
    """Return the modules that the page lists under a heading: those with numbers, or with another `mark`."""
    _, _, rest = DOC.partition(f"\n## {heading}\n")
    return re.findall(rf"^{mark} `([\w.]+)`", rest.partition("\n## ")[0], re.MULTILINE)


class _Server(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))  # type: ignore[attr-defined]
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_the_path_from_inc_to_produce_is_the_documented_one() -> None:
    """A counter's value passes the modules of the page, in its order, until it is in a record."""
    bench = KafkaBench()
    with _traced() as entered:
        bench.counter.inc(VALUE)
        assert bench.reporter.report_now()
    produced = entered.index("tallystream.kafka.producer") + 1  # after it, the scripted producer decodes the record
    assert entered[:produced] == _listed("From `inc()` to `produce()`")
    bench.reporter.stop()


def test_the_path_from_metrics_to_a_point_is_the_documented_one() -> None:
    """A record's value passes the modules of the page, in its order, until InfluxDB has its sum."""
    metrics: list[record.Metric] = [record.Counter(name="n", count=VALUE), record.Counter(name="other", count=1)]
    snapshot = record.Snapshot(app="a", life="0" * 26, part=0, seq=1, ts=0, every_ms=1000, final=False, metrics=metrics)
    direct = Direct()
    direct.cluster.now_ms = 900
    direct.cluster.append(METRICS, b"i", record.encode(snapshot))
    settings = EpochSettings(LoopSettings(LoopId(TOPICS)), 1, "/none")
    task = EpochTask(settings, lambda _: direct.broker, claim=lambda generation: (generation, 0))
    job = TwsTester(EpochProcessor(task), outputMode="Update")
    mapper = PointMapper(TOPICS)
    with ThreadingHTTPServer(("127.0.0.1", 0), _Server) as server:
        server.bodies = []  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        store = InfluxStore(f"http://127.0.0.1:{server.server_port}", token="t", org="o", bucket="b")
        with _traced() as entered:
            job.testInPandas("0", pd.DataFrame({"shard": [0]}))
            records = direct.records(TOPICS.agg)
            shipped = [Record(TOPICS.agg, number, key, value) for number, (key, value) in enumerate(records)]
            store.write(mapper.points(shipped))
        server.shutdown()
    heading = "From `metrics` to a point in InfluxDB"
    beside = _listed(heading, "-")
    assert [module for module in entered if module in beside] == beside
    assert [module for module in entered if module not in beside] == _listed(heading)
