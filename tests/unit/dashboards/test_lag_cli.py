"""`tallystream lag`: its output and its exit code, from a local store."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from support.lag import Rounds, group, round_of
from support.printed import cells, printed
from support.stores import write
from tallystream_aggregator.sinks.base import Point
from tallystream_aggregator.sinks.stores import StoreSettings
from tallystream_dashboards.exit_codes import BAD
from tallystream_dashboards.formatting import DASH
from tallystream_dashboards.lag import time_lag
from tallystream_dashboards.lag.state import GroupState
from tallystream_dashboards.lag.status import Evaluation, Status
from tallystream_dashboards.lag.time_lag import NO_LAG, TimeLag
from tallystream_dashboards.terminal.lag import ShowSettings, exit_code
from tallystream_dashboards.terminal.top import TopSettings


@pytest.fixture
def store(tmp_path: Path) -> StoreSettings:
    return StoreSettings.parse(f"local:{tmp_path / 'store.db'}")


@pytest.fixture
def now_ms(store: StoreSettings) -> int:
    """Write two minutes of rounds up to now: `well` keeps up, `stopped` has not committed for a hundred seconds."""
    now, rounds = round(time.time() * 1000), Rounds()
    points: list[Point] = []
    for second in range(121):
        well = group("well", (second * 5, second * 5), topic="t")
        stopped = group("stopped", (min(second, 20) * 5, second * 5), topic="t", members=0)
        points += rounds.points(round_of(well, stopped), now - (120 - second) * 1000)
    assert write(store, points) == 0
    return now


def test_the_table_has_the_worst_first_and_the_reason(store: StoreSettings, now_ms: int) -> None:
    """Each group has a line with status, lag, time lag, rates and reason. The exit code is that of the worst."""
    code, (head, first, second) = printed(ShowSettings(store=store, at_ms=now_ms))
    assert code == 2
    assert cells(head) == [
        *("GROUP", "STATUS", "LAG", "TIME LAG", "PRODUCED/S", "CONSUMED/S", "CATCHES UP IN", "REASON")
    ]
    assert first.split("  ")[0] == "stopped"
    for word in ("ERR", "500", "1 min 40 s", "never at this rate", "has not moved for 100 s; the group has no members"):
        assert word in first
    assert second.split()[:4] == ["well", "OK", "0", "0"]


def test_a_moment_in_the_past(store: StoreSettings, now_ms: int) -> None:
    """A hundred seconds ago the group had not stopped yet, so it is not ERR at that time."""
    code, lines = printed(ShowSettings(store=store, group="stopped", at_ms=now_ms - 100_000))
    assert (code, "ERR" in "".join(lines)) == (0, False)


def test_json_has_one_object_a_line(store: StoreSettings, now_ms: int) -> None:
    """Each line is an object with the lag, the seconds, the rates, and the partitions of a group."""
    _, lines = printed(ShowSettings(store=store, json=True, at_ms=now_ms))
    stopped, well = map(json.loads, lines)
    assert (stopped["group"], stopped["status"], stopped["lag"], stopped["seconds"]) == ("stopped", "ERR", 500, 100.0)
    assert (stopped["exact"], stopped["drain_low"], stopped["consumed"]) == (True, None, pytest.approx(0.83, 0.01))
    assert (stopped["members"], stopped["broker_state"], stopped["partition_count"]) == (0, "Empty", 1)
    assert "partitions" not in stopped
    _, (line,) = printed(ShowSettings(store=store, json=True, at_ms=now_ms, group="stopped"))
    (partition,) = json.loads(line)["partitions"]
    assert (partition["status"], partition["committed"], partition["end"]) == ("STOP", 100, 600)
    assert (well["drain_low"], well["drain_high"], well["seconds"]) == (0.0, 0.0, 0.0)


def test_an_unknown_group_is_an_error(store: StoreSettings, now_ms: int) -> None:
    """The exit code is 3, and a sentence says what to check."""
    code, (line,) = printed(ShowSettings(store=store, group="nobody", at_ms=now_ms))
    assert (code, "'nobody'" in line, "--include" in line) == (3, True, True)
    assert "There are: stopped, well." in line
    _, (line,) = printed(ShowSettings(store=store, group="stoped", at_ms=now_ms))
    assert "Did you mean stopped?" in line
    assert printed(ShowSettings(store=store, group="nobody", json=True, at_ms=now_ms)) == (3, [])


def test_old_lag_is_unknown(store: StoreSettings, now_ms: int) -> None:
    """If the newest lag is too old, the output says so, and the exit code is 3, not that of OK."""
    code, lines = printed(ShowSettings(store=store, group="well"), now_ms=now_ms + 200_000)
    assert (code, "was collected 3 min 20 s before" in lines[-1], "well" in lines[1]) == (3, True, True)


def test_an_empty_store_is_unknown(store: StoreSettings) -> None:
    """The output says what to start."""
    code, (line,) = printed(ShowSettings(store=store))
    assert (code, "tallystream lag collect" in line) == (3, True)


def test_a_group_that_is_gone_counts_only_if_it_is_requested() -> None:
    """A deleted group does not change the exit code of all groups. Its own is 3."""
    gone = replace(state(Status.NOTFOUND), gone=True)
    assert exit_code([state(Status.OK), gone]) == 0
    assert exit_code([gone]) == 0
    assert exit_code([gone], group="g") == 3


def state(status: Status) -> GroupState:
    return GroupState("g", Evaluation(status, "."), 0, lag=1, time_lag=NO_LAG)


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        ([], 3),
        ([Status.OK, Status.OK], 0),
        ([Status.OK, Status.NOTFOUND], 3),
        ([Status.NOTFOUND, Status.WARN], 1),
        ([Status.WARN, Status.ERR, Status.NOTFOUND], 2),
    ],
)
def test_exit_codes(statuses: list[Status], code: int) -> None:
    """The code is 0 for OK, 1 for WARN, 2 for ERR, 3 for unknown. WARN and ERR take precedence over unknown."""
    assert exit_code([state(one) for one in statuses]) == code


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (NO_LAG, "0 s"),
        (TimeLag(0.4), "< 1 s"),
        (TimeLag(75), "1 min 15 s"),
        (TimeLag(600, exact=False), "≥ 10 min"),
        (TimeLag(1, exact=False), "≥ 1 s"),
        (TimeLag(0, exact=False), DASH),
        (None, DASH),
    ],
)
def test_time_lags(seconds: TimeLag | None, text: str) -> None:
    """A lower bound has a sign; an unknown time lag is a dash."""
    assert time_lag.text(seconds) == text


HOSTILE = "evil\x1b]0;title\x07\nwell  OK\u202e"


@pytest.fixture
def hostile_ms(store: StoreSettings) -> int:
    """Write rounds of a group that has stopped, whose name and topic have control characters."""
    now, rounds = round(time.time() * 1000), Rounds()
    points: list[Point] = []
    for second in range(71):
        one = group(HOSTILE, (0, second * 5), topic="t\x1b[2J")
        points += rounds.points(round_of(one), now - (70 - second) * 1000)
    assert write(store, points) == 0
    return now


@pytest.mark.parametrize("named", [None, HOSTILE])
@pytest.mark.parametrize("as_json", [False, True])
def test_names_are_text(store: StoreSettings, hostile_ms: int, named: str | None, as_json: bool) -> None:
    """Escape sequences, newlines and direction characters in names are escaped, in tables and in JSON."""
    _, lines = printed(ShowSettings(store=store, group=named, at_ms=hostile_ms, json=as_json))
    assert "".join(lines).isprintable()
    if as_json:
        (line,) = lines
        assert json.loads(line)["group"] == HOSTILE
    else:
        assert lines[1].startswith("evil\\x1b]0;title\\x07\\nwell  OK\\u202e")
        assert len(lines) == (2 if named is None else 5)


def test_names_in_the_sentences_of_top_are_text(store: StoreSettings, hostile_ms: int) -> None:
    """The name of a group that has stopped is escaped in what is not well, too."""
    code, lines = printed(TopSettings(store=store), now_ms=hostile_ms)
    text = "".join(lines)
    assert (code, text.isprintable(), "Group evil\\x1b]0;title\\x07\\nwell" in text) == (BAD, True, True)
