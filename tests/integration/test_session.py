"""A real session of Spark: the archive of its classes, a checkpoint of an old release, and a JVM without memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.release import RULES, put_checkpoint, topic
from support.replayed import replay
from support.runs import require_sums
from support.tables import sums_of, table_settings
from tallystream_aggregator.spark import cds_archive
from tallystream_aggregator.spark.session import archive_path
from tallystream_aggregator.table import unpack

pytestmark = [pytest.mark.integration, pytest.mark.timeout(700)]

SESSION = """
import os
import sys
from functools import partial
from pathlib import Path
from support.release import go_on, run_epochs
from tallystream.errors import TallystreamError
from tallystream_aggregator.spark.session import archive_path, build_session, end_session, start_jvm
from tallystream_aggregator.spark.epochs.query import SETTINGS, import_modules, warm
from pyspark import SparkContext

start_jvm(None, "512m")
started = SparkContext._gateway.proc.pid
session = build_session("test", master="local[1]", driver_memory="512m", conf=SETTINGS)
gateway = session.sparkContext._gateway
assert gateway.proc.pid == started
assert session.sparkContext.master == "local[1]"
session.sparkContext.parallelize([0], 1).mapPartitions(import_modules).count()
mapped = str(archive_path().resolve()) in Path(f"/proc/{started}/maps").read_text()
warm(session, 1)
run_epochs(session, Path(sys.argv[1]), partial(go_on, Path(sys.argv[2])))
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
def test_spark_maps_its_archive_reads_a_checkpoint_of_release_0_1_and_names_the_reason_of_its_end(
    tmp_path: Path,
) -> None:
    """The archive of classes is the one that setup has created. The table of the checkpoint goes on exactly.

    A JVM without memory ends, and the error says so. Otherwise the query would wait for a thread that has ended. The
    temporary files of the session are deleted.
    """
    if not archive_path().exists():
        cds_archive.make()
    put_checkpoint(tmp_path / "checkpoint")
    command = [sys.executable, "-c", SESSION, str(tmp_path / "checkpoint"), str(tmp_path / "state")]
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=env)
    assert done.returncode == 0, done.stderr
    state, records = unpack((tmp_path / "state").read_bytes()), topic()
    assert state.records == len(records)
    require_sums(sums_of([state], table_settings(**RULES)), replay(records, **RULES))
    *_, error, folder, mapped = done.stdout.splitlines()
    assert error == "Spark's JVM ran out of memory; give it more by --driver-memory."
    assert mapped == "mapped"
    assert folder.startswith("/")
    assert not Path(folder).exists()
