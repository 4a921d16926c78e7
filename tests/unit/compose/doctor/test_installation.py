"""`doctor`: the checks of the installation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tallystream_cli.doctor import installation

if TYPE_CHECKING:
    from pathlib import Path

SAME = dict.fromkeys(installation.DISTRIBUTIONS, "0.1.0")


@pytest.mark.parametrize(("running", "status"), [("3.10.9", "failed"), ("3.11.0", "ok"), ("3.14.1", "ok")])
def test_python_must_be_in_the_supported_range(running: str, status: str) -> None:
    """Python 3.11 and newer are supported."""
    assert installation.python(running, ">=3.11").status == status


def test_the_packages_must_be_of_one_release() -> None:
    """A package of another release, or a missing one, is named."""
    assert installation.same_release(SAME).status == "ok"
    other = installation.same_release(SAME | {"tallystream": "0.2.0"})
    assert other.status == "failed"
    assert "tallystream 0.2.0" in other.found
    missing = installation.same_release(SAME | {"tallystream-aggregator": None})
    assert (missing.status, missing.found) == ("failed", "tallystream-aggregator not installed")


def test_a_package_outside_its_range_is_named() -> None:
    """An optional package may be missing, but not have a version outside the range."""
    required = ["msgspec>=0.22", 'pandas<3; extra == "spark"', 'tomli; python_version < "3"']
    assert installation.requirements(required, {"msgspec": "0.22"}).status == "ok"
    assert installation.requirements(required, {}).found == "msgspec is not installed"
    wrong = installation.requirements(required, {"msgspec": "0.22", "pandas": "3.0.1"})
    assert (wrong.status, wrong.found) == ("failed", "pandas 3.0.1 (needs <3)")


def test_without_streamlit_only_the_page_is_missing() -> None:
    """An environment without Streamlit, such as the Spark image, is complete, with a warning about the page."""
    assert installation.requirements(["streamlit>=1.67"], {}).status == "ok"
    assert (installation.page(None).status, installation.page("1.67.0").status) == ("warning", "ok")


def test_without_pyspark_some_commands_run() -> None:
    """Its version is one of the requirements."""
    assert (installation.spark("4.2.0").status, installation.spark(None).status) == ("ok", "warning")


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
    found, _ = installation.check_jars()
    assert (found.check, found.status) == ("jars", "warning")
    assert not (tmp_path / "cache").exists()


def test_this_environment_has_no_failed_check() -> None:
    """The environment of the tests is one that the commands run in."""
    assert [one for one in installation.check_installation() if one.status == "failed"] == []
