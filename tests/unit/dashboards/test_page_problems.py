"""What the page lists as not well: from which data, in which order, and in which words."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from support.stores import write
from tallystream_aggregator.shipping.points import point
from tallystream_aggregator.sinks.base import Point
from tallystream_aggregator.sinks.stores import StoreSettings, open_store
from tallystream_aggregator.sums import Sum
from tallystream_dashboards.data.groups import GroupsNow
from tallystream_dashboards.data.observed import AppInstances, Observed, read_observed
from tallystream_dashboards.data.problems import Problem, action, problems
from tallystream_dashboards.lag.changes import limit
from tallystream_dashboards.lag.state import GroupState
from tallystream_dashboards.lag.status import Evaluation, Rules, Status, evaluate_group
from tallystream_dashboards.lag.time_lag import TimeLag
from tallystream_dashboards.page.url_state import Selection

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_700_000_000_000
MINUTE = 60_000
WELL = Observed(read_ms=NOW - 10_000, apps=(AppInstances("a", 2),))
"""The state of a pipeline that works."""


def state(name: str, status: Status = Status.OK, seconds: float = 0, **fields: object) -> GroupState:
    """Return a group with this status, whose oldest unread record is `seconds` old."""
    evaluation = Evaluation(status, f"The reason of {name}.")
    known = GroupState(name, evaluation, NOW, lag=5, time_lag=TimeLag(seconds), since_ms=NOW - 5 * MINUTE)
    return replace(known, **fields)  # type: ignore[arg-type]  # a test names only fields that exist


def found_in(*states: GroupState, observed: Observed = WELL, round_ms: int | None = NOW - 2000) -> list[Problem]:
    """Return the problems of these groups and this pipeline."""
    return problems(GroupsNow(states, round_ms), observed, now_ms=NOW)


def listed(*states: GroupState, observed: Observed = WELL, round_ms: int | None = NOW - 2000) -> list[tuple[str, str]]:
    """Return what the problems are and the slugs of their rules."""
    return [(one.what, one.slug) for one in found_in(*states, observed=observed, round_ms=round_ms)]


def test_a_group_has_its_status_reason_and_time() -> None:
    """A problem of a group is what the collector says of it, and its details are the view of the group."""
    (found,) = found_in(state("billing", Status.ERR))
    assert found == Problem(
        "Group billing is ERR",
        "The reason of billing.",
        "lag-status",
        since_ms=NOW - 5 * MINUTE,
        severity="critical",
        details={"view": "groups", "group": "billing"},
    )


@pytest.mark.parametrize(
    ("status", "remedy"),
    [
        (Status.STOP, " STOP: start the consumers."),
        (Status.STALL, " STALL: find the record at which they fail."),
        (Status.REWIND, " REWIND: find out who reset the offsets."),
    ],
)
def test_only_the_fitting_part_of_the_remedy_is_shown(status: Status, remedy: str) -> None:
    """What to do has nothing about statuses that no partition has, or about the end of an alert."""
    general = "Run tallystream lag with the group's name: it shows since when, why, and which partitions."
    offsets = evaluate_group([("orders/0", Evaluation(status, "Why.")), ("orders/1", Evaluation(Status.OK, ""))])
    (found,) = found_in(replace(state("billing"), evaluation=offsets))
    assert action([found]) == general + remedy
    (unread,) = found_in(state("a", stale=True))
    assert action([unread]) == general
    assert action([unread, found]) == general + remedy


def test_the_remedy_is_that_of_the_status_that_waits() -> None:
    """A WARN that is a STALL soon has the remedy of a STALL, but no alert yet, unless its age has one."""
    before = Evaluation(Status.WARN, "It is late.", changed_ms=NOW - MINUTE)
    stopped = {("orders", 0): Evaluation(Status.STALL, "4 records wait.")}
    (shown,) = limit(stopped, {("orders", 0): before}, before, now_ms=NOW, rules=Rules()).values()
    evaluation = evaluate_group([("orders/0", shown)])
    for seconds, slug, has_alert in (60, "lag-status", False), (301, "lag-seconds", True):
        (found,) = found_in(replace(state("billing", seconds=seconds), evaluation=evaluation))
        assert (found.what, found.slug, found.has_alert) == ("Group billing is WARN", slug, has_alert)
        assert ("STALL: find the record" in action([found])) == (slug == "lag-status")


def test_a_group_that_is_ok_while_it_stops_is_not_well() -> None:
    """Its status may not change yet. What waits to be OK or WARN is no problem."""
    before = Evaluation(Status.OK, "The lag is 0.", changed_ms=NOW - MINUTE)
    for status, found in (Status.STALL, ["Group billing will be ERR unless it goes on"]), (Status.WARN, []):
        waiting = {("orders", 0): Evaluation(status, "4 records wait.")}
        (shown,) = limit(waiting, {("orders", 0): before}, before, now_ms=NOW, rules=Rules()).values()
        group = replace(state("billing"), evaluation=evaluate_group([("orders/0", shown)]))
        assert [one.what for one in found_in(group)] == found


@pytest.mark.parametrize(
    ("fell_silent", "command"),
    [
        (["shop"], "tallystream instances shop"),
        (["shop floor"], "tallystream instances 'shop floor'"),
        (["billing", "shop"], "tallystream instances"),
        ([], "tallystream instances"),
    ],
)
def test_the_remedy_names_the_app_if_it_is_one(fell_silent: list[str], command: str) -> None:
    """The command can be pasted as it is. Without an app it lists all of them."""
    apps = [AppInstances(name, 1, 0, 2, 2, NOW) for name in fell_silent] or [AppInstances("a", 0, silent=1)]
    found = found_in(observed=replace(WELL, apps=tuple(replace(one, silent_since_ms=NOW) for one in apps)))
    assert {one.slug for one in found} == {"instance-silent"}
    assert action(found) == f"Find the silent instance with {command}, and check its log and its host."


def test_only_what_has_a_rule_is_an_alert() -> None:
    """No rule fires on WARN, on what was not read, and if no instance of any app reports."""
    fell_silent = AppInstances("a", 0, silent=2, fell_silent=2, silent_since_ms=NOW)
    silent, none = (replace(WELL, apps=(one,)) for one in (fell_silent, replace(fell_silent, fell_silent=0)))
    states = [state("a", Status.ERR), state("b", Status.WARN), state("c", Status.WARN, 301), state("d", stale=True)]
    assert {one.what: one.has_alert for one in found_in(*states, observed=silent)} == {
        "Group a is ERR": True,
        "Group b is WARN": False,
        "Group c is WARN": True,
        "2 instances of the app a fell silent": True,
        "The newest round did not read all of d": False,
    }
    assert [(one.what, one.has_alert) for one in found_in(observed=none)] == [("No instance reports", False)]


def test_the_worst_is_first() -> None:
    """Outdated lag makes everything else uncertain, so it is first. Critical problems precede warnings."""
    states = [state("a", Status.ERR), state("b", Status.WARN), state("late", seconds=301), state("tallystream-shipper")]
    observed = replace(WELL, read_ms=NOW - 3 * MINUTE, dead_letters=2)
    assert listed(*states, observed=observed, round_ms=NOW - 6 * MINUTE) == [
        ("No lag has been collected for 6 min", "collector-down"),
        ("No aggregator works", "aggregator-down"),
        ("Group a is ERR", "lag-status"),
        ("Group b is WARN", "lag-seconds"),
        ("Group late is 5 min 1 s behind", "lag-seconds"),
        ("2 dead letters in ten minutes", "dead-letters"),
    ]


@pytest.mark.parametrize(
    ("own", "seconds", "found"),
    [
        ("prod-tallystream-shipper", 121, [("Group prod-tallystream-shipper is 2 min 1 s behind", "sink-behind")]),
        ("prod-tallystream-shipper", 120, []),
        (
            "prod-tallystream-aggregator",
            301,
            [("Group prod-tallystream-aggregator is 5 min 1 s behind", "aggregator-down")],
        ),
        ("orders", 300, []),
    ],
)
def test_the_own_groups_have_their_own_sections(own: str, seconds: float, found: list[tuple[str, str]]) -> None:
    """A lag of the shipper or the aggregator leads to its section. The thresholds are those of the alerts."""
    assert listed(state(own, seconds=seconds)) == found


def test_a_shipper_that_is_behind_hides_the_age_of_the_last_record() -> None:
    """What the aggregator read is known from the store, so it is old if the shipper writes nothing."""
    observed = replace(WELL, read_ms=NOW - 5 * MINUTE)
    assert listed(state("tallystream-shipper", seconds=200), observed=observed) == [
        ("Group tallystream-shipper is 3 min 20 s behind", "sink-behind")
    ]
    assert listed(observed=replace(WELL, read_ms=NOW - 25 * 60 * MINUTE)) == [], "it publishes no metrics of its own"


@pytest.mark.parametrize(
    ("observed", "found"),
    [
        (replace(WELL, apps=()), []),
        (replace(WELL, apps=(AppInstances("a", 0, ended=3), AppInstances("b", 1))), []),
        (replace(WELL, apps=(AppInstances("a", 0, ended=3), AppInstances("b", 0, ended=1))), []),
        (replace(WELL, apps=(AppInstances("a", 1, 0, 2, 0, NOW),)), []),
        (
            replace(WELL, apps=(AppInstances("a", 0, ended=3), AppInstances("b", 0, 0, 1, 0, NOW))),
            [("No instance reports", "instance-silent")],
        ),
        (
            replace(WELL, apps=(AppInstances("a", 1, 0, 2, 2, NOW),)),
            [("2 instances of the app a fell silent", "instance-silent")],
        ),
        (
            replace(WELL, apps=(AppInstances("a", 0, 0, 3, 1, NOW),)),
            [("1 instance of the app a fell silent", "instance-silent")],
        ),
        (
            replace(WELL, apps=(AppInstances("a", 0, ended=3), AppInstances("b", 0, 2, 1, 1, NOW))),
            [("1 instance of the app b fell silent", "instance-silent")],
        ),
        (replace(WELL, dead_letters=1), [("1 dead letter in ten minutes", "dead-letters")]),
    ],
)
def test_the_pipeline_has_problems(observed: Observed, found: list[tuple[str, str]]) -> None:
    """Silent instances and dead letters are listed. Without a round nothing is known."""
    assert listed(observed=observed) == found
    assert listed(observed=observed, round_ms=None) == []


def test_no_instance_reports_since_the_last_one_became_silent() -> None:
    """The aggregator says whether an instance is living, by its own interval, so old lag does not matter."""
    apps = (
        AppInstances("a", 0, silent=1, silent_since_ms=NOW - 70 * MINUTE),
        AppInstances("b", 0, silent=1, silent_since_ms=NOW - 90 * MINUTE),
    )
    _, found = found_in(observed=replace(WELL, apps=apps), round_ms=NOW - 6 * MINUTE)
    assert (found.what, found.since_ms) == ("No instance reports", NOW - 70 * MINUTE)


def _observed(folder: Path, points: list[Point]) -> Observed:
    """Return what is read from a store with these points."""
    settings = StoreSettings.parse(f"local:{folder / 'store.db'}", retention_days=0)
    assert write(settings, points) == 0
    period = Selection().period(NOW)
    with closing(open_store(settings)) as reader:
        return read_observed(reader, end_ms=period.end_ms, until_ms=period.until_ms)


def _numbers(app: str, numbers: tuple[int, int, int], ts_ms: int) -> Point:
    """Return the point of a sum with the numbers of living, ended and silent instances."""
    row = Sum(app=app, name="tallystream.instances", type="instances", ts=ts_ms)
    row.instances, row.ended, row.silent = numbers
    return point(row)


def test_a_scale_in_is_no_problem_and_a_crash_is_one_for_an_hour(tmp_path: Path) -> None:
    """Also a batch job and a finished pool have ended. What reports again under its ID is no problem any more."""

    def observed(*history: tuple[int, tuple[int, int, int]]) -> Observed:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        return _observed(folder, [_numbers("orders", numbers, NOW - ago * MINUTE) for ago, numbers in history])

    started = (300, (3, 0, 0))
    assert listed(observed=observed(started, (10, (1, 2, 0)), (5, (0, 3, 0)))) == []
    crashed = (10, (2, 0, 1))
    (found,) = found_in(observed=observed(started, crashed))
    assert (found.what, found.since_ms) == ("1 instance of the app orders fell silent", NOW - 10 * MINUTE)
    assert found.why.endswith("The app's instances: 2 living, 0 ended, 1 silent.")
    assert listed(observed=observed(started, crashed, (8, (3, 0, 0)))) == []
    assert listed(observed=observed(started, (70, (2, 0, 1)))) == []
    (found,) = found_in(observed=observed(started, (70, (0, 2, 1))))
    assert (found.what, found.since_ms) == ("No instance reports", NOW - 70 * MINUTE)


def test_what_was_not_read() -> None:
    """Groups that the newest round did not read are one problem."""
    states = [state("a", stale=True), state("b", stale=True)]
    assert listed(*states) == [("The newest round did not read all of a and 1 more", "lag-status")]


def test_the_state_of_the_pipeline_is_read(tmp_path: Path) -> None:
    """The newest record that was read, living instances and dead letters are read from the store, with their times.

    Aggregator and shipper publish their own metrics to the same topic: they are no instances of an app.
    """
    own = {"app": "tallystream", "command": "aggregate"}
    points = [Point("tallystream.input.records", own | {"metric_type": "counter"}, {"count": 7}, NOW - 40_000)]
    for ago, dead, silent in ((2000, 3, 1), (500, 3, 1), (200, 8, 3), (100, 9, 3)):
        ts = NOW - ago * 1000
        points.append(Point("tallystream.table.dead_letters", own | {"metric_type": "gauge"}, {"max": dead}, ts))
        points += [_numbers("orders", (5 - silent, 4, silent), ts), _numbers("tallystream", (1, 0, 0), ts)]
    assert _observed(tmp_path, points) == Observed(
        read_ms=NOW - 40_000,
        apps=(AppInstances("orders", 2, 4, 3, 2, NOW - 200_000),),
        dead_letters=6,
        dead_letters_since_ms=NOW - 200_000,
    )
