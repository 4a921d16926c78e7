"""The session of Spark, and the slots of its executors."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast
from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from tallystream.errors import ConfigError, TallystreamError
from tallystream_aggregator import java
from tallystream_aggregator.spark import cds_archive, session
from tallystream_aggregator.spark.epochs import query
from tallystream_aggregator.spark.epochs.query import require_slots


def test_an_archive_of_spark_s_classes_is_used_if_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in this Python's environment. Without it, the JVM has no option for one."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert not any("Archive" in option for option in session.local_jvm_options())
    path = session.archive_path()
    path.parent.mkdir(parents=True)
    path.touch()
    assert path.is_relative_to(tmp_path)
    assert f"-XX:SharedArchiveFile={path}" in session.local_jvm_options()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the folder and what to do."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(java, "version", lambda: "17.0.9")
    (tmp_path / "share").write_text("a file instead of the folder", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"share/tallystream.*let this user write there"):
        cds_archive.make()


def test_a_session_that_does_not_start_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its JVM may have refused the memory, or Spark the master."""
    builder = MagicMock()
    builder.appName.return_value = builder.config.return_value = builder
    builder.getOrCreate.side_effect = PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")  # as under spark-submit
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setattr(session, "SparkSession", SimpleNamespace(builder=builder))
    with pytest.raises(TallystreamError, match=r"Spark did not start: .*Java gateway process exited"):
        session.build_session("test")


class EndedSession:
    """A session whose JVM has ended. `proc` is None under spark-submit, which owns the JVM."""

    def __init__(self, code: int | None, master: str) -> None:
        process = None if code is None else SimpleNamespace(wait=lambda _: code)
        self.sparkContext = SimpleNamespace(master=master, _gateway=self)
        self.proc = process

    @property
    def jvm(self) -> object:
        """Fail."""
        return self.stop()

    def stop(self) -> NoReturn:
        """Fail."""
        raise Py4JNetworkError("Answer from Java side is empty")


@pytest.mark.parametrize(
    ("code", "master", "reason"),
    [
        (None, "local[2]", "JVM ended;"),
        (3, "local[2]", "out of memory"),
        (-9, "local[2]", "killed by signal 9;"),
        (1, "spark://master:7077", "ended with exit code 1;"),
    ],
)
def test_a_jvm_that_has_ended_is_named(code: int | None, master: str, reason: str) -> None:
    """The message has what is known of the reason, and what to do."""
    with pytest.raises(TallystreamError, match=reason):
        session.end_session(EndedSession(code, master))  # type: ignore[arg-type]


START = """
import os, signal, sys
from tallystream_aggregator.spark import session
session.local_jvm_options()
print(session._local_folder().name, flush=True)
if sys.argv[1] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
sys.stdin.read()
"""


def _begin(state: str, temporary: Path) -> tuple[subprocess.Popen[str], Path]:
    """Start a process that has a folder of temporary files, and is killed or keeps running. Make the folder old."""
    process = subprocess.Popen(
        [sys.executable, "-c", START, state],
        env={**os.environ, "SPARK_LOCAL_DIRS": str(temporary)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    folder = Path(process.stdout.readline().strip())
    (folder / "blockmgr-1").mkdir()
    os.utime(folder, (0, 0))
    return process, folder


def test_the_temporary_files_of_a_killed_process_are_deleted_at_the_next_start(tmp_path: Path) -> None:
    """A process that is killed with its JVM can't delete them. Folders of running processes are kept, and young ones.

    A young one may be that of a process that has not locked it yet.
    """
    running, used = _begin("running", tmp_path)
    killed, unused = _begin("killed", tmp_path)
    killed.communicate()
    young = tmp_path / "tallystream-spark-young"
    young.mkdir()
    last, _ = _begin("running", tmp_path)
    assert not unused.exists()
    assert list(used.iterdir()) == [used / "blockmgr-1"]
    assert young.exists()
    for process in (running, last):
        process.communicate()
        assert process.returncode == 0
    assert list(tmp_path.iterdir()) == [young]


def test_a_folder_for_temporary_files_is_created_or_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark creates those in its variable, too. Of several, the first one is used."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path / 'new'},{tmp_path / 'other'}")
    with session._local_folder.__wrapped__() as name:
        assert Path(name).parent == tmp_path / "new"
    (tmp_path / "other").touch()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "other"))
    with pytest.raises(ConfigError, match=r"SPARK_LOCAL_DIRS: .*other"):
        session._local_folder.__wrapped__()


ZIPS = ("/spark/python/lib/pyspark.zip", "/spark/python/lib/py4j-0.10-src.zip")


def _paths(*folders: str) -> list[str]:
    """Return the path of a Python with these folders first, and the file of its sitecustomize. It logs nothing."""
    code = "import sys; print(*sys.path, sys.modules['sitecustomize'].__file__, sep='\\n')"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


def test_zips_are_removed_from_the_path(tmp_path: Path) -> None:
    """The environment's own sitecustomize is imported, too."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("")
    *path, started = _paths(*ZIPS, str(session._STARTUP), str(own))
    assert started == str(own / "sitecustomize.py")
    assert str(own) in path
    assert not {*ZIPS, str(session._STARTUP)} & set(path)


def test_an_environment_without_a_sitecustomize_logs_nothing() -> None:
    """Python reports a module that is removed after its import. Debian's Python has a sitecustomize, which is kept."""
    own = importlib.util.find_spec("sitecustomize")
    *path, started = _paths(*ZIPS, str(session._STARTUP))
    assert started == (str(session._STARTUP / "sitecustomize.py") if own is None else own.origin)
    assert not {*ZIPS, str(session._STARTUP)} & set(path)


class Context:
    """A context whose executors register one after the other. `slots` are those at each look; the last ones stay."""

    def __init__(self, master: str, slots: Sequence[int]) -> None:
        self.master, self._slots = master, list(slots)

    @property
    def defaultParallelism(self) -> int:  # noqa: N802 (Spark's name)
        """The slots now."""
        return self._slots.pop(0) if len(self._slots) > 1 else self._slots[0]


def with_slots(slots: Sequence[int], master: str = "spark://master:7077") -> SparkSession:
    """Return a with_slots with these slots."""
    return cast("SparkSession", SimpleNamespace(sparkContext=Context(master, slots)))


@pytest.fixture(autouse=True)
def _short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(range(1000))
    timer: Any = SimpleNamespace(monotonic=lambda: next(times), sleep=lambda _: None)
    monkeypatch.setattr(query, "time", timer)


def test_executors_that_register_later_are_waited_for() -> None:
    """A cluster gives a with_slots its executors one by one, after its start."""
    require_slots(with_slots([2, 2, 3, 4]), 4)


def test_a_stop_ends_the_wait_for_executors() -> None:
    """It is no error, and takes no half minute."""
    require_slots(with_slots([2]), 4, lambda: True)


@pytest.mark.parametrize(("master", "slots"), [("spark://master:7077", [2, 3]), ("local[2]", [2, 9])])
def test_too_few_slots_are_refused(master: str, slots: list[int]) -> None:
    """On a cluster after a while, on one machine at once: its slots never change."""
    with pytest.raises(ConfigError, match=r"each of the 4 loops needs one"):
        require_slots(with_slots(slots, master), 4)
