"""What the contract adds to test_sink_levels.py for stores that can be read: a real SQLite file, a real InfluxDB."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from support import stores
from support.hostile_text import HOSTILE
from support.stores import NOW_MS, Influx, content, influx_bucket, write
from tallystream.errors import ConfigError
from tallystream_aggregator.sinks.base import Point, SinkUnavailableError
from tallystream_aggregator.sinks.sqlite import database
from tallystream_aggregator.sinks.stores import StoreSettings, open_sink, open_store
from tallystream_cli.servers.process import free_port


@pytest.fixture(params=["local", pytest.param("influxdb", marks=pytest.mark.integration)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreSettings]:
    """An empty store."""
    if request.param == "local":
        yield StoreSettings.parse(f"local:{tmp_path / 'new folder' / 'store.db'}", retention_days=1, env={})
        return
    with influx_bucket(request.getfixturevalue("influxdb"), f"test {uuid.uuid4().hex}") as settings:
        yield settings


def test_a_time_span_of_a_measurement_is_deleted(store: StoreSettings) -> None:
    """Points of all series in the span are deleted, and no others."""
    at = [NOW_MS + number for number in range(4)]
    tagged = [Point("spanned, it's", {"a": one}, {"count": 1}, ts) for one in ("x", "y z") for ts in at]
    write(store, [*tagged, Point("kept", {}, {"count": 1}, at[1])])
    sink = open_sink(store)
    sink.delete("spanned, it's", start_ms=at[1], end_ms=at[3])
    sink.delete("was never there", start_ms=at[1], end_ms=at[3])
    sink.close()
    assert {key: sorted(points) for key, points in content(store, "spanned, it's", ["count"]).items()} == {
        (("a", "x"),): [at[0], at[3]],
        (("a", "y z"),): [at[0], at[3]],
    }
    assert list(content(store, "kept", ["count"])[()]) == [at[1]]


def test_a_point_is_read_as_it_was_written(store: StoreSettings) -> None:
    """Every type of field keeps its value and its type."""
    fields = {
        "count": 7,
        "ratio": 0.5,
        "float": 3.0,
        "text": 'two\nlines, a "quote" and a \\',
        "overflow": True,
        "stale": False,
    }
    assert write(store, [Point("all", {"app": "orders"}, fields, NOW_MS)]) == 0
    found = content(store, "all", [*fields, "absent"])
    assert found == {(("app", "orders"),): {NOW_MS: fields}}
    read = found[("app", "orders"),][NOW_MS]
    assert {name: type(value) for name, value in read.items()} == {name: type(value) for name, value in fields.items()}


def test_numbers_are_exact(store: StoreSettings) -> None:
    """Integers of 64 bits and floats of any size are read as they were written."""
    integers = [0, -1, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)]
    floats = [0.1 + 0.2, 1e300, 5e-324, -1e-300, 1.7976931348623157e308, 2.0**53, 1e22, -0.5, 123456789.12345679]
    points = [Point("integers", {}, {"v": value}, NOW_MS + at) for at, value in enumerate(integers)]
    points += [Point("floats", {}, {"v": value}, NOW_MS + at) for at, value in enumerate(floats)]
    assert write(store, points) == 0
    assert [point["v"] for point in content(store, "integers", ["v"])[()].values()] == integers
    read = [point["v"] for point in content(store, "floats", ["v"])[()].values()]
    assert read == floats
    assert {type(value) for value in read} == {float}


def test_fields_of_one_point_are_merged_and_the_later_value_wins(store: StoreSettings) -> None:
    """Points of the same measurement, tags and time are one point."""
    write(store, [Point("merged", {"a": "1", "b": "2"}, {"count": 1, "lag": 5}, NOW_MS)])
    write(store, [Point("merged", {"b": "2", "a": "1"}, {"lag": 6, "end": 9}, NOW_MS)])
    assert content(store, "merged", ["count", "lag", "end"]) == {
        (("a", "1"), ("b", "2")): {NOW_MS: {"count": 1, "lag": 6, "end": 9}}
    }
    write(store, [Point("merged", {"a": "1", "b": "2"}, {"lag": value}, NOW_MS) for value in (7, 8)])
    assert content(store, "merged", ["lag"])[("a", "1"), ("b", "2")] == {NOW_MS: {"lag": 8}}


def test_points_written_in_any_order_are_read_in_order_of_time(store: StoreSettings) -> None:
    """The order also holds if the write needs several requests."""
    order = list(range(12_000))
    random.Random(3).shuffle(order)
    write(store, [Point("many", {}, {"count": i}, NOW_MS + i) for i in order])
    found = content(store, "many", ["count"])[()]
    assert found == {NOW_MS + i: {"count": i} for i in range(12_000)}


def test_any_text_is_the_name_of_a_field_or_selects_a_series(store: StoreSettings) -> None:
    """Names of fields, of measurements and of tags differ from every other text, also where they select points."""
    points = [Point("fields", {}, {text: count}, NOW_MS) for count, text in enumerate(HOSTILE)]
    points += [Point(text, {text: "v", "other": text}, {"count": count}, NOW_MS) for count, text in enumerate(HOSTILE)]
    assert write(store, points) == 0
    reader = open_store(store)
    assert reader.measurements() == sorted({"fields", *HOSTILE})
    reader.close()
    assert content(store, "fields", HOSTILE) == {(): {NOW_MS: {text: count for count, text in enumerate(HOSTILE)}}}
    for count, text in enumerate(HOSTILE):
        later = content(store, "fields", [text], start_ms=NOW_MS + 1, last_before=True)
        assert later == {(): {NOW_MS: {text: count}}}
        tags = {text: "v", "other": text}
        key = tuple(sorted(tags.items()))
        assert content(store, text, ["count"], tags=tags) == {key: {NOW_MS: {"count": count}}}


def test_points_are_selected_by_time_tags_and_field(store: StoreSettings) -> None:
    """The start is inclusive and the end exclusive. Tags are compared for equality."""
    points = [
        Point("read", {"app": app, "topic": topic}, {"count": i, "lives": 1}, NOW_MS + i * 1000)
        for i in range(5)
        for app, topic in (("a", "x"), ("a", "y"), ("b", "x"))
    ]
    write(store, points)
    window = content(store, "read", ["count"], start_ms=NOW_MS + 1000, end_ms=NOW_MS + 3000)
    assert len(window) == 3
    assert {tuple(series) for series in window.values()} == {(NOW_MS + 1000, NOW_MS + 2000)}
    assert set(content(store, "read", ["count"], tags={"app": "a"})) == {
        (("app", "a"), ("topic", "x")),
        (("app", "a"), ("topic", "y")),
    }
    assert set(content(store, "read", ["count"], tags={"topic": "x", "app": "b"})) == {(("app", "b"), ("topic", "x"))}
    assert content(store, "read", ["count"], tags={"app": "c"}) == {}
    assert content(store, "read", ["count"], tags={"absent": ""}) == {}
    assert content(store, "read", ["absent"]) == {}
    assert content(store, "read", []) == {}
    assert content(store, "absent", ["count"]) == {}
    assert content(store, "read", ["count"], start_ms=NOW_MS, end_ms=NOW_MS) == {}


def test_the_last_value_before_the_window_can_be_read(store: StoreSettings) -> None:
    """With `last_before` each field begins with its last value before the window, with the time of that value."""
    at = [NOW_MS, NOW_MS + 1000, NOW_MS + 2000, NOW_MS + 9000]
    write(
        store,
        [
            Point("last", {"app": "a"}, {"count": 1, "lag": 5}, at[0]),
            Point("last", {"app": "a"}, {"count": 2}, at[1]),
            Point("last", {"app": "b"}, {"count": 3}, at[2]),
            Point("last", {"app": "b"}, {"count": 4}, at[3]),
        ],
    )
    assert content(store, "last", ["count", "lag"], start_ms=at[2] + 1, end_ms=at[3]) == {}
    found = content(store, "last", ["count", "lag"], start_ms=at[2] + 1, end_ms=at[3], last_before=True)
    assert found == {
        (("app", "a"),): {at[0]: {"lag": 5}, at[1]: {"count": 2}},
        (("app", "b"),): {at[2]: {"count": 3}},
    }
    found = content(store, "last", ["count"], start_ms=at[2], end_ms=at[3] + 1, last_before=True, tags={"app": "b"})
    assert found == {(("app", "b"),): {at[2]: {"count": 3}, at[3]: {"count": 4}}}


def test_only_the_newest_values_can_be_read(store: StoreSettings) -> None:
    """With `newest` the values of the newest point in the window are read, and at most one of each field."""
    at = [NOW_MS, NOW_MS + 1000, NOW_MS + 2000, NOW_MS + 3000]
    fields = {"gone": True, "status": "OK"}
    write(store, [Point("newest", {}, {"count": number} | fields, ts) for number, ts in enumerate(at)])
    write(store, [Point("newest", {}, {"lag": 5}, ts) for ts in at[:2]])
    (found,) = content(store, "newest", ["count", "lag", *fields], start_ms=at[0], end_ms=at[3], newest=True).values()
    assert found[at[2]] == {"count": 2, **fields}
    assert found.keys() <= {at[1], at[2]}
    assert found.get(at[1], {"lag": 5}) == {"lag": 5}


def test_two_processes_can_write_at_the_same_time(store: StoreSettings) -> None:
    """All points of both are stored. Points of both have the fields of both."""
    batches, base_ms = 25, NOW_MS
    environment = {**os.environ, "INFLUXDB_TOKEN": store.token}
    processes = [
        subprocess.Popen(
            [sys.executable, stores.__file__, store.spec, store.org, store.bucket, writer, str(batches), str(base_ms)],
            env=environment,
        )
        for writer in ("one", "two")
    ]
    try:
        assert [process.wait(120) for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    times = range(base_ms, base_ms + batches * 10)
    own = content(store, "own", ["count"])
    assert own == {
        (("writer", writer),): {ts_ms: {"count": ts_ms - base_ms} for ts_ms in times} for writer in ("one", "two")
    }
    shared = content(store, "shared", ["one", "two"])
    assert shared == {(): {ts_ms: {"one": ts_ms, "two": ts_ms} for ts_ms in times}}


@contextmanager
def _unavailable(store: StoreSettings) -> Iterator[StoreSettings]:
    """Yield settings of the store while it is unavailable: the file is locked, or no server listens at the address."""
    if store.kind == "influxdb":
        yield StoreSettings.parse(
            f"influxdb:http://127.0.0.1:{free_port()}", token=store.token, org=store.org, bucket=store.bucket, env={}
        )
        return
    write(store, [])
    other = sqlite3.connect(store.where, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield store
    finally:
        other.execute("ROLLBACK")
        other.close()


def test_an_unavailable_store_can_be_retried(store: StoreSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """`setup` and `write` raise SinkUnavailableError without the token. Later the write succeeds."""
    point = Point("m", {}, {"count": 1}, NOW_MS)
    monkeypatch.setattr(database, "BUSY_S", 0)
    with _unavailable(store) as unavailable:
        sink = open_sink(unavailable)
        for call in (sink.setup, lambda: sink.write([point]), sink.setup):
            with pytest.raises(SinkUnavailableError) as caught:
                call()
            assert store.where in str(caught.value) or unavailable.where in str(caught.value)
            assert not store.token or store.token not in str(caught.value)
    if store.kind == "local":  # the same sink continues
        sink.write([point])
    else:
        with pytest.raises(SinkUnavailableError):
            open_store(unavailable).measurements()
        write(store, [point])
    sink.close()
    assert content(store, "m", ["count"]) == {(): {NOW_MS: {"count": 1}}}


@pytest.mark.integration
def test_influxdb_rejects_wrong_settings(influxdb: Influx) -> None:
    """A wrong token, organization or bucket is a ConfigError that names the setting, without the token."""
    with influx_bucket(influxdb, f"test {uuid.uuid4().hex}") as correct:
        for wrong, name in (
            ({"token": "wrong-token"}, "INFLUXDB_TOKEN"),
            ({"org": "no such"}, "INFLUXDB_BUCKET"),
            ({"bucket": "no such"}, "INFLUXDB_BUCKET"),
        ):
            given = {"token": correct.token, "org": correct.org, "bucket": correct.bucket} | wrong
            settings = StoreSettings.parse(correct.spec, env={}, **given)
            sink, reader = open_sink(settings), open_store(settings)
            point = Point("m", {}, {"v": 1}, NOW_MS)
            for call in (sink.setup, partial(sink.write, [point]), reader.measurements):
                with pytest.raises(ConfigError, match=name) as caught:
                    call()
                assert given["token"] not in str(caught.value)
            sink.close()
            reader.close()


@pytest.mark.integration
def test_influxdb_rejects_a_second_type_of_a_field(influxdb: Influx, caplog: pytest.LogCaptureFixture) -> None:
    """Each point with another type is counted as rejected. The others of the 6,000 points are written."""
    with influx_bucket(influxdb, f"test {uuid.uuid4().hex}") as settings:
        write(settings, [Point("typed", {}, {"v": 1}, NOW_MS - 1)])
        points = [
            Point("typed", {}, {"v": "text" if i in {0, 17, 4999, 5000, 5999} else i}, NOW_MS + i) for i in range(6000)
        ]
        with caplog.at_level("WARNING"):
            assert write(settings, points) == 5
        assert caplog.text.count("field type conflict") == 5
        assert len(content(settings, "typed", ["v"])[()]) == 1 + 6000 - 5


@pytest.mark.integration
def test_influxdb_rejects_old_points_in_one_request(influxdb: Influx) -> None:
    """It says that it dropped all that were beyond the bucket's retention."""
    points = [Point("old", {}, {"v": 1}, NOW_MS - 10**9 + i) for i in range(10)]
    with influx_bucket(influxdb, f"test {uuid.uuid4().hex}", retention_s=3600) as settings:
        sink = open_sink(settings)
        rejected = sink.write(points)
        sink.close()
    assert [one.point for one in rejected] == points
    assert all("dropped 10 points" in one.reason for one in rejected)
