"""Tables that are made again from `metrics-table`: single cases. test_properties.py has random ones."""

from __future__ import annotations

import random
from copy import deepcopy
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.fuzz import examples
from support.malformed import UNDECODABLE
from support.runs import FORGET_AFTER_MS, move
from support.schedules import LONG, in_steps, play, schedules, step_sizes
from support.steps import Topic, counter, gauge, records_of, run
from tallystream_aggregator.table import State, Table, TableSettings
from tallystream_aggregator.table.layouts import Layouts
from tallystream_aggregator.table.restore import LatestRows, RebuildError, restore
from tallystream_aggregator.table.state import Life
from tallystream_aggregator.table.sum_tags import SumTags


def latest_rows(topic: Topic) -> LatestRows:
    """Return the rows of the topic's last step."""
    found = LatestRows()
    for row in topic.changes.rows:
        found.add(row.key, row.value())
    return found


def whole(state: State) -> Any:
    """Return a state in a form that can be compared: without the numbers of metrics, and all blocks as rows."""
    lives, layouts, metrics = dict[Any, Any](), Layouts(state.metrics), state.metrics
    for of_instance in state.lives.values():
        for life in of_instance.values():
            fields = msgspec.structs.asdict(life) | {"blocks": None, "limits": sorted(life.limits)}
            rows = life.rows | {n: row for part in life.blocks for n, row in layouts.block_rows(life, part).items()}
            fields["rows"] = {metrics[number]: row for number, row in rows.items()}
            fields["baselines"] = {metrics[number]: values for number, values in life.baselines.items()}
            lives[life.id] = fields
    sums = {metrics[number]: partial.stored() for number, partial in state.forgotten_sums.items()}
    fields = msgspec.structs.asdict(state)
    return fields | {"lives": lives, "forgotten_sums": sums, "metrics": set(metrics.values())}


@examples(25)
@example(LONG, [7], random.Random(0))
@given(schedules, step_sizes, st.randoms(use_true_random=False))
def test_the_state_that_is_made_of_the_rows_is_that_of_the_table(
    schedule: list[int], sizes: list[int], chance: random.Random
) -> None:
    """After each step, in every field, whether a metric is in a block or a row. All rows can be published at once."""
    settings = TableSettings(short_form_every_ms=5_000, max_metrics=8, forget_after_ms=FORGET_AFTER_MS)
    table, latest = Table(State(), settings), LatestRows()
    for taken in in_steps(move(play(schedule), chance), sizes):
        for row in run(table, records_of(taken)).rows:
            latest.add(row.key, row.value())
        (state,) = restore(deepcopy(latest)).states
        Table(state, settings).outputs()  # a life falls silent by time, which changes no row
        assert whole(state) == whole(table.state)
    table.publish_all()
    assert {(0, row.key) for row in run(table, ()).rows} == latest.rows.keys()


def test_a_topic_without_a_shard_record_is_an_error() -> None:
    """The result is not an empty table."""
    with pytest.raises(RebuildError, match="nothing to make the table from"):
        restore(LatestRows())


@pytest.mark.parametrize("bad", UNDECODABLE.values(), ids=UNDECODABLE)
@pytest.mark.parametrize("is_key", [True, False], ids=["key", "value"])
def test_a_foreign_record_is_refused_until_it_is_deleted(bad: bytes, is_key: bool) -> None:
    """The error names the record and its partition. A deletion counts only in that partition."""
    found = latest_rows(Topic().snapshot(counter(5)))
    key, value = (bad, b"{}") if is_key else (b'["life","app","host-1","life",0]', bad)
    found.add(key, value, partition=2)
    found.add(key, None)
    with pytest.raises(RebuildError, match=r"is not a record of the table \(.*in partition 2\.$"):
        restore(deepcopy(found))
    found.add(key, None, partition=2)
    assert restore(found).states[0].lives.keys() == {"app-1"}


def test_a_row_that_was_published_after_a_foreign_record_counts() -> None:
    """The newest record of a key is the one that counts."""
    found = LatestRows()
    for row in Topic().snapshot(counter(5)).changes.rows:
        found.add(row.key, b"no row")
        found.add(row.key, row.value())
    assert restore(found).states[0].lives.keys() == {"app-1"}


@pytest.mark.parametrize("shard", [b'"x"', b"-1", b"[]", b"1.5", b"9", b"null"])
def test_forgotten_sums_of_an_unknown_shard_are_refused(shard: bytes) -> None:
    """The error names the record by its key."""
    found = latest_rows(Topic().snapshot(counter(5)))

    def rebuild() -> None:
        held = b'["counter",0,0,1,[[1,"1",0,"0"]],null]'
        forgotten_sums = b'{"shard":%s,"app":"a","name":"n","held":%s}' % (shard, held)
        found.add(b'["forgotten",' + shard + b',"a","counter","n",[]]', forgotten_sums, partition=9)
        restore(found)

    with pytest.raises(RebuildError, match=r"metrics-table: .*forgotten"):
        rebuild()


