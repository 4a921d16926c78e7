"""What `tallystream lag collect` is told."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from tallystream.errors import ConfigError
from tallystream_dashboards.lag.status import Rules

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tallystream_aggregator.sinks.stores import StoreSettings


@dataclass(frozen=True, slots=True)
class Patterns:
    """Shell patterns (`*`, `?`, `[a-z]`) over whole group names, case-sensitive; an exclusion beats an inclusion."""

    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()

    def match(self, group: str) -> bool:
        """Say whether `group` is to be watched."""
        wanted = any(fnmatchcase(group, pattern) for pattern in self.include)
        return wanted and not any(fnmatchcase(group, pattern) for pattern in self.exclude)


MIN_INTERVAL, MAX_INTERVAL = 1.0, 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectSettings:
    """What `tallystream lag collect` needs.

    Args:
        store: where the points go.
        bootstrap_servers: the brokers, `host:port,…`.
        topic_prefix: goes before the name of the ledger's topic, and of Tallystream's own groups.
        interval: seconds between rounds, 1 to 60.
        include: shell patterns of the group names to watch.
        exclude: shell patterns of the group names to leave out; an exclusion beats an inclusion.
        rules: how strict to be.
        record_timestamps: read the oldest unconsumed record of each lagging partition for its timestamp.
        full_hours: history older than that keeps one round in five minutes; 0 keeps every round.
        http_port: serve `/metrics`, `/v1/groups`, `/healthz` and `/readyz`; 0 takes a free one, None serves nothing.
        http_address: the address to serve them on; they have no password.
        options: librdkafka options, passed through; they may hold secrets and are never shown.
        ready_file: a file that is made as soon as a round has gone through to the store.

    Raises:
        ConfigError: the interval is out of its bounds, or `include` is empty.
    """

    store: StoreSettings
    bootstrap_servers: str = "localhost:9092"
    topic_prefix: str = ""
    interval: float = 2.0
    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    rules: Rules = field(default_factory=Rules)
    record_timestamps: bool = False
    full_hours: float = 24.0
    http_port: int | None = None
    http_address: str = "127.0.0.1"
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    ready_file: Path | None = None

    def __post_init__(self) -> None:
        if not MIN_INTERVAL <= self.interval <= MAX_INTERVAL:
            raise ConfigError("--interval", self.interval, "give seconds from 1 to 60")
        if not self.include:
            raise ConfigError("--include", self.include, 'give at least one pattern, such as "*"')
        if not 0 <= self.full_hours < math.inf:
            raise ConfigError("--full-hours", self.full_hours, "give hours, 0 to keep every round")
        self.rules.check()
