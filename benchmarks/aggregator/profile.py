"""The processor time of a small batch by thread and part: python -m benchmarks.aggregator.profile.

The kernel measures the time of each thread. Samples of Java Flight Recorder divide the time of the two kinds of Java
threads that do most of the work. --py-spy PATH also samples the Python process of the table.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil

from benchmarks.aggregator.batch_cost import running_on_backlog, wait_for_batches
from benchmarks.aggregator.report import table
from benchmarks.aggregator.scraping import finished_batches
from benchmarks.aggregator.sides import Ours
from tallystream_cli.servers.broker import KafkaBroker

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

WORK = Path(__file__).parents[2] / ".build" / "bench-profile"
RECORDING, PY_SPY_OUTPUT = WORK / "recording.jfr", WORK / "python.txt"
RECORDER_THREADS = ("JFR ", "Attach Listener")
"""Threads of Flight Recorder itself, which are left out. The names are prefixes."""
SAMPLED_THREADS = ("stream executio", "Executor task")
"""The threads that plan a batch and those that run its tasks. The names are prefixes."""
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
    "planning; in a task, the operators": (
        "spark.sql.catalyst",
        "spark.sql.execution",
        "spark.sql.classic",
        "spark.sql.Dataset",
    ),
}
"""Part → texts in the name of a frame. The first frame from the top of a stack that has one of them decides."""


class Cost(NamedTuple):
    """Processor milliseconds by process and name of the thread, and the number of finished batches."""

    threads: Counter[tuple[str, str]]
    batches: float


def cost(pid: int, port: int) -> Cost:
    """Return the cost of the command up to now."""
    found: Counter[tuple[str, str]] = Counter()
    root = psutil.Process(pid)
    for process in [root, *root.children(recursive=True)]:
        kind = "JVM" if process.name() == "java" else "command" if process == root else "Python of the tasks"
        for thread in process.threads():
            try:
                name = Path(f"/proc/{process.pid}/task/{thread.id}/comm").read_text(encoding="utf-8").strip()
            except (FileNotFoundError, ProcessLookupError):  # the thread has just ended
                continue
            if kind == "JVM" and name.startswith(RECORDER_THREADS):
                continue
            found[kind, _thread_name(name) if kind == "JVM" else ""] += int(
                (thread.user_time + thread.system_time) * 1000
            )
    return Cost(found, finished_batches(port))


def part_of(frames: Sequence[str]) -> str:
    """Return the part to which a stack belongs. The first frame is the top."""
    for frame in frames:
        for part, names in PARTS.items():
            if any(name in frame for name in names):
                return part
    return "other: " + (frames[0] if frames else "?")


def samples(recording: Path) -> dict[str, Counter[str]]:
    """Return the number of samples by thread name and part."""
    command = ["jfr", "print", "--json", "--events", "jdk.ExecutionSample", "--stack-depth", "64", str(recording)]
    printed = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    found: dict[str, Counter[str]] = {name: Counter() for name in SAMPLED_THREADS}
    for event in printed["recording"]["events"]:
        values = event["values"]
        name = _thread_name((values["sampledThread"] or {}).get("javaName") or "")
        if name in found:
            found[name][part_of(list(_frames(values["stackTrace"])))] += 1
    return found


def _thread_name(thread: str) -> str:
    return next((kind for kind in SAMPLED_THREADS if thread.startswith(kind)), thread)


def _frames(stack: Mapping[str, Any] | None) -> Iterable[str]:
    for frame in (stack or {}).get("frames", ()):
        method = frame["method"]
        yield method["type"]["name"].replace("/", ".") + "." + method["name"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(prog="benchmarks.aggregator.profile", description=__doc__)
    parser.add_argument("--records", type=int, default=400, help="records of a batch")
    parser.add_argument("--warmup", type=int, default=300, help="batches that run before the measurement")
    parser.add_argument("--batches", type=int, default=200, help="batches that are measured")
    parser.add_argument(
        "--option", action="append", default=[], help="an option for tallystream aggregate; may be repeated"
    )
    parser.add_argument("--py-spy", help="the path of py-spy, to sample the Python process of the tasks")
    options = parser.parse_args(arguments)
    shutil.rmtree(WORK, ignore_errors=True)
    # Twice as many batches as are measured, so that every batch is full on any machine.
    backlog = {"records": options.records, "batches": 2 * (options.warmup + options.batches)}
    side = Ours(options=tuple(options.option))
    with (
        KafkaBroker(WORK / "broker") as broker,
        running_on_backlog(broker.bootstrap_servers, side, WORK / "side", **backlog) as (running, port, _, _),
    ):
        wait_for_batches(options.warmup, port, running)
        before = cost(running.pid, port)
        with _recorded(running.pid, options.py_spy):
            wait_for_batches(before.batches + options.batches, port, running)
            after = cost(running.pid, port)
    print(_tables(before, after, samples(RECORDING), options.records))
    if options.py_spy:
        print(_python(PY_SPY_OUTPUT))
    return 0


@contextmanager
def _recorded(pid: int, py_spy: str | None) -> Iterator[None]:
    children = psutil.Process(pid).children(recursive=True)
    java = next(one.pid for one in children if one.name() == "java")
    _run("jcmd", str(java), "JFR.start", "name=p", "settings=profile")
    sampler = None
    if py_spy:
        busiest = max((one for one in children if one.pid != java), key=lambda one: sum(one.cpu_times()[:2]))
        command = [
            py_spy,
            "record",
            "--pid",
            str(busiest.pid),
            "--format",
            "raw",
            "--nonblocking",
            "--duration",
            "3600",
        ]
        sampler = subprocess.Popen(
            [*command, "--output", str(PY_SPY_OUTPUT)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
    try:
        yield
    finally:
        if sampler is not None:
            sampler.send_signal(signal.SIGINT)  # py-spy writes its samples when it is interrupted
            sampler.wait(60)
        _run("jcmd", str(java), "JFR.stop", "name=p", f"filename={RECORDING}")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def _tables(before: Cost, after: Cost, found: Mapping[str, Counter[str]], records: int) -> str:
    batches = after.batches - before.batches
    spent = {key: ms / batches for key, ms in (after.threads - before.threads).items()}
    rows = [[f"**a batch of {records} records**", f"**{sum(spent.values()):.1f}**"]]
    for (kind, name), ms in sorted(spent.items(), key=lambda item: -item[1]):
        rows.append([f"{kind} {name}".strip(), f"{ms:.1f}"])
        for part, count in found.get(name, Counter()).most_common(16):
            rows.append([f"- {part}", f"{ms * count / found[name].total():.1f}"])
    return table(["processor time", "ms a batch"], [row for row in rows if row[1] != "0.0"])


def _python(samples_file: Path) -> str:
    """Return the share of samples for each function: in it and all that it calls, and in it alone."""
    own: Counter[str] = Counter()
    under: Counter[str] = Counter()
    for line in samples_file.read_text(encoding="utf-8").splitlines():
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
