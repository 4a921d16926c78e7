"""A running system on the shared broker: a producer, two consumers that report, aggregator, shipper, lag collector."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Self

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from support.aggregator import running_aggregator
from support.commands import running
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
"""A group is stopped after half the window without progress: within seconds. A busy machine lags by less than 500."""


class EventProducer:
    """Produces 200 flights a second from its start to its stop; `sent` counts those that the broker acknowledged."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True})
        self._events = itertools.cycle(events.read_events(1000))
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="event-producer")
        self.sent = 0

    def _run(self) -> None:
        while not self._stopped.wait(0.1):
            for key, value in itertools.islice(self._events, 20):
                self._producer.produce(self._topic, key=key, value=value, on_delivery=self._delivered)
            self._producer.poll(0)
        assert self._producer.flush(60) == 0

    def _delivered(self, error: object, _message: object) -> None:
        assert error is None, error
        self.sent += 1

    def stop(self) -> None:
        """Stop, and return when all are acknowledged."""
        self._stopped.set()
        self._thread.join(90)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class LiveSystem:
    """The parts that a test controls: the two `consumers` of the group, and the `producer`."""

    def __init__(self, store: str, group: str, consumers: list[AppProcess], producer: EventProducer) -> None:
        self.store, self.group, self.consumers, self.producer = store, group, consumers, producer

    def start(self) -> None:
        """Start both consumers."""
        for one in self.consumers:
            one.start()

    def stop(self) -> None:
        """Stop both consumers: they commit, and leave the group."""
        for one in self.consumers:
            one.stop()

    def processed(self) -> Counter[tuple[int, int]]:
        """Return how often each flight, by partition and offset, was processed, by the consumers' journals.

        A flight is processed twice if a rebalance comes between a report and its commit.
        """
        spans = (span for one in self.consumers for batch in one.batches() for span in batch.line.spans)
        return Counter((partition, offset) for partition, first, end in spans for offset in range(first, end))


@contextmanager
def running_system(bootstrap_servers: str, prefix: str, folder: Path) -> Iterator[LiveSystem]:
    """Start the system on existing topics with the prefix; yields when flights are consumed and every part runs."""
    topic, spec = f"{prefix}flights", f"local:{folder / 'store.db'}"
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()
    options = (
        *("--bootstrap-servers", bootstrap_servers, "--topic", topic),
        *("--group", topic, "--metrics-topic", f"{prefix}metrics"),
    )
    consumers = [AppProcess(name, folder, options) for name in ("orders-1", "orders-2")]
    for name in ("ship", "aggregate"):
        (folder / name).mkdir()
    with ExitStack() as stack:
        system = LiveSystem(spec, topic, consumers, stack.enter_context(EventProducer(bootstrap_servers, topic)))
        for one in consumers:
            stack.callback(one.kill)
        system.start()
        stack.enter_context(_lag_collector(bootstrap_servers, prefix, folder, spec))
        shipping = stack.enter_context(
            shipper(bootstrap_servers, prefix, folder / "ship", StoreSettings.parse(spec), "--rows")
        )
        stack.enter_context(running_aggregator(bootstrap_servers, prefix, folder / "aggregate"))
        wait_until((folder / "ship" / "ready").exists, 300, "the shipper ships")
        assert shipping.poll() is None, (folder / "ship" / "ship.log").read_text()
        yield system


@contextmanager
def _lag_collector(bootstrap_servers: str, prefix: str, folder: Path, spec: str) -> Iterator[None]:
    log, ready = folder / "lag.log", folder / "lag.ready"
    where = ("--bootstrap-servers", bootstrap_servers, "--store", spec)
    options = ("--include", f"{prefix}*", "--ready-file", str(ready), *RULES)
    with running(log, "lag", "collect", *where, *options, timeout=60) as process:
        wait_until(lambda: ready.exists() or process.poll() is not None, 60, "lag is collected")
        yield
    assert process.returncode == 0, log.read_text()
