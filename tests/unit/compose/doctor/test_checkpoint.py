"""`doctor`: the checks of the folder of the aggregator's checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_cli.doctor import checkpoint, disk

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def statuses(path: Path) -> dict[str, str]:
    """Return the status of each check."""
    return {one.check: str(one.status) for one in checkpoint.check_checkpoint(path)}


def test_a_checkpoint_that_only_its_user_may_read_is_ok(tmp_path: Path) -> None:
    """One that others may read is a warning. Nothing is written."""
    (tmp_path / "c" / "offsets").mkdir(parents=True)
    for mode, found in ((0o700, set()), (0o755, {"warning"})):
        (tmp_path / "c").chmod(mode)
        assert set(statuses(tmp_path / "c").values()) == {"ok"} | found
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["c", "offsets"]


def test_a_missing_checkpoint_is_ok(tmp_path: Path) -> None:
    """The aggregator makes it again, without a person."""
    (finding,) = [one for one in checkpoint.check_checkpoint(tmp_path / "c") if one.check == "checkpoint"]
    assert (str(finding.status), "from metrics-table" in finding.found) == ("ok", True)


def test_a_folder_that_this_user_may_not_write_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor the folder beside it, where a damaged checkpoint is set aside."""
    monkeypatch.setattr(disk, "writable", lambda path: path != tmp_path)
    assert statuses(tmp_path / "c")["checkpoint: folder"] == "failed"
