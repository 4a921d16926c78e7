"""Signals as a KeyboardInterrupt of code that asks for it."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from tallystream_cli.local.system import interruptible

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def hangup_ends_this_process() -> Iterator[None]:
    """The default handler of SIGHUP, also if these tests run with nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hangup_ends_this_process")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_only_code_that_checks_is_interrupted(number: signal.Signals) -> None:
    """The orderly stop after a signal, which does not check, is not cut short; the earlier handlers are restored."""
    before = signal.getsignal(number)
    with interruptible() as check:
        check()
        for _ in range(2):
            os.kill(os.getpid(), number)
            with pytest.raises(KeyboardInterrupt):
                check()
    assert signal.getsignal(number) == before


@pytest.mark.usefixtures("hangup_ends_this_process")
def test_with_nohup_a_closed_terminal_does_not_interrupt() -> None:
    """A SIGHUP that is ignored before stays ignored."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with interruptible() as check:
        os.kill(os.getpid(), signal.SIGHUP)
        check()
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
