"""The settings of the dashboards and the alert rules."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Literal, Self, get_args

from tallystream.errors import ConfigError
from tallystream_aggregator.sinks.http import is_http_url

if TYPE_CHECKING:
    from collections.abc import Iterable

Flavour = Literal["flux", "prometheus"]
FLAVOURS: tuple[Flavour, ...] = get_args(Flavour)

_URLS = {"flux": "http://localhost:8086", "prometheus": "http://localhost:9090"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """When the alert rules fire. On the command line, `--threshold lag-seconds=60` sets `lag_seconds`.

    Args:
        silent_instances: fire if this many instances of an app fell silent in the last hour; from 1.
        stopped_minutes: fire if a sum that grew steadily has not grown for this long; from 1.
        lag_seconds: fire if a group's oldest unconsumed record is older than this.
        sink_seconds: fire if the oldest sum that the shipper has not written is older than this.
        dead_letters: fire on more dead letters than this in ten minutes.
        processed_twice: fire on more records processed twice than this.
        lost: fire on more lost records than this.
        aggregator_seconds: fire if no aggregator has worked for this long; from 30.
        collector_seconds: fire if the lag collector has not measured for this long; from 90.

    Raises:
        ConfigError: a number is out of its bounds.
    """

    silent_instances: int = 1
    stopped_minutes: int = 10
    lag_seconds: int = 300
    sink_seconds: int = 120
    dead_letters: int = 0
    processed_twice: int = 0
    lost: int = 0
    aggregator_seconds: int = 120
    collector_seconds: int = 300

    def __post_init__(self) -> None:
        minimums = {"silent_instances": 1, "stopped_minutes": 1, "aggregator_seconds": 30, "collector_seconds": 90}
        for field_ in fields(self):
            value, minimum = getattr(self, field_.name), minimums.get(field_.name, 0)
            if not minimum <= value < 2**31:
                text = f"{field_.name.replace('_', '-')}={value}"
                raise ConfigError("--threshold", text, f"give a number from {minimum} on")

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Self:
        """Return the thresholds of texts such as `lag-seconds=60`, and the defaults of the others.

        Raises:
            ConfigError: there is no such threshold, or a number is out of its bounds.
        """
        known = {one.name.replace("_", "-"): one.name for one in fields(cls)}
        given: dict[str, int] = {}
        for text in texts:
            name, _, number = text.partition("=")
            try:
                given[known[name]] = int(number)
            except (KeyError, ValueError):
                remedy = f"give NAME=NUMBER with one of the names {', '.join(known)}"
                raise ConfigError("--threshold", text, remedy) from None
        return cls(**given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is generated, and for which data source.

    Args:
        flavour: "flux" for InfluxDB 2.x, or "prometheus".
        bucket: InfluxDB's bucket.
        datasource_uid: the data source's uid in Grafana; empty: that of the generated data source.
        datasource_url: the store's URL for Grafana; empty: its usual port on localhost.
        org: InfluxDB's organization.
        dashboards_path: the folder of the dashboards' files for Grafana.
        thresholds: when the alert rules fire.
        folder_title: the folder of the dashboards and rules.
        uid_prefix: the prefix of every uid; two systems in one Grafana need different ones.
        runbook_url: the page that the alerts link to; the anchor is the end of the rule's uid.

    Raises:
        ConfigError: a setting can't be used.
    """

    flavour: Flavour = "flux"
    bucket: str = "tallystream"
    datasource_uid: str = ""
    datasource_url: str = ""
    org: str = "tallystream"
    dashboards_path: str = "/var/lib/grafana/dashboards/tallystream"
    thresholds: Thresholds = field(default_factory=Thresholds)
    folder_title: str = "Tallystream"
    uid_prefix: str = "tallystream"
    runbook_url: str = "docs/runbook.md"

    def __post_init__(self) -> None:
        if self.flavour not in FLAVOURS:
            raise ConfigError("--flavour", self.flavour, f"give {' or '.join(FLAVOURS)}")
        # Grafana limits a uid to 40 characters; the longest name after the prefix has 25 with its hyphen.
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,15}", self.uid_prefix):
            raise ConfigError("--uid-prefix", self.uid_prefix, "give 1 to 15 letters, digits, _ or -")
        if not self.folder_title.strip():
            raise ConfigError("--folder", self.folder_title, "give the folder a title")
        if not self.bucket or not self.org:
            option = "--org" if self.bucket else "--bucket"
            raise ConfigError(option, "", "give the name that it has in InfluxDB")
        url = self.datasource_url
        if url and not url.startswith("$") and not is_http_url(url):
            raise ConfigError("--datasource-url", url, "give a URL, as in http://influxdb:8086")

    @property
    def url(self) -> str:
        """The data source's URL."""
        return self.datasource_url or _URLS[self.flavour]

    @property
    def source_uid(self) -> str:
        """The data source's uid."""
        return self.datasource_uid or f"{self.uid_prefix}-{self.flavour}"
