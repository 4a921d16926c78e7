"""Where the processor time of a small batch goes: python -m benchmarks.aggregator.profile.

The time of each thread is the kernel's. Flight Recorder's samples share out that of the two kinds of Java threads that
do the work. --py-spy PATH samples the Python process of the table, too.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil

from benchmarks.aggregator.live import READY_S, batches_of
from benchmarks.aggregator.load import Fleet, Updates
from benchmarks.aggregator.report import table
from benchmarks.aggregator.sides import Ours, Running
from benchmarks.aggregator.topic import admin, send_live
from tallystream.aggregator.topics import Topics, create_topics
from tallystream.compose.servers._process import free_port
from tallystream.compose.servers.broker import KafkaBroker

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

WORK = Path(__file__).parents[2] / ".build" / "bench-profile"
SAMPLED = ("stream executio", "Executor task")
"""The threads that plan a batch, and that run its tasks, as their names begin."""
PARTS = {
    "generated code: janino": ("org.codehaus.janino", "codegen.CodeGenerator", "codegen.CodeFormatter"),
    "log: offsets and commits": ("MetadataLog", "OffsetSeqLog", "CommitLog", "AsyncLog"),
    "state: RocksDB and its changelog": ("streaming.state.", "org.rocksdb"),
    "sink: Kafka's producer": (
        "kafka010.KafkaWrite",
        "kafka010.KafkaRowWriter",
        "clients.producer",
        "kafka010.producer",
    ),
    "source: Kafka's consumer and admin client": ("spark.sql.kafka010", "kafka.clients"),
    "Python: rows to and from its process": (
        "api.python",
        "execution.python",
        "arrow",
        "org.apache.spark.util.DirectByteBuffer",
    ),
    "progress of the batch": (
        "ProgressReporter",
        "ProgressContext",
        "StreamingQueryProgress",
        "json4s",
        "jackson",
        "StreamMetadata",
    ),
    "scheduling": (
        *("spark.scheduler", "spark.rpc", "spark.broadcast", "ClosureCleaner", "spark.MapOutput", "spark.storage"),
        *("spark.executor.Executor", "spark.serializer", "spark.util.AccumulatorV2", "spark.SparkContext"),
    ),
    "shuffle": ("spark.shuffle", "ShuffleExchange", "ShuffledRowRDD"),
    "planning": ("spark.sql.catalyst", "spark.sql.execution", "spark.sql.classic", "spark.sql.Dataset"),
}
"""Part → what the name of a frame has; the frame next to the top of the stack that has one of them decides."""


class Cost(NamedTuple):
    """Processor seconds of each thread, by process and name, and how many batches there have been."""

    threads: Counter[tuple[str, str]]
    batches: float


def cost(pid: int, port: int) -> Cost:
    """Return what the command has used up to now."""
    found: Counter[tuple[str, str]] = Counter()
    root = psutil.Process(pid)
    for process in [root, *root.children(recursive=True)]:
        kind = "JVM" if process.name() == "java" else "command" if process == root else "Python of the tasks"
        for thread in process.threads():
            name = Path(f"/proc/{process.pid}/task/{thread.id}/comm").read_text(encoding="utf-8").strip()
            found[kind, _kind_of(name) if kind == "JVM" else ""] += thread.user_time + thread.system_time
    return Cost(found, batches_of(port))


def part_of(frames: Sequence[str]) -> str:
    """Return the part that a stack belongs to; the first frame is the top."""
    for frame in frames:
        for part, names in PARTS.items():
            if any(name in frame for name in names):
                return part
    return "other: " + (frames[0] if frames else "?")


def samples(recording: Path) -> dict[str, Counter[str]]:
    """Return how many samples each part of each sampled kind of threads has."""
    command = ["jfr", "print", "--json", "--events", "jdk.ExecutionSample", "--stack-depth", "64", str(recording)]
    printed = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    found: dict[str, Counter[str]] = {name: Counter() for name in SAMPLED}
    for event in printed["recording"]["events"]:
        values = event["values"]
        name = _kind_of((values["sampledThread"] or {}).get("javaName") or "")
        if name in found:
            found[name][part_of(list(_frames(values["stackTrace"])))] += 1
    return found


def _kind_of(thread: str) -> str:
    return next((kind for kind in SAMPLED if thread.startswith(kind)), thread)


def _frames(stack: Mapping[str, Any] | None) -> Iterable[str]:
    for frame in (stack or {}).get("frames", ()):
        method = frame["method"]
        yield method["type"]["name"].replace("/", ".") + "." + method["name"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="benchmarks.aggregator.profile", description=__doc__)
    parser.add_argument("--rate", type=float, default=2_000, help="updates a second, of which a batch has what comes")
    parser.add_argument("--warmup", type=float, default=60, help="seconds before")
    parser.add_argument("--seconds", type=float, default=30, help="seconds that are measured")
    parser.add_argument("--latency", default="low", help="of tallystream aggregate")
    parser.add_argument("--option", action="append", default=[], help="a further option for tallystream aggregate")
    parser.add_argument("--py-spy", help="the program py-spy, which samples the Python process of the tasks")
    options = parser.parse_args(arguments)
    shutil.rmtree(WORK, ignore_errors=True)
    fleet, topics, port = Fleet(), Topics("p-"), free_port()
    side = Ours(options=("--latency", options.latency, "--http-port", str(port), *options.option))
    taken = Updates(fleet).take(int(options.rate * (options.warmup + options.seconds + 5)))
    with KafkaBroker(WORK / "broker") as broker:
        servers = broker.bootstrap_servers
        create_topics(admin(servers), topics)
        with Running(side, servers, topics.prefix, WORK / "side") as running:
            running.wait_ready(READY_S)
            load = Thread(target=send_live, args=(servers, topics.metrics, fleet, taken), kwargs={"rate": options.rate})
            load.start()
            time.sleep(options.warmup)
            before = cost(running.pid, port)
            recording, spied = _record(running.pid, options)
            after = cost(running.pid, port)
            load.join()
    print(_tables(before, after, samples(recording), options))
    if spied is not None:
        print(_python(spied))
    return 0


def _record(pid: int, options: argparse.Namespace) -> tuple[Path, Path | None]:
    family = psutil.Process(pid).children(recursive=True)
    java = next(one.pid for one in family if one.name() == "java")
    recording, spied = WORK / "recording.jfr", WORK / "python.txt"
    subprocess.run(["jcmd", str(java), "JFR.start", "name=p", "settings=profile"], check=True, capture_output=True)
    if options.py_spy:
        busiest = max((one for one in family if one.pid != java), key=lambda one: sum(one.cpu_times()[:2]))
        command = [
            options.py_spy,
            "record",
            "--pid",
            str(busiest.pid),
            "--format",
            "raw",
            "--rate",
            "100",
            "--nonblocking",
        ]
        command += ["--duration", f"{options.seconds:.0f}", "--output", str(spied)]
        subprocess.run(command, check=True, capture_output=True)
    else:
        time.sleep(options.seconds)
    subprocess.run(["jcmd", str(java), "JFR.stop", "name=p", f"filename={recording}"], check=True, capture_output=True)
    return recording, spied if options.py_spy else None


def _tables(before: Cost, after: Cost, found: Mapping[str, Counter[str]], options: argparse.Namespace) -> str:
    batches = after.batches - before.batches
    spent = {key: seconds / batches * 1000 for key, seconds in (after.threads - before.threads).items()}
    records = options.rate * options.seconds / batches
    rows = [[f"**a batch of {records:.0f} records**", f"**{sum(spent.values()):.1f}**"]]
    for (kind, name), ms in sorted(spent.items(), key=lambda item: -item[1]):
        rows.append([f"{kind} {name}".strip(), f"{ms:.1f}"])
        for part, count in found.get(name, Counter()).most_common(16):
            rows.append([f"- {part}", f"{ms * count / found[name].total():.1f}"])
    return table(["processor time", "ms a batch"], [row for row in rows if row[1] != "0.0"])


def _python(spied: Path) -> str:
    """Return the functions of the Python process in which samples ended, and under which they were."""
    own: Counter[str] = Counter()
    under: Counter[str] = Counter()
    for line in spied.read_text(encoding="utf-8").splitlines():
        stack, _, count = line.rpartition(" ")
        frames = [frame.rpartition(":")[0] for frame in stack.split(";")]
        own[frames[-1]] += int(count)
        for frame in set(frames):
            under[frame] += int(count)
    total = own.total()
    rows = [
        [name, f"{100 * under[name] / total:.0f} %", f"{100 * own[name] / total:.0f} %"]
        for name, _ in under.most_common(60)
    ]
    return table(["Python function", "under it", "in it"], rows)


if __name__ == "__main__":
    sys.exit(main())
