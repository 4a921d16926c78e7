"""A system that really runs on the shared broker: a producer, two consumers that report, aggregator, shipper, lag."""

from __future__ import annotations

import itertools
import subprocess
import threading
from collections import Counter
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Self

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from support.ending import end, with_stacks
from support.kafka import aggregator, command
from support.shipping import shipper
from support.wait import wait_until
from tallystream_aggregator.sinks.stores import StoreSettings
from tallystream_cli.demo import events
from tallystream_cli.demo.scenario import AppProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PARTITIONS = 2
RULES = ("--interval", "1", "--window", "12", "--allowed-lag", "500")
"""A status within seconds: half the window without progress is a stop. A busy machine lags by less than 500."""


class Producing:
    """Sends flights, 200 a second, from its start to its stop; `sent` is how many the broker has acknowledged."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True})
        self._events = itertools.cycle(events.read_events(1000))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="producing")
        self.sent = 0

    def _run(self) -> None:
        while not self._ended.wait(0.1):
            for key, value in itertools.islice(self._events, 20):
                self._producer.produce(self._topic, key=key, value=value, on_delivery=self._delivered)
            self._producer.poll(0)
        assert self._producer.flush(60) == 0

    def _delivered(self, error: object, _message: object) -> None:
        assert error is None, error
        self.sent += 1

    def stop(self) -> None:
        """Stop, and return when the broker has everything."""
        self._ended.set()
        self._thread.join(90)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Live:
    """What a test has in hand: `group` are the consumers, whom it starts and stops; `producing` goes on meanwhile."""

    def __init__(self, store: str, group: str, consumers: list[AppProcess], producing: Producing) -> None:
        self.store, self.group, self.consumers, self.producing = store, group, consumers, producing

    def start(self) -> None:
        """Start both consumers."""
        for one in self.consumers:
            one.start()

    def stop(self) -> None:
        """Stop both in order: they commit, and leave the group."""
        for one in self.consumers:
            one.stop()

    def processed(self) -> Counter[tuple[int, int]]:
        """Return how often each flight, by partition and offset, was processed, as the consumers' journals say.

        That is twice where a rebalance came between a report and its commit.
        """
        spans = (span for one in self.consumers for batch in one.batches() for span in batch.line.spans)
        return Counter((partition, offset) for partition, first, end in spans for offset in range(first, end))


@contextmanager
def live(bootstrap_servers: str, prefix: str, folder: Path) -> Iterator[Live]:
    """Start the system on topics that exist, with the prefix; yields when all of it works and flights are consumed."""
    topic, spec = f"{prefix}flights", f"local:{folder / 'store.db'}"
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()
    options = {
        "--bootstrap-servers": bootstrap_servers,
        "--topic": topic,
        "--group": topic,
        "--metrics-topic": f"{prefix}metrics",
    }
    consumers = [AppProcess(name, folder, options) for name in ("orders-1", "orders-2")]
    for name in ("ship", "aggregate"):
        (folder / name).mkdir()
    with ExitStack() as stack:
        producing = stack.enter_context(Producing(bootstrap_servers, topic))
        running = Live(spec, topic, consumers, producing)
        for one in consumers:
            stack.callback(one.kill)
        running.start()
        stack.enter_context(_collector(bootstrap_servers, prefix, folder, spec))
        shipping = shipper(bootstrap_servers, prefix, folder / "ship", StoreSettings.parse(spec), "--rows")
        shipped = stack.enter_context(shipping)
        stack.enter_context(aggregator(bootstrap_servers, prefix, folder / "aggregate"))
        wait_until((folder / "ship" / "ready").exists, 300, "the shipper ships")
        assert shipped.poll() is None, (folder / "ship" / "ship.log").read_text()
        yield running


@contextmanager
def _collector(bootstrap_servers: str, prefix: str, folder: Path, spec: str) -> Iterator[None]:
    log, ready = folder / "lag.log", folder / "lag.ready"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command(
                *("lag", "collect", "--bootstrap-servers", bootstrap_servers, "--topic-prefix", prefix),
                *("--store", spec, "--include", f"{prefix}*", "--ready-file", str(ready), *RULES),
            ),
            stdout=output,
            stderr=output,
            env=with_stacks(),
        )
    try:
        wait_until(lambda: ready.exists() or process.poll() is not None, 60, "the lag is collected")
        yield
    finally:
        code = end(process, log, 60)
    assert code == 0, log.read_text()
