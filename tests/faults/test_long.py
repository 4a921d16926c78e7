"""The fault suite in full, `make faults`: the scenarios of tests/support/faults.py at full size.

TALLYSTREAM_FAULTS_SHARE, a number from 0 to 1, makes it smaller: 0.1 for a tenth of the kills.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient

from support import faults, hostile_records, standby
from tallystream_aggregator.kafka.topics import Topics, create_topics
from tallystream_cli.servers.broker import KafkaBroker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.faults, pytest.mark.timeout(3600)]

SHARE = float(os.environ.get("TALLYSTREAM_FAULTS_SHARE", "1"))


def some(number: int) -> int:
    """Return the share of `number` that was asked for, one at least."""
    return max(1, round(number * SHARE))


@pytest.fixture
def own(tmp_path: Path) -> Iterator[tuple[KafkaBroker, Topics]]:
    """A broker that only this test has and may kill, and its topics."""
    with KafkaBroker(tmp_path / "broker") as broker:
        topics = Topics("fire-")
        create_topics(AdminClient({"bootstrap.servers": broker.bootstrap_servers}), topics)
        yield broker, topics


MODES = pytest.mark.parametrize("mode", ["live", "catch-up"])
"""Each has a source of its own."""


def test_fifty_kills_of_the_driver_and_of_workers(own: tuple[KafkaBroker, Topics], tmp_path: Path) -> None:
    """Killed with SIGKILL at random moments fifty times, workers ten times: recovered each time, exact at the end."""
    faults.under_fire(*own, tmp_path, faults.Fire(some(50), some(10), ()), seed=50)


def test_five_outages_of_the_broker(own: tuple[KafkaBroker, Topics], tmp_path: Path) -> None:
    """The broker is killed five times, once it is down for 70 s: it flows again each time, exact at the end."""
    outages = (3.0, 10.0, 70.0, 1.0, 20.0)[-some(5) :]
    faults.under_fire(*own, tmp_path, faults.Fire(1, 0, outages), seed=70)


@MODES
def test_offsets_out_of_range_are_a_loud_stop(
    broker: KafkaBroker, admin: AdminClient, topics: Topics, tmp_path: Path, mode: str
) -> None:
    """Records that were deleted before they were read end the aggregator with a sentence; no sum is touched."""
    faults.out_of_range(broker, admin, topics, tmp_path, "fail", "--mode", mode)


@MODES
def test_records_deleted_unread_are_passed_over_by_choice(
    broker: KafkaBroker, admin: AdminClient, topics: Topics, tmp_path: Path, mode: str
) -> None:
    """With --on-data-loss continue, the sums are exact for what was read before and what was left."""
    faults.out_of_range(broker, admin, topics, tmp_path, "continue", "--mode", mode)


def test_a_topic_created_anew_under_the_backlog_s_plan(
    broker: KafkaBroker, admin: AdminClient, topics: Topics, tmp_path: Path
) -> None:
    """Its source, too, ends the aggregator with a sentence; `make test` has live mode."""
    faults.recreated(broker, admin, topics, tmp_path, "--mode", "catch-up")


def test_every_file_of_a_checkpoint_truncated(broker: KafkaBroker, topics: Topics, tmp_path: Path) -> None:
    """Each file in turn, hidden ones too, is cut in half: refused, or exact; never a different sum."""
    faults.truncated(broker, topics, tmp_path, lambda files: files[:: round(1 / SHARE)])


def test_killed_between_the_write_to_kafka_and_the_commit(broker: KafkaBroker, topics: Topics, tmp_path: Path) -> None:
    """Killed when sums of a batch are on `metrics-agg` and its commit is not there: exact, ten times over."""
    faults.between_write_and_commit(broker, topics, tmp_path, times=some(10))


def test_a_full_disk_is_a_clean_stop(broker: KafkaBroker, topics: Topics, tmp_path: Path) -> None:
    """The checkpoint's file system is full: it stops with a sentence, and is exact once there is space again."""
    mount = tmp_path / "small"
    mount.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(mount)], capture_output=True, text=True, check=False
    )
    if made.returncode:
        pytest.skip(f"a small file system can't be mounted here: {made.stderr.strip()}")
    try:
        faults.full_disk(broker, topics, mount)
    finally:
        subprocess.run(["umount", str(mount)], check=True)


def test_hostile_records_stop_nobody_else(own: tuple[KafkaBroker, Topics], tmp_path: Path) -> None:
    """A record of 10 MB, a hundred thousand names and hostile ones: limits hold, all others are exact."""
    hostile_records.check_limits(*own, tmp_path, names=100_000)


def test_lives_that_come_back_within_and_after_the_limit(broker: KafkaBroker, topics: Topics, tmp_path: Path) -> None:
    """A life that has retired goes on within 24 h of its `prev`; after that it is a dead letter, and counts once."""
    hostile_records.check_late_lives(broker, topics, tmp_path)


def test_a_takeover_at_fifty_thousand_rows(broker: KafkaBroker, topics: Topics, tmp_path: Path) -> None:
    """The writer is stopped; one that stands by has its first new sums within 30 s, and they are exact."""
    standby.takeover(broker, topics, tmp_path, instances=some(1000))
