"""The cache of a text that is slow to render."""

from __future__ import annotations

import pytest

from tallystream.testing import ManualClock
from tallystream_aggregator.health.server import CachedText


@pytest.fixture
def clock() -> ManualClock:
    """The clock of the text."""
    return ManualClock()


def test_a_slow_text_is_cached(clock: ManualClock) -> None:
    """A newer version is rendered after five times the rendering time of the last one."""
    cached, made = CachedText(clock.monotonic), []

    def make() -> str:
        made.append(len(made))
        clock.advance(2)
        return f"text {len(made)}"

    assert [cached.body(1, make), cached.body(1, make), cached.body(2, make)] == [b"text 1"] * 3
    clock.advance(9.9)
    assert cached.body(3, make) == b"text 1"
    clock.advance(0.2)
    assert cached.body(3, make) == b"text 2"
    clock.advance(60)
    assert cached.body(3, make) == b"text 2"
    cached.clear()
    assert cached.body(3, make) == b"text 3"


def test_a_fast_text_is_never_outdated(clock: ManualClock) -> None:
    """Each version is rendered when it is requested."""
    cached = CachedText(clock.monotonic)
    assert [cached.body(number, lambda n=number: f"{n}") for number in range(3)] == [b"0", b"1", b"2"]
