"""The hostile inputs of `make limits`."""

from __future__ import annotations

from collections import Counter

from benchmarks.limits.__main__ import inputs
from benchmarks.limits.measuring import cost


def test_there_are_two_hundred_inputs_of_every_parser() -> None:
    """Each has a name of its own, and is large enough to be measured."""
    found = list(inputs())
    assert len(found) >= 200
    assert len({(one.parser, one.name) for one in found}) == len(found)
    assert set(Counter(one.parser for one in found)) == {
        *("snapshot", "sketch", "short form", "forget", "tombstone", "clock", "unreadable"),
        *("OTLP protobuf", "OTLP JSON", "OTLP sketch", "OTLP histogram"),
    }


def test_the_cost_of_an_input_counts_what_it_publishes_and_stores() -> None:
    """A usual snapshot makes sums and a row, and grows the table."""
    (usual,) = [one for one in inputs() if one.name == "usual: 900 counters"]
    found = cost(usual)
    assert found.records == 1
    assert 0 < found.state < found.size < found.output < 10 * found.size
    assert found.memory > found.size
