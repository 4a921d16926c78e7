"""How the tests reach a real InfluxDB: what the fixture `influxdb` gives."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Influx:
    """An InfluxDB that answers; the token is in no representation of it."""

    url: str
    token: str = field(repr=False)
    org: str
    bucket: str
