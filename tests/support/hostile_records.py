"""Scenarios with hostile and with late records, which must not change the sums of other instances."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from support.aggregator import Aggregator
from support.exactness import assert_exact, dead_letters
from support.fleet import Fleet
from support.kafka import latest_sums
from support.wait import wait_until
from tallystream.ulid import new_ulid

if TYPE_CHECKING:
    from pathlib import Path

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_cli.servers.broker import KafkaBroker

LARGE = 10_000_000
SILENT_S = 5.0
DAY_MS = 86_400_000
NAMES = (
    '"ts":9,"offsets":9}',
    "a\nb",
    "\u202etxt.exe",
    "💥" * 200,
    "'; DROP TABLE x; --",
    "a,b=c d",
    "../../etc",
    " ",
)
RECORD_METRICS = 9_000


def check_limits(broker: KafkaBroker, topics: Topics, folder: Path, names: int) -> None:
    """Check limits with a record of 10 MB, `names` names in one life and hostile names. Other sums must be exact."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topics.metrics)
    resource.add_incremental_config(
        ConfigEntry("max.message.bytes", str(2 * LARGE), incremental_operation=AlterConfigOpType.SET)
    )
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.incremental_alter_configs([resource])[resource].result(30)
    fleet = Fleet(broker.bootstrap_servers, topics.metrics, 10)
    sender = _Sender(broker, topics)
    fleet.publish(100)
    large = sender.send(b"large", b'{"name":"' + b"x" * LARGE + b'","value":1}')
    life = new_ulid(int(time.time() * 1000))
    beyond = set()
    for seq, first in enumerate(range(0, names, RECORD_METRICS), 1):
        metrics = [counter(f"n{number}", 1) for number in range(first, min(names, first + RECORD_METRICS))]
        position = sender.send(b"many", snapshot(life, seq, metrics))
        if first + len(metrics) > 10_000:
            beyond.add(position)
    hostile = new_ulid(int(time.time() * 1000))
    sender.send(b"hostile", snapshot(hostile, 1, [counter(name, 3) for name in NAMES]))
    fleet.publish(100)
    with Aggregator(broker.bootstrap_servers, topics.prefix, folder) as aggregator:
        aggregator.start().wait_ready()
        assert_exact(broker, topics)
        assert aggregator.stop() == 0, aggregator.output()
    found = latest_sums(broker.bootstrap_servers, topics.agg)
    assert {key[1] for key in found if key[0] == "hostile"} >= set(NAMES)
    assert len([key for key in found if key[1].startswith("n") and key[0] == "hostile"]) == min(names, 10_000)
    assert dead_letters(broker, topics) == {large, *beyond, *fleet.journal.malformed}


def check_late_lives(broker: KafkaBroker, topics: Topics, folder: Path) -> None:
    """Check two lives that fall silent and return, one of them within 24 h after its `prev`, the other later."""
    sender = _Sender(broker, topics)
    with Aggregator(broker.bootstrap_servers, topics.prefix, folder) as aggregator:
        aggregator.start().wait_ready()
        early, late = (new_ulid(int(time.time() * 1000)) for _ in range(2))
        for life in (early, late):
            sender.send(life.encode(), snapshot(life, 1, [counter("n", 100)]))
        prev = sender.appended_ms
        wait_until(lambda: time.time() * 1000 > prev + SILENT_S * 1000, 60, "they are silent")
        sender.send(early.encode(), snapshot(early, 2, [counter("n", 150)], prev=prev))
        refused = sender.send(late.encode(), snapshot(late, 2, [counter("n", 999)], prev=prev - DAY_MS))
        successor = new_ulid(int(time.time() * 1000))
        sender.send(late.encode(), snapshot(successor, 1, [counter("n", 7)]))
        assert_exact(broker, topics)
        assert dead_letters(broker, topics) == {refused}
        found = latest_sums(broker.bootstrap_servers, topics.agg)
        assert found["hostile", "n", "counter", ()].count == 150 + 100 + 7
        assert aggregator.stop() == 0, aggregator.output()


def counter(name: str, count: int) -> dict[str, Any]:
    """Return a counter in the form of the record."""
    return {"type": "counter", "name": name, "count": count}


def snapshot(life: str, seq: int, metrics: list[dict[str, Any]], **more: Any) -> bytes:
    """Return a snapshot of the app "hostile"."""
    head = {"v": 1, "app": "hostile", "life": life, "part": 0, "seq": seq, "ts": 0, "every_ms": 1000, "final": False}
    return json.dumps({**head, **more, "metrics": metrics}).encode()


class _Sender:
    """Appends one record at a time; `appended_ms` is the broker's time of the last one."""

    def __init__(self, broker: KafkaBroker, topics: Topics) -> None:
        self._topic = topics.metrics
        self._producer = Producer(
            {"bootstrap.servers": broker.bootstrap_servers, "message.max.bytes": 2 * LARGE, "log_level": 0}
        )
        self.appended_ms = 0

    def send(self, key: bytes, value: bytes) -> tuple[int, int]:
        """Append a record and return its partition and offset."""
        places: list[tuple[int, int]] = []

        def acknowledged(error: object, message: Any) -> None:
            assert error is None, error
            self.appended_ms = message.timestamp()[1]
            places.append((message.partition(), message.offset()))

        self._producer.produce(self._topic, key=key, value=value, on_delivery=acknowledged)
        assert self._producer.flush(60) == 0
        return places[0]
