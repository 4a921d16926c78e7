"""A slow store: a proxy that delays requests, and the check that points wait on Kafka."""

from __future__ import annotations

import gzip
import subprocess
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import NamedTuple

from support.http_stub import HttpStub, Request, Response
from support.processes import tree
from support.shipping import Sums, shipper
from support.wait import wait_until
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.sinks.stores import StoreSettings
from tallystream_cli.servers.broker import KafkaBroker

FORWARDED = ("authorization", "content-type", "content-encoding", "accept")


class Forwarded(NamedTuple):
    """A request with its response: its path, the encoding and the lines of its body, and the status."""

    path: str
    encoding: str
    lines: int
    status: int


class SlowProxy(HttpStub):
    """Listens on a free loopback port, and forwards every request to `to` after `delay_s` seconds."""

    def __init__(self, to: str, delay_s: float) -> None:
        super().__init__(self._answer)
        self.delay_s = delay_s
        self.forwarded: list[Forwarded] = []
        self._to = to

    def writes(self) -> list[Forwarded]:
        """Return the requests that wrote points to InfluxDB."""
        return [one for one in list(self.forwarded) if one.path == "/api/v2/write"]

    def written(self) -> int:
        return sum(one.lines for one in self.writes())

    def _answer(self, asked: Request) -> Response:
        threading.Event().wait(self.delay_s)
        headers = {name: asked.headers[name] for name in FORWARDED if name in asked.headers}
        request = urllib.request.Request(self._to + asked.path, data=asked.body, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                status, kind, content = response.status, response.headers.get("Content-Type", ""), response.read()
        except urllib.error.HTTPError as error:
            status, kind, content = error.code, error.headers.get("Content-Type", ""), error.read()
        encoding = asked.headers.get("content-encoding", "")
        lines = sum(map(bool, (gzip.decompress(asked.body) if encoding == "gzip" else asked.body).splitlines()))
        self.forwarded.append(Forwarded(asked.path.partition("?")[0], encoding, lines, status))
        return Response(status, content, kind)


def assert_points_wait_on_kafka(
    broker: KafkaBroker,
    topics: Topics,
    folder: Path,
    *,
    store: StoreSettings,
    proxy: SlowProxy,
    rows: int,
    slow: int,
    growth_mib: int = 128,
    padding: int = 0,
) -> None:
    """Ship `rows` sums to InfluxDB behind the proxy. Memory does not grow, and in the end every point is stored.

    Each request is compressed. `padding` makes rows larger. The proxy delays until `slow` rows are written.
    """
    wanted = Sums(broker.bootstrap_servers, topics.agg, padding=padding)
    wanted.publish(rows // 8)
    mib: list[float] = []
    with shipper(broker.bootstrap_servers, topics.prefix, folder, store) as process:
        # The first request reads the settings of the bucket.
        wait_until(lambda: len(proxy.forwarded) >= 2, 300, "a write is answered")
        mib.append(resident_mib(process))
        wanted.publish(rows - rows // 8)
        while proxy.written() < slow:
            before = len(proxy.forwarded)
            wait_until(lambda before=before: len(proxy.forwarded) > before, 120, "another write")  # type: ignore[misc]
            mib.append(resident_mib(process))
        proxy.delay_s = 0
        wait_until(lambda: wanted.missing(store) == 0, 300, "every point is stored")
    assert {(one.status, one.encoding) for one in proxy.writes()} == {(204, "gzip")}
    print(  # noqa: T201
        f"{rows} rows waited: {mib[0]:.0f} MiB after the first write, at most {max(mib):.0f} MiB"
    )
    assert max(mib) < mib[0] + growth_mib


def resident_mib(process: subprocess.Popen[bytes]) -> float:
    """Return the resident memory of a command's processes in MiB."""
    return float(sum(member.memory_info().rss for member in tree(process.pid))) / 2**20
