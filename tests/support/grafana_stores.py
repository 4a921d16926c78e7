"""Asking the stores as Grafana asks them: Flux, InfluxQL on the compatible /query, and Prometheus' HTTP API."""

from __future__ import annotations

import json
import subprocess
import urllib.parse
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from support.prometheus import Prometheus

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tallystream_aggregator.sinks.stores import StoreSettings

Row = dict[str, Any]


def flux(store: StoreSettings, text: str) -> list[Row]:
    """Return the rows of all tables of a Flux answer."""
    from influxdb_client import InfluxDBClient

    with InfluxDBClient(url=store.where, token=store.token, org=store.org) as client:
        tables = client.query_api().query(text)
    return [dict(record.values) for table in tables for record in table.records]


def influxql(store: StoreSettings, text: str) -> list[Row]:
    """Return the rows of all series of an InfluxQL answer, each with its series' tags.

    InfluxDB maps each bucket to a database of its name, unless there is another mapping of that database.
    """
    form = urllib.parse.urlencode({"db": store.bucket, "q": text, "epoch": "ms"}).encode()
    asked = urllib.request.Request(f"{store.where}/query", form, {"Authorization": f"Token {store.token}"})
    with urllib.request.urlopen(asked, timeout=30) as answer:
        (result,) = json.load(answer)["results"]
    assert "error" not in result, (result, text)
    return [
        {"name": series.get("name"), **series.get("tags", {}), **dict(zip(series["columns"], values, strict=True))}
        for series in result.get("series", [])
        for values in series["values"]
    ]


@contextmanager
def prometheus(folder: Path, scrapes: list[tuple[int, str]]) -> Iterator[str]:
    """Run a real Prometheus whose past are these scrapes (epoch ms, text) until the block ends; yields its URL."""
    (folder / "past.txt").write_text(open_metrics(scrapes), encoding="utf-8")
    made = [
        "promtool",
        "tsdb",
        "create-blocks-from",
        "openmetrics",
        "-q",
        str(folder / "past.txt"),
        str(folder / "data"),
    ]
    done = subprocess.run(made, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    with Prometheus(folder) as running:
        yield running.url


def open_metrics(scrapes: list[tuple[int, str]]) -> str:
    """Return scrapes as OpenMetrics with times, series by series: what promtool takes as the past."""
    lines: dict[str, list[str]] = {}
    for ts_ms, text in scrapes:
        for line in text.splitlines():
            if not line.startswith("#"):
                name = line.partition("{")[0].partition(" ")[0]
                lines.setdefault(name, []).append(f"{line} {ts_ms / 1000}")
    return "\n".join([*(line for found in lines.values() for line in found), "# EOF", ""])


def promql(url: str, text: str, *, at_ms: int) -> list[Row]:
    """Return the samples of an instant answer: labels, and `value`."""
    form = urllib.parse.urlencode({"query": text, "time": at_ms / 1000}).encode()
    with urllib.request.urlopen(f"{url}/api/v1/query", form, timeout=30) as answer:
        found = json.load(answer)["data"]["result"]
    return [{**one["metric"], "value": float(one["value"][1])} for one in found]


def promql_range(url: str, text: str, *, start_ms: int, end_ms: int, step_s: int = 15) -> list[Row]:
    """Return the series of an answer over time: labels, and `values`."""
    asked = {"query": text, "start": start_ms / 1000, "end": end_ms / 1000, "step": step_s}
    with urllib.request.urlopen(
        f"{url}/api/v1/query_range", urllib.parse.urlencode(asked).encode(), timeout=30
    ) as answer:
        found = json.load(answer)["data"]["result"]
    return [{**one["metric"], "values": [float(value) for _, value in one["values"]]} for one in found]


def label_values(url: str, text: str, *, at_ms: int) -> set[str]:
    """Return the values of Grafana's `label_values(selector, label)`, over the hour before."""
    selector, _, label = text.removeprefix("label_values(").removesuffix(")").rpartition(", ")
    asked = urllib.parse.urlencode({"match[]": selector, "start": at_ms / 1000 - 3600, "end": at_ms / 1000})
    with urllib.request.urlopen(f"{url}/api/v1/label/{label}/values?{asked}", timeout=30) as answer:
        return set(json.load(answer)["data"])
