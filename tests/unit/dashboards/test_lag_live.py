"""Round after round: the state of every group now, what of it is kept, and what is read back from a real store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.lag import Rounds, found, group
from tallystream_aggregator.sinks.base import Point, Series
from tallystream_aggregator.sinks.sqlite.reader import LocalReader
from tallystream_aggregator.sinks.sqlite.sink import LocalStore
from tallystream_dashboards.lag import LAG
from tallystream_dashboards.lag.collector.downsampling import Downsampler, spans
from tallystream_dashboards.lag.evaluate import evaluate, halves
from tallystream_dashboards.lag.history import EndOffsetHistory, OffsetSamples, limit
from tallystream_dashboards.lag.live import GONE_MS, GroupStates
from tallystream_dashboards.lag.model import Probed
from tallystream_dashboards.lag.reader import read_group, read_groups, read_recorded
from tallystream_dashboards.lag.status import OffsetSample, Rules, Status
from tallystream_dashboards.lag.storage import ENDS, GROUPS, ROUNDS
from tallystream_dashboards.lag.time_lag import AtLeast, Exact, Observation, Zero, seconds_lag

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

T0 = 1_700_000_100_000
"""The beginning of the tests' time, epoch ms: also that of a slot of five minutes."""
RULES = Rules(window_s=100)

SCHEDULES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), min_size=1, max_size=120
)  # what is produced and consumed in each round, and whether a member is there


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LocalStore]:
    """A local store that keeps everything."""
    opened = LocalStore(tmp_path / "store.db", retention_ms=0)
    opened.setup()
    yield opened
    opened.close()


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[LocalReader]:
    """Reads the same store."""
    opened = LocalReader(tmp_path / "store.db")
    yield opened
    opened.close()


def series(points: Sequence[Point], measurement: str = LAG) -> list[Series]:
    """Return points as a store gives them back."""
    fields: dict[tuple[tuple[tuple[str, str], ...], str], dict[int, object]] = {}
    for point in sorted(points, key=lambda one: one.ts_ms):
        for name, value in point.fields.items() if point.measurement == measurement else ():
            fields.setdefault((tuple(point.tags.items()), name), {})[point.ts_ms] = value
    return [
        Series(measurement, dict(tags), name, list(values), list(values.values()))  # type: ignore[arg-type]
        for (tags, name), values in fields.items()
    ]


@given(SCHEDULES)
@settings(max_examples=60)
def test_what_is_kept_tells_the_same_as_everything(schedule: list[tuple[int, int, bool]]) -> None:
    """Points that say nothing new are left out, and at every round the history gives lag and status as they were."""
    rounds, kept, states, everything = Rounds(RULES), [], [], []
    end = committed = 0
    for number, (produced, consumed, member) in enumerate(schedule):
        end += produced
        committed = min(end, committed + consumed)
        ts_ms = T0 + number * 3000
        kept += rounds.points(found(group("g", (committed, end), members=int(member))), ts_ms)
        everything.append(OffsetSample(ts_ms, committed, end, int(member)))
        (told,) = (state.rates for state in rounds.states)
        assert told == halves(everything, ts_ms, RULES)[0]
        states.append((ts_ms, rounds.states[0]))
    ends = [Observation(sample.ts_ms, sample.end) for sample in everything]
    for ts_ms, state in states:
        (again,) = evaluate(series(kept), now_ms=ts_ms, rules=RULES)
        assert (again.lag, again.evaluation.status) == (state.lag, state.evaluation.status)
        committed = next(sample.committed for sample in everything if sample.ts_ms == ts_ms)
        assert state.seconds == seconds_lag(committed, [one for one in ends if one.ts_ms <= ts_ms], now_ms=ts_ms)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=200), st.integers(8, 40))
def test_thinned_ends_never_contradict_the_full_history(growth: list[int], most: int) -> None:
    """However few observations are kept, an age from them agrees with the moments between which the record came."""
    ends, full, end = EndOffsetHistory(), [], 0
    for number, grown in enumerate(growth):
        end += grown
        ends.add(T0 + number * 1000, end, most=most)
        full.append((T0 + number * 1000, end))
    now_ms = full[-1][0]
    assert len(ends) <= most
    for committed in range(end):
        later = next(ts for ts, at in full if at > committed)
        earlier = [ts for ts, at in full if at <= committed]
        came = ends.appended(committed)
        assert came is not None
        assert later <= came[1]
        assert came[0] is None or came[0] <= earlier[-1]
        age = ends.age(committed, now_ms=now_ms)
        if isinstance(age, AtLeast):
            assert age.seconds <= (now_ms - later) / 1000 + 1e-6


