"""Live mode and catch-up on a real broker: the mode changes while records are published, and sums stay exact."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from support.aggregator import running_aggregator
from support.exactness import assert_exact
from support.fleet import Fleet
from support.kafka import read_topic
from support.wait import wait_until
from tallystream_aggregator.kafka.ledger import LedgerRow, read_rows
from tallystream_aggregator.spark.catch_up.reader import Reading, SpanReader
from tallystream_aggregator.spark.catch_up.splits import size
from tallystream_aggregator.spark.query.settings import parse_latency
from tallystream_aggregator.table.compaction import Span

if TYPE_CHECKING:
    from pathlib import Path

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_cli.servers.broker import KafkaBroker

pytestmark = pytest.mark.integration


def test_sums_are_exact_through_changes_of_the_mode(
    broker: KafkaBroker, topics: Topics, topic_prefix: str, tmp_path: Path
) -> None:
    """A backlog is read in catch-up, then the query continues live, and changes back when it is far behind.

    A live batch that is not full starts no sooner than two thirds of `--latency` after the one before. A span that is
    read again has the same records as the topic.
    """
    fleet = Fleet(broker.bootstrap_servers, topics.metrics, seed=11)
    fleet.publish(3_000)

    def modes() -> list[str]:
        """Return the modes that the query changed to."""
        lines = (tmp_path / "aggregate.log").read_text(encoding="utf-8").splitlines()
        return [line.split(":")[-2].rsplit(maxsplit=1)[-1] for line in lines if "changing to mode" in line]

    def batches() -> list[LedgerRow]:
        return [row for row in read_rows(topics.ledger, {"bootstrap.servers": broker.bootstrap_servers}) if row.end]

    options = ("--max-records", "100", "--latency", "4s")
    with running_aggregator(broker.bootstrap_servers, topic_prefix, tmp_path, *options):
        fleet.publish(50)
        wait_until(lambda: len(modes()) >= 1, 120, "the mode has changed to live")
        fleet.publish(3_000)
        wait_until(lambda: len(modes()) >= 3, 120, "the mode has changed to catch-up and back")
        before = len(batches())

        def published() -> bool:
            fleet.publish(1)
            return len(batches()) >= before + 3

        wait_until(published, 120, "three more batches are in the ledger")
        assert assert_exact(broker, topics)
    assert modes() == ["live", "catch-up", "live"]
    pacing, since = parse_latency("4s"), [(row, row.ts - before.ts) for before, row in pairwise(batches())]
    assert all(since_ms > pacing.delay_ms - pacing.interval_ms for _, since_ms in since[-2:])
    assert any(size(row.start, row.end) >= 100 and since_ms < pacing.delay_ms for row, since_ms in since)
    span = Span(topics.metrics, 0, 70, 2_000)
    found = list(SpanReader(Reading({"bootstrap.servers": broker.bootstrap_servers}, "tests-again"))(span))
    records = read_topic(broker.bootstrap_servers, topics.metrics)
    assert [(r.offset, r.timestamp_ms, r.key, r.value) for r in found] == [
        (r.offset, r.timestamp_ms, r.key, r.value) for r in records[70:2_001]
    ]
