"""Opens the store that --store names, as in `local:PATH`, `influxdb:URL`, `otlp:URL` or `prometheus:PORT`."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self
from urllib.parse import urlsplit

from tallystream.errors import ConfigError
from tallystream.validation import header_token
from tallystream_aggregator.sinks.http import (
    OTLP_HEADERS,
    certificates,
    otlp_headers,
    otlp_option,
    otlp_sends_buckets,
    require_url,
    secret_file,
    split_url,
)
from tallystream_aggregator.times import DAY_MS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream_aggregator.sinks.base import Sink, Store

LOOPBACK = "127.0.0.1"
REMEDY = (
    "give local:PATH, as in local:./metrics.db, influxdb:URL, as in influxdb:http://localhost:8086, "
    "otlp:URL, as in otlp:http://localhost:4318, or prometheus:PORT, as in prometheus:9464"
)


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The settings of a store. `where` is a path, a URL or an address. The `repr` has no secrets.

    `ca_file` has the CA certificates that verify the server of InfluxDB or OTLP; if it is empty, the system's are used.
    `headers` are sent with each request to an OTLP receiver. With `buckets`, it gets histograms with exponential
    buckets.
    """

    kind: Literal["local", "influxdb", "otlp", "prometheus"]
    where: str
    org: str = ""
    bucket: str = ""
    token: str = field(default="", repr=False)
    retention_days: float = 30.0
    ca_file: str = ""
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    buckets: bool = False

    @classmethod
    def parse(cls, spec: str, *, retention_days: float = 30.0, env: Mapping[str, str] | None = None) -> Self:
        """Return the settings of the store that `spec` names.

        `spec` is `local:PATH`, `influxdb:URL`, `influxdb` with the URL in INFLUXDB_URL, `otlp:URL`, or
        `prometheus:HOST:PORT`, whose default host is 127.0.0.1.

        Other settings of InfluxDB are read from `env`, by default the process's environment: INFLUXDB_TOKEN (or the
        file that INFLUXDB_TOKEN_FILE names), INFLUXDB_ORG, INFLUXDB_BUCKET (default "tallystream"), INFLUXDB_CA_FILE.
        The headers and CA certificates for an OTLP receiver are in
        OTEL_EXPORTER_OTLP_HEADERS and OTEL_EXPORTER_OTLP_CERTIFICATE, and
        OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION chooses `buckets`. `retention_days` applies to the
        local store; 0 keeps all points.

        Raises:
            ConfigError: a value can't be used, or a setting of InfluxDB is missing.
        """
        env = os.environ if env is None else env
        kind, _, where = spec.partition(":")
        if not 0 <= retention_days < math.inf:
            raise ConfigError("--retention-days", retention_days, "give a number of days, 0 to keep everything")
        if kind == "local" and where:
            return cls("local", where, retention_days=retention_days)
        if kind == "prometheus":
            address = where if ":" in where else f"{LOOPBACK}:{where}"
            parts = split_url(f"//{address}")
            if parts is None or parts.netloc != address or parts.port is None or "@" in address:
                raise ConfigError("--store", spec, REMEDY)
            return cls("prometheus", address)
        if kind == "otlp":
            require_url(where, spec, REMEDY, variable=OTLP_HEADERS)
            ca_file = certificates("OTEL_EXPORTER_OTLP_CERTIFICATE", otlp_option("CERTIFICATE", env))
            return cls("otlp", where, ca_file=ca_file, headers=otlp_headers(env), buckets=otlp_sends_buckets(env))
        if kind != "influxdb":
            raise ConfigError("--store", spec, REMEDY)
        url = where or env.get("INFLUXDB_URL", "")
        require_url(url, spec, REMEDY, variable="INFLUXDB_TOKEN")
        settings = cls(
            "influxdb",
            url,
            org=env.get("INFLUXDB_ORG", ""),
            bucket=env.get("INFLUXDB_BUCKET", "tallystream"),
            token=header_token("INFLUXDB_TOKEN", env.get("INFLUXDB_TOKEN", ""))
            or header_token("INFLUXDB_TOKEN", secret_file("INFLUXDB_TOKEN_FILE", env)),
            ca_file=certificates("INFLUXDB_CA_FILE", env.get("INFLUXDB_CA_FILE", "")),
        )
        if not settings.token:
            raise ConfigError("INFLUXDB_TOKEN", "", "set it, or name the token's file in INFLUXDB_TOKEN_FILE")
        if not settings.org:
            raise ConfigError("INFLUXDB_ORG", "", "set it to the organization of the bucket")
        return settings

    @property
    def spec(self) -> str:
        """The store in the form that `parse` reads."""
        return f"{self.kind}:{self.where}"

    @property
    def numbers_only(self) -> bool:
        """Whether it stores only numbers, and so no events."""
        return self.kind in ("otlp", "prometheus")

    def require_readable(self) -> Self:
        """Return the settings if Tallystream can read the store.

        Raises:
            ConfigError: Tallystream can only write to the store.
        """
        if self.numbers_only:
            raise ConfigError("--store", self.spec, "only ship writes there: give local:PATH or influxdb:URL here")
        return self


def open_sink(settings: StoreSettings) -> Sink:
    """Return the sink of a store. It connects at its first use."""
    if settings.kind == "otlp":
        from tallystream_aggregator.sinks.otlp.sink import OtlpSink

        return OtlpSink(settings.where, headers=settings.headers, ca_file=settings.ca_file, buckets=settings.buckets)
    if settings.kind == "prometheus":
        from tallystream_aggregator.sinks.prometheus.sink import PrometheusSink

        address = urlsplit(f"//{settings.where}")
        return PrometheusSink(address.hostname or "", address.port or 0)
    return open_store(settings)


def open_store(settings: StoreSettings, *, lag: bool = False) -> Store:
    """Return a store that can be read and written. It connects at its first use.

    With `lag` the retention of the local store applies to lag, otherwise to everything else.

    Raises:
        ConfigError: the store can't be read.
    """
    if settings.kind == "local":
        from tallystream_aggregator.sinks.sqlite.sink import LocalStore

        return LocalStore(Path(settings.where), retention_ms=int(settings.retention_days * DAY_MS), lag=lag)
    settings.require_readable()
    from tallystream_aggregator.sinks.influxdb.sink import InfluxStore

    return InfluxStore(
        settings.where,
        token=settings.token,
        org=settings.org,
        bucket=settings.bucket,
        ca_file=settings.ca_file,
    )
