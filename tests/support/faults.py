"""The scenarios of the fault suite. Each causes a real fault, at the size that its caller chooses, and compares sums.

Short ones are in tests/integration/test_faults.py, long ones in tests/faults/.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from confluent_kafka import TopicPartition

from support.aggregator import Aggregator, Victim
from support.commands import run
from support.exactness import (
    assert_as_acknowledged,
    assert_epochs_have_no_gap,
    assert_exact,
    assert_exact_at_their_offsets,
    assert_ledger_has_no_gaps,
    assert_published_once,
)
from support.fleet import Fleet, Shares
from support.kafka import end_offsets, latest_sums, read_topic
from support.wait import wait_until
from tallystream_aggregator.kafka.topics import create_topics

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_cli.servers.broker import KafkaBroker

PATIENCE = float(os.environ.get("TALLYSTREAM_FAULTS_PATIENCE", "5"))
"""`make test` has limits five times as long as `make faults`, so that a busy machine fails no test."""

RECOVERY_S, OUTAGE_S, STOP_S = 60.0 * PATIENCE, 120.0 * PATIENCE, 60.0 * PATIENCE
"""Maximum seconds to wait for a killed aggregator, for a restarted broker, and for a stop with an error."""

DELETED, RECREATED = "records were deleted before they were read", "it was deleted and created again"


@dataclass(frozen=True)
class Faults:
    """The number of faults. `outages_s` has the length of each outage of the broker, in seconds.

    With `loop`, the aggregator runs the loop, and may lose its checkpoint when all processes are killed.
    """

    driver_kills: int
    worker_kills: int
    outages_s: Sequence[float]
    lost_checkpoints: int = 0
    loop: bool = False

    @property
    def options(self) -> tuple[str, ...]:
        """The options of the aggregator."""
        return ("--latency", "low", "--mode", "loop") if self.loop else ("--latency", "low")


def random_kills(broker: KafkaBroker, topics: Topics, folder: Path, faults: Faults, seed: int) -> None:
    """Kill the aggregator, its workers and the broker at random times, under load. Check that sums are exact.

    What the loop publishes is there once, and no count falls. The first kills of the aggregator are one of each kind.
    """
    chance = random.Random(seed)
    fleet = Fleet(broker.bootstrap_servers, topics.metrics, seed)
    fleet.publish(300)
    steps: list[float | str] = ["driver"] * faults.driver_kills + ["worker"] * faults.worker_kills + [*faults.outages_s]
    steps += ["lost"] * faults.lost_checkpoints
    chance.shuffle(steps)
    victims = itertools.chain(get_args(Victim), iter(lambda: chance.choice(get_args(Victim)), None))
    recovery_s: dict[str, list[float]] = {"driver": [], "worker": [], "broker": [], "lost": []}
    with Aggregator(broker.bootstrap_servers, topics.prefix, folder, *faults.options) as aggregator:
        aggregator.start().wait_ready()
        with fleet.publishing():
            for number, step in enumerate(steps):
                pause(chance.uniform(0, 2))
                if isinstance(step, float):
                    broker.kill()
                    pause(step)
                    broker.start()
                    kind, limit = "broker", OUTAGE_S
                elif step == "worker":
                    assert aggregator.kill_worker()
                    kind, limit = "worker", RECOVERY_S
                elif step == "lost":
                    aggregator.kill("tree")
                    shutil.rmtree(aggregator.checkpoint)
                    aggregator.start()
                    kind, limit = "lost", RECOVERY_S
                else:
                    aggregator.kill(next(victims))
                    if number % 5 == 4:  # and again while it starts
                        aggregator.start()
                        pause(chance.uniform(0, 8))
                        aggregator.kill("tree")
                    aggregator.start()
                    kind, limit = "driver", RECOVERY_S
                due = end_offsets(broker.bootstrap_servers, topics.metrics)
                recovery_s[kind].append(
                    aggregator.wait_committed(topics.metrics, due, limit, f"{step}: batches are committed again")
                )
        assert_exact(broker, topics)
        assert_as_acknowledged(broker, topics, [fleet])
        assert aggregator.stop() == 0, aggregator.output()
    if faults.loop:
        assert_published_once(broker, topics)
        assert_epochs_have_no_gap(broker, topics)
    else:
        assert_ledger_has_no_gaps(broker, topics)
    for kind, seconds in recovery_s.items():
        if seconds:
            print(f"{kind}: {len(seconds)} times, recovered in {min(seconds):.1f} to {max(seconds):.1f} s")  # noqa: T201
    print(f"the aggregator ended by itself and was started again: {aggregator.restarts} times")  # noqa: T201


def topic_recreated(broker: KafkaBroker, admin: AdminClient, topics: Topics, folder: Path, *options: str) -> None:
    """Delete `metrics` and create it again: the aggregator stops with an error, and a start on its checkpoint fails.

    No sum changes. At that start the new topic has more records than the old one had, so that all offsets are in
    range.
    """
    Fleet(broker.bootstrap_servers, topics.metrics, 1).publish(100)
    with Aggregator(broker.bootstrap_servers, topics.prefix, folder, *options) as aggregator:
        aggregator.start().wait_ready()
        assert_exact(broker, topics)
        before = _counts(broker, topics)
        _delete(admin, topics.metrics)
        create_topics(admin, topics)
        code = aggregator.wait_exit(STOP_S, "the topic was created again: the aggregator stops")
        assert code not in (0, None), aggregator.output()
        error = last_line(aggregator.output())
        assert DELETED in error or RECREATED in error
        print(f"its error: {error}")  # noqa: T201
        Fleet(broker.bootstrap_servers, topics.metrics, 2).publish(400)
        code = aggregator.start().wait_exit(STOP_S * 2, "a start on the new topic is refused")
        assert code == 1, aggregator.output()
        assert f"topic {topics.metrics}: {RECREATED}" in last_line(aggregator.output())
    assert _counts(broker, topics) == before


def out_of_range(
    broker: KafkaBroker, admin: AdminClient, topics: Topics, folder: Path, policy: str, *options: str
) -> None:
    """Delete unread records while the aggregator is down. It stops with an error, or continues, depending on `policy`.

    With `continue` the sums include the records that were read before and the remaining ones.
    """
    fleet = Fleet(broker.bootstrap_servers, topics.metrics, 3, shares=Shares(tombstone=0))
    fleet.publish(200)
    with Aggregator(broker.bootstrap_servers, topics.prefix, folder, "--on-data-loss", policy, *options) as aggregator:
        aggregator.start().wait_ready()
        assert_exact(broker, topics)
        assert aggregator.stop() == 0, aggregator.output()
        before = _counts(broker, topics)
        earlier = read_topic(broker.bootstrap_servers, topics.metrics)
        fleet.publish(300)
        first = end_offsets(broker.bootstrap_servers, topics.metrics)[0] - 50
        for future in admin.delete_records([TopicPartition(topics.metrics, 0, first)]).values():
            future.result()
        aggregator.start()
        if policy == "continue":
            aggregator.wait_ready()
            fleet.publish(100)
            assert_exact(broker, topics, earlier)
            assert aggregator.stop() == 0, aggregator.output()
            return
        code = aggregator.wait_exit(STOP_S * 2, "the offsets are out of range: the aggregator stops")
        assert code not in (0, None), aggregator.output()
        error = last_line(aggregator.output())
        assert DELETED in error
        print(f"its error: {error}")  # noqa: T201
    assert _counts(broker, topics) == before


def truncated_files(
    broker: KafkaBroker, topics: Topics, folder: Path, choose: Callable[[list[Path]], list[Path]]
) -> None:
    """Cut files of a checkpoint in half, each in its own copy. The copy is refused, or the sums are exact."""
    fleet = Fleet(broker.bootstrap_servers, topics.metrics, 4)
    fleet.publish(300)
    complete = folder / "complete"
    done = catch_up(broker, topics, complete, "--max-records", "60", "--mode", "live")
    assert done.returncode == 0, done.stderr
    assert_exact(broker, topics)
    files = [
        path.relative_to(complete) for path in sorted(complete.rglob("*")) if path.is_file() and path.stat().st_size
    ]
    refused = exact = 0
    for number, path in enumerate(choose(files)):
        copy = folder / f"copy-{number}"
        shutil.copytree(complete, copy)
        shutil.copy(complete.with_name("complete.topic"), copy.with_name(f"{copy.name}.topic"))
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
            assert "tallystream rebuild" in last_line(done.stderr), done.stderr  # the error names the remedy
        assert_exact_at_their_offsets(broker, topics)
        print(f"{path} cut in half: {'exact' if done.returncode == 0 else last_line(done.stderr)}")  # noqa: T201
    print(f"refused: {refused}, exact: {exact}")  # noqa: T201


def catch_up(broker: KafkaBroker, topics: Topics, checkpoint: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Aggregate all records of the topic on a checkpoint, and return when the command has ended."""
    where = ("--bootstrap-servers", broker.bootstrap_servers, "--topic-prefix", topics.prefix)
    return run("aggregate", *where, "--checkpoint", str(checkpoint), "--catch-up", "--latency", "low", *options)


def last_line(text: str) -> str:
    """Return the last line that is not blank."""
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")


def pause(seconds: float) -> None:
    """Wait for the time of the next fault, or for the length of an outage."""
    threading.Event().wait(seconds)


def _counts(broker: KafkaBroker, topics: Topics) -> dict[object, int | None]:
    return {key: row.count for key, row in latest_sums(broker.bootstrap_servers, topics.agg).items()}


def _delete(admin: AdminClient, topic: str) -> None:
    for future in admin.delete_topics([topic]).values():
        future.result()
    wait_until(lambda: topic not in admin.list_topics(timeout=10).topics, 60, f"{topic} is deleted")
