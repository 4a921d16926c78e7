"""The state of every group, round after round: what the tracker evaluates and what it keeps in memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from support.lag import Rounds, group, round_of
from tallystream_dashboards.lag.offsets import PartitionOffsets
from tallystream_dashboards.lag.samples import OffsetSample, OffsetSamples, Rates
from tallystream_dashboards.lag.status import Rules, Status

T0 = 1_700_000_100_000
OFFSETS = st.integers(0, 2**63 - 1)


@given(OFFSETS, OFFSETS, st.none() | OFFSETS)
def test_lag_is_end_minus_committed(start: int, end: int, committed: int | None) -> None:
    """The lag is never negative. It is unknown without a commit, and if the commit is past the end."""
    lag = PartitionOffsets("t", 0, start, end, committed).lag
    assert lag == (None if committed is None or committed > end else end - committed)


def samples(*rows: tuple[int, int, int], window_s: int = 100) -> OffsetSamples:
    """Return samples of (seconds, committed, end)."""
    history = OffsetSamples(window_s * 1000)
    for second, committed, end in rows:
        history.add(OffsetSample(second * 1000, committed, end))
    return history


def test_rates_are_records_by_time() -> None:
    """A rate is the difference divided by the time. An offset or an end that went back has the rate 0."""
    assert samples((0, 0, 100), (10, 80, 150)).rates(10_000)[0] == Rates(5.0, 8.0)
    assert samples((0, 50, 100), (10, 20, 90)).rates(10_000)[0] == Rates(0.0, 0.0)
    assert samples((0, 0, 0), (50, 100, 50), (100, 300, 100)).rates(100_000) == (Rates(1.0, 3.0), Rates(1.0, 4.0))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=120))
def test_rates_are_those_of_all_samples(schedule: list[tuple[int, int]]) -> None:
    """Samples that are left out change no rate: a rate is that of all samples since the period began."""
    history, complete = OffsetSamples(100_000), []
    end = committed = 0
    for number, (produced, consumed) in enumerate(schedule):
        end += produced
        committed = min(end, committed + consumed)
        now_ms = number * 3000
        complete.append((now_ms, committed, end))
        history.add(OffsetSample(*complete[-1]))
        for rates, begin_ms in zip(history.rates(now_ms), (now_ms - 100_000, now_ms - 50_000), strict=True):
            first_ms, *first = next((max(one[0], begin_ms), *one[1:]) for one in complete if one[0] + 3000 > begin_ms)
            seconds = (now_ms - first_ms) / 1000
            expected = [
                (now - before) / seconds for now, before in zip((committed, end), first, strict=True) if seconds
            ]
            assert ([] if rates is None else [rates.consumed, rates.produced]) == expected


def test_samples_are_kept_for_the_window() -> None:
    """Equal samples take the space of two. Of the samples before the window only the last one is kept."""
    history = OffsetSamples(60_000)
    for second in range(0, 300, 5):
        history.add(OffsetSample(T0 + second * 1000, min(second, 100), 400))
    kept = history.all()
    assert kept[-1] == OffsetSample(T0 + 295_000, 100, 400)
    assert len(kept) <= 60 / 5
    assert kept[0].ts_ms < T0 + 235_000


def test_ages_are_thresholds() -> None:
    """OK becomes WARN a window after the oldest unconsumed record is older than --warn-age, and ERR by --err-age."""
    rounds = Rounds(Rules(window_s=50, warn_age_s=20, err_age_s=120))
    statuses = []
    for number in range(20):
        rounds.points(round_of(group("g", (number, number * 2 + 10))), T0 + number * 10_000)
        statuses.append(rounds.states[0].evaluation.status)
    assert statuses == [Status.OK] * 8 + [Status.WARN] * 7 + [Status.ERR] * 5
    assert "over 120 s" in rounds.states[0].evaluation.reason
