"""The loop in processes of its own on a real broker, through kills, pauses, takeovers, lost checkpoints and outages.

In each test programs publish all the time, and a reader of committed records follows all outputs. No count falls, and
no position goes back. At every step that is compared, the sums are those of the records up to its positions, and rows
restore a table with these sums. At the end the sums are those of the acknowledged records, and dead letters and events
appear exactly once. The full size is in tests/faults/test_stream.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.stream_system import System

if TYPE_CHECKING:
    from pathlib import Path

    from tallystream_cli.servers.broker import KafkaBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


def test_one_shard(broker: KafkaBroker, topic_prefix: str, tmp_path: Path) -> None:
    """Processes are killed, paused and replaced, their checkpoint is lost and truncated, and the broker is away.

    A writer that was frozen and goes on after a takeover is fenced, ends by itself, and does not stop the new one; so
    does one that was not frozen. A table whose checkpoint is lost is made again from its rows, and nobody does
    anything. The processes wait for the broker.
    """
    with System(broker, topic_prefix, tmp_path, seed=1).publishing() as system:
        for seconds in (0.1, 0.6, 1.3):
            system.kill()
            system.pause(seconds)
        system.freeze(1.5)
        system.take_over_frozen()
        system.lose_checkpoint()
        system.pause(1.2)
        system.truncate_checkpoint()
        assert "is made again from" in system.processes.log.read_text(encoding="utf-8")
        system.take_over_frozen()
        system.kill_broker(1.0)
        system.take_over()


def test_two_shards_and_their_combiner(broker: KafkaBroker, topic_prefix: str, tmp_path: Path) -> None:
    """Each shard, the combiner, all of them: killed, frozen and replaced; a shard's checkpoint is lost."""
    with System(broker, topic_prefix, tmp_path, shards=2, seed=2).publishing() as system:
        system.kill_task(2)
        system.kill_task(0)
        system.take_over_frozen()
        system.lose_checkpoint()