def test_an_end_that_falls_begins_anew() -> None:
    """A topic that was created again has a new history."""
    ends = EndOffsetHistory()
    ends.load([T0, T0 + 1000, T0 + 2000], [50, 60, 3])
    assert (len(ends), ends.appended(2)) == (1, (None, T0 + 2000))
    assert ends.appended(3) is None


def test_memory_is_bounded_by_the_number_of_partitions() -> None:
    """A hundred thousand partitions have few observations each, a hundred have many."""
    assert (limit(100), limit(100_000), limit(0)) == (2_000, 60, 2_000)


def test_looks_keep_what_the_window_needs() -> None:
    """What stands still takes two looks, and of what is older than the window one stays."""
    samples = OffsetSamples()
    for second in range(0, 300, 5):
        samples.add(OffsetSample(T0 + second * 1000, min(second, 100), 400, None), window_ms=60_000)
    kept = samples.all()
    assert kept[-1] == OffsetSample(T0 + 295_000, 100, 400, None)
    assert len(kept) <= 60 / 5
    assert kept[0].ts_ms < T0 + 235_000


def test_a_group_that_dies_stays_and_says_so() -> None:
    """Deleted from the broker: marked, with its last lag; a week later it is forgotten; coming back, it lives."""
    rounds = Rounds()
    rounds.points(found(group("g", (3, 10)), group("other", (1, 1))), T0)
    rounds.points(found(group("other", (1, 1))), T0 + 2000)
    (dead,) = [state for state in rounds.states if state.group == "g"]
    assert (dead.gone, dead.lag, dead.seen_ms, dead.since_ms) == (True, 7, T0, T0)
    assert "no longer on the broker" in dead.evaluation.reason
    assert "7" in dead.evaluation.reason
    rounds.points(found(group("g", (10, 10)), group("other", (1, 1))), T0 + 4000)
    assert not any(state.gone for state in rounds.states)
    rounds.points(found(group("other", (1, 1))), T0 + 6000)
    rounds.points(found(group("other", (1, 1))), T0 + 6000 + GONE_MS)
    assert [state.group for state in rounds.states] == ["other"]


def test_a_group_that_could_not_be_read_is_not_dead() -> None:
    """It is on the broker, and its offsets did not come this time: the last state stands."""
    rounds = Rounds()
    rounds.points(found(group("g", (3, 10))), T0)
    rounds.points(found(unread=("g",)), T0 + 2000)
    assert [(state.gone, state.lag) for state in rounds.states] == [(False, 7)]


def test_since_when_it_is_so() -> None:
    """The status's beginning is kept while it lasts: a stop is told from when it was found."""
    rounds = Rounds(RULES)
    for number in range(40):
        rounds.points(found(group("g", (min(number, 5), number), members=0)), T0 + number * 5000)
    (state,) = rounds.states
    assert state.evaluation.status is Status.ERR
    assert state.since_ms is not None
    assert T0 + 25_000 + 50_000 < state.since_ms <= T0 + 25_000 + 60_000


def test_partitions_without_a_commit_make_the_lag_a_bound() -> None:
    """What nobody committed is counted and not added: the sum is at least what is known."""
    rounds = Rounds()
    rounds.points(found(group("g", (3, 10), (None, 40))), T0)
    (state,) = rounds.states
    assert (state.lag, state.unknown, state.unread, state.count) == (7, 1, 40, 2)


def test_offsets_that_hold_no_record_are_no_lag() -> None:
    """A reader found nothing up to the end: transaction markers or what compaction left; the reason says so."""
    live, round_ = GroupStates(RULES), found(group("g", (9, 10), members=0))
    for second in range(0, 200, 10):
        live.observe(round_, T0 + second * 1000)
        nothing = {("orders", 0): {9: Probed(None, nothing=True)}}
        (state,) = live.evaluate(round_, T0 + second * 1000, probed=nothing)
    assert (state.evaluation.status, state.seconds, state.lag) == (Status.OK, Zero(), 1)
    assert "transaction markers" in state.partitions[0].evaluation.reason


def test_age_is_a_threshold_where_one_is_set() -> None:
    """OK and WARN become worse with age; what is worse already keeps its reason."""
    rounds = Rounds(Rules(window_s=100, warn_age_s=20, err_age_s=60))
    statuses = []
    for number in range(20):
        rounds.points(found(group("g", (number, number * 2 + 10))), T0 + number * 10_000)
        statuses.append(rounds.states[0].evaluation.status)
    assert [statuses[1], statuses[4], statuses[-1]] == [Status.OK, Status.WARN, Status.ERR]
    assert "over 60 s" in rounds.states[0].evaluation.reason


