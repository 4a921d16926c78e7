"""The scenarios of the fault suite: each runs a fault for real, with its size as a parameter, and compares every sum.

Short ones are in tests/integration/test_faults.py, long ones in tests/faults/.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from confluent_kafka import Consumer, TopicPartition

from support.application import assert_exact
from support.fleet import NAME, Fleet, Shares
from support.kafka import command, latest_sums, read_topic
from support.oracle import expected
from support.processes import send, tree
from support.supervised import Aggregator, Victim, ends
from support.wait import wait_until
from tallystream_aggregator.kafka.topics import create_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_cli.servers.broker import KafkaBroker

PATIENCE = float(os.environ.get("TALLYSTREAM_FAULTS_PATIENCE", "5"))
"""`make test` must not fail because a machine is busy: it gives up after five times the limits of `make faults`."""

RECOVERY_S, OUTAGE_S, STOP_S = 60.0 * PATIENCE, 120.0 * PATIENCE, 60.0 * PATIENCE
"""Limits, in seconds, after which a test gives up: a killed aggregator, a broker that is back, a loud stop."""
GONE, ANEW = "records were deleted before they were read", "it was deleted and created again"


@dataclass(frozen=True)
class Fire:
    """How much of what happens: `outages_s` are the seconds that the broker is down, one outage after the other."""

    driver_kills: int
    worker_kills: int
    outages_s: Sequence[float]


def under_fire(broker: KafkaBroker, topics: Topics, folder: Path, fire: Fire, seed: int) -> None:
    """Kill the aggregator, its workers and the broker, in any order and at any moment, under load; then be exact."""
    chance = random.Random(seed)
    fleet = Fleet(broker.bootstrap_servers, topics.metrics, seed, shares=Shares())
    fleet.publish(300)
    steps: list[float | str] = ["driver"] * fire.driver_kills + ["worker"] * fire.worker_kills + [*fire.outages_s]
    chance.shuffle(steps)
    internal_metrics: dict[str, list[float]] = {"driver": [], "worker": [], "broker": []}
    with Aggregator(broker.bootstrap_servers, topics.prefix, folder, "--latency", "low") as aggregator:
        aggregator.start().wait_ready()
        with fleet.publishing():
            for number, step in enumerate(steps):
                moment(chance.uniform(0, 2))
                if isinstance(step, float):
                    broker.kill()
                    moment(step)
                    broker.start()
                    kind, limit = "broker", OUTAGE_S
                elif step == "worker":
                    assert aggregator.kill_worker()
                    kind, limit = "worker", RECOVERY_S
                else:
                    aggregator.kill(chance.choice(get_args(Victim)))
                    if number % 5 == 4:  # and once more while it starts
                        aggregator.start()
                        moment(chance.uniform(0, 8))
                        aggregator.kill("tree")
                    aggregator.start()
                    kind, limit = "driver", RECOVERY_S
                due = ends(broker.bootstrap_servers, topics.metrics)
                internal_metrics[kind].append(
                    aggregator.flows_past(topics.metrics, due, limit, f"{step}: it flows again")
                )
        assert_exact(broker, topics)
        assert_as_acknowledged(broker, topics, [fleet])
        assert aggregator.stop() == 0, aggregator.said()
    for kind, seconds in internal_metrics.items():
        if seconds:
            print(f"{kind}: {len(seconds)} times, recovered in {min(seconds):.1f} to {max(seconds):.1f} s")  # noqa: T201
    print(f"ended by itself and was started again: {aggregator.restarts} times")  # noqa: T201


def recreated(broker: KafkaBroker, admin: AdminClient, topics: Topics, folder: Path, *options: str) -> None:
    """Delete `metrics` and create it again: a loud stop; a start on the old checkpoint is refused, no sum is touched.

    For that start the new topic has more records than the old one had, so that every offset seems to be in range.
    """
    fleet = Fleet(broker.bootstrap_servers, topics.metrics, 1, shares=Shares())
    fleet.publish(100)
    with Aggregator(broker.bootstrap_servers, topics.prefix, folder, *options) as aggregator:
        aggregator.start().wait_ready()
        assert_exact(broker, topics)
        before = _counts(broker, topics)
        _delete(admin, topics.metrics)
        create_topics(admin, topics)
        code = aggregator.ends(STOP_S, "the topic was created again: it stops")
        assert code not in (0, None), aggregator.said()
        said = last_line(aggregator.said())
        assert GONE in said or ANEW in said
        print(f"it said: {said}")  # noqa: T201
        Fleet(broker.bootstrap_servers, topics.metrics, 2, shares=Shares()).publish(400)
        code = aggregator.start().ends(STOP_S * 2, "a start on the new topic is refused")
        assert code == 1, aggregator.said()
        assert f"topic {topics.metrics}: {ANEW}" in last_line(aggregator.said())
    assert _counts(broker, topics) == before


def out_of_range(
    broker: KafkaBroker, admin: AdminClient, topics: Topics, folder: Path, policy: str, *options: str
) -> None:
    """Delete records that were not read while it is down: a loud stop by default; going on by choice, exactly.

    With `continue` the sums are those of the records that were read before and of those that were left.
    """
    fleet = Fleet(broker.bootstrap_servers, topics.metrics, 3, shares=Shares(tombstone=0))
    fleet.publish(200)
    with Aggregator(broker.bootstrap_servers, topics.prefix, folder, "--on-data-loss", policy, *options) as aggregator:
        aggregator.start().wait_ready()
        assert_exact(broker, topics)
        assert aggregator.stop() == 0, aggregator.said()
        before = _counts(broker, topics)
        earlier = read_topic(broker.bootstrap_servers, topics.metrics)
        fleet.publish(300)
        first = ends(broker.bootstrap_servers, topics.metrics)[0] - 50
        for future in admin.delete_records([TopicPartition(topics.metrics, 0, first)]).values():
            future.result()
        aggregator.start()
        if policy == "continue":
            aggregator.wait_ready()
            fleet.publish(100)
            assert_exact(broker, topics, earlier)
            assert aggregator.stop() == 0, aggregator.said()
            return
        code = aggregator.ends(STOP_S * 2, "the offsets are out of range: it stops")
        assert code not in (0, None), aggregator.said()
        said = last_line(aggregator.said())
        assert GONE in said
        print(f"it said: {said}")  # noqa: T201
    assert _counts(broker, topics) == before


def truncated(broker: KafkaBroker, topics: Topics, folder: Path, chosen: Callable[[list[Path]], list[Path]]) -> None:
    """Cut files of a checkpoint in half, each in a copy of its own: refused, or exact, never a different sum."""
    fleet = Fleet(broker.bootstrap_servers, topics.metrics, 4, shares=Shares())
    fleet.publish(300)
    whole = folder / "whole"
    done = catch_up(broker, topics, whole, "--max-records", "60", "--mode", "live")
    assert done.returncode == 0, done.stderr
    assert_exact(broker, topics)
    files = [path.relative_to(whole) for path in sorted(whole.rglob("*")) if path.is_file() and path.stat().st_size]
    refused = exact = 0
    for number, path in enumerate(chosen(files)):
        copy = folder / f"copy-{number}"
        shutil.copytree(whole, copy)
        shutil.copy(whole.with_name("whole.topic"), copy.with_name(f"{copy.name}.topic"))
        victim = copy / path
        with victim.open("r+b") as file:
            file.truncate(victim.stat().st_size // 2)
        fleet.publish(20)
        done = catch_up(broker, topics, copy)
        if done.returncode == 0:
            exact += 1
            assert_exact(broker, topics)
            assert_as_acknowledged(broker, topics, [fleet])
        else:
            refused += 1
            assert done.returncode in (1, 2)
            assert "tallystream rebuild" in last_line(done.stderr), done.stderr  # a sentence with the remedy
        assert_never_wrong(broker, topics)
        print(f"{path} cut in half: {'exact' if done.returncode == 0 else last_line(done.stderr)}")  # noqa: T201
    print(f"refused: {refused}, exact: {exact}")  # noqa: T201


def between_write_and_commit(broker: KafkaBroker, topics: Topics, folder: Path, times: int) -> None:
    """Kill every process when sums of a batch are on `metrics-agg` and the batch is not committed; be exact after it.

    They are stopped first and only then killed, so that there is no doubt about what was there at the moment.
    """
    fleet = Fleet(broker.bootstrap_servers, topics.metrics, 6, shares=Shares())
    fleet.publish(100)
    with Aggregator(broker.bootstrap_servers, topics.prefix, folder, "--latency", "low") as aggregator:
        for _ in range(times):
            aggregator.start().wait_ready()
            with fleet.publishing():
                wait_until(lambda: _caught(broker, topics, aggregator), 120, "sums without their commit")
                aggregator.kill("tree")
        aggregator.start().wait_ready()
        assert_exact(broker, topics)
        assert_as_acknowledged(broker, topics, [fleet])
        assert aggregator.stop() == 0, aggregator.said()


def _caught(broker: KafkaBroker, topics: Topics, aggregator: Aggregator) -> bool:
    """Wait for a new sum, stop every process, tell whether its batch has no commit; if it has one, let them go on."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "tests-caught"})
    try:
        end = consumer.get_watermark_offsets(TopicPartition(topics.agg, 0), timeout=30)[1]
        consumer.assign([TopicPartition(topics.agg, 0, end)])
        message = consumer.poll(30)
        processes = tree(aggregator.process.pid)
        send(processes, signal.SIGSTOP)
        assert message is not None
        assert message.error() is None
        batch = json.loads(message.value() or b"").get("batch", 0)
        caught = not (aggregator.checkpoint / "commits" / str(batch)).exists()
        if not caught:
            send(processes, signal.SIGCONT)
        return caught
    finally:
        consumer.close()


