"""The fault suite at a small size: after each fault every sum is exact, or the aggregator stops with an error.

The full size is in tests/faults (`make faults`), the scenarios are in tests/support/faults.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient

from support import faults
from tallystream_aggregator.kafka.topics import Topics, create_topics
from tallystream_cli.servers.broker import KafkaBroker

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]


def test_sums_are_exact_through_kills_of_the_driver_a_worker_and_the_broker(tmp_path: Path) -> None:
    """After kills of driver, JVM, all processes, a Python worker and the broker, sums agree with replay and journal.

    A tenth of the records is sent twice, a tenth late. Exactly the malformed records are dead letters.
    """
    with KafkaBroker(tmp_path / "broker") as broker:
        topics = Topics("fire-")
        create_topics(AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}), topics)
        faults.random_kills(broker, topics, tmp_path, faults.Faults(3, 1, (2.0,)), seed=5)


def test_a_recreated_topic_stops_the_aggregator(
    broker: KafkaBroker, admin: AdminClient, topics: Topics, tmp_path: Path
) -> None:
    """If `metrics` is deleted and created again, the aggregator stops with an error, and so does its next start."""
    faults.topic_recreated(broker, admin, topics, tmp_path)


def test_records_deleted_before_they_were_read_stop_the_aggregator(
    broker: KafkaBroker, admin: AdminClient, topics: Topics, tmp_path: Path
) -> None:
    """If the first records of a backlog are deleted, the aggregator stops with an error, and no sum changes."""
    faults.out_of_range(broker, admin, topics, tmp_path, "fail", "--mode", "catch-up")


def test_a_truncated_file_of_the_checkpoint_makes_no_sum_wrong(
    broker: KafkaBroker, topics: Topics, tmp_path: Path
) -> None:
    """If the newest offsets, commit or state are cut in half, the checkpoint is refused, or sums are exact."""

    def newest(files: list[Path]) -> list[Path]:
        visible = [path for path in files if not path.name.startswith(".")]
        batches = {kind: [path for path in visible if path.parts[0] == kind] for kind in ("offsets", "commits")}
        state = [path for path in visible if path.suffix == ".changelog" and path.parts[1:3] == ("0", "0")]
        return [
            *(max(paths, key=lambda path: int(path.name)) for paths in batches.values()),
            max(state, key=lambda path: int(path.stem.split("_")[0])),
        ]

    faults.truncated_files(broker, topics, tmp_path, newest)
