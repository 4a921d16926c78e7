"""What readers of an aggregator's topics and of stores see, and when, as lines of support/history.py."""

from __future__ import annotations

import http.client
import json
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

from support.commands import start
from support.fleet import NAME, Journal
from support.health import ask
from support.levels import samples
from support.processes import kill_tree
from support.replayed import TopicRecord
from support.stores import content
from support.wait import wait_until
from tallystream_aggregator import sums
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.sinks.base import SinkUnavailableError
from tallystream_aggregator.sinks.prometheus import names
from tallystream_aggregator.sinks.stores import StoreSettings
from tallystream_cli.servers.process import free_port

Line = dict[str, Any]


def of_sums(topics: Topics, records: Sequence[TopicRecord], seen_at: Sequence[float]) -> Iterator[Line]:
    """Yield a line for each sum on `metrics-agg`. Its offsets are the last ones that it includes."""
    for at, record in zip(seen_at, records, strict=True):
        row = sums.decode(record.value or b"")
        if row.name == NAME:
            next_offsets = {partition: offset + 1 for partition, offset in row.offsets[topics.metrics].items()}
            yield _line(at, topics.agg, row.tags["part"], row.count or 0, next_offsets)


def of_rows(topics: Topics, records: Sequence[TopicRecord], seen_at: Sequence[float]) -> Iterator[Line]:
    """Yield a line for each sum of the rows on `metrics-table` of one shard, of each moment of which they are a cut."""
    rows: dict[bytes, Counter[str]] = {}
    cut: dict[str, int] | None = None
    for at, record in zip(seen_at, records, strict=True):
        key, value = record.key or b"", json.loads(record.value or b"{}")
        kind = json.loads(key)[0]
        if kind == "life":
            counts = {one["tags"]["part"]: one["count"] for one in value.get("metrics", ()) if one["name"] == NAME}
            rows[key] = Counter(counts)
        elif kind == "shard":
            cut = {place.rpartition(":")[2]: offset + 1 for place, offset in value["offsets"].items()}
        elif kind == "positions" and cut is not None:  # it ends the transaction
            total: Counter[str] = Counter(dict.fromkeys(set().union(*rows.values()), 0))
            for one in rows.values():
                total.update(one)
            yield from (_line(at, topics.table, name, total[name], cut) for name in sorted(total))
            cut = None


def _line(at: float, reader: str, name: str, number: int, positions: Mapping[str, int] | None) -> Line:
    return {"at": at, "reader": reader, "sum": name, "count": number, "positions": positions}


def some_stores(folder: Path) -> dict[str, StoreSettings]:
    """Return a local store and a Prometheus."""
    specs = {"local": f"local:{folder / 'store.db'}", "prometheus": f"prometheus:{free_port()}"}
    return {name: StoreSettings.parse(spec, env={}) for name, spec in specs.items()}


class Shippers:
    """A shipper for each store, and the lines of what each store shows: `seen`."""

    def __init__(self, servers: str, prefix: str, folder: Path, stores: Mapping[str, StoreSettings]) -> None:
        self._where = ("--bootstrap-servers", servers, "--topic-prefix", prefix)
        self._folder, self._stores = folder, stores
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.seen: list[Line] = []

    def start(self) -> None:
        for name, store in self._stores.items():
            group = () if store.kind == "prometheus" else ("--group", f"shipper-{name}")
            env = {"INFLUXDB_TOKEN": store.token, "INFLUXDB_ORG": store.org, "INFLUXDB_BUCKET": store.bucket}
            arguments = ("ship", *self._where, "--store", store.spec, *group)
            self._processes[name] = start(self._folder / f"{name}.log", *arguments, env=env)

    def kill(self) -> None:
        for process in self._processes.values():
            kill_tree(process)

    @contextmanager
    def watched(self, journal: Journal) -> Iterator[None]:
        """Note what the stores show during the block. Its end waits until each shows all that was acknowledged."""
        stopped = Event()
        errors: list[BaseException] = []

        def watch() -> None:
            try:
                while not stopped.wait(0.1):
                    for name in self._stores:
                        self._look(name)
            except BaseException as error:  # noqa: BLE001 (raised again in the waiting thread)
                errors.append(error)

        def is_shown() -> bool:
            last = {(line["reader"], line["sum"]): line["count"] for line in self.seen}
            wanted = journal.totals().items()
            return bool(errors) or all(last.get((name, part)) == n for name in self._stores for part, n in wanted)

        self.start()
        thread = Thread(target=watch)
        thread.start()
        try:
            yield
            wait_until(is_shown, 300, "every store shows all sums")
        finally:
            stopped.set()
            thread.join()
            self.kill()
        if errors:
            raise errors[0]

    def _look(self, name: str) -> None:
        store, at = self._stores[name], time.time()
        for part, number in (_scraped if store.kind == "prometheus" else _stored)(store).items():
            self.seen.append(_line(at, name, part, number, None))


def _stored(store: StoreSettings) -> dict[str, int]:
    """Return the newest count of each sum in a store."""
    try:
        found = content(store, NAME, ["count"], newest=True)
    except SinkUnavailableError:
        return {}
    return {dict(tags)["part"]: int(points[max(points)]["count"]) for tags, points in found.items()}


def _scraped(store: StoreSettings) -> dict[str, int]:
    """Return the count of each sum that a scrape shows: none before all are known."""
    try:
        status, text = ask(f"http://{store.where}/metrics")
    except (OSError, http.client.HTTPException):  # it was killed
        return {}
    family = names.place(NAME, "counter", "count").family
    found = samples(text).items() if status == 200 else ()
    return {dict(labels)["part"]: int(value) for (name, labels), value in found if name == family}
