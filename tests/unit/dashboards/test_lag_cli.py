"""`tallystream lag`: what it prints, and what a monitoring check makes of it, over a real local store."""

from __future__ import annotations

import io
import json
import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from support.lag import Rounds, found, group
from tallystream.errors import ConfigError
from tallystream_aggregator.sinks.stores import StoreSettings, open_sink
from tallystream_dashboards.formatting import NOTHING
from tallystream_dashboards.lag.catch_up import Between, Drain, Drained, Never, NotKnown, Steady
from tallystream_dashboards.lag.cli import ShowSettings, exit_code, run
from tallystream_dashboards.lag.formatting import age, until_drained
from tallystream_dashboards.lag.state import GroupState
from tallystream_dashboards.lag.status import Evaluation, Rules, Status
from tallystream_dashboards.lag.time_lag import AtLeast, Exact, SecondsLag, Unknown, Zero

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> StoreSettings:
    return StoreSettings.parse(f"local:{tmp_path / 'store.db'}")


@pytest.fixture
def now_ms(store: StoreSettings) -> int:
    """Write two minutes of rounds up to now: `well` keeps up, `stopped` stood still a hundred seconds ago."""
    now, sink = round(time.time() * 1000), open_sink(store)
    sink.setup()
    rounds = Rounds()
    for second in range(121):
        well = group("well", (second * 5, second * 5), topic="t")
        stopped = group("stopped", (min(second, 20) * 5, second * 5), topic="t", members=0)
        sink.write(rounds.points(found(well, stopped), now - (120 - second) * 1000))
    sink.close()
    return now


def shown(settings: ShowSettings) -> tuple[int, str]:
    out = io.StringIO()
    return run(settings, out), out.getvalue()


def test_the_table_has_the_worst_first_and_the_reason(store: StoreSettings, now_ms: int) -> None:
    """One line a group: status, lag, time lag, rates, and why; the exit code is that of the worst."""
    code, text = shown(ShowSettings(store=store, at_ms=now_ms))
    head, first, second = text.splitlines()
    assert code == 2
    assert re.split("  +", head) == [
        *("GROUP", "STATUS", "LAG", "TIME LAG", "PRODUCED/S", "CONSUMED/S", "CATCHES UP IN", "REASON")
    ]
    assert first.split("  ")[0] == "stopped"
    for word in ("ERR", "500", "1 min 40 s", "never at this rate", "has not moved for 100 s; the group has no members"):
        assert word in first
    assert second.split()[:4] == ["well", "OK", "0", "0"]


def test_one_group_is_shown_by_partition(store: StoreSettings, now_ms: int) -> None:
    """The group asked for, its partitions, and its own exit code."""
    code, text = shown(ShowSettings(store=store, group="well", at_ms=now_ms))
    assert code == 0
    assert "stopped" not in text
    assert any(line.startswith("t/0") and " OK " in line for line in text.splitlines())


def test_a_moment_of_the_past(store: StoreSettings, now_ms: int) -> None:
    """Twenty seconds into the history the group had not stopped yet: the past is told as it was."""
    code, text = shown(ShowSettings(store=store, group="stopped", at_ms=now_ms - 100_000))
    assert (code, "ERR" in text) == (0, False)


def test_json_has_one_object_a_line(store: StoreSettings, now_ms: int) -> None:
    """Programs get numbers: the lag, the seconds, the rates, the partitions."""
    _, text = shown(ShowSettings(store=store, json=True, at_ms=now_ms))
    stopped, well = (json.loads(line) for line in text.splitlines())
    assert (stopped["group"], stopped["status"], stopped["lag"], stopped["seconds"]) == ("stopped", "ERR", 500, 100.0)
    assert (stopped["seconds_exact"], stopped["drain_s_low"], stopped["consumed_per_s"]) == (
        True,
        None,
        pytest.approx(0.83, 0.01),
    )
    assert (stopped["members"], stopped["state"], stopped["partition_count"]) == (0, "Empty", 1)
    assert "partitions" not in stopped
    _, text = shown(ShowSettings(store=store, json=True, at_ms=now_ms, group="stopped"))
    (partition,) = json.loads(text)["partitions"]
    assert (partition["status"], partition["committed"], partition["end"]) == ("STOP", 100, 600)
    assert (well["drain_s_low"], well["drain_s_high"], well["seconds"]) == (0.0, 0.0, 0.0)


def test_an_unknown_group_says_so(store: StoreSettings, now_ms: int) -> None:
    """Nothing known: exit code 3, and a sentence that says where to look."""
    code, text = shown(ShowSettings(store=store, group="nobody", at_ms=now_ms))
    assert (code, "'nobody'" in text, "--include" in text) == (3, True, True)
    assert shown(ShowSettings(store=store, group="nobody", json=True, at_ms=now_ms)) == (3, "")


def test_a_collector_that_is_silent_is_unknown(store: StoreSettings, now_ms: int) -> None:
    """What was seen too long ago is shown as that, and is no OK."""
    out = io.StringIO()
    code = run(ShowSettings(store=store, group="well"), out, clock=lambda: now_ms / 1000 + 200)
    assert (code, "was collected 3 min 20 s before" in out.getvalue(), "well" in out.getvalue()) == (3, True, True)


