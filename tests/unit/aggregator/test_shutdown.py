"""A request to stop, by signals."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tallystream_aggregator.shutdown import SIGNALS, StopRequest, stop_on_signals

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_asks_for_a_stop_and_the_second_ends_the_process(number: signal.Signals) -> None:
    """After the first one the other kind still asks, too; it may be asked for again, as PySpark takes SIGINT over."""
    stop = StopRequest().install()
    assert not stop.is_set()
    signal.raise_signal(number)
    assert stop.is_set()
    assert stop.wait(60)
    assert signal.getsignal(number) is signal.SIG_DFL
    (other,) = set(SIGNALS) - {number}
    signal.raise_signal(other)
    assert signal.getsignal(other) is signal.SIG_DFL


@pytest.mark.parametrize("number", SIGNALS)
def test_within_a_block_the_second_signal_is_as_it_was_before(number: signal.Signals) -> None:
    """For Ctrl-C that is KeyboardInterrupt, by which what is open is closed; after the block all is as before."""
    came: list[int] = []
    signal.signal(number, lambda number, _frame: came.append(number))
    before = {each: signal.getsignal(each) for each in SIGNALS}
    with stop_on_signals() as stop:
        signal.raise_signal(number)
        assert stop.is_set()
        assert not came
        signal.raise_signal(number)
        assert came == [number]
    assert {each: signal.getsignal(each) for each in SIGNALS} == before
