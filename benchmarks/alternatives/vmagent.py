"""The stream aggregation of vmagent on the same updates. They are pushed as text; the sums come by remote write."""

from __future__ import annotations

import time
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from benchmarks.aggregator.load import Fleet, Updates, UpdateSlice
from benchmarks.aggregator.usage import Meter
from benchmarks.alternatives.remote_write import Receiver
from tallystream_cli.servers.process import free_port, spawn, tail, terminate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONFIG = """
- match: '{__name__=~"records_processed_.*"}'
  interval: 1s
  without: [instance]
  outputs: [total]
  ignore_first_sample_interval: 0s
"""
"""By default, vmagent ignores the first samples after a start, and the sums would be too low."""
MAX_WAIT_S = 300.0


def measure(binary: Path, folder: Path, n: int) -> dict[str, Any]:
    """Push about `n` updates in complete rounds. Then restart vmagent, and push half of the instances again."""
    fleet, updates, last = Fleet(), Updates(Fleet()), b""
    bodies = []
    for _ in range(n // fleet.rows):
        last = as_text(fleet, updates.take(fleet.rows))
        bodies.append(last)
    expected = [float(total) for total in updates.sums]
    half = b"\n".join(last.splitlines()[: fleet.rows // 2])
    with Receiver() as receiver:
        began = time.monotonic()
        with _running(binary, folder, receiver) as (url, pid), Meter(pid) as meter:
            for body in bodies:
                _post(url, body)
            exact = _reaches(receiver, fleet, expected)
            wall_s, cpu_s = time.monotonic() - began, meter.cpu_s()
        receiver.newest.clear()
        with _running(binary, folder, receiver) as (url, _):
            _post(url, half)
            halves = [0.0] * fleet.metrics
            for number, line in enumerate(half.splitlines()):
                halves[number % fleet.metrics] += float(line.rpartition(b" ")[2])
            lost = _reaches(receiver, fleet, halves)
    found = {"updates": len(bodies) * fleet.rows, "wall_s": wall_s, "cpu_s": cpu_s, "peak_mb": meter.peak_bytes / 1e6}
    return {**found, "exact": exact, "forgets_after_a_restart": lost}


def as_text(fleet: Fleet, updates: UpdateSlice) -> bytes:
    """Return the readings of the updates in Prometheus' text format."""
    names = [name.replace(".", "_").encode() for name in fleet.names]
    readings, metrics = updates.readings.tolist(), fleet.metrics
    rows = (
        (names[number % metrics], fleet.keys[number // metrics % fleet.instances], reading)
        for number, reading in enumerate(readings)
    )
    return b"\n".join(b'%b{instance="%b"} %d' % row for row in rows)


def _post(url: str, body: bytes) -> None:
    with urllib.request.urlopen(f"{url}/api/v1/import/prometheus", body, timeout=60) as answer:
        answer.read()


def _reaches(receiver: Receiver, fleet: Fleet, expected: list[float]) -> bool:
    names = [f"{name.replace('.', '_')}:1s_without_instance_total" for name in fleet.names]
    until = time.monotonic() + MAX_WAIT_S
    while [receiver.newest.get(name) for name in names] != expected:
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


@contextmanager
def _running(binary: Path, folder: Path, receiver: Receiver) -> Iterator[tuple[str, int]]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "aggregation.yaml").write_text(CONFIG, encoding="utf-8")
    port = free_port()
    command = [
        *(str(binary), f"-httpListenAddr=127.0.0.1:{port}", f"-remoteWrite.url={receiver.url}"),
        *("-remoteWrite.forcePromProto=true", f"-remoteWrite.tmpDataPath={folder / 'queue'}"),
        f"-remoteWrite.streamAggr.config={folder / 'aggregation.yaml'}",
    ]
    process, url = spawn(command, folder / "log"), f"http://127.0.0.1:{port}"
    try:
        while True:
            if process.poll() is not None:
                raise RuntimeError(f"vmagent ended with {process.returncode}:\n{tail(folder / 'log')}")
            try:
                urllib.request.urlopen(f"{url}/health", timeout=5).close()
                break
            except OSError:
                time.sleep(0.05)
        yield url, process.pid
    finally:
        terminate(process, timeout_s=20)
