"""How many instances of an app are living, have ended, and are silent (rule 13)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.steps import BEGIN_MS, Topic, counter, run
from tallystream.ulid import new_ulid
from tallystream_aggregator.table import Record, State, Table, lives
from tallystream_aggregator.table.records.decode import CLOCK_KEY, clock_value
from tallystream_aggregator.times import DAY_MS

LIVES = [new_ulid(BEGIN_MS + number) for number in range(20)]


def report(
    topic: Topic, instance: str, life: int, seq: int, at: int, *, final: bool = False, app: str = "shop"
) -> None:
    """Append a snapshot of a life, which reports once a second."""
    topic.snapshot(counter(seq), at=at, key=instance.encode(), life=LIVES[life], seq=seq, final=final, app=app)


def pass_time(topic: Topic, at: int) -> None:
    """Append a clock record."""
    topic.append(CLOCK_KEY, clock_value(BEGIN_MS + at), at)


def published(topic: Topic, app: str = "shop") -> tuple[int, int, int] | None:
    """Return how many instances of the app are living, ended, silent, None if the last step did not publish it."""
    for total in topic.changes.instances:
        if total.metric == (app, "tallystream.instances", "instances", ()):
            fields = json.loads(total.value())
            return fields.get("instances", 0), fields["ended"], fields["silent"]
    return None


def test_rule_13_a_scale_in_ends_instances_and_leaves_none_silent() -> None:
    """Of three instances two say that they end. No later time makes them silent."""
    topic = Topic()
    for number in range(3):
        report(topic, f"app-{number}", number, 1, 0)
    assert published(topic) == (3, 0, 0)
    report(topic, "app-1", 1, 2, 500, final=True)
    report(topic, "app-2", 2, 2, 500, final=True)
    assert published(topic) == (1, 2, 0)
    report(topic, "app-0", 0, 2, 60_000)
    assert published(topic) is None


def test_rule_13_a_tombstone_ends_an_instance_without_metrics() -> None:
    """There are no rows to remove, and the life is living until then."""
    topic = Topic().snapshot()
    assert published(topic) == (1, 0, 0)
    topic.append(b"app-1", None)
    assert published(topic) == (0, 1, 0)


def test_rule_13_a_batch_job_has_ended_until_it_runs_again() -> None:
    """Each run is a new life under the same ID."""
    topic = Topic()
    for run_number in range(3):
        at = run_number * 10_000
        report(topic, "job", run_number, 1, at)
        assert published(topic) == (1, 0, 0)
        report(topic, "job", run_number, 2, at + 900, final=True)
        assert published(topic) == (0, 1, 0)
        pass_time(topic, at + 9_000)
        assert published(topic) is None


@pytest.mark.parametrize("few", [0, 100])
def test_rule_13_processes_of_one_host_end_together(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The children of a pool share an ID. It is living until the last one has ended."""
    monkeypatch.setattr(lives, "FEW_LIVES", few)
    topic = Topic()
    for child in range(4):
        report(topic, "host", child, 1, child)
    for child in range(3):
        report(topic, "host", child, 2, 100 + child, final=True)
        assert published(topic) == (1, 0, 0)  # the number of its living lives has changed
    report(topic, "host", 3, 2, 200, final=True)
    assert published(topic) == (0, 1, 0)
    pass_time(topic, 60_000)
    assert published(topic) is None


def test_rule_13_a_crash_makes_an_instance_silent() -> None:
    """An instance that stopped without a final record is silent after three intervals."""
    topic = Topic()
    report(topic, "app-1", 0, 1, 0)
    pass_time(topic, 2_999)
    assert published(topic) is None
    pass_time(topic, 3_000)
    assert published(topic) == (0, 0, 1)


@pytest.mark.parametrize("few", [0, 100])
def test_rule_13_a_killed_instance_that_starts_again_is_living(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the same ID it is living again, and ended after its final record. Under another ID the old one is silent.

    That lasts until its life is forgotten.
    """
    monkeypatch.setattr(lives, "FEW_LIVES", few)
    topic = Topic()
    report(topic, "app-1", 0, 1, 0)
    pass_time(topic, 10_000)
    report(topic, "app-1", 1, 1, 11_000)
    assert published(topic) == (1, 0, 0)
    report(topic, "app-1", 1, 2, 12_000, final=True)
    assert published(topic) == (0, 1, 0)
    report(topic, "app-2", 2, 1, 12_000)
    pass_time(topic, 20_000)
    assert published(topic) == (0, 1, 1)
    report(topic, "app-3", 3, 1, 20_000)
    assert published(topic) == (1, 1, 1)
    pass_time(topic, 8 * DAY_MS)
    assert published(topic) == (0, 0, 0)
    pass_time(topic, 8 * DAY_MS + 1)
    assert published(topic) is None


@pytest.mark.parametrize("few", [0, 100])
def test_rule_13_a_life_that_is_forgotten_is_not_living(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has noticed before that it was silent. The instance has ended with its other life."""
    monkeypatch.setattr(lives, "FEW_LIVES", few)
    topic, at = Topic().snapshot(), 8 * DAY_MS
    with topic.one_step():
        topic.snapshot(life=new_ulid(BEGIN_MS + at), at=at, final=True)
        pass_time(topic, at)
    assert published(topic) == (0, 1, 0)


def test_rule_13_the_last_record_decides() -> None:
    """Of two lives of an instance that stopped, the one with the later record says whether it ended."""
    topic = Topic()
    report(topic, "host", 0, 1, 0)
    report(topic, "host", 1, 1, 100)
    report(topic, "host", 0, 2, 200, final=True)
    pass_time(topic, 10_000)
    assert published(topic) == (0, 1, 0)
    report(topic, "host", 1, 2, 20_000)
    pass_time(topic, 30_000)
    assert published(topic) == (0, 0, 1)
    report(topic, "host", 1, 3, 30_000, final=True)
    assert published(topic) == (0, 1, 0)


def test_rule_13_a_report_that_changes_no_state_publishes_no_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does it ask for a state."""
    topic = Topic()
    report(topic, "app-1", 0, 1, 0)
    monkeypatch.setattr(lives, "state_by", None)
    report(topic, "app-1", 0, 2, 10)
    assert topic.changes.totals
    assert published(topic) is None


def test_rule_13_a_silent_fleet_that_returns_in_one_step_publishes_nothing() -> None:
    """The numbers are those at the end of a step."""
    table = Table(State())
    first: dict[str, Any] = {"v": 1, "app": "a", "life": LIVES[0], "part": 0, "ts": 0, "every_ms": 1000, "final": False}

    def snapshot(offset: int, at: int) -> Record:
        value = json.dumps({**first, "seq": offset + 1, "metrics": [counter(offset)]}).encode()
        return Record("metrics", 0, offset, BEGIN_MS + at, b"i", value)

    run(table, [snapshot(0, 0)])
    changes = run(table, [snapshot(1, 90_000)])
    assert ([total.type for total in changes.totals], changes.instances) == (["counter"], [])
