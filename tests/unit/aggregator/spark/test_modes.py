"""The mode that a query runs in: by lag, without flapping, or as it was told."""

from __future__ import annotations

import pytest

from tallystream_aggregator.spark.query.modes import FAR_BEHIND, MAX_BATCHES_FAR_BEHIND, Choice, Mode, left

MOST = 100
FAR = FAR_BEHIND * MOST + 1


@pytest.mark.parametrize(("behind", "mode"), [(0, Mode.LIVE), (FAR - 1, Mode.LIVE), (FAR, Mode.CATCH_UP)])
def test_a_query_begins_with_the_mode_for_its_lag(behind: int, mode: Mode) -> None:
    """Up to some live batches behind it begins live: changing would take longer than these batches."""
    assert Choice(None, MOST, behind).now is mode


def test_a_backlog_ends_when_less_than_a_live_batch_is_left() -> None:
    """Not before: a live batch takes longer for the same records."""
    choice = Choice(None, MOST, FAR)
    assert [choice.finished(behind) for behind in (FAR * 9, MOST, MOST - 1)] == [False, False, True]
    assert choice.now is Mode.LIVE


def test_a_query_that_stays_far_behind_changes_to_the_backlog() -> None:
    """One burst does not count, however large: the lag must be there after several batches in a row."""
    choice = Choice(None, MOST, 0)
    burst = [FAR] * (MAX_BATCHES_FAR_BEHIND - 1) + [FAR - 1]
    assert not any(choice.finished(behind) for behind in burst * 2)
    assert [choice.finished(FAR) for _ in range(MAX_BATCHES_FAR_BEHIND)] == [False] * (MAX_BATCHES_FAR_BEHIND - 1) + [
        True
    ]
    assert choice.now is Mode.CATCH_UP


def test_lag_about_either_threshold_does_not_make_it_flap() -> None:
    """Between the two nothing changes, whichever mode runs."""
    for behind in (0, FAR):
        choice = Choice(None, MOST, behind)
        mode = choice.now
        assert not any(choice.finished(lag) for lag in [MOST, FAR - 1] * 20)
        assert choice.now is mode


@pytest.mark.parametrize("forced", list(Mode))
def test_a_plan_that_was_asked_for_is_kept(forced: Mode) -> None:
    """Whatever the lag is."""
    choice = Choice(forced, MOST, FAR if forced is Mode.LIVE else 0)
    assert not any(choice.finished(behind) for behind in [FAR] * 9 + [0] * 9)
    assert choice.now is forced


def test_what_is_left_is_told_by_the_batch() -> None:
    """Of all partitions; a partition of which nothing was read yet counts from its beginning."""
    source = {"endOffset": {"m": {"0": 5}}, "latestOffset": {"m": {"0": 9, "1": 3}}}
    assert left({"sources": [source, {"endOffset": None, "latestOffset": None}]}) == 7
