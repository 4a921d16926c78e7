"""Random schedules in which clocks jump: programs that report as the reporter does, and the topic that they write.

A schedule is a list of integers. Each is the seed of one step, and the first one chooses the features of the schedule.
So hypothesis can remove steps and still have a schedule. `play` runs it for up to 60 days of real time. Each
partition's broker clock is off by up to 72 h and jumps forward and back. A record is in flight for up to 50 h.

A program compares the append time of each acknowledgement, as rule 3 of docs/table.md does. A refused record ends its
life. The next life continues from the counts that were acknowledged and not refused. So the programs know which counts
the table must have, independently of the replay (`Played.counted`).

A schedule has no second copy of a refused record, because the program can't know which of the two was refused. It has
nothing that docs/table.md exempts: tombstones and the short form while an instance moves to another partition.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any
from zlib import crc32

from hypothesis import strategies as st

from support.programs import Appended, Counted, Life, Played, Program, Sent
from support.schedules import BEGIN_MS, TopicRecord, forget_value, random_ulid, sketch
from tallystream_aggregator.table.records.shards import INSTANCE, instances

if TYPE_CHECKING:
    from collections.abc import Iterable

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
LATE_MS = 24 * HOUR_MS
LAST_MS = BEGIN_MS + 60 * DAY_MS
SAFE_MS = DAY_MS
"""A life whose last record is less old than this is not forgotten: 5 days by the right wall clock, less 72 h."""

steps = st.integers(0, 2**32)
clock_schedules = st.lists(steps, min_size=10, max_size=90)

GAPS_MS = [1_000, 7_000, 60_000, 600_000, HOUR_MS, 5 * HOUR_MS, 11 * HOUR_MS, 13 * HOUR_MS, 23 * HOUR_MS, 25 * HOUR_MS]
GAPS_MS += [30 * HOUR_MS, 50 * HOUR_MS, 5 * DAY_MS, 9 * DAY_MS]


class Play:
    """Plays the steps of a schedule."""

    def __init__(self, seed: int, shards: int = 1) -> None:
        chance = random.Random(seed)
        self.now = BEGIN_MS
        self.shards = shards
        self.features = {
            name
            for name, share in (("jumps", 0.7), ("partitions", 0.4), ("copies", 0.5), ("outages", 0.7), ("days", 0.5))
            if chance.random() < share
        }
        self.partitions = chance.choice([1, 1, 2, 3])
        self.adds = chance.randint(1, 2) if "partitions" in self.features else 0
        self.off_ms: dict[int, int] = {}
        self.lives: dict[str, list[Life]] = {}
        self.programs: list[Program] = []
        self.in_flight: list[Sent] = []
        self.appended: list[Appended] = []
        self.last_seen_ms: dict[str, int] = {}
        self.seen_in: dict[str, set[int]] = {}
        self.refused: set[tuple[int, int]] = set()
        self.short: dict[str, tuple[int, int]] = {}
        self.names = 0

    def step(self, seed: int) -> None:  # noqa: C901, PLR0912  (one action after the other)
        """Take one step. Most are reports, the others are events of programs, brokers and records."""
        chance = random.Random(seed)
        gaps = GAPS_MS if "days" in self.features else GAPS_MS[:-2]
        self.now = min(
            LAST_MS, self.now + chance.choices(gaps, [9, 9, 6, 3, 4, 2, 2, 2, 1, 2, 1, 1, 1, 1][: len(gaps)])[0]
        )
        self._arrive(self.now)
        if chance.random() < 0.5:
            self._append_clocks(chance.sample(range(self.partitions), chance.randint(1, self.partitions)))
        action = chance.choices(
            ["report", "away", "jump", "restart", "join", "copy", "add", "tombstone", "short", "final", "drop"],
            [60, 6, 8, 5, 4, 6, 4, 2, 4, 2, 2],
        )[0]
        if action == "jump" and "jumps" in self.features:
            self.off_ms[chance.randrange(self.partitions)] = self._off(chance)
        elif action == "away" and "outages" in self.features:
            for program in chance.sample(self.programs, min(2, len(self.programs))):
                until = self.now + chance.choice([1, 6, 12, 13, 25, 30, 50]) * HOUR_MS
                program.away_until_ms = max(program.away_until_ms, until)
        elif action == "restart" and self.programs:
            self._end(chance, chance.choice(self.programs), final=False)
        elif action == "join":
            self._begin(chance, self._name(chance))
        elif action == "copy" and "copies" in self.features and self.appended:
            self._copy(chance)
        elif action == "add" and self.adds:
            self.adds -= 1
            self.partitions += 1
            if "jumps" in self.features:
                self.off_ms[self.partitions - 1] = self._off(chance)
        elif action == "tombstone" and not self.adds:
            if chance.random() < 0.4:
                self._forget_metric(chance)
            else:
                self._remove_lives(chance)
        elif action == "short":
            self._short(chance)
        elif action == "final" and self.programs:
            self._end(chance, chance.choice(self.programs), final=True)
        elif action == "drop" and self.programs:
            program = chance.choice(self.programs)
            # Records in flight may be read in any order. Then only a moved instance has a rule for a missing metric.
            if not any(one.program is program for one in self.in_flight):
                program.dropped.add(chance.choice(program.kinds))
        else:
            program = chance.choice(self.programs) if self.programs else self._begin(chance, self._name(chance))
            for _ in range(chance.choice([1, 1, 2, 4])):
                self._report(chance, program)
                self.now += chance.choice([0, 1_000, program.every_ms])
                self._arrive(self.now)

    def end(self) -> Played:
        """Append every record in flight, let all lives fall silent, and return the result."""
        self._arrive(self.now + 60 * HOUR_MS)
        self.now += 60 * HOUR_MS
        for partition in range(self.partitions):
            stamps = [one.record.timestamp_ms for one in self.appended if one.record.partition == partition]
            self.off_ms[partition] = max([self.now, *stamps]) + DAY_MS - self.now
        self._append_clocks(range(self.partitions))
        counted: Counted = {}
        for lives in self.lives.values():
            for life in lives:
                _add(counted, life.contributes)
        for total, _ in self.short.values():
            _add(counted, {("default", "counter", "orders"): total})
        ends_ms = max([self.now, *(one.real_ms for one in self.appended)])
        return Played(self.appended, counted, self.partitions, ends_ms, self.refused, self.features)

    def _off(self, chance: random.Random) -> int:
        hours = chance.choice([0, 0, 13, 23, 24, 25, 48, 72, -1, -13, -25, -72])
        return hours * HOUR_MS + chance.choice([0, 0, 1_000, -1_000]) * (abs(hours) < 72)

    def _name(self, chance: random.Random) -> str:
        if self.programs and chance.random() < 0.4:
            return chance.choice(self.programs).instance
        self.names += 1
        return f"app-{self.names}"

    def _begin(self, chance: random.Random, instance: str) -> Program:
        kinds = ["counter", *chance.sample(["gauge", "meter", "histogram", "timer", "position", "updown"], 3)]
        skew = chance.choice([0, 0, 0, 0, HOUR_MS, -23 * HOUR_MS, 30 * HOUR_MS, -10 * DAY_MS])
        every = chance.choice([1_000, 10_000, 60_000])
        program = Program(instance, chance.choice(["shop", "mail"]), every, chance.choice([1, 1, 2]), kinds, skew)
        self.programs.append(program)
        return program

    def _end(self, chance: random.Random, program: Program, *, final: bool) -> None:
        if final:
            self._report(chance, program, final=True)
            self._arrive(self.now)
        self.programs.remove(program)
        # The records in flight of a killed program are lost, or they arrive. No later life continues from them.
        if chance.random() < 0.5:
            self.in_flight = [one for one in self.in_flight if one.program is not program]
        if chance.random() < 0.8:
            self._begin(chance, program.instance)

    def _partition(self, instance: str) -> int:
        return crc32(instance.encode()) % self.partitions

    def _life(self, chance: random.Random, program: Program) -> Life | None:
        """Return the program's life. After a refusal it is new, or None while the old one has records in flight."""
        life = program.life
        if life is not None and life.refused_ms is None:
            return life
        if life is not None and any(one.life is life for one in self.in_flight):
            return None
        born_ms = self.now + program.skew_ms if life is None else life.refused_ms or 0
        base = dict(life.base) if life is not None else {}
        _add(base, life.accepted if life is not None else {})
        program.life = Life(random_ulid(chance, born_ms), born_ms, base)
        self.lives.setdefault(program.instance, []).append(program.life)
        return program.life

    def _report(self, chance: random.Random, program: Program, *, final: bool = False) -> None:
        for part in range(program.parts):
            for kind in program.kinds:
                key = (program.app, kind, f"m{part}")
                program.counts[key] = program.counts.get(key, 0) + chance.choice([0, 1, 5, 100])
        life = self._life(chance, program)
        if life is None:
            return
        partition = self._partition(program.instance)
        for part in range(program.parts):
            seq = life.seqs[part] = life.seqs.get(part, 0) + 1
            header = {"v": 1, "app": program.app, "life": life.ulid, "part": part, "seq": seq, "prev": life.prev}
            header |= {"ts": max(0, self.now + program.skew_ms), "every_ms": program.every_ms, "final": final}
            counted: Counted = {}
            metrics = []
            for kind in program.kinds:
                if kind in program.dropped:
                    continue
                key = (program.app, kind, f"m{part}")
                count = program.counts[key] - (life.base.get(key, 0) if kind != "position" else 0)
                metrics.append({"name": f"m{part}", "type": kind, "tags": {"a": "1"}} | _body(chance, kind, count))
                if kind not in ("gauge", "updown"):
                    counted[key] = count
            arrives = max(self.now, program.away_until_ms)
            value = json.dumps(header | {"metrics": metrics}).encode()
            order = len(self.in_flight) + len(self.appended)
            self.in_flight.append(Sent(arrives, order, program, life, part, partition, value, counted))

    def _arrive(self, until_ms: int) -> None:
        """Append the records that arrive until then. Their programs compare the append times."""
        # A connection keeps the order of its records, so the sort must be stable.
        due = sorted((one for one in self.in_flight if one.arrives_ms <= until_ms), key=lambda one: one.arrives_ms)
        self.in_flight = [one for one in self.in_flight if one.arrives_ms > until_ms]
        for one in due:
            record = self._append(one.program.instance, one.value, one.partition, one.arrives_ms)
            life, ts = one.life, record.timestamp_ms
            prev = json.loads(one.value)["prev"]
            if ts - (life.born_ms if prev is None else prev) >= LATE_MS or life.born_ms - ts > LATE_MS:
                life.refused_ms = ts
                self.refused.add((record.partition, record.offset))
                continue
            life.prev = ts
            life.accepted |= one.counted
            life.contributes |= one.counted

    def _append(self, instance: str, value: bytes | None, partition: int, real_ms: int) -> TopicRecord:
        offset = sum(one.record.partition == partition for one in self.appended)
        stamp = real_ms + self.off_ms.get(partition, 0)
        record = TopicRecord(instance.encode(), value, stamp, partition, offset)
        self.appended.append(Appended(record, real_ms))
        self.last_seen_ms[instance] = real_ms
        self.seen_in.setdefault(instance, set()).add(partition)
        return record

    def _copy(self, chance: random.Random) -> None:
        old = chance.choice(self.appended).record
        if (old.partition, old.offset) in self.refused or old.value is None or b"metrics" not in old.value:
            return
        instance = (old.key or b"").decode()
        last_ms = self.last_seen_ms[instance]
        where = chance.choice([old.partition, self._partition(instance)])
        record = self._append(instance, old.value, where, self.now)
        header = json.loads(old.value)
        known = self._born(header["life"]) if header["prev"] is None else header["prev"]
        if record.timestamp_ms - known >= LATE_MS or self._born(header["life"]) - record.timestamp_ms > LATE_MS:
            self.refused.add((record.partition, record.offset))
            self.last_seen_ms[instance] = last_ms

    def _born(self, ulid: str) -> int:
        return next(life.born_ms for lives in self.lives.values() for life in lives if life.ulid == ulid)

    def _remove_lives(self, chance: random.Random) -> None:
        """Append a tombstone, or a forget record that names lives of one instance."""
        # The instance must have no record in flight or in another partition, and no forgotten life.
        candidates = [
            instance
            for instance, lives in self.lives.items()
            if self.seen_in.get(instance) == {self._partition(instance)}
            and not any(one.program.instance == instance for one in self.in_flight)
            and all(self.now - self._last(instance, life) < SAFE_MS for life in lives)
        ]
        if not candidates:
            return
        instance = chance.choice(candidates)
        lives = chance.choice([self.lives[instance], [chance.choice(self.lives[instance])]])
        named = {} if len(lives) > 1 else {"life": lives[0].ulid}
        value: bytes | None = forget_value(named)
        if len(lives) == len(self.lives[instance]):
            value = chance.choice([None, value])
        self._append(instance, value, self._partition(instance), self.now)
        for life in lives:
            life.contributes = {}

    def _forget_metric(self, chance: random.Random) -> None:
        """Append a forget record of a metric to each partition for each shard. Forgotten lives lose the metric, too."""
        # docs/table.md exempts instances that are read from two partitions.
        if any(len(seen) > 1 for instance, seen in self.seen_in.items() if not instance.startswith(INSTANCE)):
            return
        if chance.random() < 0.7 and self.now + 32 * DAY_MS < LAST_MS:
            self._let_lives_be_forgotten(chance)
        named = chance.choice([{"metric": "m0"}, {"metric": "m1", "app": "shop"}, {"metric": "m0", "type": "counter"}])
        named = chance.choice([named, {"metric": "orders"}])
        value = forget_value(named | ({"shards": self.shards} if self.shards > 1 else {}))
        self._append_to_all(value)
        for life in (life for lives in self.lives.values() for life in lives):
            for app, kind, name in list(life.contributes):
                if name == named["metric"] and named.get("app") in (None, app) and named.get("type") in (None, kind):
                    del life.contributes[app, kind, name]
        if named["metric"] == "orders":
            self.short.clear()

    def _let_lives_be_forgotten(self, chance: random.Random) -> None:
        """Let days pass, and append clock records to each partition."""
        for gap in (chance.choice([8, 20, 31]) * DAY_MS, *([60_000] * chance.randint(0, 4))):
            self.now += gap
            self._arrive(self.now)
            self._append_clocks(range(self.partitions))

    def _append_clocks(self, partitions: Iterable[int]) -> None:
        """Append a clock record with the right wall clock to each of these partitions."""
        for partition in partitions:
            offset = sum(one.record.partition == partition for one in self.appended)
            stamp, value = self.now + self.off_ms.get(partition, 0), b'{"v":1,"wall_ms":%d}' % self.now
            record = TopicRecord(b"tallystream-clock", value, stamp, partition, offset)
            self.appended.append(Appended(record, self.now))

    def _append_to_all(self, value: bytes | None) -> None:
        """Append a record to each partition for each shard."""
        for partition in range(self.partitions):
            for instance in instances(self.shards).values():
                self._append(instance, value, partition, self.now)

    def _last(self, instance: str, life: Life) -> int:
        """Return the time of a life's last record that was not refused."""
        name = life.ulid.encode()
        accepted = (one for one in self.appended if (one.record.partition, one.record.offset) not in self.refused)
        mine = (one for one in accepted if one.record.key == instance.encode() and name in (one.record.value or b""))
        return max((one.real_ms for one in mine), default=self.now)

    def _short(self, chance: random.Random) -> None:
        instance = chance.choice(["script-1", "script-2"])
        total, last = self.short.get(instance, (0, 0))
        value = chance.choice([last, last + 1, last + 10, 3])
        self.short[instance] = (total + value - (last if value >= last else 0), value)
        self._append(instance, json.dumps({"name": "orders", "value": value}).encode(), 0, self.now)


def _body(chance: random.Random, kind: str, count: int) -> dict[str, Any]:
    if kind in ("gauge", "updown"):
        return {"value": chance.choice([1, 2.5, -7])}
    if kind == "position":
        return {"start": chance.randint(0, 3), "position": count}
    rates = {"mean_rate": 0.5, "m1_rate": 1.0, "m5_rate": 2.0, "m15_rate": 3.0}
    spread: dict[str, Any] = {"sum": count * 0.1, "min": 0.5, "max": 5 + count // 100 / 2}
    spread |= {"sketch": sketch(chance, count)} if chance.random() < 0.8 else {}
    return (
        {"count": count}
        | (rates if kind in ("meter", "timer") else {})
        | (spread if kind in ("histogram", "timer") else {})
    )


def _add(total: Counted, counted: Counted) -> None:
    for key, count in counted.items():
        total[key] = max(total.get(key, 0), count) if key[1] == "position" else total.get(key, 0) + count


def play(schedule: list[int], shards: int = 1) -> Played:
    """Return the records of a schedule. Forget records of metrics are for a table of this many `shards`."""
    playing = Play(schedule[0], shards)
    for seed in schedule[1:]:
        playing.step(seed)
    return playing.end()
