"""A real session of Spark: the archive of its classes, its sockets, its workers, and a JVM that ends by itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tallystream_aggregator.spark import cds_archive

pytestmark = [pytest.mark.integration, pytest.mark.timeout(700)]

SESSION = """
import sys
from pathlib import Path
from tallystream_aggregator.spark import session as sessions
from tallystream_aggregator.spark.session import build_session, end_session
from tallystream_aggregator.spark.epochs.query import import_modules

path = Path(sys.argv[1])
sessions.archive_of = lambda java: path
session = build_session("test", master="local[1]")
session.sparkContext.parallelize([0], 1).mapPartitions(import_modules).count()
folder = session.conf.get("spark.python.unix.domain.socket.dir")
used = folder in Path("/proc/net/unix").read_text()
mapped = str(path) in Path(f"/proc/{session.sparkContext._gateway.proc.pid}/maps").read_text()
end_session(session)
print("folder", folder if used else "is not used")
print("mapped" if mapped else "not mapped")
"""


FULL = """
from tallystream_aggregator.spark.session import build_session, end_session
from tallystream.errors import TallystreamError

session = build_session("test", master="local[1]", driver_memory="512m")
jvm = session.sparkContext._jvm
try:
    full = [session.sparkContext._gateway.new_array(jvm.long, 10_000_000) for _ in range(100)]
except Exception as error:
    print(type(error).__name__)
try:
    end_session(session)
except TallystreamError as error:
    print(error)
"""


def test_the_error_of_a_jvm_that_ran_out_of_memory_names_the_reason() -> None:
    """The JVM ends. Otherwise the query would wait for a thread that has ended."""
    command = [sys.executable, "-c", FULL]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "Spark's JVM ran out of memory; give it more by --driver-memory."


def _session(path: Path) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", SESSION, str(path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="what a process has mapped is read from Linux's /proc")
def test_spark_maps_the_archive_of_its_classes() -> None:
    """The JVM maps the archive that setup has created, and workers use sockets that only this user can reach."""
    output, _ = _session(cds_archive.make())
    *_, folder, mapped, _ = output.split("\n")
    assert mapped == "mapped"
    # The sockets are deleted at the end.
    assert folder.startswith("folder /")
    assert not Path(folder.removeprefix("folder ")).exists()
