"""The local system with other commands as its components."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tallystream_cli.local import state_file
from tallystream_cli.local.supervisor import Command
from tallystream_cli.local.system import LocalSystem

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def said() -> list[str]:
    """The sentences of the local system."""
    return []


@pytest.fixture
def system(tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch) -> LocalSystem:
    """A local system with two components that are ready at once and run until they are stopped."""
    components = [
        Command(
            name,
            ["/bin/sh", "-c", f"touch {name}.ready; exec sleep 600"],
            log=tmp_path / f"{name}.log",
            ready_file=tmp_path / f"{name}.ready",
        )
        for name in ("one", "two")
    ]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(LocalSystem, "_components", lambda _: components)
    monkeypatch.setattr(LocalSystem, "_prepare", lambda _: None)
    return LocalSystem(tmp_path, say=said.append)


def test_a_state_file_that_can_not_be_written_ends_nothing(
    system: LocalSystem, said: list[str], tmp_path: Path
) -> None:
    """As on a full disk: each failure is one sentence, and every component is stopped in order."""
    system.start()
    path = tmp_path / state_file.NAME
    path.unlink()
    path.mkdir()
    system.stop()
    assert [one.state for one in system.watched] == ["stopped", "stopped"]
    assert [one.component.pid for one in system.watched] == [None, None]
    failure = f"{path} can't be written (Is a directory): correct that; the next change writes it again"
    assert said[-5:] == ["stopping", failure, "two is stopped", failure, "one is stopped"]
