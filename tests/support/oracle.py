"""The oracle: a reference implementation of the table, with dicts and no code of Tallystream.

It follows docs/table.md rule by rule in the simplest way: it keeps every life, computes every sum from all of them, and
adds floats as fractions. `replay` returns everything, `expected` only the sums.

It has no shards and steps. Whether a record is too late depends only on the record (rule 3). Every other record
counts by its life, part and seq until a tombstone, a forget record, or until the life is forgotten.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol
from zlib import crc32

from support.oracle_decode import (
    LARGEST,
    LASTING,
    RATES,
    InvalidError,
    Key,
    read_forget,
    read_header,
    read_key,
    read_metric,
    read_short_form,
    read_tags,
    read_value,
    ulid_ms,
    without_tags,
)
from support.oracle_numbers import add, nearest, reduce

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MOMENTARY = {"updown": ("value",), "gauge": ("value",), "meter": RATES, "timer": RATES}


class Read(Protocol):
    """A record of the topic `metrics`. `timestamp_ms` is the broker's append time."""

    @property
    def key(self) -> bytes | None: ...  # noqa: D102
    @property
    def value(self) -> bytes | None: ...  # noqa: D102
    @property
    def timestamp_ms(self) -> int: ...  # noqa: D102
    @property
    def partition(self) -> int: ...  # noqa: D102
    @property
    def offset(self) -> int: ...  # noqa: D102


@dataclass
class Outcome:
    """What the table must publish.

    `dead` counts the dead letters of each (partition, offset). `events` counts each (kind, app, instance, life, ts_ms,
    detail).
    """

    sums: dict[Key, dict[str, Any]] = field(default_factory=dict)
    dead: Counter[tuple[int, int]] = field(default_factory=Counter)
    events: Counter[tuple[str, str, str, str, int, str]] = field(default_factory=Counter)
    stale: int = 0


@dataclass
class Life:
    """One life: `newest` maps part → seq, `rows` maps identity → (part, seq, fields).

    `partition` is that of the last record that was not stale, and `last_seen_ms` its clock at that record.
    `parts_here` are the parts whose newest snapshot is from that partition. `keep_ms` is the clock at the last record,
    or the time of the ULID if that is later.
    """

    instance: str
    app: str
    life: str
    partition: int
    last_seen_ms: int
    keep_ms: int = 0
    every_ms: int = 0
    final: bool = False
    dead: bool = False
    forgotten: bool = False
    complete: bool = True
    newest: dict[int, int] = field(default_factory=dict)
    parts_here: set[int] = field(default_factory=set)
    rows: dict[Key, tuple[int, int, dict[str, Any]]] = field(default_factory=dict)
    limits: set[str] = field(default_factory=set)


def expected(records: Iterable[Read], drop_tags: tuple[str, ...] = ()) -> dict[Key, dict[str, Any]]:
    """Return the sums by (app, name, type, tags), without the fields that depend on silence and so on the time."""
    outcome = replay(records, drop_tags=drop_tags)
    return {
        key: {name: value for name, value in fields.items() if name in LASTING[key[2]]}
        for key, fields in outcome.sums.items()
    }


