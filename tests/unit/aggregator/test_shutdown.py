"""The stop request of SIGTERM and SIGINT."""

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
def test_a_second_signal_ends_the_process(number: signal.Signals) -> None:
    """The first one sets the request. The other kind of signal still has our handler then."""
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
def test_a_second_signal_in_a_block_goes_to_the_earlier_handler(number: signal.Signals) -> None:
    """For Ctrl-C this is KeyboardInterrupt. After the block both handlers are restored."""
    received: list[int] = []
    signal.signal(number, lambda number, _frame: received.append(number))
    before = {each: signal.getsignal(each) for each in SIGNALS}
    with stop_on_signals() as stop:
        signal.raise_signal(number)
        assert stop.is_set()
        assert not received
        signal.raise_signal(number)
        assert received == [number]
    assert {each: signal.getsignal(each) for each in SIGNALS} == before