def full_disk(broker: KafkaBroker, topics: Topics, mount: Path) -> None:
    """Fill the file system `mount` under the checkpoint: a stop with a sentence; with space again, exact."""
    fleet = Fleet(broker.bootstrap_servers, topics.metrics, 7, shares=Shares())
    fleet.publish(200)
    ballast = mount / "ballast"
    with Aggregator(broker.bootstrap_servers, topics.prefix, mount, "--latency", "low") as aggregator:
        # What it says must not be on the disk that is full.
        aggregator.log = mount.with_name("aggregate.log")
        aggregator.start().wait_ready()
        with fleet.publishing():
            with ballast.open("wb", buffering=0) as file, suppress(OSError):
                while True:
                    file.write(bytes(65_536))
            code = aggregator.ends(RECOVERY_S, "the disk is full: it stops")
        assert code not in (0, None), aggregator.said()
        said = last_line(aggregator.said())
        assert said.startswith(f"query aggregate: the disk of the checkpoint {aggregator.checkpoint} is full: make")
        print(f"it said: {said}")  # noqa: T201
        ballast.unlink()
        aggregator.start().wait_ready()
        assert_exact(broker, topics)
        assert_as_acknowledged(broker, topics, [fleet])
        assert aggregator.stop() == 0, aggregator.said()


