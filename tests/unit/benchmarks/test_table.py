"""The loads of the table's benchmark, and its measurements."""

from __future__ import annotations

import json

import pytest

from benchmarks.table.loads import ALL
from benchmarks.table.measuring import measure
from support.steps import run
from tallystream_aggregator.table import State, Table

RECORDS, STEPS = 50, 4


def published(name: str) -> tuple[dict[str, int], list[str]]:
    """Return the sums by name, and the reasons of dead letters, after the steps of a load."""
    table, sums, dead = Table(State()), dict[str, int](), list[str]()
    for step in ALL[name].make(RECORDS, STEPS):
        changes = run(table, step.records)
        sums |= {total.metric[1]: json.loads(total.value())["count"] for total in changes.totals}
        dead += [letter.reason for letter in changes.dead]
    return sums, dead


@pytest.mark.parametrize("name", ["counters", "histograms", "layouts", "restarts"])
def test_a_load_without_malformed_records_is_accepted_completely(name: str) -> None:
    """There is no dead letter, so the time of refusing is not measured."""
    sums, dead = published(name)
    assert not dead
    assert all(count > 0 for count in sums.values())


def test_malformed_records_are_refused() -> None:
    """One of fifty records is not JSON."""
    _, dead = published("poison")
    assert len(dead) == STEPS


def test_an_instance_that_restarts_has_a_life_for_each_record() -> None:
    """All of its lives are in the table and count."""
    sums, _ = published("restarts")
    assert set(sums.values()) == {RECORDS * STEPS}


def test_new_metrics_are_new_in_each_snapshot() -> None:
    """One instance publishes a hundred new metrics in each snapshot, the others a hundred in total."""
    sums, _ = published("new-metrics")
    assert len(sums) == 100 + 100 * STEPS * (RECORDS // 25)


def test_no_two_layouts_are_the_same() -> None:
    """The record of each instance has another set of metrics."""
    steps = ALL["layouts"].make(500, 20)
    found = {
        frozenset(metric["name"] for metric in json.loads(record.value or b"")["metrics"])
        for step in steps
        for record in step.records
    }
    assert len(found) == 10_000


@pytest.mark.parametrize("name", ALL)
def test_the_parts_of_the_cost_add_up_to_its_total(name: str) -> None:
    """The worst step is no faster than the mean, and the sums are exact."""
    cost = measure(ALL[name].make(RECORDS, STEPS))
    assert cost.exact
    assert cost.steps == STEPS - 2
    assert cost.apply + cost.changes + cost.rows + cost.state == pytest.approx(cost.total)
    assert cost.worst >= cost.total * 0.999
