"""A real session of Spark: the archive of its classes, its workers, and a JVM that runs out of memory."""

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
from tallystream.errors import TallystreamError
from tallystream_aggregator.spark.session import archive_path, build_session, end_session, start_jvm
from tallystream_aggregator.spark.epochs.query import import_modules, warm
from pyspark import SparkContext

start_jvm(None, "512m")
started = SparkContext._gateway.proc.pid
session = build_session("test", master="local[1]", driver_memory="512m")
gateway = session.sparkContext._gateway
assert gateway.proc.pid == started
assert session.sparkContext.master == "local[1]"
session.sparkContext.parallelize([0], 1).mapPartitions(import_modules).count()
mapped = str(archive_path().resolve()) in Path(f"/proc/{started}/maps").read_text()
warm(session, 1)
try:
    full = [gateway.new_array(gateway.jvm.long, 10_000_000) for _ in range(100)]
except Exception as error:
    print(type(error).__name__)
try:
    end_session(session)
except TallystreamError as error:
    print(error)
print(os.environ["SPARK_LOCAL_DIRS"])
print("mapped" if mapped else "not mapped")
"""


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="what a process has mapped is read from Linux's /proc")
def test_spark_maps_the_archive_of_its_classes_and_a_full_jvm_names_the_reason() -> None:
    """The archive is the one that setup has created. A JVM without memory ends, and the error says so.

    Otherwise the query would wait for a thread that has ended. The temporary files of the session are deleted.
    """
    if not archive_path().exists():
        cds_archive.make()
    command = [sys.executable, "-c", SESSION]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    *_, error, folder, mapped = done.stdout.splitlines()
    assert error == "Spark's JVM ran out of memory; give it more by --driver-memory."
    assert mapped == "mapped"
    assert folder.startswith("/")
    assert not Path(folder).exists()
