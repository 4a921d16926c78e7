"""Run a table over the records of a random schedule, and compare it with the references: for test_properties.py."""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from support import oracle
from support.batches import DAY_MS, HOUR_MS, Batch
from support.oracle_decode import LASTING
from support.schedules import TopicRecord, may_lower_counts
from support.tables import Tables, table_settings
from tallystream_aggregator.table.clock_record import CLOCK_KEY, clock_value
from tallystream_aggregator.table.sum_tags import SumTags
from tallystream_aggregator.verify.lives import Settings
from tallystream_aggregator.verify.published import parse, unequal
from tallystream_aggregator.verify.replay import Replay
from tallystream_aggregator.verify.tags import Tags

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Mapping, Sequence

    from support.programs import Played
    from support.tables import Sums

FORGET_AFTER_MS = 50_000
RULES: dict[str, Any] = {"short_form_every_ms": 5_000, "forget_after_ms": FORGET_AFTER_MS}
RULES |= {"max_metrics": 8, "max_app_metrics": 12}
UNLIMITED: dict[str, Any] = {"short_form_every_ms": 5_000, "forget_after_ms": FORGET_AFTER_MS}
"""For tables that are rebuilt: docs/table.md exempts the limit of metrics per life after a rebuild."""


def new_tables(records: Iterable[TopicRecord], rules: Mapping[str, Any], *args: Any, **kwargs: Any) -> Tables:
    """Return tables with these settings."""
    return Tables(records, table_settings(**rules), *args, **kwargs)


