"""The signal of a call that took too long; None if blinker is not installed, as in pyformance."""

from __future__ import annotations

from typing import Any

timer_signals: Any = None
call_too_long: Any = None

try:
    from blinker import Namespace
except ImportError:
    pass
else:
    timer_signals = Namespace()
    call_too_long = timer_signals.signal("call_too_long")
