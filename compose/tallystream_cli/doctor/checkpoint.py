"""Checks of the aggregator's checkpoint: whether it is usable, and whether it belongs to the topics of this cluster."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tallystream.errors import TallystreamError
from tallystream_aggregator.sharding import sharding_of
from tallystream_aggregator.spark.checkpoint import finished_batches, topic_ids
from tallystream_aggregator.times import DAY_MS
from tallystream_cli.doctor import disk
from tallystream_cli.doctor.findings import failed, not_checked, of_error, ok, warning

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_aggregator.sharding import Sharding
    from tallystream_cli.doctor.cluster import Cluster, Topic
    from tallystream_cli.doctor.findings import Finding

CHECK = "checkpoint"


def check_checkpoint(path: Path, topics: Topics, cluster: Cluster | None) -> Iterator[Finding]:
    """Check a checkpoint. `cluster` is None if no broker answered."""
    if not disk.writable(path) or not disk.writable(path.absolute().parent):
        yield failed(f"{CHECK}: folder", f"this user may not write {path} or beside it", "allow it, or run as its user")
    if (path / "offsets").is_dir():
        if (finding := disk.private(f"{CHECK}: folder", path, path.stat().st_mode)) is not None:
            yield finding
        yield from _existing(path, topics, cluster)
    else:
        yield new(str(path), None if cluster is None else cluster.topics.get(topics.ledger))
    yield disk.free_space(CHECK, path)


def new(path: str, ledger: Topic | None) -> Finding:
    """Check a checkpoint without a batch, against the ledger, which is None if it is not known."""
    if ledger is not None and ledger.records:
        remedy = "put the folder back, or make it again: tallystream rebuild"
        return failed(CHECK, f"{path} has no table, but metrics-ledger says that there was one", remedy)
    return ok(CHECK, f"{path} has no table yet; the aggregator begins one")


def identity(stored: Mapping[str, str], topics: Topics, found: Mapping[str, Topic] | None) -> Finding:
    """Compare the IDs of the checkpoint's topics with those of the cluster, None if no broker answered."""
    check, names = f"{CHECK}: topics", ", ".join(sorted(stored))
    if not stored:
        return not_checked(check, "the file with the IDs of its topics is missing")
    if topics.metrics not in stored:
        return warning(check, f"it reads {names}, not {topics.metrics}", "correct --checkpoint or --topic-prefix")
    if found is None:
        return not_checked(check, "no broker answers")
    known = {name: found[name].id for name in stored if name in found}
    if other := [name for name, id_ in known.items() if id_ != stored[name]]:
        remedy = "correct --bootstrap-servers or --checkpoint; for a topic that was deleted, see docs/runbook.md"
        return failed(check, f"{', '.join(other)} has another ID: another cluster, or created again", remedy)
    return ok(check, f"{', '.join(known)}, with the IDs of this cluster")


def last_batch(ts_ms: int | None, number: int, now_ms: float, metrics: Topic | None) -> Finding:
    """Check the age of the last batch against the retention of `metrics`, None if it is not known."""
    check = f"{CHECK}: last batch"
    if ts_ms is None:
        return ok(check, "no batch has finished yet")
    age_ms = max(0.0, now_ms - ts_ms)
    config = {} if metrics is None or metrics.config is None else metrics.config
    kept_ms = int(config.get("retention.ms", 7 * DAY_MS))
    text = f"batch {number}, {_age(age_ms)} ago"
    if 0 <= kept_ms < age_ms:
        remedy = "run tallystream verify before --on-data-loss continue: records may have been deleted unread"
        return warning(check, f"{text}, longer than the retention of metrics", remedy)
    return ok(check, text)


def shards(sharding: Sharding, table: Topic | None) -> Finding:
    """Check that `metrics-table` has a partition for each shard. `table` is None if it is not known."""
    check, number = f"{CHECK}: shards", sharding.shards
    if table is not None and len(table.replicas) < number:
        remedy = f"kafka-topics.sh --alter --topic metrics-table --partitions {number}"
        return failed(check, f"{number}, but metrics-table has {len(table.replicas)} partitions", remedy)
    return ok(check, f"{number}, in {sharding.partitions} partitions of Spark's state")


def _existing(path: Path, topics: Topics, cluster: Cluster | None) -> Iterator[Finding]:
    found = None if cluster is None else cluster.topics
    yield ok(CHECK, str(path))
    try:
        yield identity(topic_ids(path), topics, found)
        yield shards(sharding_of(path, None, None), (found or {}).get(topics.table))
        batches = finished_batches(path)
    except (TallystreamError, OSError) as error:
        yield of_error(CHECK, error)
        return
    last = batches[-1] if batches else None
    ts_ms, number = (None, -1) if last is None else (last.ts_ms, last.batch)
    yield last_batch(ts_ms, number, time.time() * 1000, (found or {}).get(topics.metrics))


def _age(ms: float) -> str:
    for unit, length_s in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if ms / 1000 >= 2 * length_s:
            return f"{ms / 1000 / length_s:.0f} {unit}"
    return f"{ms / 1000:.0f} s"
