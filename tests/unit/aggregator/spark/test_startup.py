"""The Python processes that Spark starts import PySpark from where it is installed, and what else they would import."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from tallystream_aggregator.spark.session import _STARTUP, _python_path

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

ZIPS = ("/spark/python/lib/pyspark.zip", "/spark/python/lib/py4j-0.10-src.zip")


def _said(*folders: str) -> list[str]:
    """Return the path of a Python with these folders first, and the file of its sitecustomize; it says no more."""
    code = "import sys; print(*sys.path, sys.modules['sitecustomize'].__file__, sep='\\n')"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


def test_zips_of_sources_are_left_out_and_the_environment_s_own_start_is_not(tmp_path: Path) -> None:
    """Spark puts its zips first; a sitecustomize that was there before is imported as without ours."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("")
    *path, started = _said(*ZIPS, str(_STARTUP), str(own))
    assert started == str(own / "sitecustomize.py")
    assert str(own) in path
    assert not {*ZIPS, str(_STARTUP)} & set(path)


def test_where_there_was_none_before_nothing_is_said() -> None:
    """Python complains where a module is gone as soon as it was imported."""
    *path, started = _said(*ZIPS, str(_STARTUP))
    assert started == str(_STARTUP / "sitecustomize.py")
    assert not {*ZIPS, str(_STARTUP)} & set(path)


def test_the_path_is_for_the_jvm_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What this process starts later finds the variable as it was, set or not."""
    for before in (None, "/elsewhere"):
        monkeypatch.delenv("PYTHONPATH", raising=False)
        if before is not None:
            monkeypatch.setenv("PYTHONPATH", before)
        with _python_path(tmp_path):
            assert os.environ["PYTHONPATH"].split(os.pathsep) == [str(tmp_path), *([before] if before else [])]
        assert os.environ.get("PYTHONPATH") == before