def test_the_store_gives_back_what_was_judged(store: LocalStore, reader: LocalReader) -> None:
    """Groups, their partitions, any past moment; a group that went is marked there, too."""
    rounds = Rounds(RULES)
    for number in range(61):
        groups = [group("well", (number, number)), group("slow", (number, number * 3), (None, 5))]
        groups += [group("gone", (1, 4))] if number < 30 else []
        store.write(rounds.points(found(*groups), T0 + number * 5000))
    now_ms = T0 + 300_000
    slow, gone, well = read_groups(reader, at_ms=now_ms)
    assert [one.group for one in (slow, gone, well)] == ["slow", "gone", "well"]
    before = {state.group: state for state in rounds.states}
    assert (slow.evaluation, slow.lag, slow.unread) == (before["slow"].evaluation, 120, 5)
    assert (slow.seconds, slow.drain, slow.rates) == (
        before["slow"].seconds,
        before["slow"].drain,
        before["slow"].rates,
    )
    assert (gone.gone, gone.lag, gone.seen_ms) == (True, 3, T0 + 150_000)
    earlier = {state.group: state for state in read_groups(reader, at_ms=T0 + 100_000)}
    assert (earlier["gone"].gone, earlier["slow"].lag) == (False, 40)
    detailed = read_group(reader, "slow", at_ms=now_ms)
    assert detailed is not None
    assert [(one.name, one.lag) for one in detailed.partitions] == [("orders/0", 120), ("orders/1", None)]
    assert detailed.partitions[0].seconds == before["slow"].seconds
    assert read_group(reader, "nobody", at_ms=now_ms) is None
    strict = read_recorded(reader, at_ms=now_ms, rules=Rules(window_s=100, err_age_s=1))
    assert [(one.group, one.evaluation.status) for one in strict] == [
        ("slow", Status.ERR),
        ("gone", Status.NOTFOUND),
        ("well", Status.OK),
    ]


def test_partitions_are_judged_by_the_rules_that_the_collector_had(store: LocalStore, reader: LocalReader) -> None:
    """What looks at the store is told no rules: those of the round are kept with it, so group and partitions agree."""
    rules = Rules(window_s=12, allowed_lag=2)
    rounds = Rounds(rules)
    for second in range(31):
        store.write(rounds.points(found(group("g", (min(second, 15), second))), T0 + second * 1000))
    detailed = read_group(reader, "g", at_ms=T0 + 30_000)
    assert detailed is not None
    (partition,) = detailed.partitions
    assert (detailed.evaluation.status, partition.evaluation.status) == (Status.ERR, Status.STALL)
    assert partition.evaluation.reason in detailed.evaluation.reason


def test_a_group_that_no_collector_saw_going_is_marked(store: LocalStore, reader: LocalReader) -> None:
    """It died while no collector ran: newer rounds do not mention it."""
    store.write(Rounds().points(found(group("g", (1, 4)), group("other", (1, 1))), T0))
    store.write(Rounds().points(found(group("other", (1, 1))), T0 + 3_600_000))
    assert [(one.group, one.gone) for one in read_groups(reader, at_ms=T0 + 3_600_000)] == [
        ("g", True),
        ("other", False),
    ]


def test_thinning_leaves_the_first_round_of_each_slot(store: LocalStore, reader: LocalReader) -> None:
    """Of what is older than wanted, one whole round in five minutes stays; what is newer stays as it is."""
    rounds = Rounds(RULES)
    for second in range(0, 1201, 10):
        states = found(group("busy", (second, second * 2)), group("idle", (7, 7), topic="quiet"))
        store.write(rounds.points(states, T0 + second * 1000))
    now_ms = T0 + 1_200_000
    thinner = Downsampler(store, reader, full_ms=600_000, clock=lambda: now_ms)
    thinner.thin()
    assert thinner.deleted_spans == 2
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
    assert "thinned out" in detailed.partitions[0].evaluation.reason
    full = len(reader.read(ROUNDS, ["groups"], start_ms=T0 + 600_000, end_ms=now_ms + 1)[0].times_ms)
    assert full == 61


def test_only_slots_that_are_over_are_thinned() -> None:
    """A slot with one round has nothing to delete; one that is not over by the limit waits."""
    minute = 60_000
    times = [T0, T0 + minute, T0 + 5 * minute, T0 + 10 * minute, T0 + 11 * minute]
    assert spans(times, before_ms=T0 + 12 * minute) == [(T0 + 1, T0 + 5 * minute)]


def test_an_age_is_exact_while_looks_are_dense() -> None:
    """The group's age is that of its oldest unconsumed record, not of its partitions without a commit."""
    rounds = Rounds()
    for number in range(10):
        rounds.points(found(group("g", (10, 10 + number), (None, 3))), T0 + number * 1000)
    assert rounds.states[0].seconds == Exact(9.0)
