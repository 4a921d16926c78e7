"""The loop in processes of its own on a real broker, through kills, pauses, takeovers, lost checkpoints and outages.

In every test programs publish all the time, and a reader of committed records follows all outputs. No count falls, and
no position goes back. At every step that is compared, the sums are those of the records up to its positions, and rows
restore a table with these sums. At the end the sums are those of the acknowledged records, and dead letters and events
appear exactly once. The full size is in tests/faults/test_stream.py.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from support.stream_system import System
from tallystream_cli.servers.broker import KafkaBroker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker that only these tests use, because one of them kills it."""
    with KafkaBroker(tmp_path_factory.mktemp("broker")) as running:
        yield running
        gc.collect()  # a client that is still alive would log that the broker is gone


@pytest.fixture
def system(server: KafkaBroker, topic_prefix: str, tmp_path: Path) -> Iterator[System]:
    with System(server, topic_prefix, tmp_path, seed=1).publishing() as running:
        yield running


def test_kills_and_pauses(system: System) -> None:
    """Processes that are killed or paused at any time."""
    for seconds in (0.1, 0.6, 1.3):
        system.kill()
        system.pause(seconds)
    system.freeze(1.5)


def test_a_frozen_writer_that_goes_on_after_a_takeover(system: System) -> None:
    """It is fenced, ends by itself, and does not stop the new one; so does one that was not frozen."""
    for _ in range(2):
        system.take_over_frozen()
    system.take_over()


def test_a_checkpoint_that_is_lost_or_truncated(system: System) -> None:
    """The table is made again from its rows, and nobody does anything."""
    system.lose_checkpoint()
    system.pause(1.2)
    system.truncate_checkpoint()
    assert "is made again from" in system.processes.log.read_text(encoding="utf-8")


def test_an_outage_of_the_broker(system: System) -> None:
    """The processes wait for it, and go on by themselves."""
    system.kill_broker(1.0)


def test_two_shards_and_their_combiner(server: KafkaBroker, topic_prefix: str, tmp_path: Path) -> None:
    """Each shard, the combiner, all of them: killed, frozen and replaced; a shard's checkpoint is lost."""
    with System(server, topic_prefix, tmp_path, shards=2, seed=2).publishing() as system:
        system.kill_task(2)
        system.kill_task(0)
        system.take_over_frozen()
        system.lose_checkpoint()
