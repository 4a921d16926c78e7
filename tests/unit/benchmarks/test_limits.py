"""The hostile inputs of `make limits`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from benchmarks.limits import __main__ as limits
from benchmarks.limits.__main__ import inputs
from benchmarks.limits.measuring import BYTES, cost

if TYPE_CHECKING:
    import pytest


def test_there_are_two_hundred_inputs_of_every_parser() -> None:
    """Each has a name of its own, and is large enough to be measured."""
    found = list(inputs())
    assert len(found) >= 200
    assert len({(one.parser, one.name) for one in found}) == len(found)
    assert set(Counter(one.parser for one in found)) == {
        *("snapshot", "sketch", "short form", "forget", "tombstone", "clock", "unreadable"),
        *("OTLP protobuf", "OTLP JSON", "OTLP sketch", "OTLP histogram"),
    }


def test_only_what_is_documented_may_be_beyond_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams with a start time each are: a point makes a life with a row, a sum and perhaps an event."""
    arguments = ["--only", "OTLP protobuf: 1000 streams, each after"]
    assert limits.main(arguments) == 0
    monkeypatch.setattr(limits, "DOCUMENTED", {"streams": (1_000.0, 10.0)})
    assert limits.main(arguments) == 1


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
