"""The local system: broker, aggregator, shipper, lag collector and page, with all data in one folder."""

from __future__ import annotations

import fcntl
import os
import socket
import sys
import time
from dataclasses import dataclass, field, replace
from typing import IO, TYPE_CHECKING, Self

from tallystream.errors import ConfigError
from tallystream_aggregator import files
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.topics import Topics, create_topics
from tallystream_aggregator.sinks.stores import StoreSettings, open_store
from tallystream_cli.local import state_file
from tallystream_cli.local.component import Command, Component
from tallystream_cli.local.supervisor import Supervisor, Watched
from tallystream_cli.servers.broker import KafkaBroker
from tallystream_cli.servers.process import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

NOT_FOR_COMPONENTS = ("TALLYSTREAM_KAFKA_", "TALLYSTREAM_TOPIC_PREFIX", "TALLYSTREAM_BOOTSTRAP_SERVERS")
"""Variables (or their prefixes) that describe another cluster."""


@dataclass(frozen=True, slots=True)
class SystemSettings:
    """The settings of a local system.

    Attributes:
        data: the folder for everything: the broker's data, the aggregator's checkpoint, the local store, logs.
        broker_port: 0 selects a free port at each start.
        page_port: the same for the page.
        store: None for the local store in `data`.
        page: whether the page and the lag collector run.
        own_metrics: whether aggregator and shipper report internal metrics.
        otlp_topics: the topics of OpenTelemetry metrics that the aggregator reads.
        lag_interval_s: the interval of the lag collector.
        extra_env: added to the environment of the commands.

    Raises:
        ConfigError: there is no such port.
    """

    data: Path
    broker_port: int = 0
    page_port: int = 0
    store: StoreSettings | None = None
    page: bool = True
    own_metrics: bool = True
    otlp_topics: tuple[str, ...] = ()
    lag_interval_s: float = 2.0
    extra_env: dict[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for option, port in (("--broker-port", self.broker_port), ("--page-port", self.page_port)):
            if not 0 <= port <= 65_535:
                raise ConfigError(option, port, "give a port from 1 to 65535, or 0 for a free one")
        if self.page and self.page_port == self.broker_port != 0:
            raise ConfigError("--page-port", self.page_port, "the broker has this port: give another one, or 0")


class LocalSystem:
    """Runs the system from `start` to `stop`, or as a context manager. The caller calls `tick` several times a second.

    The components are killed when the process that started them ends. A data folder is used by one system at a time.
    `say` gets a sentence for each event. `check` is called while the system waits, and raises to interrupt it.
    """

    def __init__(
        self, settings: SystemSettings, *, say: Callable[[str], None], check: Callable[[], None] = lambda: None
    ) -> None:
        # Absolute, so that the state file is valid in any working directory.
        self._settings = settings = replace(settings, data=settings.data.resolve())
        self._say = say
        self._broker = KafkaBroker(
            settings.data / "broker",
            port=settings.broker_port or free_port(),
            # Applications need not create their topics. An application that waits may make the broker create `metrics`.
            properties={"auto.create.topics.enable": "true", "log.message.timestamp.type": "LogAppendTime"},
        )
        self._page_port = settings.page_port or free_port()
        self._lock: IO[str] | None = None
        self._up = False
        self._check = check
        self._supervisor = Supervisor(self._components(), say=say, on_change=self._write_state, sleep=self._sleep)

    @property
    def bootstrap_servers(self) -> str:
        """The broker's address."""
        return self._broker.bootstrap_servers

    @property
    def page_url(self) -> str:
        """The page's URL, empty if there is no page."""
        return f"http://127.0.0.1:{self._page_port}" if self._settings.page else ""

    @property
    def store_spec(self) -> str:
        """The store, as a value of --store."""
        store = self._settings.store
        return store.spec if store is not None else f"local:{self._settings.data / 'store.db'}"

    @property
    def watched(self) -> Sequence[Watched]:
        """The components with their states."""
        return self._supervisor.watched

    def start(self) -> Self:
        """Start everything in order and return when all of it is up. After an error, nothing runs.

        Raises:
            ConfigError: a port is taken, or the data folder can't be used, or another system uses it.
            StartError: a component did not start.
        """
        self._lock_folder()
        try:
            self._kill_remaining()
            _require_free("--broker-port", self._settings.broker_port)
            _require_free("--page-port", self._settings.page_port if self._settings.page else 0)
            self._supervisor.start(on_ready=self._on_ready)
        except BaseException:
            self.stop()
            raise
        self._up = True
        self._write_state(self.watched)
        return self

    def tick(self) -> None:
        """Restart the components that died, each after its pause."""
        self._check()
        self._supervisor.tick()

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

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _on_ready(self, name: str) -> None:
        if name == "broker":
            topics = Topics(otlp=self._settings.otlp_topics)
            create_topics(clients.admin({"bootstrap.servers": self.bootstrap_servers}), topics)
            self._create_store()

    def _create_store(self) -> None:
        # The page starts together with the writers of the store, and refuses a store that does not exist.
        settings = self._settings.store or StoreSettings("local", str(self._settings.data / "store.db"))
        if settings.kind == "local":
            store = open_store(settings)
            store.setup()
            store.close()

    def _components(self) -> list[Component]:
        data, servers = self._settings.data, ("--bootstrap-servers", self._broker.bootstrap_servers)
        own = () if self._settings.own_metrics else ("--no-own-metrics",)
        store = ("--store", self.store_spec)
        otlp = tuple(text for topic in self._settings.otlp_topics for text in ("--otlp-topic", topic))
        components: list[Component] = [
            self._broker,
            self._command("aggregate", *servers, *own, *otlp, "--checkpoint", str(data / "aggregate")),
            self._command("ship", *servers, *own, *store, "--rows"),
        ]
        if self._settings.page:
            interval = ("--interval", str(self._settings.lag_interval_s))
            components += [
                self._command("lag", "collect", *servers, *store, *interval),
                self._command("page", *store, "--port", str(self._page_port)),
            ]
        return components

    def _command(self, name: str, *arguments: str) -> Command:
        data, store = self._settings.data, self._settings.store
        env: dict[str, str | None] = {key: None for key in os.environ if key.startswith(NOT_FOR_COMPONENTS)}
        env |= self._settings.extra_env
        if store is not None and store.kind == "influxdb":  # every user can read a command line
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
            files.make_folder(self._settings.data)
            files.restrict(self._settings.data, files.FOLDER)
            lock = (self._settings.data / "lock").open("w", encoding="ascii")
        except OSError as error:
            raise ConfigError("--data", str(self._settings.data), f"the system reports: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.close()
            raise ConfigError(
                "--data",
                str(self._settings.data),
                "another system uses it: stop it with tallystream down, or name another folder",
            ) from error
        self._lock = lock

    def _kill_remaining(self) -> None:
        # If components survived a killed supervisor, they would use the same checkpoints as the new ones.
        state = state_file.read(self._settings.data / state_file.NAME)
        if state is not None and (killed := state_file.kill_remaining(state)):
            self._say(f"killed {killed} processes of an earlier system")

    def _write_state(self, watched: Sequence[Watched]) -> None:
        this_process, store = state_file.find_process(os.getpid()), self._settings.store
        if this_process is None:
            raise AssertionError("the system does not list this process")
        components = [
            state_file.ComponentState(
                one.component.name, one.state, one.restarts, state_file.find_process(one.component.pid)
            )
            for one in watched
        ]
        state = state_file.SystemState(
            this_process,
            self.bootstrap_servers,
            self.store_spec,
            page_url=self.page_url,
            org="" if store is None else store.org,
            bucket="" if store is None else store.bucket,
            up=self._up,
            components=components,
        )
        path = self._settings.data / state_file.NAME
        try:
            state_file.write(path, state)
        except OSError as error:  # as on a full disk, which must not end an orderly stop
            self._say(f"{path} can't be written ({error.strerror}): correct that; the next change writes it again")


def _require_free(option: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            reason = f"it can't be opened ({error.strerror}): give another port, or 0"
            raise ConfigError(option, port, reason) from error
