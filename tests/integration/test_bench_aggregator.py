"""The aggregator's benchmark at a tiny size."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.aggregator.backlog import backlog
from benchmarks.aggregator.load import Fleet
from benchmarks.aggregator.sides import Ours
from support.commands import command
from tallystream_cli.servers.broker import KafkaBroker

pytestmark = pytest.mark.integration


class WithoutSpark(Ours):
    """The real command with loops in threads, which start in a tenth of the time."""

    def command(self, bootstrap_servers: str, prefix: str, folder: Path) -> list[str]:
        _, *arguments = super().command(bootstrap_servers, prefix, folder)
        return command(*arguments)


def test_our_sums_are_checked_and_their_cost_is_measured(broker: KafkaBroker, tmp_path: Path) -> None:
    """On a real broker the sums are exact, and the CPU and memory of its processes are measured."""
    fleet = Fleet(instances=20, metrics=5)
    servers, side = broker.bootstrap_servers, WithoutSpark()
    found = backlog(servers, side, tmp_path, n=500, form="snapshots", fleet=fleet, max_wait_s=300)
    assert found["exact"] is True
    assert (found["updates"], found["records"]) == (500, 100)
    assert found["wall_s"] > 0
    assert found["cpu_s"] > 0
    assert found["peak_mb"] > 10
