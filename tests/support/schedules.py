"""Random schedules of everything that may be written to the topic `metrics`, for property tests.

They have restarts, several lives, finals, duplicates, reordering, late records, wrong clocks, malformed records,
tombstones and forget records. A schedule is a list of integers, each the seed of one step, so hypothesis can
remove steps and still have a schedule. `play` turns it into the records of the topic.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
import struct
from itertools import count
from typing import Any
from zlib import crc32

from hypothesis import strategies as st

from support.buckets import buckets
from support.malformed import BAD_METRICS, ODD, POISON
from support.replayed import TopicRecord

EVERY_MS = 1_000
BEGIN_MS = 1_700_000_000_000
DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

steps = st.integers(0, 2**32)
schedules = st.lists(steps, min_size=20, max_size=80)
short_schedules = st.lists(steps, min_size=1, max_size=16)
LONG = list(range(150))
"""A schedule that every run of a property tries."""

step_sizes = st.lists(st.integers(1, 12), min_size=1, max_size=6)
jumps = st.lists(st.sampled_from([0, 0, 0, 23, 25, 72, -25, -72]), min_size=1, max_size=12)
"""The hours by which a broker's clock is wrong: for `runs.jump`."""


def may_lower_counts(record: TopicRecord) -> bool:
    """Return whether a record may lower counts: a tombstone or a forget record."""
    return record.value is None or b'"forget"' in record.value


def forgets_metrics(record: TopicRecord) -> bool:
    """Return whether a record is a forget record of a metric."""
    return record.value is not None and b'"forget"' in record.value and b'"metric"' in record.value