def replay(  # noqa: C901, PLR0912, PLR0915  (one rule after the other, as in docs/table.md)
    records: Iterable[Read],
    *,
    short_form_every_ms: int = 60_000,
    max_record_bytes: int = 1_048_576,
    max_metrics: int = 10_000,
    max_app_metrics: int = 1_000_000,
    forget_after_ms: int = 7 * 86_400_000,
    drop_tags: tuple[str, ...] = (),
    keep_tags: tuple[str, ...] | None = None,
) -> Outcome:
    """Apply the rules to the records in this order, and compute the sums at the end.

    The sums lack the tags `drop_tags`, or all but `keep_tags`.
    """
    out = Outcome()
    clocks: dict[int, int] = {}
    lives: list[Life] = []
    forgotten: list[Life] = []
    seen: set[Key] = set()

    def event(kind: str, life: Life, ts_ms: int, detail: str = "") -> None:
        out.events[(kind, life.app, life.instance, life.life, ts_ms, detail)] += 1

    def reached(life: Life, ts_ms: int, limit: str) -> None:
        if limit not in life.limits:
            life.limits.add(limit)
            event("limit", life, ts_ms, limit)

    def limit_of(life: Life, key: Key) -> str | None:
        """Return the limit that a new metric exceeds, or None."""
        if len(life.rows) >= max_metrics:
            return "metrics per life"
        if key in seen:
            return None
        for what, most, others in (
            ("app", max_app_metrics, [one for one in seen if one[0] == life.app]),
            ("table", 4 * max_app_metrics, list(seen)),
        ):
            if len(others) >= most:
                return f"metrics per {what}"
            if sum(map(size_of, [*others, key])) > 256 * most:
                return f"bytes of metrics per {what}"
        return None

    for record in records:
        clock = clocks[record.partition] = max(clocks.get(record.partition, 0), record.timestamp_ms)
        where = (record.partition, record.offset)
        if record.key == b"tallystream-clock":
            wall = re.fullmatch(rb'{"v":1,"wall_ms":(0|[1-9][0-9]{0,14})}', record.value or b"")
            if wall is None:
                out.dead[where] += 1
                continue
            due_ms = min(clock, int(wall[1])) - forget_after_ms
            for life in [one for one in lives if one.life and one.partition == record.partition]:
                if life.keep_ms <= due_ms:
                    life.forgotten = True
                    lives.remove(life)
                    forgotten.append(life)
            continue
        try:
            instance = read_key(record.key)
        except InvalidError:
            out.dead[where] += 1
            continue
        mine = [life for life in lives if life.instance == instance]
        if record.value is None:
            for life in mine:
                if life.rows:
                    event("tombstone", life, clock)
                empty(life, record.partition)
                if not life.life:
                    lives.remove(life)
            continue
        if len(record.value) > max_record_bytes:
            out.dead[where] += 1
            out.events[("limit", "", instance, "", clock, "record size")] += 1
            continue
        try:
            document = read_value(record.value)
            short = "metrics" not in document
            if short and not ("name" in document and "value" in document):
                for detail in sorted(forget(read_forget(document), instance, lives, forgotten, record.partition)):
                    out.events[("forget", *detail[:3], clock, detail[3])] += 1
                continue
            header = read_short_form(document) if short else read_header(document, record.timestamp_ms)
        except InvalidError:
            out.dead[where] += 1
            continue
        app, name = header["app"], header["life"]
        found = [life for life in mine if life.app == app and life.life == name]
        if found and found[0].complete != header["complete"]:
            out.dead[where] += 1
            continue
        if found:
            life = found[0]
        else:
            life = Life(instance, app, name, record.partition, clock, complete=header["complete"])
            if name and any(other.app == app and other.life for other in mine):
                event("restart", life, clock)
            lives.append(life)
        life.keep_ms = max(life.keep_ms, clock, ulid_ms(name) if name else 0)
        stale = not short and header["seq"] <= life.newest.get(header["part"], 0)
        if stale:
            out.stale += 1
            # The instance moves: an older snapshot from another partition adds the metrics that newer ones lack.
            if not life.complete or life.partition != record.partition or header["part"] not in life.parts_here:
                add_older(life, document["metrics"][:max_metrics], header, seen, limit_of)
            continue
        if life.partition != record.partition:
            life.parts_here.clear()
        life.parts_here.add(0 if short else header["part"])
        life.partition, life.last_seen_ms = record.partition, clock
        life.final, life.dead = header["final"], False
        life.every_ms = header["every_ms"] or short_form_every_ms
        if short:
            key, value = header["metric"]
            if key not in life.rows and (limit := limit_of(life, key)):
                out.dead[where] += 1
                reached(life, clock, limit)
                continue
            total, last = (life.rows[key][2][name] for name in ("count", "last")) if key in life.rows else (0, 0)
            added = value - (last if value >= last else 0)
            if total + added > LARGEST:
                out.dead[where] += 1
                continue
            if value < last:
                event("restart", life, clock, key[1])
            life.rows[key] = (0, 0, {"count": total + added, "last": value})
            seen.add(key)
            continue
        part, seq = header["part"], header["seq"]
        life.newest[part] = seq
        if len(document["metrics"]) > max_metrics:
            out.dead[where] += 1
            reached(life, clock, "metrics per record")
        beyond, refused = set[str](), 0
        once: set[Key] = set()
        for item in document["metrics"][:max_metrics]:
            try:
                key, fields = read_metric(item, app)
                if key in once:
                    raise InvalidError("twice in a snapshot")  # noqa: TRY301
                once.add(key)
                if key not in life.rows and (limit := limit_of(life, key)):
                    beyond.add(limit)
                    continue
                if key in life.rows:
                    old_part, _, old = life.rows[key]
                    if old_part != part:
                        raise InvalidError("in another part")  # noqa: TRY301
                    if falls(key, fields, old):
                        widen(old, fields)
                        raise InvalidError("a count fell")  # noqa: TRY301
                    widen(fields, old)
            except InvalidError:
                refused += 1
                continue
            life.rows[key] = (part, seq, fields)
            seen.add(key)
        if refused:
            out.dead[where] += min(refused, 11)  # ten for single metrics, and one for the others
        for limit in beyond:
            out.dead[where] += 1
            reached(life, clock, limit)

    for sum_key in {without_tags(key, drop_tags, keep_tags) for key in seen}:
        parts = [key for key in seen if without_tags(key, drop_tags, keep_tags) == sum_key]
        out.sums[sum_key] = total_of(parts, [*lives, *forgotten], clocks)
    return out


