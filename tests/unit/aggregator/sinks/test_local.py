"""The local store: retention, other files, a missing store, and permissions."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tallystream.errors import ConfigError
from tallystream_aggregator.sinks.base import LAG_MEASUREMENTS, Field, Point, SinkUnavailableError
from tallystream_aggregator.sinks.sqlite.database import SCHEMA_VERSION
from tallystream_aggregator.sinks.sqlite.sink import SWEEP_EVERY_MS, LocalStore

HOUR_MS = 3_600_000


class _Clock:
    """A clock that only the test sets."""

    now_ms = 100 * HOUR_MS

    def __call__(self) -> int:
        return self.now_ms


def _point(name: str, hours: int) -> Point:
    return Point(name, {"k": name}, {"count": hours}, hours * HOUR_MS)


def _hours(path: Path, name: str) -> list[int]:
    reader = LocalStore(path)
    found = reader.read(name, ["count"], start_ms=0, end_ms=10**15)
    reader.close()
    return [ts_ms // HOUR_MS for series in found for ts_ms in series.times_ms]


def test_points_beyond_the_retention_are_deleted(tmp_path: Path) -> None:
    """This happens at setup, and in a write every ten minutes. Series without points are deleted, too.

    A retention of 0 keeps all points.
    """
    path, clock = tmp_path / "store.db", _Clock()
    keeper = LocalStore(path, retention_ms=0, clock=clock)
    keeper.write([_point("kept", 99)])
    store = LocalStore(path, retention_ms=10 * HOUR_MS, clock=clock)
    store.setup()
    store.write([_point("old", 80), _point("both", 89), _point("both", 91), _point("new", 99)])
    assert _hours(path, "both") == [89, 91]
    clock.now_ms += SWEEP_EVERY_MS
    store.write([_point("new", 100)])
    assert (_hours(path, "both"), _hours(path, "new")) == ([91], [99, 100])
    assert LocalStore(path).measurements() == ["both", "kept", "new"]
    clock.now_ms += 8 * HOUR_MS
    store.setup()
    assert LocalStore(path).measurements() == ["kept", "new"]
    clock.now_ms *= 1000
    keeper.setup()
    assert _hours(path, "kept") == [99]
    store.close()
    keeper.close()


def test_each_writer_deletes_only_what_it_writes(tmp_path: Path) -> None:
    """The retention of the lag collector applies to lag, that of the shipper to everything else."""
    path, clock = tmp_path / "store.db", _Clock()
    keeper = LocalStore(path, retention_ms=0, clock=clock)
    keeper.write([_point(name, hour) for name in ("sum", "instance:sum", *LAG_MEASUREMENTS) for hour in (1, 99)])
    collector = LocalStore(path, retention_ms=10 * HOUR_MS, lag=True, clock=clock)
    collector.setup()
    assert {name: _hours(path, name) for name in LAG_MEASUREMENTS} == {name: [99] for name in LAG_MEASUREMENTS}
    assert (_hours(path, "sum"), _hours(path, "instance:sum")) == ([1, 99], [1, 99])
    keeper.write([_point(name, 2) for name in LAG_MEASUREMENTS])
    shipper = LocalStore(path, retention_ms=10 * HOUR_MS, clock=clock)
    shipper.setup()
    assert (_hours(path, "sum"), _hours(path, "instance:sum")) == ([99], [99])
    assert {name: _hours(path, name) for name in LAG_MEASUREMENTS} == {name: [2, 99] for name in LAG_MEASUREMENTS}
    for store in (keeper, collector, shipper):
        store.close()


def test_a_series_that_another_process_deleted_is_created_again(tmp_path: Path) -> None:
    """A writer that has cached its ID loses no point."""
    path, clock = tmp_path / "store.db", _Clock()
    writer = LocalStore(path, retention_ms=0, clock=clock)
    writer.write([_point("swept", 1), _point("other", 99)])
    sweeper = LocalStore(path, retention_ms=10 * HOUR_MS, clock=clock)
    sweeper.setup()
    assert _hours(path, "swept") == []
    sweeper.write([_point("takes its number", 99)])
    writer.write([_point("swept", 98)])
    assert (_hours(path, "swept"), _hours(path, "takes its number")) == ([98], [99])
    writer.close()
    sweeper.close()


def test_a_store_that_was_deleted_is_created_again(tmp_path: Path) -> None:
    """A write goes to the file of that name, also if it was deleted, moved or replaced while a writer has it open."""
    folder = tmp_path / "folder"
    path = folder / "store.db"
    store, other = LocalStore(path, retention_ms=0), LocalStore(path, retention_ms=0)
    for writer in (store, other):
        writer.write([_point("before", 1), _point("both", 1)])
    shutil.rmtree(folder)
    store.write([_point("both", 2)])
    assert (_hours(path, "before"), _hours(path, "both")) == ([], [2])
    other.write([_point("both", 3)])
    store.write([_point("both", 4)])
    assert _hours(path, "both") == [2, 3, 4]
    store.close()
    other.close()
    assert _hours(path, "both") == [2, 3, 4]


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """Its new series are rolled back, too. The next write is complete."""
    path = tmp_path / "store.db"
    store = LocalStore(path, retention_ms=0)
    with pytest.raises(TypeError):
        store.write([_point("a", 1), Point("b", {"x": object()}, {"v": 1}, 1), _point("c", 1)])  # type: ignore[dict-item]
    assert LocalStore(path).measurements() == []
    store.write([_point("c", 2), _point("a", 1)])
    assert (_hours(path, "a"), _hours(path, "c")) == ([1], [2])
    store.close()


def test_values_of_another_type_are_left_out(tmp_path: Path) -> None:
    """Somebody else may have written to the file: a text is no count, and a number no status; nor is infinity one."""
    with closing(LocalStore(tmp_path / "store.db", retention_ms=0)) as store:
        own: dict[str, Field] = {"count": 1, "sum": 1.5, "status": "OK", "stale": False}
        other: dict[str, Field] = {"count": "1", "sum": True, "status": 1, "stale": 0, "max": "", "min": 1}
        store.write([Point("n", {}, own, 1), Point("n", {}, other, 2)])
        store._open().execute("UPDATE points SET value = 9e999 WHERE field = 'min'")
        found = store.read("n", [*own, *other], start_ms=0, end_ms=3)
    assert {one.field: one.values for one in found} == {name: [value] for name, value in own.items()}


def test_a_reader_reads_the_file_of_that_name(tmp_path: Path) -> None:
    """A missing one is empty, and is not created. A later one is read, also if it replaces one that is open."""
    path = tmp_path / "store.db"
    with closing(LocalStore(path)) as reader:
        for name in ("first", "second"):
            assert reader.measurements() == []
            assert reader.read("m", ["v"], start_ms=0, end_ms=1, last_before=True) == []
            assert not path.exists()
            path.touch()  # as for a moment while a writer creates it
            assert reader.measurements() == []
            with closing(LocalStore(path, retention_ms=0)) as store:
                store.write([_point(name, 1)])
                assert reader.measurements() == [name]
            for file in tmp_path.iterdir():
                file.unlink()


@pytest.mark.parametrize("opened", ["sink", "reader"])
def test_another_file_is_not_changed(tmp_path: Path, opened: str) -> None:
    """The error names the file. It is a text, another program's database, a store of another version, or a folder."""
    text, database, later = tmp_path / "notes.txt", tmp_path / "other.db", tmp_path / "later.db"
    same = tmp_path / "same-version.db"
    text.write_text("not a database, but long enough to look like one " * 20)
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE points (x)")
    with sqlite3.connect(same) as connection:
        connection.execute("CREATE TABLE points (x)")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    with sqlite3.connect(later) as connection:
        connection.execute("PRAGMA user_version = 99")
    for path, reason in (
        (text, "it is not a store"),
        (database, "a database of something else"),
        (same, "a database of something else"),
        (later, "its schema is version 99"),
        (tmp_path, "it is a folder"),
    ):
        before = path.read_bytes() if path.is_file() else b""
        call = LocalStore(path).setup if opened == "sink" else LocalStore(path).measurements
        with pytest.raises(ConfigError, match=f"local:{path}.*{reason}"):
            call()
        assert not path.is_file() or path.read_bytes() == before