def sketch(chance: random.Random, count: int) -> dict[str, Any]:
    """Return a sketch of `count` values in the format of docs/sketches.md: zeros, and buckets of each sign."""
    zeros = chance.choice([0, count // 2, count])
    content: dict[str, Any] = {"scale": chance.choice([6, 6, 6, 6, 5, 2])} | ({"zero_count": zeros} if zeros else {})
    left = count - zeros
    for sign, share in (("positive", left // 3), ("negative", left - left // 3)):
        sizes = [size for size in (share // 4, share - share // 4) if size]
        offset, gap = chance.randint(-1000, 1000), chance.choice([0, 2, 300])
        if not sizes:
            content |= chance.choice([{}, {}, {sign: []}, {sign: buckets(offset)}])
        elif chance.random() < 0.5:
            content[sign] = buckets(offset, sizes[0], *[0] * gap, *sizes[1:])
        else:
            content[sign] = [run for at, size in enumerate(sizes) for run in buckets(offset + at * (gap + 1), size)]
    return content


def explicit_buckets(chance: random.Random, count: int, tags: dict[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return explicit buckets of `count` values, mostly with the same bounds, and their tags. A few are refused."""
    bounds = chance.choice([[0.5, 1.0], [0.5, 1.0], [0.5, 1.0], [1.0], [], [-1.5, 0.0, 1e300]])
    counts = [count - count // 3, *[0] * len(bounds)]
    counts[-1] += count // 3
    if chance.random() < 0.03:
        bounds, counts = chance.choice(
            [([1.0, 1.0], [count, 0, 0]), ([float("inf")], [count, 0]), (bounds, [count, 1])]
        )
    packed, digits = struct.pack(f"<{len(bounds)}d", *bounds), struct.pack(f"<{len(counts)}Q", *counts)
    digest = hashlib.sha256(packed if chance.random() < 0.97 else b"").hexdigest()[:16]
    body = {"bounds": base64.b64encode(packed).decode(), "counts": base64.b64encode(digits).decode()}
    return {"count": count, **body}, {**tags, "bounds": f"{len(bounds)}-{digest}"}


class Life:
    """One life of an instance, as its application knows it."""

    def __init__(self, app: str, ulid: str) -> None:
        self.app = app
        self.ulid = ulid
        self.complete = random.Random(ulid).random() < 0.7
        self.seqs: dict[int, int] = {}
        self.counts: dict[str, int] = {}
        self.prev: int | None = None


class Play:
    """Plays the steps of a schedule.

    Forget records of metrics are for a table of this many `shards`. If it is 0, there are none.
    """

    def __init__(self, shards: int = 1) -> None:
        self.shards = shards
        self.records: list[TopicRecord] = []
        self.now = BEGIN_MS
        self.lives: dict[str, list[Life]] = {}
        self.delayed: list[tuple[str, bytes]] = []

    def step(self, seed: int) -> None:  # noqa: C901 (one action after the other)
        """Take one step. Most are snapshots, the others are events of records and instances."""
        chance = random.Random(seed)
        self.now += chance.choices(
            [0, 1, 300, 900, 2_999, 3_000, 10_000, 30_000, 59_999, 60_001, -5_000, 40_000_000, 86_399_500, -50_000_000],
            [20, 20, 60, 60, 6, 6, 4, 4, 2, 2, 4, 2, 2, 2],
        )[0]
        instance = chance.choice(["app-1", "app-1", "app-1", "app-2", "äpp 3"])
        action = chance.choices(
            ["snapshot", "again", "hold", "release", "new", "tombstone", "poison", "odd", "short", "final", "clock"],
            [50, 10, 5, 6, 6, 2, 4, 2, 8, 3, 5],
        )[0]
        if action in ("snapshot", "hold", "final"):
            value, life = self._snapshot(chance, instance, final=action == "final")
            if action == "hold":
                self.delayed.append((instance, value))
            else:
                self._append(instance, value)
                life.prev = self.now
        elif action == "again" and self.records:
            old = chance.choice(self.records)
            self._append(old.key, old.value)
        elif action == "release" and self.delayed:
            self._append(*self.delayed.pop(chance.randrange(len(self.delayed))))
        elif action == "new":
            self._new_life(chance, instance)
        elif action == "tombstone":
            self._remove_lives(chance, instance)
        elif action == "poison":
            key = chance.choice([instance.encode(), None, b"", b"\xff", b"k" * 1025, b"nul\0"])
            self._append(key, chance.choice(POISON) if key == instance.encode() else b'{"name":"a","value":1}')
        elif action == "odd":
            self._append(instance, chance.choice(ODD))
        elif action == "clock":
            wall_ms = self.now + chance.choice([0, 0, 0, -5_000, 10**9, -(10**9)])
            bad: list[bytes | None] = [
                None,
                b"",
                b'{"v":2,"wall_ms":1}',
                b'{"v": 1,"wall_ms":1}',
                b'{"v":1,"wall_ms":-1}',
                b'{"forget":{}}',
            ]
            clock = chance.choice(bad) if chance.random() < 0.1 else b'{"v":1,"wall_ms":%d}' % wall_ms
            self._append("tallystream-clock", clock, chance.choice([0, 1]))
        elif action == "short":
            number, tags = chance.choice([0, 1, 5, 9, 2**62, 2**63 - 1]), chance.choice([{}, {"k": "v"}])
            self._append(instance, json.dumps({"name": "orders", "value": number, "tags": tags}).encode())

    def _remove_lives(self, chance: random.Random, instance: str) -> None:
        """Append a tombstone or a forget record, of lives of an instance or of metrics."""
        what = chance.choice(["tombstone", "all", "app", "life", "metric", "metric", "bad"])
        if what == "tombstone" or (what == "metric" and not self.shards):
            self._append(instance, None)
            return
        lives = self.lives.get(instance)
        bad: list[Any] = [7, {"since": 1}, {"life": "x"}, {"metric": "m0", "type": "gage"}, {"tags": {"a": "b"}}]
        choices: dict[str, Any] = {
            "all": {},
            "app": {"app": chance.choice(["shop", "mail", "default"])},
            "life": {"life": chance.choice(lives).ulid} if lives else {},
            "metric": {"metric": chance.choice(["m0", "m0", "m1", "s0", "orders"])},
            "bad": chance.choice(bad),
        }
        named = choices[what]
        if what == "metric":
            named |= chance.choice(
                [{}, {}, {"app": "shop"}, {"type": "counter"}, {"tags": {"a": "ö %d"}}, {"type": "timer"}]
            )
        if what != "metric":
            self._append(instance, forget_value(named))
            return
        for partition in chance.choice([[0, 1], [0, 1], [0, 1], [1]]):  # `tallystream forget` appends to each one
            for key in keys_of_shards(self.shards):
                self._append(key, forget_value(named | ({"shards": self.shards} if self.shards > 1 else {})), partition)

    def _new_life(self, chance: random.Random, instance: str) -> Life:
        # Some applications' clocks are off by more than the table accepts.
        born_ms = self.now + chance.choice([0, 0, 0, 0, 30_000, -30_000, 10**9, -(10**9)])
        ulid = random_ulid(chance, born_ms)
        life = Life(chance.choice(["shop", "shop", "mail"]), ulid)
        self.lives.setdefault(instance, []).append(life)
        return life

    def _snapshot(self, chance: random.Random, instance: str, *, final: bool) -> tuple[bytes, Life]:
        lives = self.lives.get(instance) or [self._new_life(chance, instance)]
        life = lives[-1] if chance.random() < 0.8 else chance.choice(lives)
        part = int(chance.random() < 0.2)
        seq = life.seqs[part] = life.seqs.get(part, 0) + chance.choice([1, 1, 1, 2])
        texts = [json.dumps(metric) for metric in self._metrics(chance, life, part)]
        if chance.random() < 0.1:
            texts.insert(chance.randint(0, len(texts)), chance.choice(BAD_METRICS))
        header: dict[str, Any] = {"v": 1, "app": life.app, "life": life.ulid, "part": part, "seq": seq}
        if life.prev is not None:
            header["prev"] = life.prev
        header |= {"ts": max(0, self.now + chance.choice([0, 3_600_000, -3_600_000]))}
        header |= {"every_ms": EVERY_MS, "final": final, "from a later version": {"x": [1]}}
        if not life.complete or chance.random() < 0.02:
            header["complete"] = life.complete if chance.random() < 0.97 else not life.complete
        if chance.random() < 0.03:
            header |= chance.choice(
                [
                    {"v": 2},
                    {"app": ""},
                    {"life": "x"},
                    {"part": -1},
                    {"seq": 0},
                    {"prev": 1},
                    {"every_ms": 9},
                    {"final": 0},
                ]
            )
        return (json.dumps(header)[:-1] + ', "metrics": [' + ",".join(texts) + "]}").encode(), life

    def _metrics(self, chance: random.Random, life: Life, part: int) -> list[dict[str, Any]]:
        metrics: list[dict[str, Any]] = []
        for kind in chance.sample(
            [
                *("counter", "counter2", "float_counter", "updown", "gauge"),
                *("meter", "histogram", "timer", "buckets", "buckets2", "position"),
            ],
            chance.randint(0, 6),
        ):
            tags = {"b": "2", "a": "ö %d"} if chance.random() < 0.5 else {"a": "ö %d", "b": "2"}
            name = f"m{part}" if chance.random() < 0.95 else "m0"
            metrics.append(self._metric(chance, life, name, kind, tags))
        if metrics and chance.random() < 0.05:
            metrics.append(metrics[0])
        return metrics

    def _metric(self, chance: random.Random, life: Life, name: str, kind: str, tags: dict[str, str]) -> dict[str, Any]:
        count = life.counts.get(name + kind, 0) + chance.choice([0, 1, 3, 1000])
        if chance.random() < 0.01:
            count = 2**63 - 1
        life.counts[name + kind] = count
        if chance.random() < 0.04:
            count = max(0, count - 2)
        number = chance.choice([0, 1, -1, 0.1, 0.2, 1e16, -1e16, 2**53 + 1, 1e-300, 2**64, 1.7e308, -1.7e308])
        rates: dict[str, Any] = {
            rate: chance.choice([0.1, 3, 1e308]) for rate in ("mean_rate", "m1_rate", "m5_rate", "m15_rate")
        }
        spread: dict[str, Any] = {"count": count, "sum": number, "min": number, "max": chance.choice([None, 5, 7.5])}
        spread |= {"p99": 1.0}
        if chance.random() < 0.1:
            del spread["sum"]
        if chance.random() < 0.8:
            spread["sketch"] = sketch(chance, count if chance.random() < 0.97 else count + 1)
        bodies: dict[str, dict[str, Any]] = {
            "counter": {"count": count},
            "counter2": {"count": count},
            "float_counter": {"sum": count * chance.choice([1, 0.1])},
            "updown": {"value": number},
            "gauge": {"value": number},
            "meter": {"count": count} | rates,
            "histogram": spread,
            "timer": spread | rates,
            "position": {"start": chance.randint(0, 9), "position": count},
        }
        if kind in ("counter2", "buckets2"):
            tags = {}
        if kind.startswith("buckets"):
            bodies[kind], tags = explicit_buckets(chance, count, tags)
        return {"name": name, "tags": tags, "type": kind.rstrip("2")} | bodies[kind]

    def _append(self, instance: str | bytes | None, value: bytes | None, partition: int | None = None) -> None:
        key = instance.encode() if isinstance(instance, str) else instance
        partition = len(key or b"") % 2 if partition is None else partition
        offset = sum(record.partition == partition for record in self.records)
        self.records.append(TopicRecord(key, value, self.now, partition, offset))


def keys_of_shards(shards: int) -> list[str]:
    """Return a key in each of the shards."""
    found: dict[int, str] = {}
    for number in count():
        key = f"forgets-{number}"
        found.setdefault(crc32(key.encode()) % shards, key)
        if len(found) == shards:
            return list(found.values())
    raise AssertionError


def forget_value(named: Any) -> bytes:
    return json.dumps({"v": 1, "forget": named}).encode()


def random_ulid(chance: random.Random, ms: int) -> str:
    """Return a ULID with this time, in epoch ms."""
    head = "".join(DIGITS[ms >> shift & 31] for shift in range(45, -1, -5))
    return head + "".join(chance.choices(DIGITS, k=16))


def play(schedule: list[int], shards: int = 1) -> list[TopicRecord]:
    """Return the records of a schedule, in the order of appending. Each instance is in one of two partitions."""
    playing = Play(shards)
    for seed in schedule:
        playing.step(seed)
    return playing.records


def in_steps(records: list[TopicRecord], sizes: list[int]) -> list[list[TopicRecord]]:
    """Divide records into steps. The sizes are repeated until all records are in a step."""
    steps: list[list[TopicRecord]] = []
    left = list(records)
    while left:
        size = sizes[len(steps) % len(sizes)]
        steps.append(left[:size])
        left = left[size:]
    return steps


class Steady(Play):
    """Plays schedules in which instances also publish the same metrics many times, as in a backlog."""

    def step(self, seed: int) -> None:
        """Take one step, or publish several records of one life or counter, with others in between."""
        chance = random.Random(seed)
        if chance.random() < 0.4:
            super().step(seed)
            return
        instances = chance.sample(["app-1", "app-2", "äpp 3"], chance.randint(1, 2))
        kind = chance.choice(["snapshot", "snapshot", "short"])
        count, tags = chance.choice([0, 5, 5, 5, 5, 5, 9, 9, 9, 2**62]), chance.choice([{}, {"k": "v"}])
        for _ in range(chance.randint(2, 12)):
            self.now += chance.choice([0, 1, 300, 300, 300, 4_000, 4_000, -50])
            instance = chance.choice(instances)
            if kind == "snapshot":
                value, life = self._snapshot(chance, instance, final=False)
                self._append(instance, value)
                life.prev = self.now if chance.random() < 0.9 else life.prev
            else:
                count = max(0, count + chance.choice([0, 1, 1, 7, 7, 7, 7, 7, -3]))
                self._append(instance, json.dumps({"name": "orders", "value": count, "tags": tags}).encode())

    def _metrics(self, chance: random.Random, life: Life, part: int) -> list[dict[str, Any]]:
        if chance.random() < 0.1:
            return super()._metrics(chance, life, part)
        kinds = ["counter", "meter"] if part else ["counter", "gauge", "histogram", "buckets", "position"]
        if chance.random() < 0.1:
            return [self._metric(chance, life, f"s{part}", kind, {"a": "1"}) for kind in kinds]
        return [self._growing(chance, life, f"s{part}", kind) for kind in kinds]

    def _growing(self, chance: random.Random, life: Life, name: str, kind: str) -> dict[str, Any]:
        metric = self._metric(chance, life, name, kind, {"a": "1"})
        count = life.counts[name + kind]
        grown: dict[str, Any] = (
            {"count": count} if "count" in metric else {"start": 0, "position": count} if kind == "position" else {}
        )
        if "sketch" in metric:
            grown["sketch"] = sketch(chance, count)
        if "bounds" in metric:
            body, tags = explicit_buckets(chance, count, {"a": "1"})
            grown = body | {"tags": tags}
        return metric | grown


def play_steadily(schedule: list[int]) -> list[TopicRecord]:
    """Return the records of a schedule. Compaction drops many of them."""
    playing = Steady()
    for seed in schedule:
        playing.step(seed)
    return playing.records