def test_no_collector_ever_is_unknown(store: StoreSettings) -> None:
    """An empty store says what to start."""
    code, text = shown(ShowSettings(store=store))
    assert (code, "tallystream lag collect" in text) == (3, True)


def test_rules_of_ones_own_judge_anew(store: StoreSettings, now_ms: int) -> None:
    """What the collector calls an error is none where so much lag is allowed, by group and for all."""
    rules = Rules(allowed_lag=1000)
    assert shown(ShowSettings(store=store, at_ms=now_ms, rules=rules))[0] == 0
    assert shown(ShowSettings(store=store, at_ms=now_ms, rules=rules, group="stopped"))[0] == 0


def test_a_group_that_is_gone_counts_only_where_it_is_asked_for() -> None:
    """A check of everything is not unknown for ever because a group was deleted; a check of that group is."""
    dead = replace(state(Status.NOTFOUND), gone=True)
    assert exit_code([state(Status.OK), dead]) == 0
    assert exit_code([dead]) == 0
    assert exit_code([dead], asked="g") == 3


def test_a_store_that_is_away_is_unknown() -> None:
    """No store: exit code 3 and the reason, not a trace."""
    away = StoreSettings.parse("influxdb:http://127.0.0.1:1", token="secret-token", org="o", bucket="b", env={})
    code, text = shown(ShowSettings(store=away))
    assert (code, text.startswith("The store can't be read"), "secret-token" in text) == (3, True, False)


def state(status: Status) -> GroupState:
    return GroupState("g", 1, Zero(), None, NotKnown(), Evaluation(status, "."), (), 0)


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
    """0 OK, 1 WARN, 2 ERR, 3 unknown: what is certainly bad beats what is not known."""
    assert exit_code([state(one) for one in statuses]) == code


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (Zero(), "0 s"),
        (Exact(0.4), "< 1 s"),
        (Exact(75), "1 min 15 s"),
        (AtLeast(600), "≥ 10 min"),
        (AtLeast(0), NOTHING),
        (Unknown("why"), NOTHING),
    ],
)
def test_ages(seconds: SecondsLag, text: str) -> None:
    """A bound is shown as one; what is not known is no number."""
    assert age(seconds) == text


@pytest.mark.parametrize(
    ("drain", "text"),
    [(Drained(), "now"), (Never(), "never at this rate"), (Steady(), "keeps up"), (NotKnown(), NOTHING),
     (Between(60, 60.4), "1 min"), (Between(60, 120), "1 min to 2 min"), (Between(0.1, 0.2), "< 1 s"),
     (Between(60, None), "1 min or never")],
)  # fmt: skip
def test_times_to_drain(drain: Drain, text: str) -> None:
    """A range, or what there is to say instead."""
    assert until_drained(drain) == text


@pytest.mark.parametrize(
    ("wrong", "names"),
    [
        ({"every_s": 0.1}, "--every"),
        ({"rules": Rules(window_s=0)}, "--window"),
        ({"rules": Rules(window_s=100, stop_after_s=100)}, "--stop-after"),
        ({"rules": Rules(warn_age_s=0)}, "--warn-age"),
        ({"rules": Rules(err_age_s=-1)}, "--err-age"),
        ({"rules": Rules(allowed_lag=-1)}, "--allowed-lag"),
        ({"watch": True, "at_ms": 5}, "--at"),
    ],
)
def test_settings_that_cannot_work(store: StoreSettings, wrong: dict[str, object], names: str) -> None:
    """A sentence that names the option."""
    with pytest.raises(ConfigError, match=names):
        ShowSettings(store=store, **wrong)


HOSTILE = "evil\x1b]0;title\x07\nwell  OK\u202e"


@pytest.fixture
def hostile_ms(store: StoreSettings) -> int:
    """Write a minute of a group whose name, and whose topic's, a terminal would obey."""
    now, sink = round(time.time() * 1000), open_sink(store)
    sink.setup()
    rounds = Rounds()
    for second in range(61):
        one = group(HOSTILE, (0, second * 5), topic="t\x1b[2J")
        sink.write(rounds.points(found(one), now - (60 - second) * 1000))
    sink.close()
    return now


@pytest.mark.parametrize("named", [None, HOSTILE])
@pytest.mark.parametrize("as_json", [False, True])
def test_names_are_text(store: StoreSettings, hostile_ms: int, named: str | None, as_json: bool) -> None:
    """Escapes, newlines and signs of direction in names are shown escaped, in tables and in JSON, a line each."""
    _, text = shown(ShowSettings(store=store, group=named, at_ms=hostile_ms, json=as_json))
    lines = text.splitlines()
    assert "".join(lines).isprintable()
    if as_json:
        (line,) = lines
        assert json.loads(line)["group"] == HOSTILE
    else:
        assert lines[1].startswith("evil\\x1b]0;title\\x07\\nwell  OK\\u202e")
        assert len(lines) == (2 if named is None else 5)
