"""What befalls stores: away for long, slow, or the broker away from who shows the latest; each at a size to choose."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from support.application import assert_exact
from support.faults import OUTAGE_S, PATIENCE, moment
from support.fleet import Fleet, Shares
from support.health import ask
from support.kafka import committed, read_topic
from support.levels import Graphite, Kept, Readable, exposed, promised, samples
from support.processes import tree
from support.shipping import Sums, shipper
from support.supervised import Aggregator, ends
from support.wait import wait_until
from tallystream_aggregator import sums
from tallystream_aggregator.shipping.points import point
from tallystream_aggregator.sinks.stores import StoreSettings, open_sink

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from support.carbon import Carbon
    from support.influxd import InfluxServer
    from support.slow_proxy import SlowProxy
    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_aggregator.sinks.base import Point
    from tallystream_cli.servers.broker import KafkaBroker

DRAINED_S = 120.0 * PATIENCE
FLOWS_S = 30.0 * PATIENCE


def influx_store(server: InfluxServer, url: str = "") -> StoreSettings:
    """Return the settings of a server of our own, behind another address perhaps."""
    spec = f"influxdb:{url or server.url}"
    return StoreSettings.parse(spec, token=server.token, org=server.org, bucket=server.bucket, env={})


def long_outage(
    broker: KafkaBroker, topics: Topics, folder: Path, *, influxdb: InfluxServer, carbon: Carbon, outage_s: float
) -> None:
    """Keep InfluxDB and Carbon down for so long, while five applications publish and sums go on; then drain both.

    The aggregator must notice nothing of it. When the stores are back, what waited is drained within two minutes, and
    every point is there: each row of `metrics-agg` in InfluxDB, the last of each second in Graphite.
    """
    fleets = [Fleet(broker.bootstrap_servers, topics.metrics, n, app=f"app-{n}", shares=Shares()) for n in range(5)]
    stores = {"influxdb": influx_store(influxdb), "graphite": Graphite(carbon, "live").settings}
    slowest = 0.0
    with ExitStack() as stack:
        aggregator = stack.enter_context(Aggregator(broker.bootstrap_servers, topics.prefix, folder / "aggregate"))
        aggregator.folder.mkdir()
        aggregator.start().wait_ready()
        for name, store in stores.items():
            (folder / f"to-{name}").mkdir()
            options = ("--group", name, "--no-events", "--graphite-prefix", store.prefix)
            stack.enter_context(
                shipper(broker.bootstrap_servers, topics.prefix, folder / f"to-{name}", store, *options, timeout=60)
            )

        def shipped(group: str, end: int) -> bool:
            return committed(broker.bootstrap_servers, topics.prefix + group, topics.agg) >= end

        with ExitStack() as publishing:
            for fleet in fleets:
                publishing.enter_context(fleet.publishing())
            for name in stores:
                wait_until(lambda name=name: shipped(name, 50), 300, f"{name} is written to")  # type: ignore[misc]
            influxdb.kill()
            carbon.kill()
            began = time.monotonic()
            while time.monotonic() - began < outage_s:
                due = ends(broker.bootstrap_servers, topics.metrics)
                slowest = max(slowest, aggregator.flows_past(topics.metrics, due, FLOWS_S, "sums go on in the outage"))
                moment(min(5.0, outage_s))
            end = ends(broker.bootstrap_servers, topics.agg)[0]
            behind = {
                name: end - committed(broker.bootstrap_servers, topics.prefix + name, topics.agg) for name in stores
            }
            influxdb.start()
            carbon.start()
            back = time.monotonic()
            for name in stores:
                wait_until(lambda name=name: shipped(name, end), DRAINED_S, f"{name} is drained")  # type: ignore[misc]
            drained_s = time.monotonic() - back
        assert aggregator.restarts == 0
        assert_exact(broker, topics)
        assert aggregator.stop() == 0, aggregator.said()
        end = ends(broker.bootstrap_servers, topics.agg)[0]
        for name in stores:
            wait_until(lambda name=name: shipped(name, end), DRAINED_S, f"{name} has all")  # type: ignore[misc]
        points = [point(sums.decode(read.value or b"")) for read in read_topic(broker.bootstrap_servers, topics.agg)]
        _require(Readable(stores["influxdb"]), points)
        _require(Graphite(carbon, "live"), points)
    print(  # noqa: T201
        f"down for {outage_s:.0f} s: {behind} rows behind, drained in {drained_s:.1f} s; "
        f"sums were committed within {slowest:.1f} s all the while; {len(points)} points, every one there"
    )


def _require(target: Readable | Graphite, points: list[Point]) -> None:
    kept, sink = promised(target.level, points), open_sink(target.settings)
    wait_until(lambda: target.holds(sink, kept), 60, f"{len(points)} points are there", poll=1)
    sink.close()


def slow_store(
    broker: KafkaBroker,
    topics: Topics,
    folder: Path,
    *,
    store: StoreSettings,
    proxy: SlowProxy,
    rows: int,
    batch: int = 20_000,
    slow: int = 0,
    growth_mib: int = 128,
    padding: int = 0,
) -> None:
    """Let every write take as long as the proxy wants, with so many rows waiting: memory stays what it was.

    `store` is InfluxDB behind the proxy. Each request has no more points than a batch of InfluxDB's has, one after
    the other and compressed; `padding` makes rows larger. Until `slow` rows are written (0: all but a batch), the
    shipper has read at most the `batch` that it is writing: the rest waits on Kafka. In the end, with a proxy that
    waits no longer, every point is there.
    """
    wanted = Sums(broker.bootstrap_servers, topics.agg, padding=padding)
    wanted.publish(batch)
    options = ("--no-own-metrics", "--no-events", "--max-records", str(batch))
    mib: list[float] = []
    ahead: list[int] = []
    with shipper(broker.bootstrap_servers, topics.prefix, folder, store, *options) as process:
        wait_until(lambda: len(proxy.passed) >= 2, 300, "a write went through")  # the first looks at the settings
        mib.append(_resident_mib(process))
        wanted.publish(rows - batch)
        while _written(proxy) < (slow or rows - batch):
            passed = len(proxy.passed)
            wait_until(lambda passed=passed: len(proxy.passed) > passed, 120, "another write")  # type: ignore[misc]
            read = _read(folder / "checkpoint", topics.agg)
            ahead.append(read - _written(proxy))
            mib.append(_resident_mib(process))
        proxy.delay_s = 0
        wait_until(lambda: wanted.missing(store) == 0, 300, "every point is there", poll=1)
    assert {one.status for one in proxy.passed if one.path == "/api/v2/write"} == {204}
    assert {one.encoding for one in proxy.passed if one.path == "/api/v2/write"} == {"gzip"}
    print(  # noqa: T201
        f"{rows} rows waited: {mib[0]:.0f} MiB after the first write, at most {max(mib):.0f} MiB; "
        f"at most {max(ahead)} rows were read and not written"
    )
    assert max(mib) < mib[0] + growth_mib
    assert max(ahead) <= batch


def _written(proxy: SlowProxy) -> int:
    return sum(one.lines for one in list(proxy.passed) if one.path == "/api/v2/write")


def _read(checkpoint: Path, topic: str) -> int:
    """Return where the newest batch that Spark has begun ends in the topic: what it has read, or is about to."""
    offsets = checkpoint / "offsets"
    newest = max(int(path.name) for path in offsets.iterdir() if path.name.isdigit())
    return int(json.loads((offsets / str(newest)).read_text().splitlines()[-1])[topic]["0"])


def _resident_mib(process: subprocess.Popen[bytes]) -> float:
    """The memory of the driver's Python: the JVM's is bounded by its heap."""
    return float(sum(member.memory_info().rss for member in tree(process.pid) if "java" not in member.name())) / 2**20


def broker_away(broker: KafkaBroker, topics: Topics, folder: Path, rows: int) -> None:
    """Kill the broker of a shipper that shows the latest: nothing is shown as new that may be old.

    So many rows are read at its start. 30 s after the broker was last asked, `/metrics` answers 503; when it is back,
    the newest sums are shown again, and what comes after them.
    """
    wanted = Sums(broker.bootstrap_servers, topics.agg)
    wanted.publish(rows)
    store, log = StoreSettings.parse("prometheus:0", env={}), folder / "ship.log"

    def newest() -> Kept:
        return {
            (name, series): {max(points): points[max(points)]}
            for name, found in wanted.points.items()
            for series, points in found.items()
        }

    with shipper(broker.bootstrap_servers, topics.prefix, folder, store, "--no-own-metrics") as process:
        wait_until(lambda: log.exists() and "sums are served at " in log.read_text(), 60, "it listens")
        url = log.read_text().rpartition("sums are served at ")[2].split()[0]
        took = wait_until(lambda: ask(url)[0] == 200, 600, "the sums are shown", poll=0.01)
        print(f"{rows} rows read in {took:.1f} s, {rows / took:,.0f} a second")  # noqa: T201
        found, due = samples(ask(url)[1]), exposed(newest())
        assert found == due, {key: (found.get(key), value) for key, value in due.items() if found.get(key) != value}
        mib = _resident_mib(process)
        print(f"{mib:.0f} MiB resident")  # noqa: T201
        broker.kill()
        gone = wait_until(lambda: ask(url)[0] == 503, OUTAGE_S, "nothing is shown", poll=0.1)
        assert "the newest sums were last known " in ask(url)[1]
        broker.start()
        wanted.publish(100)
        wait_until(lambda: ask(url)[0] == 200, OUTAGE_S, "the sums are shown again", poll=0.01)
        wait_until(lambda: samples(ask(url)[1]) == exposed(newest()), 30, "the newest are shown")
        print(f"503 after {gone:.1f} s without the broker")  # noqa: T201
