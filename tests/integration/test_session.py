"""A real session of Spark: the archive of its classes, its sockets, its workers, and a JVM that ends by itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tallystream_aggregator.spark import cds_archive

pytestmark = pytest.mark.integration

SESSION = """
import sys
from pathlib import Path
from tallystream_aggregator.spark import session as sessions
from tallystream_aggregator.spark.session import build_session, end_session
from tallystream_aggregator.spark.query.query import warm

path = Path(sys.argv[1])
sessions.archive_of = lambda java: path
session = build_session("test", master="local[1]")
warm(session).join(120)
loaded = session.sparkContext.parallelize([0], 1).mapPartitions(
    lambda _numbers: [sum(name in __import__("sys").modules for name in ("pandas", "pyarrow"))]
)
modules = loaded.collect()[0]
folder = session.conf.get("spark.python.unix.domain.socket.dir")
used = folder in Path("/proc/net/unix").read_text()
mapped = str(path) in Path(f"/proc/{session.sparkContext._gateway.proc.pid}/maps").read_text()
end_session(session)
print("folder", folder if used else "is not used")
print("mapped" if mapped else "not mapped", modules)
"""


KILLED = """
import os, signal
from tallystream_aggregator.spark.session import build_session, end_session
from tallystream.errors import TallystreamError

session = build_session("test", master="local[1]", driver_memory="512m")
jvm = session.sparkContext._jvm
{end}
try:
    session.range(1).count()
except Exception as error:
    print(type(error).__name__)
try:
    end_session(session)
except TallystreamError as error:
    print(error)
"""
KILL = "os.kill(session.sparkContext._gateway.proc.pid, signal.SIGKILL)"
FILL = """
try:
    full = [session.sparkContext._gateway.new_array(jvm.long, 10_000_000) for _ in range(100)]
except Exception as error:
    print(type(error).__name__)
"""


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (KILL, "Spark's JVM was killed by signal 9; start the command again: it continues where it stopped."),
        (FILL, "Spark's JVM ran out of memory; give it more by --driver-memory."),
    ],
    ids=["killed", "out of memory"],
)
def test_the_error_of_a_jvm_that_ended_names_the_reason(end: str, error: str) -> None:
    """This includes a JVM that runs out of memory: otherwise the query would wait for a thread that has ended."""
    command = [sys.executable, "-c", KILLED.format(end=end)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == error


def _session(path: Path) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", SESSION, str(path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="what a process has mapped is read from Linux's /proc")
def test_spark_maps_the_archive_of_its_classes() -> None:
    """The JVM maps the archive that setup has created, and a warmed worker has imported its modules."""
    output, _ = _session(cds_archive.make())
    *_, folder, mapped, _ = output.split("\n")
    assert mapped == "mapped 2"
    # The sockets are deleted at the end.
    assert folder.startswith("folder /")
    assert not Path(folder.removeprefix("folder ")).exists()


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="what a process has mapped is read from Linux's /proc")
def test_an_archive_that_does_not_fit_is_ignored(tmp_path: Path) -> None:
    """Spark starts without it and logs nothing about it."""
    path = tmp_path / "other.jsa"
    path.write_bytes(b"of another Java " * 10_000)
    output, errors = _session(path)
    assert output.split("\n")[-2] == "not mapped 2"
    assert "archive" not in errors
