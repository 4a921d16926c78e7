"""The consumers of docs/examples as real processes: the counts are exactly what was processed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from support.examples import System
from support.guides import ROOT, commands
from support.wait import wait_until
from tallystream_cli.servers.broker import KafkaBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

RECORDS = 3000


@pytest.fixture
def system(broker: KafkaBroker, admin: AdminClient, topic_prefix: str, tmp_path: Path) -> System:
    return System(broker.bootstrap_servers, topic_prefix, admin, tmp_path)


@pytest.mark.parametrize("words", commands("kafka-consumer"), ids=lambda words: Path(words[1]).stem)
def test_a_consumer_loop(system: System, words: list[str]) -> None:
    """After SIGTERM and after SIGKILL the counts are what was processed, and no record is missed.

    The count minus the covered offsets is what was counted twice: what the killed process had counted but not
    committed, so that the next one read it again. What was taken twice includes it.
    """
    example = str(ROOT / words[1])
    given = {"python": sys.executable, words[1]: example, "localhost:9092": system.servers, "flights": system.input}
    command = [given.get(word, word) for word in words]
    system.produce(RECORDS)
    process = system.start(*command)
    try:
        wait_until(lambda: system.count("flights.processed") > 0 or process.poll(), 180, "some are counted")
        system.end(process)
        counted = system.count("flights.processed")
        assert counted == system.covered("flights.processed.position") == sum(system.committed())
        system.produce(3 * RECORDS)
        process = system.start(*command)
        wait_until(lambda: system.count("flights.processed") > counted, 180, "more are counted")
        process.kill()
        process.wait(60)
        process = system.start(*command)
        wait_until(lambda: system.lives() == 3 and sum(system.committed()) == 4 * RECORDS, 180, "all are committed")
        system.end(process)
    finally:
        process.kill()
        process.wait()
    assert system.count("flights.processed") - 4 * RECORDS == system.overlap("flights.processed.position")
    assert system.covered("flights.processed.position") == 4 * RECORDS
    assert system.covered("flights.processed.taken.position") == 4 * RECORDS
    assert system.count("flights.processed.taken") >= system.count("flights.processed")
