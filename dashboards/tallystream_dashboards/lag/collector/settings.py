"""Settings of `tallystream lag collect`."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from tallystream.errors import ConfigError
from tallystream_aggregator.kafka.lease import GROUP as LEASE
from tallystream_dashboards.lag.status import Rules

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tallystream_aggregator.sinks.stores import StoreSettings


@dataclass(frozen=True, slots=True)
class Patterns:
    """Shell patterns (`*`, `?`, `[a-z]`) of whole group names, case-sensitive. Exclusion takes precedence."""

    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()

    def match(self, group: str) -> bool:
        """Return whether `group` is collected."""
        included = any(fnmatchcase(group, pattern) for pattern in self.include)
        return included and not any(fnmatchcase(group, pattern) for pattern in self.exclude)


MIN_INTERVAL, MAX_INTERVAL = 1.0, 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectSettings:
    """Settings of `tallystream lag collect`.

    Args:
        store: the store that the points are written to.
        bootstrap_servers: the brokers, `host:port,…`.
        interval: seconds between rounds, 1 to 60.
        include: shell patterns of the group names to collect.
        exclude: shell patterns of the group names to leave out, which take precedence over `include`.
        rules: the rules of the statuses.
        assigned_only: leave out topics of which no member has a partition, if the group's members have others.
        full_hours: older history is downsampled to one round in five minutes; 0 keeps every round.
        http_port: the port of `/metrics`, `/v1/…`, `/healthz` and `/readyz`; 0: a free one; None: none.
        port_option: the option that gave the port, for an error.
        http_address: the address to serve them on; they have no password.
        options: librdkafka options, passed on unchanged; they may have secrets and are never shown.
        ready_file: a file that is created when a round has been written to the store.

    Raises:
        ConfigError: a number is out of its bounds, or `include` is empty.
    """

    store: StoreSettings
    bootstrap_servers: str = "localhost:9092"
    interval: float = 2.0
    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    rules: Rules = field(default_factory=Rules)
    assigned_only: bool = False
    full_hours: float = 24.0
    http_port: int | None = None
    port_option: str = "--http-port"
    http_address: str = "127.0.0.1"
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    ready_file: Path | None = None

    @property
    def patterns(self) -> Patterns:
        """The groups to collect, without the aggregators' lease, which reads no records."""
        return Patterns(self.include, (*self.exclude, f"*{LEASE}"))

    def __post_init__(self) -> None:
        if not MIN_INTERVAL <= self.interval <= MAX_INTERVAL:
            raise ConfigError("--interval", self.interval, "give seconds from 1 to 60")
        if not self.include:
            raise ConfigError("--include", self.include, 'give at least one pattern, such as "*"')
        if not 0 <= self.full_hours < math.inf:
            raise ConfigError("--full-hours", self.full_hours, "give hours, 0 to keep every round")
