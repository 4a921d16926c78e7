"""Format numbers and times for people. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import tzinfo

DASH = "\N{EN DASH}"


def number(value: float | None) -> str:
    """Return an integer with thousands separators, another number rounded, or a dash for None.

    A float from 1e21 on has an exponent: it may have 309 digits.
    """
    if value is None:
        return DASH
    if isinstance(value, float) and abs(value) >= 1e21:
        return repr(value)
    if isinstance(value, int) or value.is_integer():
        return f"{int(value):,}"
    if abs(value) >= 100:
        return f"{value:,.1f}"
    return f"{value:,.2f}" if abs(value) >= 0.1 else f"{value:.3g}"


def counted(count: int, noun: str, one: str = "", several: str = "") -> str:
    """Return `1 member` or `2,000 members`, and the verb for `one` or for `several`, as in `1 member has`."""
    ending, verb = ("", one) if count == 1 else ("s", several)
    return f"{count:,} {noun}{ending} {verb}".rstrip()


def rate(value: float | None) -> str:
    """Return a rate without its unit, with at most one decimal if it is not an integer."""
    if value is None:
        return DASH
    rounded = round(float(value), 1)
    return number(rounded) if rounded.is_integer() else f"{rounded:,.1f}"


def per_second(value: float | None) -> str:
    """Return a rate with its unit, `/s`."""
    return DASH if value is None else f"{rate(value)}/s"


def duration(seconds: float) -> str:
    """Return a duration in its two largest units: `4 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`. Negative counts as 0."""
    whole = max(0, int(seconds))
    for size, name, smaller_size, smaller in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller_size
            return f"{whole // size} {name}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"


def mean_time(seconds: float) -> str:
    """Return a mean time with three digits and its unit, `3.21 µs` or `12.5 ms`; from a minute, a duration."""
    if seconds >= 60:
        return duration(seconds)
    for factor, unit in ((1e6, "µs"), (1e3, "ms"), (1, "s")):
        shown = f"{seconds * factor:.3g}"
        if seconds and float(shown) < 1000:
            return f"{shown} {unit}"
    return "0 s"


def clock(time_ms: int, zone: tzinfo = UTC, *, now_ms: int) -> str:
    """Return the time of day in `zone`, with the date if it is not today's. A time without a date is a number of ms.

    `UTC` is named: it is not the reader's own zone.
    """
    try:
        time, now = (datetime.fromtimestamp(ms / 1000, zone) for ms in (time_ms, now_ms))
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"
    text = time.strftime("%H:%M:%S" if time.date() == now.date() else "%Y-%m-%d %H:%M:%S")
    return f"{text} UTC" if zone is UTC else text
