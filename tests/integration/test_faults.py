"""Faults for real, in short: killed, broken and deleted on the way, every sum is exact or there is a loud stop.

The long versions are in tests/faults (`make faults`); the scenarios themselves in tests/support/faults.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support import faults
from tallystream_aggregator.kafka.topics import Topics, create_topics

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

    from tallystream_cli.servers.broker import KafkaBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]


def test_sums_are_exact_through_kills_of_the_driver_a_worker_and_the_broker(tmp_path: Path) -> None:
    """Five kills of the aggregator, one of a Python worker, one of the broker, under load: exact by both oracles.

    A tenth of the records is sent twice, a tenth late, and what was poison is what the dead letters are.
    """
    from confluent_kafka.admin import AdminClient

    from tallystream_cli.servers.broker import KafkaBroker

    with KafkaBroker(tmp_path / "broker") as broker:
        topics = Topics("fire-")
        create_topics(AdminClient({"bootstrap.servers": broker.bootstrap_servers}), topics)
        faults.under_fire(broker, topics, tmp_path, faults.Fire(5, 1, (2.0,)), seed=5)


def test_a_topic_created_anew_is_a_loud_stop(
    broker: KafkaBroker, admin: AdminClient, topics: Topics, tmp_path: Path
) -> None:
    """Deleted and created again, `metrics` ends the aggregator with a sentence, at work and at its next start."""
    faults.recreated(broker, admin, topics, tmp_path)


def test_records_deleted_before_they_were_read_are_a_loud_stop(
    broker: KafkaBroker, admin: AdminClient, topics: Topics, tmp_path: Path
) -> None:
    """A backlog whose beginning is gone ends the aggregator with a sentence; no sum is touched."""
    faults.out_of_range(broker, admin, topics, tmp_path, "fail", "--mode", "catch-up")


def test_a_truncated_file_of_the_checkpoint_makes_no_different_sum(
    broker: KafkaBroker, topics: Topics, tmp_path: Path
) -> None:
    """The newest offsets, the newest commit and the newest state, each cut in half: refused, or exact."""

    def newest(files: list[Path]) -> list[Path]:
        shown = [path for path in files if not path.name.startswith(".")]
        batches = {kind: [path for path in shown if path.parts[0] == kind] for kind in ("offsets", "commits")}
        state = [path for path in shown if path.suffix == ".changelog" and path.parts[1:3] == ("0", "0")]
        return [
            *(max(paths, key=lambda path: int(path.name)) for paths in batches.values()),
            max(state, key=lambda path: int(path.stem.split("_")[0])),
        ]

    faults.truncated(broker, topics, tmp_path, newest)
