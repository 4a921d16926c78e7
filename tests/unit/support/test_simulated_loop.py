"""The simulation finds no fault in a loop that follows the protocol, and finds each rule that is left out."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from support.fuzz import examples
from support.simulation.choices import DrawnChoices, ListedChoices, RandomChoices
from support.simulation.readers import CommittedReader, EqualsReference, ExactlyOnce, NeverFalls, Violation
from support.simulation.scheduler import Faults
from support.simulation.tally import INPUT, LETTERS, POSITIONS, ROW, SUMS, TABLE, Rules, Tally, number_of, unlisted
from support.simulation.world import FAULTS, Events, World

if TYPE_CHECKING:
    from collections.abc import Mapping

    from support.simulation.choices import Choices
    from support.simulation.readers import Seen
    from tallystream_aggregator.stream.broker import Place, Positions

ALL_EVENTS = Events(kill_all=1, expire=1, compact=5, delete=1, lose=1, put_back=1, add_partition=1)


def record(world: World) -> tuple[bytes, bytes]:
    """Return a number for a key, or one of ten times something that is no number."""
    value = world.choose(10, "value")
    return b"abc"[: 1 + world.choose(3, "key")], b"bad" if value == 9 else b"%d" % value


class Tallies:
    """A world with tallies and all checks."""

    def __init__(self, choices: Choices, rules: Rules, events: Events = ALL_EVENTS, **options: Any) -> None:
        self.rules = rules
        self.world = World(
            choices, self._code, record, inputs=[INPUT], compacted=["metrics-table"], events=events, **options
        )
        cluster = self.cluster = self.world.cluster
        for topic, partitions in ((INPUT, 2), (SUMS, 2), (LETTERS, 1), ("metrics-table", 1)):
            cluster.create(topic, partitions)
        self.world.deletable = lambda: self.published("rows")
        self.world.readers += [self.reader()]

    def _code(self, *arguments: Any) -> None:
        Tally(*arguments, self.rules).run()

    def reader(self) -> CommittedReader:
        """Return a reader that begins to read, with all checks."""
        self.equals = EqualsReference(self._sums, self._expected)
        self.rows = EqualsReference(self._rows, self._expected)
        once = ExactlyOnce(lambda seen: [seen.value] * (seen.place.topic == LETTERS), self._bad)
        checks = [NeverFalls(self._numbers), self.equals, self.rows, once]
        return CommittedReader(self.cluster, [SUMS, LETTERS, "metrics-table"], checks)

    def published(self, name: str) -> Positions:
        """Return the positions that the newest committed positions row has."""
        for entry in reversed(self.cluster.partition(TABLE).committed(0, self.cluster.partition(TABLE).end)):
            if entry.key == POSITIONS:
                return unlisted(json.loads(entry.value or b"")[name])
        return {}

    def is_done(self) -> bool:
        """Tell whether everything was published."""
        at = self.published("at")
        return all(at.get(place, 0) == self.cluster.partition(place).end for place in self.cluster.places(INPUT))

    def run(self, steps: int) -> None:
        """Run under faults, then to the end without them."""
        with self.world:
            self.world.scheduler.run(steps)
            self.world.settle(20_000, self.is_done)

    @staticmethod
    def _numbers(seen: Seen) -> list[tuple[Any, int]]:
        """Return the sum of a record, or its positions."""
        if seen.place.topic == SUMS:
            return [(seen.key, int(seen.value or b""))]
        if seen.key == POSITIONS:
            return list(unlisted(json.loads(seen.value or b"")["at"]).items())
        return []

    @staticmethod
    def _sums(newest: Mapping[tuple[Place, bytes | None], bytes]) -> tuple[Positions, Any] | None:
        row = newest.get((TABLE, POSITIONS))
        if row is None:
            return None
        sums = {(key or b"").decode(): int(n) for (place, key), n in newest.items() if place.topic == SUMS}
        return unlisted(json.loads(row)["at"]), sums

    @staticmethod
    def _rows(newest: Mapping[tuple[Place, bytes | None], bytes]) -> tuple[Positions, Any] | None:
        row = newest.get((TABLE, POSITIONS))
        if row is None:
            return None
        rows = {key[len(ROW) :].decode(): int(n) for (_, key), n in newest.items() if key and key.startswith(ROW)}
        return unlisted(json.loads(row)["rows"]), rows

    def _expected(self, positions: Positions) -> dict[str, int]:
        sums: Counter[str] = Counter()
        for place, end in positions.items():
            for entry in self.cluster.partition(place).history[:end]:
                number = number_of(entry.value)
                if number is not None:
                    sums[(entry.key or b"").decode()] += number
        return dict(sums)

    def _bad(self) -> list[bytes]:
        places = self.cluster.places(INPUT)
        entries = [(p, entry) for p in places for entry in self.cluster.partition(p).history]
        return [f"{place}:{entry.offset}".encode() for place, entry in entries if number_of(entry.value) is None]


@pytest.mark.parametrize("seed", range(8))
def test_a_loop_that_follows_the_protocol_has_no_violation(seed: int) -> None:
    """Under all faults and events it comes to the end of its input, and many cuts were compared."""
    tallies = Tallies(RandomChoices(seed), Rules())
    tallies.run(3_000)
    assert tallies.equals.compared > 50
    assert tallies.rows.compared > 50


@pytest.mark.parametrize(
    ("rule", "violation"),
    [
        ("look_up_after_opening", "fell from"),
        ("silent", "fell from"),
        ("exact", "missing: "),
        ("rows_with_positions", "published at"),
        ("one_transaction", "published at"),
    ],
)
def test_a_rule_that_is_left_out_is_seen(rule: str, violation: str) -> None:
    """One of a few runs has the violation that the rule prevents."""
    assert violation in first_violation(Rules()._replace(**{rule: False}), FAULTS)


def test_a_writer_that_is_used_after_an_error_writes_twice_or_half_of_a_step() -> None:
    """What was committed is written again, or a late request adds to the next transaction or ends it."""
    found = [
        first_violation(Rules(new_writer_after_error=False), Faults(**{kind: 300})) for kind in ("lose_answer", "late")
    ]
    assert "there again" in found[0]
    assert any(text in found[1] for text in ("there again", "fell from", "published at"))


def first_violation(rules: Rules, faults: Faults) -> str:
    """Return the violation of the first of 30 runs that has one. No unread record is deleted."""
    for seed in range(30):
        try:
            Tallies(RandomChoices(seed), rules, ALL_EVENTS._replace(delete=0), faults=faults).run(2_000)
        except Violation as violation:
            return str(violation)
    return ""


def test_writers_that_open_again_when_they_are_fenced_stop_each_other_for_ever() -> None:
    """Two processes that go on by turns commit nothing any more. If a fenced one ends, the other goes on."""
    commits = []
    for fenced_ends in (False, True):
        tallies = Tallies(ListedChoices([]), Rules(fenced_ends=fenced_ends), Events())
        with tallies.world as world:
            for _ in range(2):
                world.start()
            for number in range(2_000):
                if number % 10 == 0:
                    world.append()
                turn = world.scheduler.processes[number % len(world.scheduler.processes)]
                if turn.is_ready():
                    world.scheduler.advance(turn)
                world.cluster.write_markers()
        commits.append(sum(transaction.outcome == "commit" for transaction in tallies.cluster.transactions))
    assert commits[0] == 0
    assert commits[1] > 100


@pytest.mark.parametrize("rule", ["state_below_published", None])
def test_a_state_above_what_is_published_does_not_count(rule: str | None) -> None:
    """After a loss of unflushed records, the state would leave out the dead letters that were lost with them."""
    rules = Rules()._replace(**{rule: False} if rule else {})
    tallies = Tallies(RandomChoices(1), rules, Events(take_over=0), faults=Faults())
    cluster, world = tallies.cluster, tallies.world
    outputs = cluster.places(SUMS, LETTERS, "metrics-table")
    with world:
        world.scheduler.run(500)
        world.kill_all()
        cluster.close_transactions()
        flushed = {place: cluster.partition(place).end for place in outputs}
        world.scheduler.run(2_000)
        world.kill_all()
        cluster.close_transactions()
        for place, end in flushed.items():
            cluster.partition(place).truncate(end)
        world.readers[:] = [tallies.reader()]
        world.scheduler.run(500)
        if rule is None:
            world.settle(3_000, tallies.is_done)
        else:
            with pytest.raises(Violation, match="missing: "):
                world.settle(3_000, tallies.is_done)


@settings(examples(10), phases=[Phase.generate])  # it would be shrunk for minutes
@given(st.data())
def test_hypothesis_runs_a_loop_that_follows_the_protocol(data: st.DataObject) -> None:
    """Each of its choices may be drawn."""
    Tallies(DrawnChoices(data), Rules()).run(60)
