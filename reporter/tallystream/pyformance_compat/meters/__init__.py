"""The metric classes."""

from __future__ import annotations

from tallystream.pyformance_compat.meters.counter import Counter, CounterFellWarning
from tallystream.pyformance_compat.meters.gauge import CallbackGauge, Gauge, SimpleGauge
from tallystream.pyformance_compat.meters.histogram import Histogram
from tallystream.pyformance_compat.meters.meter import Meter
from tallystream.pyformance_compat.meters.timer import Timer, TimerContext

__all__ = [
    "CallbackGauge",
    "Counter",
    "CounterFellWarning",
    "Gauge",
    "Histogram",
    "Meter",
    "SimpleGauge",
    "Timer",
    "TimerContext",
]