def catch_up(broker: KafkaBroker, topics: Topics, checkpoint: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Aggregate what is there on a checkpoint, to the end."""
    where = ("--bootstrap-servers", broker.bootstrap_servers, "--topic-prefix", topics.prefix, "--no-own-metrics")
    return subprocess.run(
        command("aggregate", *where, "--checkpoint", str(checkpoint), "--catch-up", "--latency", "low", *options),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def assert_never_wrong(broker: KafkaBroker, topics: Topics) -> None:
    """Compare every sum with the oracle's at the offsets that the sum says it includes."""
    records = read_topic(broker.bootstrap_servers, topics.metrics)
    wanted = {}
    for key, row in latest_sums(broker.bootstrap_servers, topics.agg).items():
        at = tuple(sorted((int(p), offset) for p, offset in row.offsets[topics.metrics].items()))
        if at not in wanted:
            reach = dict(at)
            wanted[at] = expected(read for read in records if read.offset <= reach.get(read.partition, -1))
        assert {name: getattr(row, name) for name in wanted[at][key]} == wanted[at][key]


def last_line(text: str) -> str:
    """Return the last line that says something."""
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")


def _counts(broker: KafkaBroker, topics: Topics) -> dict[object, int | None]:
    return {key: row.count for key, row in latest_sums(broker.bootstrap_servers, topics.agg).items()}


def _delete(admin: AdminClient, topic: str) -> None:
    for future in admin.delete_topics([topic]).values():
        future.result()
    wait_until(lambda: topic not in admin.list_topics(timeout=10).topics, 60, f"{topic} is gone")


def moment(seconds: float) -> None:
    """Let some time go by: a fault's moment, or an outage's length, never a wait for something to be done."""
    threading.Event().wait(seconds)


def assert_as_acknowledged(broker: KafkaBroker, topics: Topics, fleets: Sequence[Fleet]) -> None:
    """Compare with the generators' own journals: every acknowledged increment is summed, every poison a dead letter."""
    found = latest_sums(broker.bootstrap_servers, topics.agg)
    for fleet in fleets:
        counted = {
            dict(tags)["part"]: row.count
            for (app, name, _, tags), row in found.items()
            if (app, name) == (fleet.app, NAME)
        }
        assert counted == fleet.journal.totals()
    assert dead_letters(broker, topics) == set().union(*(fleet.journal.poison for fleet in fleets))


def dead_letters(broker: KafkaBroker, topics: Topics) -> set[tuple[int, int]]:
    """Return the partition and offset of every dead letter; one that was written again counts once."""
    rows = (json.loads(read.value or b"") for read in read_topic(broker.bootstrap_servers, topics.dead))
    return {(row["partition"], row["offset"]) for row in rows}
