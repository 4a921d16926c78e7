"""`doctor`: the checks of the installation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_cli.doctor import installation

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_missing_package_is_a_warning() -> None:
    """Without PySpark or Streamlit, as in the images, other commands run."""
    assert installation.package("page", "no_such_package", "the page", "install it").status == "warning"
    assert installation.package("Spark", "pyspark", "aggregate", "install it").status == "ok"


def test_jars_are_compared_with_the_digests_of_the_release() -> None:
    """A missing jar is downloaded at the start; a changed one is not the release's."""
    locked = {"a.jar": "11", "b.jar": "22"}
    assert installation.broker_jars(locked, locked).status == "ok"
    assert installation.broker_jars(locked, locked | {"b.jar": None}).status == "warning"
    changed = installation.broker_jars(locked, {"a.jar": None, "b.jar": "33"})
    assert (changed.status, changed.found) == ("failed", "b.jar is not the file of this release")


def test_jars_are_not_downloaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With an empty cache, the check says that jars are missing; the cache stays empty."""
    monkeypatch.setenv("TALLYSTREAM_CACHE", str(tmp_path / "cache"))
    (found,) = installation.check_jars()
    assert (found.check, found.status) == ("jars", "warning")
    assert not (tmp_path / "cache").exists()


def test_this_environment_has_no_failed_check() -> None:
    """The environment of the tests is one that the commands run in."""
    assert [one for one in installation.check_installation() if one.status == "failed"] == []
