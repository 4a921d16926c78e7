"""A collector and its store: outages, a clock that is set back, and downsampled history."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from support.lag import Rounds, group, round_of
from tallystream.errors import TallystreamError
from tallystream_aggregator.sinks.base import Point, Refused, SinkUnavailableError
from tallystream_aggregator.sinks.sqlite.sink import LocalStore
from tallystream_dashboards.lag.collector.collector import Collector
from tallystream_dashboards.lag.collector.kafka_admin import BrokerUnavailableError
from tallystream_dashboards.lag.collector.recorder import Downsampler
from tallystream_dashboards.lag.collector.tracker import Round
from tallystream_dashboards.lag.offsets import RoundOffsets
from tallystream_dashboards.lag.reader import last_round_ms, read_group, read_groups
from tallystream_dashboards.lag.state import GroupState
from tallystream_dashboards.lag.status import Rules, Status
from tallystream_dashboards.lag.storage import ALL, ENDS, GROUPS, LAG, ROUNDS

T0 = 1_700_000_100_000
"""The first round, epoch ms: the beginning of a slot of five minutes."""
RULES = Rules(window_s=100)


class Store(LocalStore):
    """A local store that can be unavailable."""

    unavailable = refuses = False

    def setup(self) -> None:
        """Create the tables, or raise."""
        self._answer()
        super().setup()

    def write(self, points: Sequence[Point]) -> list[Refused]:
        """Write the points, or raise."""
        self._answer()
        return super().write(points)

    def delete(self, measurement: str, *, start_ms: int, end_ms: int) -> None:
        """Delete the points, or raise."""
        self._answer()
        if self.refuses:
            raise TallystreamError("unprocessable")
        super().delete(measurement, start_ms=start_ms, end_ms=end_ms)

    def _answer(self) -> None:
        if self.unavailable:
            raise SinkUnavailableError("no answer")


class System:
    """A collector with a local store, whose clock the test sets. `stopped` waits with a lag, `busy` keeps up."""

    def __init__(self, folder: Path) -> None:
        self.store, self.reader = Store(folder / "store.db", retention_ms=0), LocalStore(folder / "store.db")
        self.rounds, self.now_ms, self.end = Rounds(RULES), T0, 0
        self.committed, self.broker_is_away = 5, False
        self.collector = Collector(self._fetch, self.store, publish=lambda _: None, after_write=lambda: None)

    def run(self, rounds: int) -> list[GroupState]:
        """Run rounds, one every two seconds, and return the groups in the store."""
        for _ in range(rounds):
            self.round()
        return read_groups(self.reader, at_ms=self.now_ms)

    def round(self) -> bool:
        """Run a round, and return whether it reached the broker and the store."""
        self.now_ms += 2000
        self.end += 10
        return self.collector.round()

    def offsets(self) -> RoundOffsets:
        """Return the offsets of both groups."""
        return round_of(
            group("stopped", (self.committed, 10), topic="old", members=0), group("busy", (self.end, self.end))
        )

    def restart(self) -> None:
        """Start the collector again, with what the store has."""
        self.rounds = Rounds(RULES)
        self.rounds.load(self.reader, self.now_ms)
        self.collector = Collector(self._fetch, self.store, publish=lambda _: None, after_write=lambda: None)

    def _fetch(self) -> Round:
        if self.broker_is_away:
            raise BrokerUnavailableError("connection refused")
        self.rounds.points(self.offsets(), self.now_ms)
        return self.rounds.newest_round


@pytest.fixture
def new_system(tmp_path: Path) -> Iterator[System]:
    """Yield a system before its first round."""
    system = System(tmp_path)
    yield system
    system.store.close()
    system.reader.close()


@pytest.fixture
def system(new_system: System) -> System:
    """Return a system in which `stopped` has been ERR for a while."""
    assert [one.status_name for one in new_system.run(100)] == ["ERR", "OK"]
    return new_system


def test_points_wait_for_the_store_in_order(new_system: System, caplog: pytest.LogCaptureFixture) -> None:
    """While the store is unavailable rounds are kept. Then they are written, oldest first. Both are logged once."""
    for committed in (1, 2, 3, 4):
        new_system.committed = committed
        new_system.store.unavailable = committed < 4
        assert new_system.round() == (committed == 4)
    (lag,) = new_system.reader.read(LAG, ["lag"], start_ms=0, end_ms=2 * T0, tags={"group": "stopped"})
    assert (lag.times_ms, lag.values) == ([T0 + ms for ms in (2000, 4000, 6000, 8000)], [9, 8, 7, 6])
    assert [re.split("[,;]", record.getMessage())[0] for record in caplog.records] == [
        "the store is unavailable",
        "the store is available again after 3 rounds",
    ]


def test_an_unavailable_broker_leaves_a_gap(system: System, caplog: pytest.LogCaptureFixture) -> None:
    """Rounds without the broker write nothing. The outage and its end are logged once."""
    begin_ms, system.broker_is_away = system.now_ms, True
    assert [system.round() for _ in range(2)] == [False, False]
    system.broker_is_away = False
    assert system.round()
    (rounds,) = system.reader.read(ROUNDS, ["groups"], start_ms=begin_ms, end_ms=2 * T0)
    assert rounds.times_ms == [begin_ms, begin_ms + 6000]
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2


@pytest.mark.parametrize("back_s", [30, 100, 150, 86_400])
@pytest.mark.parametrize("unavailable", [False, True])
def test_a_clock_that_goes_back_replaces_what_was_collected(system: System, back_s: int, *, unavailable: bool) -> None:
    """The store has the current statuses and lags at once, and no point of the time that comes again."""
    if back_s == 86_400:  # the clock was a day ahead for one round
        system.now_ms += 86_400_000
    system.store.unavailable = unavailable
    system.committed = 10
    system.run(1)
    begin_ms = system.now_ms = system.now_ms - back_s * 1000 - 1000
    system.run(1)
    system.store.unavailable = False
    stored = {one.group: one for one in system.run(1)}
    assert {name: (one.status_name, one.lag) for name, one in stored.items()} == {
        "stopped": ("OK", 0),
        "busy": ("OK", 0),
    }
    assert {one.group: (one.lag, one.since_ms) for one in system.rounds.states} == {
        name: (one.lag, one.since_ms) for name, one in stored.items()
    }
    assert all((one.since_ms or 0) <= system.now_ms for one in stored.values())
    for name in ALL:
        points = system.reader.read(name, ["lag", "end", "groups"], start_ms=begin_ms + 2000, end_ms=2 * T0)
        assert {ts_ms for one in points for ts_ms in one.times_ms} <= {begin_ms + 2000, begin_ms + 4000}


@pytest.mark.parametrize("back_s", [30, 3600])
def test_a_clock_that_went_back_while_the_collector_was_down(system: System, back_s: int) -> None:
    """The first round replaces what was collected of the time that comes again."""
    system.now_ms -= back_s * 1000
    system.restart()
    system.committed = 10
    assert {one.group: one.status_name for one in system.run(1)} == {"stopped": "OK", "busy": "OK"}
    for name in ALL:
        points = system.reader.read(name, ["lag", "end", "groups"], start_ms=0, end_ms=2 * T0)
        assert all(one.times_ms[-1] <= system.now_ms for one in points)


def test_a_clock_that_is_far_behind_at_the_start_deletes_nothing(system: System) -> None:
    """It may be one that was not set yet."""
    newest_ms = system.now_ms
    system.now_ms -= 2 * 86_400_000
    system.restart()
    system.run(1)
    assert last_round_ms(system.reader, at_ms=2 * T0) == newest_ms


def test_a_group_that_stops_after_the_clock_went_back_is_noticed(system: System) -> None:
    """The window has only samples of the new time, so the status is that of a collector that has just started."""
    system.now_ms -= 86_400_000
    assert {one.group: one.status_name for one in system.run(10)} == {"stopped": "OK", "busy": "OK"}
    assert {one.group: one.status_name for one in system.run(50)} == {"stopped": "ERR", "busy": "OK"}
    detailed = read_group(system.reader, "stopped", at_ms=system.now_ms)
    assert detailed is not None
    assert [one.evaluation.status for one in detailed.partitions] == [Status.STOP]


def test_a_refused_deletion_stops_nothing(system: System, caplog: pytest.LogCaptureFixture) -> None:
    """If the store refuses to delete points, a warning says so, and rounds are still written."""
    system.store.refuses = True
    system.now_ms -= 100_000
    system.run(2)
    assert any("refuses to delete" in record.getMessage() for record in caplog.records)
    assert last_round_ms(system.reader, at_ms=system.now_ms) == system.now_ms
    downsampler = Downsampler(system.store, system.reader, full_ms=1, clock=lambda: system.now_ms + 86_400_000)
    caplog.clear()
    downsampler.run()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    downsampler.run()
    assert len(caplog.records) == 1, "it is tried again ten minutes later"


def test_downsampling_keeps_the_first_round_of_each_slot(store: LocalStore, reader: LocalStore) -> None:
    """Of old history one complete round in five minutes is kept. Newer history is kept completely."""
    rounds = Rounds(RULES)
    for second in range(0, 1201, 10):
        groups = round_of(group("busy", (second, second * 2)), group("idle", (7, 7), topic="quiet"))
        store.write(rounds.points(groups, T0 + second * 1000))
    now_ms = T0 + 1_200_000
    Downsampler(store, reader, full_ms=600_000, clock=lambda: now_ms).run()
    for measurement, field, tags in (
        (LAG, "end", {"group": "idle"}),
        (LAG, "end", {"group": "busy"}),
        (GROUPS, "lag", {"group": "busy"}),
        (ROUNDS, "groups", {}),
        (ENDS, "end", {"topic": "quiet"}),
    ):
        (one,) = reader.read(measurement, [field], start_ms=T0, end_ms=now_ms + 1, tags=tags)
        old = [ts for ts in one.times_ms if ts < T0 + 600_000]
        assert old == [T0, T0 + 300_000], (measurement, tags)
    (busy,) = [one for one in read_groups(reader, at_ms=T0 + 500_000) if one.group == "busy"]
    assert busy.lag == 300
    detailed = read_group(reader, "busy", at_ms=T0 + 500_000)
    assert detailed is not None
    assert [one.lag for one in detailed.partitions] == [300]
    full = len(reader.read(ROUNDS, ["groups"], start_ms=T0 + 600_000, end_ms=now_ms + 1)[0].times_ms)
    assert full == 61
