"""The Python processes that Spark starts import the installed PySpark."""

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
    *path, started = _paths(*ZIPS, str(_STARTUP), str(own))
    assert started == str(own / "sitecustomize.py")
    assert str(own) in path
    assert not {*ZIPS, str(_STARTUP)} & set(path)


def test_an_environment_without_a_sitecustomize_logs_nothing() -> None:
    """Python reports a module that is removed after its import."""
    *path, started = _paths(*ZIPS, str(_STARTUP))
    assert started == str(_STARTUP / "sitecustomize.py")
    assert not {*ZIPS, str(_STARTUP)} & set(path)


def test_only_the_jvm_gets_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later processes have the earlier value of PYTHONPATH, or none."""
    for before in (None, "/elsewhere"):
        monkeypatch.delenv("PYTHONPATH", raising=False)
        if before is not None:
            monkeypatch.setenv("PYTHONPATH", before)
        with _python_path(tmp_path):
            assert os.environ["PYTHONPATH"].split(os.pathsep) == [str(tmp_path), *([before] if before else [])]
        assert os.environ.get("PYTHONPATH") == before
