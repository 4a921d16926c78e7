"""A real session of Spark: what its JVM is started with, and what is ready in it."""

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
from tallystream_aggregator.spark import jvm
from tallystream_aggregator.spark.session import build_session, end_session
from tallystream_aggregator.spark.query.warm_up import warm

path = Path(sys.argv[1])
jvm.archive_of = lambda java: path
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
    ("end", "said"),
    [
        (KILL, "Spark's JVM was killed by signal 9; start the command again: it continues where it stopped."),
        (FILL, "Spark's JVM ran out of memory; give it more by --driver-memory."),
    ],
    ids=["killed", "out of memory"],
)
def test_a_jvm_that_ended_by_itself_is_one_sentence(end: str, said: str) -> None:
    """Out of memory too: Spark would go on without the thread that had none, and the query would wait for it."""
    command = [sys.executable, "-c", KILLED.format(end=end)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == said


def _session(path: Path) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", SESSION, str(path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="what a process has mapped is read from Linux's /proc")
def test_spark_maps_the_archive_of_its_classes() -> None:
    """The JVM of a session maps the archive that was made at set-up, and a warmed worker has imported what it needs."""
    said, _ = _session(cds_archive.make())
    *_, folder, mapped, _ = said.split("\n")
    assert mapped == "mapped 2"
    # And its processes met at sockets that are gone with it.
    assert folder.startswith("folder /")
    assert not Path(folder.removeprefix("folder ")).exists()


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="what a process has mapped is read from Linux's /proc")
def test_an_archive_that_does_not_fit_is_left_alone(tmp_path: Path) -> None:
    """With an archive that is none of this Java's Spark starts as without one, and says nothing of it."""
    path = tmp_path / "other.jsa"
    path.write_bytes(b"of another Java " * 10_000)
    said, errors = _session(path)
    assert said.split("\n")[-2] == "not mapped 2"
    assert "archive" not in errors
