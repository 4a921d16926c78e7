"""What is refused: the table and the replay agree on every invalid or unusual value."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from support.malformed import BAD_METRICS, ODD, ODD_METRICS, POISON
from support.schedules import BEGIN_MS
from support.steps import run
from tallystream_aggregator.table import Record, State, Table, TableSettings
from tallystream_aggregator.verify.lives import Settings
from tallystream_aggregator.verify.replay import Replay
from tallystream_aggregator.verify.tags import Tags

HEADER = '{"v":1,"app":"shop","life":"01HF7YAT00AAAAAAAAAAAAAAAA","part":0,"seq":1,"ts":0,"every_ms":1000,"final":false'


def refused(value: bytes) -> list[bool]:
    """Return whether the table and the replay refuse something of the record with this value."""
    table = run(Table(State()), [Record("metrics", 0, 0, BEGIN_MS, b"app-1", value)])
    replay = Replay().apply("metrics:0", BEGIN_MS, b"app-1", value)
    return [bool(table.dead), bool(replay)]


def test_both_have_the_same_settings_by_default() -> None:
    """Else they would refuse other records where the ledger says nothing."""
    assert asdict(Settings()) == asdict(TableSettings()) | {"tags": asdict(Tags())}


@pytest.mark.parametrize("value", POISON, ids=lambda value: repr(value[:60]))
def test_both_refuse_the_same_records(value: bytes) -> None:
    """The record is a dead letter, and neither of the two raises an exception."""
    assert refused(value) == [True, True]


@pytest.mark.parametrize("metric", BAD_METRICS, ids=lambda metric: metric[:60])
def test_both_refuse_the_same_metrics(metric: str) -> None:
    """The record has a dead letter for the metric."""
    assert refused(f'{HEADER},"metrics":[{metric}]}}'.encode()) == [True, True]


@pytest.mark.parametrize("value", ODD, ids=lambda value: repr(value[:60]))
def test_neither_refuses_unusual_values(value: bytes) -> None:
    """The record has no dead letter."""
    assert refused(value) == [False, False]


@pytest.mark.parametrize("metric", ODD_METRICS, ids=lambda metric: metric[:60])
def test_neither_refuses_unusual_metrics(metric: str) -> None:
    """The record has no dead letter for the metric, also if another metric of the record has one."""
    assert refused(f'{HEADER},"metrics":[{metric}]}}'.encode()) == [False, False]
    letters = run(
        Table(State()),
        [Record("metrics", 0, 0, BEGIN_MS, b"app-1", f'{HEADER},"metrics":[{metric},7]}}'.encode())],
    ).dead
    assert len(letters) == 1