def widen(fields: dict[str, Any], other: dict[str, Any]) -> None:
    """Widen min, max and positions of a life by those of another snapshot."""
    for name, choose in (("min", min), ("max", max), ("start", min), ("position", max)):
        if other.get(name) is not None:
            fields[name] = other[name] if fields[name] is None else choose(other[name], fields[name])


def add_older(
    life: Life,
    metrics: list[Any],
    header: dict[str, Any],
    seen: set[Key],
    limit_of: Callable[[Life, Key], str | None],
) -> None:
    """Add the metrics of an older snapshot: the highest count wins, then the highest seq, and min and max widen.

    Metrics that would have been refused in the right order are ignored.
    """
    once: set[Key] = set()
    for item in metrics:
        try:
            key, fields = read_metric(item, life.app)
        except InvalidError:
            continue
        if key in once:
            continue
        once.add(key)
        if key not in life.rows:
            if limit_of(life, key) is None:
                life.rows[key] = (header["part"], header["seq"], fields)
                seen.add(key)
            continue
        part, seq, old = life.rows[key]
        if part != header["part"]:
            continue
        if falls(key, old, fields) or (seq < header["seq"] and not falls(key, fields, old)):
            widen(fields, old)
            life.rows[key] = (part, header["seq"], fields)
        else:
            widen(old, fields)


def falls(key: Key, fields: dict[str, Any], old: dict[str, Any]) -> bool:
    """Tell whether a count is lower than before."""
    name = "sum" if key[2] == "float_counter" else "count"
    return name in fields and fields[name] < old[name]


def size_of(key: Key) -> int:
    """Return the bytes of a metric's name and tags."""
    return len(key[1].encode()) + sum(len(text.encode()) for tag in key[3] for text in tag)


def total_of(keys: list[Key], lives: list[Life], clocks: dict[int, int]) -> dict[str, Any]:
    """Return the sum of metrics over all lives; what is beyond its range is the largest or smallest number."""
    kind = keys[0][2]
    having = [(life, life.rows[key]) for life in lives for key in keys if key in life.rows]
    current = [(life, row) for life, row in having if is_current(life, row, clocks[life.partition])]
    fields: dict[str, Any] = {}
    for name in LASTING[kind]:
        fields[name] = reduce(name, [row[2][name] for _, row in having])
    for name in MOMENTARY.get(kind, ()):
        column = [row[2][name] for _, row in current]
        if name == "value":
            fields |= {"sum": add(column) if column else None, "number": len(column)}
            fields |= {"min": min(column, default=None), "max": max(column, default=None)}
        else:
            fields[name] = add(column) if column else None
    within: dict[str, Any] = {name: None if value is None else nearest(value) for name, value in fields.items()}
    overflow = within != fields
    fields = within | ({"overflow": True} if overflow else {})
    if "number" in fields:
        fields["mean"] = None if overflow or not current else fields["sum"] / len(current)
    fields |= {"lives": len(current), "instances": len({life.instance for life, _ in current})}
    return fields


def is_current(life: Life, row: tuple[int, int, dict[str, Any]], clock: int) -> bool:
    """Return whether the life is living and its newest snapshot has the row's metric."""
    part, seq, _ = row
    living = not (life.final or life.dead or life.forgotten) and clock < life.last_seen_ms + 3 * life.every_ms
    return living and (not life.complete or seq == life.newest.get(part, 0))


def empty(life: Life, partition: int) -> None:
    """Remove the rows of a life. An older snapshot that follows in the same partition is stale."""
    life.rows, life.dead = {}, True
    if life.partition == partition:
        life.parts_here.update(life.newest)


def forget(
    named: dict[str, Any], instance: str, lives: list[Life], forgotten: list[Life], partition: int
) -> set[tuple[str, str, str, str]]:
    """Remove the lives or metrics that a forget record names. Return the events as (app, instance, life, detail).

    A metric is removed from the lives of the partition, and from the forgotten lives of all partitions.
    """
    events = set()
    if named.get("metric") is None:
        for life in [life for life in lives if life.instance == instance]:
            if named.get("app") not in (None, life.app) or named.get("life") not in (None, life.life):
                continue
            if life.rows:
                events.add((life.app, life.instance, life.life, ""))
            empty(life, partition)
            if not life.life:
                lives.remove(life)
        return events
    shards = named.get("shards", 1)
    for life in [*forgotten, *(one for one in lives if one.partition == partition)]:
        if (crc32(life.instance.encode()) - crc32(instance.encode())) % shards:
            continue
        for key in list(life.rows):
            app, name, kind, tags = key
            same = named["metric"] == name and named.get("app") in (None, app) and named.get("type") in (None, kind)
            if same and set(read_tags(named)) <= set(tags):
                events.add((app, "", "", name))
                del life.rows[key]
    return events
