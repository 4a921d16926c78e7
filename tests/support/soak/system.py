"""A whole system in a folder, its applications, kills and an outage of its broker, and samples of what it takes."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import defaultdict
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient, NewTopic

from support.exactness import wait_all_committed
from support.kafka import end_offsets, latest_sums
from support.soak.applications import APP
from support.soak.samples import sample
from support.wait import wait_until
from tallystream_aggregator.kafka.topics import Topics, policies
from tallystream_aggregator.sinks.stores import StoreSettings, open_store
from tallystream_cli.local.supervisor import Command, Supervisor
from tallystream_cli.servers.broker import KafkaBroker

if TYPE_CHECKING:
    from collections.abc import Callable

TOPICS = Topics()
TESTS = Path(__file__).parents[2]
KEPT, OUTAGE = 1 / 8, 1 / 32
"""The shares of the run for which lives, records and points are kept, and for which the broker is down."""

KILLS = 1 / 4
"""The share of the run in which parts are killed. A store that is started anew deletes old points less often."""

MIN_KEPT_S = 300.0
"""Records are kept for as long as a busy machine takes to start the broker and the aggregator again."""


class Soak:
    """A system that runs for a time. After the first quarter nothing is killed, so that no start hides what grows.

    In the second quarter everything fills again: what is kept has its whole age at the begin of the second half.
    """

    def __init__(self, folder: Path, length_s: float, say: Callable[[str], None], *, spark: bool = False) -> None:
        self.folder, self.length_s, self._say = folder, length_s, say
        self.curves: dict[str, list[tuple[float, float]]] = defaultdict(list)
        # Kafka's own checks are minutes apart.
        often = {"log.retention.check.interval.ms": "5000", "log.cleaner.backoff.ms": "5000"}
        # Else its log cleaner takes half of the heap in one piece, which Java sometimes does not have.
        often["log.cleaner.dedupe.buffer.size"] = str(16 << 20)
        # Java takes its heap as it first uses it, over hours, which looks like a leak.
        heap = ("-Xms256m", "-XX:+AlwaysPreTouch")
        self._broker = KafkaBroker(folder / "broker", heap_mb=256, java_options=heap, properties=often)
        self._store = StoreSettings("local", str(folder / "store" / "store.db"))
        self._kept_s = max(MIN_KEPT_S, length_s * KEPT)
        servers, cli, days = self._broker.bootstrap_servers, "tallystream_cli.main", str(self._kept_s / 86_400)
        to, store = ("--bootstrap-servers", servers), ("--store", self._store.spec, "--retention-days", days)
        table = ("--checkpoint", str(folder / "checkpoint"), "--forget-after-days", days, "--epoch", "10")
        program = ("support.soak.aggregate", *(["--spark"] if spark else []), "aggregate")
        self._killed = [
            self._command("aggregator", *program, *to, *table, "--ready-file"),
            self._command("shipper", cli, "ship", *to, *store, "--rows", "--ready-file"),
            self._command("lag", cli, "lag", "collect", *to, *store, "--ready-file"),
            self._broker,
        ]
        self._journal = folder / "journal.json"
        self._applications = self._command("applications", "support.soak.applications", servers, str(self._journal))
        self._applications.stop_timeout_s = 300
        self.supervisor = Supervisor([self._broker, *self._killed[:3], self._applications], say=say)

    def _command(self, name: str, *arguments: str) -> Command:
        ready = self.folder / f"{name}.ready"
        env = {"PYTHONPATH": f"{TESTS}{os.pathsep}{os.environ.get('PYTHONPATH', '')}", "MALLOC_ARENA_MAX": "2"}
        command = [sys.executable, "-m", *arguments, str(ready)]
        return Command(name, command, log=self.folder / f"{name}.log", ready_file=ready, env=env)

    def start(self) -> None:
        """Start everything. The broker deletes and compacts within minutes, not within days."""
        (self.folder / "store").mkdir(parents=True)
        self.supervisor.start(self.supervisor.watched[:1])
        kept_ms = int(self._kept_s * 1000)
        config = {"retention.ms": str(kept_ms), "min.compaction.lag.ms": "0", "file.delete.delay.ms": "1000"}
        config |= dict.fromkeys(("segment.ms", "max.compaction.lag.ms", "delete.retention.ms"), str(kept_ms // 16))
        new = [NewTopic(name, 1, config=policy | config) for name, policy in policies(TOPICS).items()]
        admin = AdminClient({"bootstrap.servers": self._broker.bootstrap_servers})
        for future in admin.create_topics([one for one in new if one.topic != TOPICS.shards]).values():
            future.result(60)
        store = open_store(self._store)
        store.setup()
        store.close()
        self.supervisor.start(self.supervisor.watched[1:])

    def run(self) -> list[str]:
        """Run for the time, and take samples. Return what ended by itself in the second half."""
        began, victims, watched = time.monotonic(), cycle(self._killed), self.supervisor.watched
        next_sample_s, next_kill_s = 0.0, (every_s := max(15.0, self.length_s / 100))
        kills_s, half_s, restarts = self.length_s * KILLS, self.length_s / 2, 0
        while (now_s := time.monotonic() - began) < self.length_s:
            is_out = 0 <= now_s - kills_s / 2 < self.length_s * OUTAGE
            if is_out:
                self._broker.kill()
            if is_out or not self._restart_ended():
                next_kill_s = now_s + every_s
            elif next_kill_s <= now_s < kills_s:
                next(victims).kill()
            if now_s >= next_sample_s:
                for title, value in sample([one.component for one in watched], self.folder).items():
                    self.curves[title].append((now_s, value))
                next_sample_s = now_s + max(1.0, self.length_s / 1000)
            if now_s < half_s:
                restarts = sum(one.restarts for one in watched)
            time.sleep(0.1)
        ended = sum(one.restarts for one in watched) - restarts
        return [f"parts ended by themselves in the second half, {ended} times"] if ended else []

    def _restart_ended(self) -> bool:
        """Restart what has ended. Return whether all parts are up."""
        self.supervisor.tick()
        return all(one.state == "up" for one in self.supervisor.watched)

    def differences(self) -> list[str]:
        """Stop the applications when all parts are up. Return the sums that are not what they counted."""
        wait_until(self._restart_ended, 600, "all parts are up")
        self._applications.stop()
        counted = json.loads(self._journal.read_text(encoding="utf-8"))
        servers = self._broker.bootstrap_servers
        wait_all_committed(servers, TOPICS, end_offsets(servers, TOPICS.metrics))
        sums = latest_sums(servers, TOPICS.agg).items()
        found = {name: row.count for (app, name, kind, _), row in sums if (app, kind) == (APP, "counter")}
        found = {name: count for name, count in found.items() if not name.startswith("tallystream.")}
        self._say(f"{counted['records']:,} records are counted, under {len(counted)} names")
        names = sorted(found.keys() | counted.keys())
        return [f"{n}: {found.get(n)} and not {counted.get(n)}" for n in names if found.get(n) != counted.get(n)]
