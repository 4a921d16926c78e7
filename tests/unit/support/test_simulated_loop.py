"""The simulation finds no fault in a loop that follows the protocol, and finds each rule that is left out."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from support.simulation.choices import RandomChoices
from support.simulation.readers import CommittedReader, EqualsReference, ExactlyOnce, NeverFalls
from support.simulation.tally import INPUT, LETTERS, POSITIONS, ROW, SUMS, TABLE, Rules, Tally, number_of, unlisted
from support.simulation.world import Events, World

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
        self.equals = EqualsReference(self._sums, self._expected)
        self.rows = EqualsReference(self._rows, self._expected)
        once = ExactlyOnce(lambda seen: [seen.value] * (seen.place.topic == LETTERS), self._bad)
        checks = [NeverFalls(self._numbers), self.equals, self.rows, once]
        self.world.readers += [CommittedReader(cluster, [SUMS, LETTERS, "metrics-table"], checks)]

    def _code(self, *arguments: Any) -> None:
        Tally(*arguments, self.rules).run()

    def published(self, name: str) -> Positions:
        """Return the positions that the newest committed positions row has."""
        for entry in reversed(self.cluster.partition(TABLE).committed(0, self.cluster.partition(TABLE).end)):
            if entry.key == POSITIONS:
                return unlisted(json.loads(entry.value or b"")[name])
        return {}

    def is_done(self) -> bool:
        """Tell whether everything was published."""
        places = self.cluster.places(INPUT)
        return self.published("at") == {place: self.cluster.partition(place).end for place in places}

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


@pytest.mark.parametrize("seed", range(20))
def test_a_loop_that_follows_the_protocol_has_no_violation(seed: int) -> None:
    """Under all faults and events it comes to the end of its input, and hundreds of cuts were compared."""
    tallies = Tallies(RandomChoices(seed), Rules())
    tallies.run(4_000)
    assert tallies.equals.compared > 50
    assert tallies.rows.compared > 50