def check_live(
    records: list[TopicRecord],
    batches: Iterable[Batch],
    rules: Mapping[str, Any] = RULES,
    tags: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> None:
    """Run the batches, and compare the table with the replay after each one and with the oracle at the end."""
    tables = new_tables(records, rules, sum_tags=sum_tags(tags))
    replay = Replay(Settings(**rules), replay_tags(tags))
    newest: dict[Any, Any] = {}
    in_order: list[TopicRecord] = []
    for batch in batches:
        before, dead, first = dict(tables.sums), tables.dead.copy(), len(tables.rows)
        read = tables.batch(batch)
        in_order += read
        assert tables.dead - dead == Counter((r.partition, r.offset) for r in read for _ in replayed(replay, r))
        for key, value in tables.rows[first:]:
            row = parse(key, value)
            newest[row.identity] = row.fields
            assert not unequal(row.fields, replay.sum(row.identity)), row.identity
        if not any(map(may_lower_counts, read)):
            require_no_fall(before, tables.sums)
    assert len(in_order) == len(records)
    for identity in replay.identities():
        assert not unequal(newest[identity], replay.sum(identity)), identity
    wanted = oracle.replay(in_order, **rules, **tags)  # type: ignore[arg-type]
    (state,) = tables.states
    assert tables.sums == wanted.sums
    assert tables.dead == wanted.dead
    assert tables.events == wanted.events
    assert state.stale == replay.stale == wanted.stale
    assert (state.records, state.dead) == (len(records), tables.dead.total())


def replayed(replay: Replay, record: TopicRecord) -> list[str]:
    return replay.apply(f"metrics:{record.partition}", record.timestamp_ms, record.key, record.value)


def sum_tags(tags: Mapping[str, tuple[str, ...]]) -> SumTags:
    """Return the tags of the sums for the table. `tags` are those for the oracle."""
    return SumTags(tags.get("drop_tags", ()), tags.get("keep_tags"))


def replay_tags(tags: Mapping[str, tuple[str, ...]]) -> Tags:
    """Return the tags of the sums for the replay of verify."""
    kept = tags.get("keep_tags")
    return Tags(frozenset(tags.get("drop_tags", ())), None if kept is None else frozenset(kept))


def require_no_fall(before: Sums, after: Sums) -> None:
    """Fail if a count or a position is lower than before."""
    for key, fields in before.items():
        for name in ("count", "position"):
            assert (after[key].get(name) or 0) >= (fields.get(name) or 0), (key, name)


def require_equal(tables: Tables, wanted: oracle.Outcome) -> None:
    """Fail if sums differ from the oracle. A metric that only a crashed batch had, before a tombstone, has no sum."""
    assert tables.sums == {
        key: fields for key, fields in wanted.sums.items() if key in tables.sums or any(fields.values())
    }
    assert set(tables.dead) <= set(wanted.dead)


def move(records: list[TopicRecord], chance: random.Random) -> list[TopicRecord]:
    """Return the records with each instance sometimes moved to another of three partitions."""
    partitions: dict[bytes | None, int] = {}
    sizes: Counter[int] = Counter()
    moved = []
    for record in records:
        partition = partitions.get(record.key, 0)
        partitions[record.key] = partition = chance.randrange(3) if chance.random() < 0.15 else partition
        moved.append(record._replace(partition=partition, offset=sizes[partition]))
        sizes[partition] += 1
    return moved


def jump(records: list[TopicRecord], hours: list[int]) -> list[TopicRecord]:
    """Return the records with append times of a broker whose clock is wrong by these hours, each for ten records."""
    off_ms = (hours[number // 10 % len(hours)] * HOUR_MS for number in range(len(records)))
    return [r._replace(timestamp_ms=r.timestamp_ms + off) for r, off in zip(records, off_ms, strict=True)]


def on_one_clock(records: list[TopicRecord]) -> list[TopicRecord]:
    """Return the records with append times of a clock that is never set back. Shards see it at different times."""
    highest: dict[int, int] = {}
    out = []
    for record in records:
        highest[record.partition] = max(record.timestamp_ms, highest.get(record.partition, 0))
        out.append(record._replace(timestamp_ms=highest[record.partition]))
    return out


def wake_all(tables: Tables, records: list[TopicRecord]) -> list[TopicRecord]:
    """Append a clock record to each partition, so that all shards have the same clocks. Run them as a batch.

    Return the records.
    """
    ends: dict[int, int] = {}
    woken: list[TopicRecord] = []
    for partition in sorted({record.partition for record in records}):
        mine = [record for record in records if record.partition == partition]
        now_ms = max(record.timestamp_ms for record in mine)
        woken.append(TopicRecord(CLOCK_KEY, clock_value(0), now_ms, partition, len(mine)))
        ends[partition] = len(mine) + 1
    tables.extend(woken)
    tables.batch(Batch(ends, all_read=False))
    return woken


def random_settings(played: Played, chance: random.Random) -> Any:
    """Return settings with a random time until lives are forgotten, on which no count depends.

    It is beyond the end if instances move, or if a metric is forgotten in several partitions: docs/table.md exempts
    both where partitions are read days apart.
    """
    is_exempt = "partitions" in played.features or (played.partitions > 1 and not is_splittable(played))
    days = 365 if is_exempt else chance.choice([5, 5, 7, 30])
    return table_settings(forget_after_ms=days * DAY_MS)


def lasting(sums: Sums) -> Sums:
    """Return the fields of sums that do not depend on living lives."""
    return {
        key: {name: value for name, value in fields.items() if name in LASTING[key[2]]}
        for key, fields in sums.items()
        if LASTING[key[2]]
    }


def counts(sums: Sums) -> dict[tuple[str, str, str], int]:
    """Return the counts and positions of the programs."""
    found = {
        (app, kind, name): fields["position" if kind == "position" else "count"]
        for (app, name, kind, _), fields in lasting(sums).items()
    }
    return {key: count for key, count in found.items() if count}


def is_splittable(played: Played) -> bool:
    """Return whether no record forgets a metric, because such a record has the number of shards."""
    return not any(b'"forget": {"metric"' in (record.value or b"") for record in played.records)


def run(batches: Sequence[Batch], tables: Tables, chance: random.Random, broken: float, *, splits: bool) -> None:
    """Run the batches, with a fault before this share of them. No count decreases unless a record removes it."""
    read: list[TopicRecord] = []
    for batch in batches:
        before = dict(tables.sums)
        while tables.has_read and chance.random() < broken:
            read += break_down(batch, tables, chance, splits=splits)
        read += tables.batch(batch)
        if tables.published:
            if not any(map(may_lower_counts, read)):
                require_no_fall(before, tables.sums)
            read.clear()


def break_down(batch: Batch, tables: Tables, chance: random.Random, *, splits: bool) -> list[TopicRecord]:
    """Crash in or before a batch. Continue with the next writer or after a rebuild. Return the records of the batch."""
    if chance.random() < 0.2:
        tables.compact()
    read = tables.batch(batch, written=chance) if chance.random() < 0.7 else []
    if chance.random() < 0.3:
        tables.take_over()
    else:
        tables.rebuild(chance.choice([0, 0, 1, 2]) if splits and tables.shards < 6 else 0, behind=chance.random() < 0.2)
    return read


def require_exact(played: Played, tables: Tables) -> None:
    """Require the sums of the oracle and of the programs, and no dead letters except for the refused records."""
    wanted = oracle.replay(played.records, forget_after_ms=tables.settings.forget_after_ms)
    assert counts(wanted.sums) == {key: count for key, count in played.counted.items() if count}
    assert set(wanted.dead) == played.refused
    found = lasting(tables.sums)
    assert found == {
        key: fields for key, fields in lasting(wanted.sums).items() if key in found or any(fields.values())
    }
    assert all(fields["lives"] == fields["instances"] == 0 for fields in tables.sums.values())
    assert set(tables.dead) <= played.refused