def test_a_file_that_cannot_be_created_is_a_wrong_setting(tmp_path: Path) -> None:
    """A file has the name of its folder, or its own name is too long, so waiting does not help."""
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="name a file in a folder of yours"):
        LocalStore(tmp_path / "file" / "deep" / "store.db").setup()
    with pytest.raises(ConfigError, match="give a shorter path"):
        LocalStore(tmp_path / ("x" * 300)).setup()


@contextmanager
def _another_user() -> Iterator[None]:
    """Give up root's rights, as root may read every file. Other users have none to give up."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder in which every user may create files. pytest's is one of the user."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    yield folder
    folder.chmod(0o777)
    shutil.rmtree(folder)


@pytest.mark.parametrize("mode", [0o000, 0o400])
def test_a_store_that_this_user_may_not_write_is_a_wrong_setting(shared: Path, mode: int) -> None:
    """The error names the file, so nobody waits for it. A file that may be read can be read."""
    path = shared / "store.db"
    with _another_user():
        store = LocalStore(path, retention_ms=0)
        store.write([_point("n", 1)])
        store.close()
        path.chmod(mode)
        for call in (LocalStore(path).setup, lambda: LocalStore(path).write([_point("n", 2)])):
            with pytest.raises(ConfigError, match=r"store\.db' .*: run as the owner of the file"):
                call()
        if mode:
            assert _hours(path, "n") == [1]
        else:
            with pytest.raises(ConfigError, match=r"store\.db' .*: run as the owner of the file"):
                _hours(path, "n")


def test_a_folder_in_which_this_user_may_not_create_files_is_a_wrong_setting(shared: Path) -> None:
    """The file of the store may be written, but SQLite needs a log beside it."""
    path = shared / "store.db"
    with _another_user():
        store = LocalStore(path)
        store.setup()
        store.close()
    shared.chmod(0o555)
    with _another_user(), pytest.raises(ConfigError, match="run as the owner of the file and of its folder"):
        LocalStore(path).setup()


def test_a_store_that_can_not_be_opened_now_is_unavailable(tmp_path: Path) -> None:
    """The process may have too many open files. This user has all permissions."""
    path = tmp_path / "store.db"
    store = LocalStore(path, retention_ms=0)
    store.setup()
    store.close()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(one.name) for one in Path("/proc/self/fd").iterdir())
    held: list[int] = []
    while not held or held[-1] <= highest:  # no lower number is free
        held.append(os.open(os.devnull, os.O_RDONLY))
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (held[-1] + 2, limits[1]))
        with pytest.raises(SinkUnavailableError, match="unable to open database file"):
            store.write([_point("n", 1)])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for one in held:
            os.close(one)
    store.write([_point("n", 2)])
    store.close()
    assert _hours(path, "n") == [2]


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        *((f"UPDATE series SET tags = {tags}", ConfigError) for tags in ("'x'", "'[]'", "'{\"k\":1}'", "X'FF'")),
        ("UPDATE points SET value = CAST(X'FF' AS TEXT)", SinkUnavailableError),
    ],
)
def test_damage_is_an_error_of_the_store(tmp_path: Path, damage: str, error: type[Exception]) -> None:
    """Something else has written to the file. The error says so, and names the file."""
    store, reader = LocalStore(tmp_path / "store.db", retention_ms=0), LocalStore(tmp_path / "store.db")
    with closing(store), closing(reader):
        store.write([_point("n", 1)])
        with sqlite3.connect(tmp_path / "store.db") as connection:
            connection.execute(damage)
        with pytest.raises(error, match=r"store\.db.*(is damaged|Could not decode to UTF-8)"):
            reader.read("n", ["count"], start_ms=0, end_ms=2 * HOUR_MS)
