"""The reader of records, which the table and verify share, reads the same as another one on the standard library."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import record_reader
from support.fuzz import examples
from support.malformed import BAD_METRICS, ODD, ODD_METRICS, POISON
from support.schedules import play, play_steadily, schedules
from support.spoilt import spoilt
from tallystream.metric_types import NAMES
from tallystream.record import ShortForm
from tallystream_aggregator.table.records.decode import DecodedSnapshot, read_value
from tallystream_aggregator.table.records.refusals import Refusal
from tallystream_aggregator.verify.lives import require_valid

MAX_METRICS = 8
FORGET = ("app", "life", "metric", "type", "tags", "shards")
HEADER = '{"v":1,"app":"shop","life":"01HF7YAT00AAAAAAAAAAAAAAAA","part":0,"seq":1,"ts":0,"every_ms":1000,"final":false'


def sketch_of(metric: Any) -> Any:
    """Return what a sketch has."""
    sketch = getattr(metric, "sketch", None)
    if sketch is None:
        return None
    sides = [[(run.offset, run.width, run.counts) for run in side] for side in (sketch.positive, sketch.negative)]
    return sketch.scale, sketch.zero_count, sides


def tables(value: bytes) -> Any:
    """Return what the table's reader reads, None if it refuses the record."""
    found = read_value(value, MAX_METRICS)
    if isinstance(found, Refusal):
        return None
    if isinstance(found, ShortForm):
        return found.name, found.tags, found.value
    if not isinstance(found, DecodedSnapshot):
        return [getattr(found, name) for name in FORGET]
    metrics, refused = [], len(found.rejected) + found.more_rejected
    for metric in found.snapshot.metrics:
        try:
            require_valid(metric)
        except (ValueError, OverflowError):
            refused += 1
        else:
            values = [getattr(metric, name) for name in NAMES[metric.type]]
            metrics.append((metric.type, metric.name, metric.tags, values, sketch_of(metric)))
    header = [getattr(found.snapshot, name) for name in record_reader.Header.__struct_fields__]
    return header, metrics, refused, found.over_limit > 0


def others(value: bytes) -> Any:
    """Return what the other reader reads, None if it refuses the record."""
    try:
        found = record_reader.read(value, MAX_METRICS)
    except record_reader.RejectedError:
        return None
    if isinstance(found, record_reader.Metric):
        return found.identity[2], dict(found.identity[3]), found.values.count
    if isinstance(found, record_reader.Forget):
        return [getattr(found, name) for name in FORGET]
    good = [one for one in found.metrics if isinstance(one, record_reader.Metric)]
    metrics = [
        (kind, name, dict(tags), [getattr(values, field) for field in NAMES[kind]], sketch_of(values))
        for (_, kind, name, tags), values in good
    ]
    header = [getattr(found, name) for name in record_reader.Header.__struct_fields__]
    return header, metrics, len(found.metrics) - len(good), found.over_limit


@pytest.mark.parametrize("value", [*POISON, *ODD], ids=lambda value: repr(value[:60]))
def test_both_read_the_same_of_unusual_records(value: bytes) -> None:
    """Or both refuse the record."""
    assert tables(value) == others(value)


@pytest.mark.parametrize("metric", [*BAD_METRICS, *ODD_METRICS], ids=lambda metric: metric[:60])
def test_both_read_the_same_of_unusual_metrics(metric: str) -> None:
    """Or both refuse the metric, and only this one."""
    value = f'{HEADER},"metrics":[{metric},{{"type":"counter","name":"other","count":1}}]}}'.encode()
    assert tables(value) == others(value)


@examples(200)
@given(schedules, st.randoms(use_true_random=False))
def test_both_read_the_same_of_spoilt_snapshots(schedule: list[int], chance: random.Random) -> None:
    """Numbers that are missing, or are none; other metrics, fields and texts."""
    for record in spoilt(chance, play_steadily(schedule)):
        if record.value is not None:
            assert tables(record.value) == others(record.value)


@examples(60)
@given(schedules)
def test_both_read_the_same_of_everything_that_may_be_on_the_topic(schedule: list[int]) -> None:
    """Snapshots of all types, the short form, forget records, and what is none of these."""
    for record in play(schedule):
        if record.value is not None:
            assert tables(record.value) == others(record.value)
