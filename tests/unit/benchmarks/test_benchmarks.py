"""The benchmarks: what they measure, and the limits that they find."""

from __future__ import annotations

import importlib
import math
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.aggregator.backlog import wait_for_sums
from benchmarks.aggregator.live import latencies, longest_gap
from benchmarks.aggregator.load import UpdateSlice
from benchmarks.aggregator.sides import SideError
from benchmarks.aggregator.watch import Arrival
from benchmarks.limits.__main__ import inputs
from benchmarks.limits.measuring import BYTES, cost

SENT = np.array([10.0, 10.1, 10.2, 10.3, 10.4])
TAKEN = UpdateSlice(0, np.array([5, 1, 7, 2, 3]), np.array([0] * 5))
"""Two metrics: the first grows by 5, 7 and 3, the second by 1 and 2."""
NONE = np.zeros(2, np.int64)


def test_an_update_is_timed_to_the_first_sum_that_includes_it() -> None:
    """A sum of several updates times each of them; a later sum does not time them again."""
    arrivals = [Arrival(10.5, 0, 12), Arrival(10.6, 1, 1), Arrival(11.0, 0, 15), Arrival(12.0, 1, 3)]
    found = latencies(TAKEN, NONE, SENT, arrivals)
    assert found.seconds.tolist() == pytest.approx([0.5, 0.5, 0.3, 1.7, 0.6])
    assert found.inconsistent == 0


def test_an_update_that_no_sum_includes_has_no_latency() -> None:
    """It is NaN: not zero, and not left out of the count."""
    found = latencies(TAKEN, NONE, SENT, [Arrival(10.5, 0, 5)])
    assert [math.isnan(one) for one in found.seconds] == [False, True, True, True, True]


def test_a_sum_of_no_moment_is_counted() -> None:
    """Between two readings (an old one out, the new one not in) a sum includes only what surely is in it."""
    found = latencies(TAKEN, NONE, SENT, [Arrival(10.5, 0, 11), Arrival(10.9, 0, 12)])
    assert found.inconsistent == 1
    assert found.seconds[[0, 2]].tolist() == pytest.approx([0.5, 0.7])


def test_what_was_summed_before_counts_for_the_base() -> None:
    """With a base, and updates that begin in the middle of an instance, the same values mean the same updates."""
    taken = UpdateSlice(1, TAKEN.steps, TAKEN.readings)  # the first of these updates is the second metric's
    found = latencies(taken, np.array([100, 50]), SENT, [Arrival(11.0, 1, 62), Arrival(11.0, 0, 103)])
    assert found.inconsistent == 0
    assert found.seconds.tolist() == pytest.approx([1.0, 0.9, 0.8, 0.7, math.nan], nan_ok=True)


def test_the_longest_gap_is_within_the_period() -> None:
    """It may be before the first sum or after the last one; sums outside of the period do not count."""
    arrivals = [Arrival(time_s, 0, 1) for time_s in (9.0, 10.5, 10.7, 12.0, 20.0)]
    assert longest_gap(arrivals, 10.0, 12.1) == pytest.approx(1.3)
    assert longest_gap(arrivals, 10.0, 15.0) == 3.0
    assert longest_gap([], 10.0, 15.0) == 5.0


def test_a_wrong_sum_is_never_a_result() -> None:
    """If one sum is wrong for too long, the run fails, and the error says how many are right."""
    watcher: Any = SimpleNamespace(sums=np.array([3, 5, 7]), matches=lambda _: False, poll=lambda _: 1)
    running: Any = SimpleNamespace(passed=lambda: 61)
    with pytest.raises(SideError, match="after 60 s 2 of 3 sums are right"):
        wait_for_sums(watcher, running, np.array([3, 6, 7]), 60)


def test_there_are_two_hundred_inputs_of_every_parser() -> None:
    """Each has a name of its own, and is large enough to be measured."""
    found = list(inputs())
    assert len(found) >= 200
    assert len({(one.parser, one.name) for one in found}) == len(found)
    assert set(Counter(one.parser for one in found)) == {
        *("snapshot", "sketch", "short form", "forget", "tombstone", "clock", "unreadable"),
        *("OTLP protobuf", "OTLP JSON", "OTLP sketch", "OTLP histogram"),
    }


def test_a_bound_of_a_histogram_costs_little() -> None:
    """All bounds are in one row and one sum, so the output is a few times the record, however many there are."""
    found = [cost(one) for one in inputs() if one.parser == "OTLP histogram" and not one.name.endswith(" 1 bound")]
    assert len(found) >= 10
    assert max(one.bytes_of_byte for one in found) <= BYTES


def test_the_cost_of_an_input_counts_what_it_publishes_and_stores() -> None:
    """A usual snapshot makes sums and a row, and grows the table."""
    (usual,) = [one for one in inputs() if one.name == "usual: 900 counters"]
    found = cost(usual)
    assert found.records == 1
    assert 0 < found.state < found.size < found.output < 10 * found.size
    assert found.memory > found.size


REPORTER = Path(__file__).parents[3] / "benchmarks/reporter"


def test_the_steps_of_a_report_can_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """`pieces` measures steps inside metrics: they are there, with these names."""
    monkeypatch.syspath_prepend(str(REPORTER))
    pieces = importlib.import_module("pieces")
    monkeypatch.setattr(pieces, "PAST", 1)
    assert list(pieces.microseconds(rounds=1)) == [
        "a counter: read",
        "a counter: encode as JSON",
        "a histogram: add 15 values",
        "a histogram: encode the sketch as a record struct",
        "a histogram: encode the record as JSON",
        "a sample of a local reporter: add 15 values",
        "a sample of a local reporter: compute the view",
    ]
