"""`doctor`: the checks of the aggregator's checkpoint."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.sharding import Sharding, write_sharding
from tallystream_cli.doctor import checkpoint
from tallystream_cli.doctor.cluster import Cluster, Topic

if TYPE_CHECKING:
    from pathlib import Path

NAMES = Topics()
DAY_MS = 86_400_000


def topic(id_: str = "id", *, partitions: int = 1, records: int = 0, retention: str = "604800000") -> Topic:
    """Return a topic of a cluster."""
    ones = (1,) * partitions
    return Topic(id_, ones, ones, ones, None, {"retention.ms": retention}, records)


def cluster(**topics: Topic) -> Cluster:
    """Return a cluster with topics whose names have a hyphen for each underscore."""
    return Cluster("b:9092", "c", 1, topics={name.replace("_", "-"): one for name, one in topics.items()})


def statuses(path: Path, found: Cluster | None) -> dict[str, str]:
    """Return the status of each check."""
    return {one.check: str(one.status) for one in checkpoint.check_checkpoint(path, NAMES, found)}


def make(path: Path, *, ts_ms: int, topics: str = "id metrics\n") -> None:
    """Write a checkpoint with one finished batch."""
    for name in ("offsets", "commits"):
        (path / name).mkdir(parents=True)
    path.chmod(0o700)
    offsets = json.dumps({"metrics": {"0": 5}})
    (path / "offsets" / "0").write_text(f'v1\n{{"batchTimestampMs":{ts_ms}}}\n{offsets}')
    (path / "commits" / "0").write_text("v1\n{}")
    path.with_name(path.name + ".topic").write_text(topics)
    write_sharding(path, Sharding(shards=2, partitions=2))


def test_a_checkpoint_of_this_cluster_is_ok(tmp_path: Path) -> None:
    """IDs, shards and the last batch agree with the cluster; nothing is written."""
    make(tmp_path / "c", ts_ms=2**41)
    before = sorted(tmp_path.rglob("*"))
    found = statuses(tmp_path / "c", cluster(metrics=topic(), metrics_table=topic(partitions=2)))
    assert set(found.values()) == {"ok"}, found
    assert sorted(tmp_path.rglob("*")) == before


def test_a_checkpoint_is_checked_without_a_broker(tmp_path: Path) -> None:
    """Only what needs the broker is not checked."""
    make(tmp_path / "c", ts_ms=2**41)
    found = statuses(tmp_path / "c", None)
    assert found["checkpoint: topics"] == "not checked"
    assert found["checkpoint: last batch"] == "ok"


def test_a_damaged_checkpoint_fails(tmp_path: Path) -> None:
    """The file is named."""
    make(tmp_path / "c", ts_ms=2**41)
    (tmp_path / "c" / "offsets" / "0").write_text("v1\n")
    texts = [one.found for one in checkpoint.check_checkpoint(tmp_path / "c", NAMES, None) if one.status == "failed"]
    assert len(texts) == 1
    assert str(tmp_path / "c" / "offsets" / "0") in texts[0]


def test_a_missing_checkpoint_fails_only_if_there_was_a_table(tmp_path: Path) -> None:
    """The ledger tells whether there was one."""
    assert statuses(tmp_path / "c", cluster(metrics_ledger=topic()))["checkpoint"] == "ok"
    assert statuses(tmp_path / "c", cluster(metrics_ledger=topic(records=3)))["checkpoint"] == "failed"
    assert statuses(tmp_path / "c", None)["checkpoint"] == "ok"


def test_the_ids_of_the_topics_must_be_those_of_the_cluster() -> None:
    """Another ID is another cluster or a topic that was created again; other topics are another prefix."""
    assert checkpoint.identity({"metrics": "id"}, NAMES, {"metrics": topic()}).status == "ok"
    assert checkpoint.identity({"metrics": "id"}, NAMES, {"metrics": topic("other")}).status == "failed"
    assert checkpoint.identity({"p-metrics": "id"}, NAMES, {}).status == "warning"
    assert checkpoint.identity({}, NAMES, {}).status == "not checked"


def test_a_last_batch_older_than_the_retention_is_a_warning() -> None:
    """Records may have been deleted before they were read. -1 keeps them without a limit."""
    for retention, status in (("604800000", "warning"), ("-1", "ok"), (str(9 * DAY_MS), "ok")):
        assert checkpoint.last_batch(0, 7, 8.0 * DAY_MS, topic(retention=retention)).status == status
    assert checkpoint.last_batch(0, 7, 8.0 * DAY_MS, None).found.startswith("batch 7, 8 days ago")
    assert checkpoint.last_batch(None, -1, 0, None).status == "ok"


def test_the_table_needs_a_partition_for_each_shard() -> None:
    """Two shards need two partitions of metrics-table."""
    assert checkpoint.shards(Sharding(2, 2), topic(partitions=1)).status == "failed"
    assert checkpoint.shards(Sharding(2, 2), topic(partitions=2)).status == "ok"
    assert checkpoint.shards(Sharding(2, 2), None).status == "ok"
