"""The local system: broker, aggregator, shipper, lag collector and page, all data in one folder."""

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
from tallystream_cli.local import record
from tallystream_cli.local.component import Broker, Command, Component
from tallystream_cli.local.supervisor import Supervisor, Watched
from tallystream_cli.servers.broker import KafkaBroker
from tallystream_cli.servers.process import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


RECORD = "system.json"
NOT_FOR_COMPONENTS = ("TALLYSTREAM_KAFKA_", "TALLYSTREAM_TOPIC_PREFIX", "TALLYSTREAM_BOOTSTRAP_SERVERS")


@dataclass(frozen=True, slots=True)
class SystemSettings:
    """What may be chosen of the local system.

    `data` holds everything: the broker's records, checkpoints, the local store, logs. A port of 0 takes a free one,
    which then changes from start to start. `store` is None for the local store in `data`. `page` tells whether the page
    and the lag collector run. `own_metrics`: both Spark queries report
    figures of their own.
    """

    data: Path
    broker_port: int = 0
    page_port: int = 0
    store: StoreSettings | None = None
    page: bool = True
    own_metrics: bool = True
    lag_interval_s: float = 2.0
    extra_env: dict[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for option, port in (("--broker-port", self.broker_port), ("--page-port", self.page_port)):
            if not 0 <= port <= 65_535:
                raise ConfigError(option, port, "give a port from 1 to 65535, or 0 for a free one")


class LocalSystem:
    """Runs the system from `start` to `stop`, or as a context manager; `tick` keeps it running and has to be called.

    The components die with the process that started them. One system at a time uses a data folder.
    """

    def __init__(
        self, settings: SystemSettings, *, say: Callable[[str], None], check: Callable[[], None] = lambda: None
    ) -> None:
        # Absolute, so that the record reads the same from everywhere.
        self._settings = settings = replace(settings, data=settings.data.resolve())
        self._say = say
        self._broker = KafkaBroker(
            settings.data / "broker",
            port=settings.broker_port or free_port(),
            # As a broker that was just installed: an application's own topics need no command.
            properties={"auto.create.topics.enable": "true"},
        )
        self._page_port = settings.page_port or free_port()
        self._lock: IO[str] | None = None
        self._up = False
        self._check = check
        self._supervisor = Supervisor(self._components(), say=say, changed=self._write, pause=self._pause)

    @property
    def bootstrap_servers(self) -> str:
        """The broker's address."""
        return self._broker.bootstrap_servers

    @property
    def page_url(self) -> str:
        """The page's address, empty without a page."""
        return f"http://127.0.0.1:{self._page_port}" if self._settings.page else ""

    @property
    def store_spec(self) -> str:
        """The store, in the form that --store takes."""
        store = self._settings.store
        return store.spec if store is not None else f"local:{self._settings.data / 'store.db'}"

    @property
    def watched(self) -> Sequence[Watched]:
        """The components and their states."""
        return self._supervisor.watched

    def start(self) -> Self:
        """Start everything, in order, and return when all of it is up.

        Raises:
            ConfigError: a port is taken, or the data folder can't be used or is another system's.
            StartError: a component did not come up; what had been started is stopped again.
        """
        self._take_lock()
        try:
            self._end_left_over()
            _require_free("--broker-port", self._settings.broker_port)
            _require_free("--page-port", self._settings.page_port if self._settings.page else 0)
            self._supervisor.start(after=self._after)
        except BaseException:
            self.stop()
            raise
        self._up = True
        self._write(self.watched)
        return self

    def tick(self) -> None:
        """Notice what died, and start it again when its pause is over."""
        self._check()
        self._supervisor.tick()

    def _pause(self, seconds: float) -> None:
        self._check()
        time.sleep(seconds)

    def stop(self) -> None:
        """Stop everything, in reverse order; safe to call again."""
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

    def _after(self, name: str) -> None:
        if name == "broker":
            # An application that was waiting for the broker may have had it create `metrics` already.
            create_topics(clients.admin({"bootstrap.servers": self.bootstrap_servers}), Topics(), correct=True)
            self._make_store()

    def _make_store(self) -> None:
        # The page, which begins together with what writes the store, refuses one that is not there.
        store = self._settings.store or StoreSettings("local", str(self._settings.data / "store.db"))
        if store.kind == "local":
            made = open_store(store)
            made.setup()
            made.close()

    def _components(self) -> list[Component]:
        data, servers = self._settings.data, ("--bootstrap-servers", self._broker.bootstrap_servers)
        own = () if self._settings.own_metrics else ("--no-own-metrics",)
        store = ("--store", self.store_spec)
        components: list[Component] = [
            Broker(self._broker),
            self._command("aggregate", *servers, *own, "--checkpoint", str(data / "aggregate")),
            self._command("ship", *servers, *own, *store, "--rows", "--checkpoint", str(data / "ship")),
        ]
        if self._settings.page:
            every = ("--interval", str(self._settings.lag_interval_s))
            components += [
                self._command("lag", "collect", *servers, *store, *every),
                self._command("page", *store, "--port", str(self._page_port)),
            ]
        return components

    def _command(self, name: str, *arguments: str) -> Command:
        data, store = self._settings.data, self._settings.store
        # What the environment says of other brokers is not meant for this one.
        env: dict[str, str | None] = {key: None for key in os.environ if key.startswith(NOT_FOR_COMPONENTS)}
        env |= self._settings.extra_env
        if store is not None and store.kind == "influxdb":  # not on the command line, where everybody may read it
            env |= {"INFLUXDB_TOKEN": store.token, "INFLUXDB_ORG": store.org, "INFLUXDB_BUCKET": store.bucket}
        ready = data / f"{name}.ready"
        return Command(
            name,
            [sys.executable, "-m", "tallystream_cli.main", name, *arguments, "--ready-file", str(ready)],
            log=data / "logs" / f"{name}.log",
            ready=ready,
            env=env,
        )

    def _take_lock(self) -> None:
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
                "another system uses it: end it with down, or name another folder",
            ) from error
        self._lock = lock

    def _end_left_over(self) -> None:
        # Where a killed supervisor's components did not die with it, they would write the same checkpoints.
        before = record.read(self._settings.data / RECORD)
        if before is not None and (ended := record.end_left_over(before)):
            self._say(f"ended {ended} processes that an earlier system had left")

    def _write(self, watched: Sequence[Watched]) -> None:
        me, store = record.process(os.getpid()), self._settings.store
        if me is None:
            raise AssertionError("this process has no ID")
        components = [
            record.ComponentRecord(one.component.name, one.state, one.restarts, record.process(one.component.pid))
            for one in watched
        ]
        record.write(
            self._settings.data / RECORD,
            record.SystemRecord(
                me,
                self.bootstrap_servers,
                self.store_spec,
                page_url=self.page_url,
                org="" if store is None else store.org,
                bucket="" if store is None else store.bucket,
                up=self._up,
                components=components,
            ),
        )


def _require_free(option: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise ConfigError(option, port, f"it is taken ({error.strerror}): give another one, or 0") from error
