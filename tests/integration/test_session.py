"""A real session of Spark: the archive of its classes, its workers, and a JVM that ends by itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tallystream_aggregator.spark import cds_archive
from tallystream_aggregator.spark.session import archive_path

pytestmark = [pytest.mark.integration, pytest.mark.timeout(700)]

SESSION = """
import os
from pathlib import Path
from tallystream_aggregator.spark.session import archive_path, build_session, end_session, start_jvm
from tallystream_aggregator.spark.epochs.query import import_modules, warm
from pyspark import SparkContext

start_jvm(None, "512m")
started = SparkContext._gateway.proc.pid
session = build_session("test", master="local[1]", driver_memory="512m")
assert session.sparkContext._gateway.proc.pid == started
assert session.sparkContext.master == "local[1]"
session.sparkContext.parallelize([0], 1).mapPartitions(import_modules).count()
mapped = str(archive_path().resolve()) in Path(f"/proc/{session.sparkContext._gateway.proc.pid}/maps").read_text()
print(os.environ["SPARK_LOCAL_DIRS"])
warm(session, 1)
end_session(session)
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


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="what a process has mapped is read from Linux's /proc")
def test_spark_maps_the_archive_of_its_classes() -> None:
    """It is the one that setup has created. At the end its temporary files are deleted, and no thread complains."""
    if not archive_path().exists():
        cds_archive.make()
    command = [sys.executable, "-c", SESSION]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    *_, folder, mapped = done.stdout.splitlines()
    assert mapped == "mapped"
    assert folder.startswith("/")
    assert not Path(folder).exists()
    assert "Traceback" not in done.stderr