@pytest.mark.parametrize(
    "held",
    [
        b'["x",0,0,1,[[1,"1",0,"0"]],null]',
        b'["counter",0,0,1,[],null]',
        b'["counter",0,0,1,[[1,"one",0,"0"]],null]',
        b'["counter",0,0,1,[[1,"1",0,"0"]],[[],"0",0]]',
        b'["histogram",0,0,1,[[1,"1",0,"0"],[1,"1",0,"0"],1.0,1.0],[[],"none",0]]',
    ],
    ids=["type", "no count", "count", "sketch of a counter", "zeros of a sketch"],
)
def test_forgotten_sums_that_no_table_has_are_refused(held: bytes) -> None:
    """An unknown type, cells that the type does not have, and numbers that are none."""
    found = latest_rows(Topic().snapshot(counter(5)))
    found.add(b'["forgotten",0,"a","counter","n",[]]', b'{"v":1,"shard":0,"app":"a","name":"n","held":%s}' % held)
    with pytest.raises(RebuildError, match=r"metrics-table: .*forgotten"):
        restore(found)


def test_a_row_too_large_for_the_topic_has_the_number_of_its_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    """The metrics themselves are left out, and a rebuild names the life."""
    monkeypatch.setattr("tallystream_aggregator.table.rows.MAX_ROW_BYTES", 300)
    topic = Topic().snapshot(*(counter(1, f"metric-{number}") for number in range(20)))
    found = restore(latest_rows(topic))
    assert [key[1] for key in found.omitted] == ["app-1"]


def test_the_size_of_a_row_is_measured_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker's limit is in bytes, so characters of several bytes count as several."""
    monkeypatch.setattr("tallystream_aggregator.table.rows.MAX_ROW_BYTES", 300)
    topic = Topic().snapshot(counter(1, "\N{EURO SIGN}" * 100))
    assert [key[1] for key in restore(latest_rows(topic)).omitted] == ["app-1"]


WRITTEN = {
    b'["life","shop","app-1","01HF7YAT00AAAAAAAAAAAAAAAA",0]': (
        b'{"v":1,"app":"shop","instance":"app-1","life":"01HF7YAT00AAAAAAAAAAAAAAAA","part":0,"seq":1,"topic":"metrics",'
        b'"partition":0,"offset":0,"last_seen_ms":1700000000000,"every_ms":1000,"keep_ms":1700000000000,"living":true,'
        b'"metrics":[{"type":"counter","count":3,"name":"n","tags":{"zone":"eu"}},'
        b'{"type":"gauge","value":1.5,"name":"g"}]}'
    ),
    b'["shard",0]': (
        b'{"v":1,"shard":0,"shards":1,"clocks":{"metrics:0":1700000000000},"offsets":{"metrics:0":0},"stale":0,'
        b'"records":1,"dead":0,"forgotten":0,"lives":1,"living":1,"instances":1,"rows":2,"metrics":2,"sum_tags":{}}'
    ),
}
"""The rows of a table as they are on the topic, byte for byte. A field that is missing has its default."""


def test_rows_are_written_and_read_as_ever() -> None:
    """Topics last longer than a version: what is missing from a row means the same in every one."""
    life = "01HF7YAT00AAAAAAAAAAAAAAAA"
    topic = Topic().snapshot(counter(3, tags={"zone": "eu"}), gauge(1.5), life=life)
    assert {row.key: row.value() for row in topic.changes.rows} == WRITTEN
    found = LatestRows()
    for key, value in WRITTEN.items():
        found.add(key, value)
    rebuilt = restore(found)
    assert rebuilt.omitted == []
    (state,) = rebuilt.states
    (one,) = state.lives["app-1"].values()
    assert (one.final, one.living, one.complete, one.limits) == (False, True, True, [])
    assert (one.parts, one.offsets, one.baselines, one.partition) == ({0: 1}, {0: 0}, {}, "metrics:0")
    topic.table = Table(state)
    topic.snapshot(counter(3, tags={"zone": "eu"}), gauge(1.5), life=life)
    assert (topic.changes.totals, topic.table.state.stale) == ([], 1)
    topic.snapshot(counter(5, tags={"zone": "eu"}), gauge(2.5), life=life, seq=2)
    assert (topic.sum().count, topic.sum("g").sum, topic.sum().lives, topic.kinds()) == (5, 2.5, 1, [])


def test_what_a_row_lacks_has_its_default() -> None:
    """Another version may have written it, or left out what says nothing."""
    life = "01HF7YAT00AAAAAAAAAAAAAAAA"
    found = LatestRows()
    found.add(b'["shard",0]', b'{"v":1,"clocks":{"metrics:0":5},"offsets":{},"stale":3}')
    found.add(
        b'["life","shop","app-1","%b",0]' % life.encode(),
        b'{"v":1,"app":"shop","instance":"app-1","life":"%b","part":0,"topic":"metrics","partition":0,"offset":-1,'
        b'"last_seen_ms":0,"every_ms":1000,"keep_ms":0}' % life.encode(),
    )
    found.add(
        b'["forgotten",0,"shop","counter","n",[]]',
        b'{"v":1,"shard":0,"app":"shop","name":"n","held":["counter",0,0,1,[[1,"5",0,"0"]],null]}',
    )
    (state,) = restore(found).states
    expected = Life("app-1", "shop", life, "metrics:0", last_seen_ms=0, every_ms=1000, keep_ms=0, living=False)
    (one,) = state.lives["app-1"].values()
    assert msgspec.structs.asdict(one) == msgspec.structs.asdict(expected)
    assert (state.metrics, state.sum_tags) == ({0: ("shop", "n", "counter", ())}, SumTags())
    assert (state.stale, state.records, state.dead, state.forgotten, state.shard, state.shards) == (3, 0, 0, 0, 0, 1)
