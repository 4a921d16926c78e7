"""What the contract adds to test_sink_levels.py for stores that can be read: a real SQLite file, a real InfluxDB."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import stores
from support.fuzz import examples
from support.hostile_text import HOSTILE
from support.stores import NOW_MS, Influx, Points, content, influx_bucket, write
from tallystream.errors import ConfigError
from tallystream_aggregator.sinks.base import Point, PointReader, Series, SinkUnavailableError
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


times = st.integers(0, 5).map(lambda second: NOW_MS + second * 1000)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(HOSTILE)
tag_sets = st.sampled_from([{}, {"app": "a"}, {"topic": "x", "app": "a"}, {"topic": "y", "app": "a"}, {"app": ""}])
fields = {
    "count": st.integers(-(2**63), 2**63 - 1),
    "sum": st.floats(allow_nan=False, allow_infinity=False),
    "text": texts,
    "stale": st.booleans(),
}
written = st.tuples(times, tag_sets, st.fixed_dictionaries({}, optional=fields).filter(bool))


def typed(series: Iterable[Series]) -> dict[object, dict[str, dict[int, object]]]:
    """Return the values of series by tags, field and time, with their types: 1 is neither True nor 1.0."""
    found: dict[object, dict[str, dict[int, object]]] = {}
    for one in series:
        values = [(type(value), value) for value in one.values]
        found.setdefault(frozenset(one.tags.items()), {})[one.field] = dict(zip(one.times_ms, values, strict=True))
    return found


@examples(60)
@given(
    writes=st.lists(st.lists(written, max_size=8), max_size=3),
    tags=tag_sets | st.just({"absent": ""}),
    names=st.lists(st.sampled_from([*fields, "absent"]), min_size=1, unique=True),
    span=st.lists(times, min_size=2, max_size=2, unique=True).map(sorted),
)
def test_what_is_read_is_what_was_written(
    store: StoreSettings, writes: list[list[Any]], tags: dict[str, str], names: list[str], span: list[int]
) -> None:
    """Every value and its type, whatever the order. Of the points of one time and series, the later fields win.

    With `last_before` each field begins with its last value before the window. With `newest` the newest point of each
    series in the window is read, and of each field at most one other value: it may be left out.
    """
    name = uuid.uuid4().hex
    points = [[Point(name, own, values, ts_ms) for ts_ms, own, values in batch] for batch in writes]
    for batch in points:
        assert write(store, batch) == 0
    wanted = Points(point for batch in points for point in batch)
    with closing(open_store(store)) as reader:

        def read(of: PointReader, **only: bool) -> list[Series]:
            return of.read(name, names, start_ms=span[0], end_ms=span[1], tags=tags, **only)

        for before in (False, True):
            found = read(reader, last_before=before)
            assert typed(found) == typed(read(wanted, last_before=before))
            assert found == sorted(found, key=lambda one: (sorted(one.tags.items()), one.field))
            assert all(one.times_ms == sorted(one.times_ms) for one in found)
        newest, window = typed(read(reader, newest=True)), typed(read(wanted))
    all_fields = typed(wanted.read(name, list(fields), start_ms=span[0], end_ms=span[1], tags=tags))
    assert newest.keys() <= window.keys()
    for series, values in window.items():
        last_ms = max(ts_ms for one in all_fields[series].values() for ts_ms in one)
        of_series = newest.get(series, {})
        assert all(of_series[field][last_ms] == one[last_ms] for field, one in values.items() if last_ms in one)
        assert all(one.items() <= values[field].items() for field, one in of_series.items())
        assert all(len(one) == 1 for one in of_series.values())


def test_without_a_field_or_a_time_nothing_is_read(store: StoreSettings) -> None:
    """It is no error, nor is a measurement that does not exist."""
    write(store, [Point("read", {}, {"count": 1}, NOW_MS)])
    assert content(store, "read", []) == {}
    assert content(store, "read", ["count"], start_ms=NOW_MS, end_ms=NOW_MS) == {}
    assert content(store, "absent", ["count"]) == {}


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


def test_two_processes_can_write_at_the_same_time(store: StoreSettings) -> None:
    """All points of both are stored. Points of both have the fields of both."""
    batches, base_ms = 25, NOW_MS
    environment = os.environ | {
        "INFLUXDB_TOKEN": store.token,
        "INFLUXDB_ORG": store.org,
        "INFLUXDB_BUCKET": store.bucket,
    }
    processes = [
        subprocess.Popen(
            [sys.executable, stores.__file__, store.spec, writer, str(batches), str(base_ms)], env=environment
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
        yield replace(store, where=f"http://127.0.0.1:{free_port()}")
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
            settings = replace(correct, **wrong)  # type: ignore[arg-type]  # by name
            sink, reader = open_sink(settings), open_store(settings)
            point = Point("m", {}, {"v": 1}, NOW_MS)
            for call in (sink.setup, partial(sink.write, [point]), reader.measurements):
                with pytest.raises(ConfigError, match=name) as caught:
                    call()
                assert settings.token not in str(caught.value)
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
