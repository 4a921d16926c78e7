"""The local system: broker, aggregator and page, with all data in one folder."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

import psutil

from tallystream.errors import ConfigError
from tallystream_aggregator import files
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.topics import Topics, create_topics
from tallystream_aggregator.sinks.stores import StoreSettings, open_store
from tallystream_cli.local import state_file
from tallystream_cli.local.supervisor import Command, Supervisor
from tallystream_cli.servers import jars
from tallystream_cli.servers.broker import KafkaBroker
from tallystream_cli.servers.process import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tallystream_cli.local.supervisor import Watched
    from tallystream_cli.servers.process import Server

TICK_S = 0.2

NOT_FOR_COMPONENTS = ("TALLYSTREAM_KAFKA_", "TALLYSTREAM_TOPIC_PREFIX", "TALLYSTREAM_BOOTSTRAP_SERVERS")
"""Variables (or their prefixes) that describe another cluster."""


@contextmanager
def interruptible() -> Iterator[Callable[[], None]]:
    """Handle the signals inside the block: yield a function that raises KeyboardInterrupt after the first of them.

    A stop that does not call it is not cut short by later signals. An ignored SIGHUP stays ignored: with nohup, the
    process runs on when its terminal is closed. Only the main thread may call this.
    """
    received: list[int] = []

    def check() -> None:
        if received:
            raise KeyboardInterrupt

    handled = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        handled.append(signal.SIGHUP)
    before = {number: signal.signal(number, lambda number, _frame: received.append(number)) for number in handled}
    try:
        yield check
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class LocalSystem:
    """Runs the system from `start` to `stop`. The caller calls `run`, or `tick` several times a second.

    The components are killed when the process that started them ends. A data folder is used by one system at a time.

    Args:
        data: the folder for everything: the broker's data, the aggregator's checkpoint, the local store, logs.
        say: gets a sentence for each event.
        check: is called while the system waits, and raises to interrupt it.
        broker_port, page_port: 0 selects a free port.
        store: None for the local store in `data`.
        page: whether the page runs, and the aggregator collects the lag for it.
        own_metrics: whether the aggregator reports internal metrics.
        otlp_topics: the topics of OpenTelemetry metrics that the aggregator reads.
    """

    def __init__(
        self,
        data: Path,
        *,
        say: Callable[[str], None],
        check: Callable[[], None] = lambda: None,
        broker_port: int = 0,
        page_port: int = 0,
        store: StoreSettings | None = None,
        page: bool = True,
        own_metrics: bool = True,
        otlp_topics: Sequence[str] = (),
    ) -> None:
        self._data = data = data.resolve()  # so that the state file is valid in any working directory
        self._say, self._check = say, check
        self._given_ports = {"--broker-port": broker_port, "--page-port": page_port if page else 0}
        self._page, self._own_metrics, self._otlp_topics = page, own_metrics, tuple(otlp_topics)
        self._broker = KafkaBroker(
            data / "broker",
            port=broker_port,
            # A heap that starts small, and the collector that keeps it so.
            java_options=("-XX:+UseSerialGC", "-Xms64m"),
            # Applications need not create their topics. An application that waits may make the broker create `metrics`.
            properties={
                "auto.create.topics.enable": "true",
                "log.message.timestamp.type": "LogAppendTime",
                # The map of the log cleaner: Kafka's 128 MB, allocated at the start, are for five million keys.
                "log.cleaner.dedupe.buffer.size": str(32 << 20),
            },
            env={state_file.FOLDER_ENV: str(data)},
        )
        self._store = store or StoreSettings("local", str(data / "store.db"))
        self._page_port, self._api_port = page_port or free_port(), free_port()
        self._lock: IO[bytes] | None = None
        self._up = False
        self._supervisor = Supervisor(self._components(), say=say, on_change=self._write_state, sleep=self._sleep)

    @property
    def bootstrap_servers(self) -> str:
        """The broker's address."""
        return self._broker.bootstrap_servers

    @property
    def page_url(self) -> str:
        """The page's URL, empty if there is no page."""
        return f"http://127.0.0.1:{self._page_port}" if self._page else ""

    @property
    def api_url(self) -> str:
        """The URL below which the aggregator's lag collector serves `/v1/…`, empty if there is no collector."""
        return f"http://127.0.0.1:{self._api_port}" if self._page else ""

    @property
    def store_spec(self) -> str:
        """The store, as a value of --store."""
        return self._store.spec

    @property
    def watched(self) -> Sequence[Watched]:
        """The components with their states."""
        return self._supervisor.watched

    def start(self) -> None:
        """Start everything in order and return when all of it is up. After an error, nothing runs.

        Raises:
            ConfigError: a port is taken, or the data folder can't be used, or another system uses it.
            StartError: a component did not start.
        """
        self._lock_folder()
        try:
            self._write_state()
            if killed := state_file.kill_remaining(self._data):
                self._say(f"processes of an earlier system killed: {killed}")
            for option, port in self._given_ports.items():
                _require_free(option, port)
            if jars.missing(self._broker.jars):
                self._say("the broker's jars are downloaded, once: this takes a minute or more")
            self._supervisor.start(self.watched[:1])
            self._prepare()
            self._supervisor.start(self.watched[1:])
        except BaseException:
            self.stop()
            self._check()  # Ctrl-C in a terminal ends a download, too, whose error is of no interest then
            raise
        self._up = True
        self._write_state()

    def tick(self) -> None:
        """Restart the components that died, each after its pause."""
        self._check()
        self._supervisor.tick()

    def run(self) -> None:
        """Restart the components that die, until `check` raises."""
        while True:
            self.tick()
            time.sleep(TICK_S)

    def _sleep(self, seconds: float) -> None:
        self._check()
        time.sleep(seconds)

    def stop(self) -> None:
        """Stop everything in reverse order. May be called again."""
        if self._lock is not None:
            self._say("stopping")
        self._up = False
        self._supervisor.stop()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _prepare(self) -> None:
        """Create what the other components need: the topics, and the store, as the page refuses one that is missing."""
        topics = Topics(otlp=self._otlp_topics)
        create_topics(clients.admin({"bootstrap.servers": self.bootstrap_servers}), topics)
        if self._store.kind == "local":
            store = open_store(self._store)
            store.setup()
            store.close()

    def _components(self) -> list[Server]:
        data, servers = self._data, ("--bootstrap-servers", self._broker.bootstrap_servers)
        own = () if self._own_metrics else ("--no-own-metrics",)
        store = ("--store", self.store_spec)
        otlp = tuple(text for topic in self._otlp_topics for text in ("--otlp-topic", topic))
        lag = ("--lag-port", str(self._api_port)) if self._page else ()
        aggregate = (*servers, *own, *otlp, "--checkpoint", str(data / "aggregate"), *store, "--rows", *lag)
        components: list[Server] = [self._broker, self._command("aggregate", *aggregate)]
        if self._page:
            components.append(self._command("page", *store, "--port", str(self._page_port)))
        return components

    def _command(self, name: str, *arguments: str) -> Command:
        data, store = self._data, self._store
        env: dict[str, str | None] = {key: None for key in os.environ if key.startswith(NOT_FOR_COMPONENTS)}
        env[state_file.FOLDER_ENV] = str(data)
        if store.kind == "influxdb":  # every user can read a command line
            env |= {"INFLUXDB_TOKEN": store.token, "INFLUXDB_ORG": store.org, "INFLUXDB_BUCKET": store.bucket}
        ready_file = data / f"{name}.ready"
        return Command(
            name,
            [sys.executable, "-m", "tallystream_cli.main", name, *arguments, "--ready-file", str(ready_file)],
            log=data / "logs" / f"{name}.log",
            ready_file=ready_file,
            env=env,
        )

    def _lock_folder(self) -> None:
        try:
            files.make_folder(self._data)
            files.restrict(self._data, files.FOLDER)
            self._lock = state_file.lock(self._data)
        except BlockingIOError as error:
            raise ConfigError(
                "--data",
                str(self._data),
                "another system uses it: stop it with tallystream down, or name another folder",
            ) from error
        except OSError as error:
            raise ConfigError("--data", str(self._data), f"the system reports: {error.strerror}") from error

    def _write_state(self) -> None:
        components = [
            state_file.ComponentState(one.component.name, one.state, one.restarts, one.component.pid)
            for one in self.watched
        ]
        state = state_file.SystemState(
            os.getpid(),
            psutil.Process().create_time(),
            self.bootstrap_servers,
            self.store_spec,
            page_url=self.page_url,
            api_url=self.api_url,
            org=self._store.org,
            bucket=self._store.bucket,
            up=self._up,
            components=components,
        )
        try:
            state_file.write(self._data, state)
        except OSError as error:  # as on a full disk, which must not end an orderly stop
            path = self._data / state_file.NAME
            self._say(f"{path} can't be written ({error.strerror}): correct that; the next change writes it again")


def _require_free(option: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            reason = f"it can't be opened ({error.strerror}): give another port, or 0"
            raise ConfigError(option, port, reason) from error
