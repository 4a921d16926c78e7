"""What release 0.1 wrote is read, and goes on exactly; and an aggregator of 0.1 reads what a reporter writes today."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from support.fuzzing.stores import NOW_MS
from support.fuzzing.topics import pairs
from support.lag import Rounds, group, round_of
from support.release import FOLDER, RULES, reported, topic
from support.replayed import TopicRecord, fields_of, replay
from support.runs import require_all_sums
from support.simulation.checkpoints import Batch
from support.steps import BEGIN_MS
from support.tables import Tables, table_settings
from tallystream.metric_types import TYPES
from tallystream_aggregator import sums
from tallystream_aggregator.sinks.base import Point
from tallystream_aggregator.sinks.sqlite.sink import LocalStore
from tallystream_aggregator.stream import positions
from tallystream_aggregator.verify import published
from tallystream_dashboards.lag.reader import read_group, read_groups

if TYPE_CHECKING:
    from pathlib import Path

Json = dict[str, Any]


def positions_row() -> positions.PositionsRow:
    """Return its positions row."""
    key = positions.key_of(0)
    found = positions.newest_in([(0, 0, key, (FOLDER / "positions").read_bytes())], key)
    assert found is not None
    return found


def kept_sums() -> dict[Any, Json]:
    """Return the sums that it had published."""
    kept = pairs((FOLDER / "sums").read_bytes())
    return {sums.metric_of(key): fields_of(value or b"") for key, value in kept}


def tables_of(*, from_rows: bool) -> Tables:
    """Return the table of its state, or of its rows, as an aggregator makes it when it starts."""
    records = topic()
    tables = Tables(records, table_settings(**RULES))
    head, *entries = msgspec.msgpack.decode((FOLDER / "state").read_bytes(), type=list[bytes])
    tables.stores = [Batch(0, head, dict(enumerate(entries, 1)))]
    for key, value in pairs((FOLDER / "rows").read_bytes()):
        tables._rows[0].add(key, value)
    tables._shards = [tables._loaded(0, from_rows=from_rows)]
    tables.at, tables.sums = {0: len(records) // 2}, kept_sums()
    return tables


@pytest.mark.parametrize("from_rows", [False, True], ids=["state", "rows"])
def test_its_table_goes_on_exactly(from_rows: bool) -> None:
    """At its positions it has what was counted and the sums that were published; after the next records, verify's."""
    tables, records = tables_of(from_rows=from_rows), topic()
    row, (state,) = positions_row(), tables.states
    assert positions.by_topic(positions.positions_of(state)) == row.positions
    assert (state.records, state.dead, state.stale) == (row.records, row.dead, row.stale)
    read = replay(records[: len(records) // 2], **RULES)
    assert not read.differing(tables.sums)
    require_all_sums(tables, read)
    for end in range(len(records) // 2 + 1, len(records) + 1):
        tables.step({0: end})
    wanted = replay(records, **RULES)
    assert not wanted.differing(tables.sums)
    require_all_sums(tables, wanted)


def test_verify_reads_what_it_published() -> None:
    """Its positions row and its sums."""
    moment = published.moment((FOLDER / "positions").read_bytes())
    assert moment is not None
    assert moment.ends == {"metrics:0": len(topic()) // 2}
    for key, value in pairs((FOLDER / "sums").read_bytes()):
        assert published.parse(key, value or b"").ends


def test_what_is_kept_has_every_type_and_every_kind_of_row() -> None:
    """Lives with all types, sums of forgotten lives, the row of the shard, and records that are no snapshots."""
    assert {identity[2] for identity in kept_sums()} >= TYPES.keys()
    kinds = Counter(json.loads(key)[0] for key, _ in pairs((FOLDER / "rows").read_bytes()))
    assert kinds.keys() == {"life", "forgotten", "shard"}
    values = [one.value or b"" for one in topic()]
    assert any(b'"value"' in value and b"metrics" not in value for value in values)
    assert any(b"wall_ms" in value for value in values)


def kept_reports() -> list[Json]:
    """Return the records of its reporter."""
    return [json.loads(line) for line in (FOLDER / "reported").read_bytes().split(b"\n")]


def sums_of(reports: list[Json]) -> dict[Any, Json]:
    """Return the sums of the records of a reporter. None of them is refused."""
    at = [TopicRecord(b"i-1", json.dumps(one).encode(), BEGIN_MS + 1_000 * n, 0, n) for n, one in enumerate(reports, 1)]
    records = [record._replace(offset=number) for number, record in enumerate(at)]
    tables = Tables(records, table_settings(**RULES))
    tables.step({0: len(records)})
    assert not tables.dead
    return tables.sums


def test_a_reporter_of_it_is_read() -> None:
    """Every metric of its last record has the values that it reported."""
    *_, last = reports = kept_reports()
    found = sums_of(reports)
    assert last["final"]
    for metric in last["metrics"]:
        total = found["app", metric["name"], metric["type"], tuple(sorted(metric.get("tags", {}).items()))]
        for field in ("count", "sum", "min", "max", "start", "position"):
            if field in metric:
                assert total[field] == metric[field], metric


def test_fields_that_it_does_not_know_change_nothing() -> None:
    """So a later reporter may add some: readers of this version ignore them, as those of 0.1 do."""

    def more(item: Any) -> Any:
        if isinstance(item, list):
            return [more(one) for one in item]
        return (
            {name: one if name == "tags" else more(one) for name, one in item.items()} | {"later": [{"x": 1}]}
            if (isinstance(item, dict))
            else item
        )

    reports = kept_reports()
    assert sums_of([more(one) for one in reports]) == sums_of(reports)


def test_an_aggregator_of_it_reads_a_reporter_of_today() -> None:
    """The record has all fields that it requires, with values of the same types, and the same version.

    The same application reports the same values. If this fails, the contract has changed: docs/record.md, `v`.
    """
    kept, today = kept_reports(), [json.loads(value) for value in reported()]
    assert len(today) == len(kept)
    for old, new in zip(kept, today, strict=True):
        assert new["v"] == old["v"] == 1
        for name in old.keys() - {"metrics", "life"}:
            assert new[name] == old[name]
        found = {(one["type"], one["name"]): one for one in new["metrics"]}
        for metric in old["metrics"]:
            same = found[metric["type"], metric["name"]]
            assert {name: same.get(name) for name in metric} == metric


def test_its_local_store_is_read_and_written(tmp_path: Path) -> None:
    """Points, groups and statuses are there; new points are beside them, and the lag goes on from its history."""
    path = tmp_path / "store.db"
    path.write_bytes((FOLDER / "store.db").read_bytes())
    with closing(LocalStore(path, retention_ms=0, clock=lambda: NOW_MS)) as store:
        (counted,) = store.read("billing.processed", ("count",), start_ms=0, end_ms=NOW_MS + 1)
        assert counted.values == [940, 950, 960, 970, 980, 990, 1000]
        states = {one.group: one for one in read_groups(store, at_ms=NOW_MS)}
        assert {(one.group, one.status_name, one.lag) for one in states.values()} == {
            *(("audit", "OK", 500), ("billing", "OK", 40), ("old", "GONE", 7)),
            *(("tallystream-aggregator", "OK", 7), ("tallystream-shipper", "OK", 0)),
        }
        billing = read_group(store, "billing", at_ms=NOW_MS)
        assert billing is not None
        assert sorted((one.topic, one.partition, one.lag) for one in billing.partitions) == [
            ("orders", 0, 40),
            ("orders", 1, None),
        ]
        store.write([Point("billing.processed", counted.tags, {"count": 1001}, NOW_MS + 1_000)])
        (more,) = store.read("billing.processed", ("count",), start_ms=0, end_ms=NOW_MS + 9_000)
        assert more.values == [*counted.values, 1001]
        rounds = Rounds()
        rounds.load(store, NOW_MS)
        rounds.points(round_of(group("audit", (500, 1_000), members=0)), NOW_MS + 1_000)
        (audit,) = [one for one in rounds.states if one.group == "audit"]
        assert audit.late_since_ms == states["audit"].late_since_ms is not None
