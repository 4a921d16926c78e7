"""Which store: `local:PATH` or `influxdb:URL`, and what opens it for writing and for reading."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, Self
from urllib.parse import urlsplit

from tallystream.aggregator.sinks.base import Sink, Thinnable
from tallystream.reporter.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream.aggregator.sinks.base import PointReader

DAY_MS = 86_400_000
REMEDY = "give local:PATH, as in local:./metrics.db, or influxdb:URL, as in influxdb:http://localhost:8086"


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """A store, as `parse` reads it. `where` is a path or a URL. The token is in no representation of it."""

    kind: Literal["local", "influxdb"]
    where: str
    org: str = ""
    bucket: str = ""
    token: str = field(default="", repr=False)
    retention_days: float = 30.0

    @classmethod
    def parse(
        cls,
        spec: str,
        *,
        token: str | None = None,
        org: str | None = None,
        bucket: str | None = None,
        retention_days: float = 30.0,
        env: Mapping[str, str] = os.environ,
    ) -> Self:
        """Return what `spec` names: `local:PATH`, `influxdb:URL`, or `influxdb` with the URL in INFLUXDB_URL.

        What is not given is taken from `env`: INFLUXDB_TOKEN (or the file that INFLUXDB_TOKEN_FILE names),
        INFLUXDB_ORG, INFLUXDB_BUCKET (default "tallystream"). `retention_days` is for the local store; 0 keeps all.

        Raises:
            ConfigError: the form is unknown, or something that InfluxDB needs is missing.
        """
        kind, _, where = spec.partition(":")
        if not 0 <= retention_days < math.inf:
            raise ConfigError("--retention-days", retention_days, "give a number of days, 0 to keep everything")
        if kind == "local" and where:
            return cls("local", where, retention_days=retention_days)
        if kind != "influxdb":
            raise ConfigError("--store", spec, REMEDY)
        url = where or env.get("INFLUXDB_URL", "")
        _require_url(url, spec)
        settings = cls(
            "influxdb",
            url,
            org=org or env.get("INFLUXDB_ORG", ""),
            bucket=bucket or env.get("INFLUXDB_BUCKET", "tallystream"),
            token=token or env.get("INFLUXDB_TOKEN", "") or _token_file(env),
        )
        if not settings.token:
            raise ConfigError("INFLUXDB_TOKEN", "", "set it, or name the token's file in INFLUXDB_TOKEN_FILE")
        if not settings.org:
            raise ConfigError("INFLUXDB_ORG", "", "set it, or give --org")
        return settings

    @property
    def spec(self) -> str:
        """The form that `parse` takes."""
        return f"{self.kind}:{self.where}"


class Store(Sink, Thinnable, Protocol):
    """A sink of which spans can be deleted: what every store is."""


def open_sink(settings: StoreSettings) -> Store:
    """Return the sink of a store; nothing is connected until its first use."""
    if settings.kind == "local":
        from tallystream.aggregator.sinks.local import LocalStore

        return LocalStore(Path(settings.where), retention_ms=int(settings.retention_days * DAY_MS))
    from tallystream.aggregator.sinks.influx import InfluxStore

    return InfluxStore(settings.where, token=settings.token, org=settings.org, bucket=settings.bucket)


def open_reader(settings: StoreSettings) -> PointReader:
    """Return the reader of a store; nothing is connected until its first use."""
    if settings.kind == "local":
        from tallystream.aggregator.sinks.local_reader import LocalReader

        return LocalReader(Path(settings.where))
    from tallystream.aggregator.sinks.influx import InfluxStore

    return InfluxStore(settings.where, token=settings.token, org=settings.org, bucket=settings.bucket)


def _require_url(url: str, spec: str) -> None:
    try:
        parts = urlsplit(url)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, half an IPv6 address
        good, parts = False, urlsplit("")
    if parts.username or parts.password:
        raise ConfigError("--store", "influxdb:***", "leave user and password out: INFLUXDB_TOKEN is the secret")
    if not good:
        raise ConfigError("--store", spec, REMEDY)


def _token_file(env: Mapping[str, str]) -> str:
    path = env.get("INFLUXDB_TOKEN_FILE", "")
    if not path:
        return ""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError("INFLUXDB_TOKEN_FILE", path, f"it can't be read: {error.strerror}") from error
