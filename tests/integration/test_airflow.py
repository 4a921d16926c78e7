"""The guide to Airflow, with Airflow's own command."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from support.examples import EXAMPLES, System
from support.guides import commands
from tallystream_cli.servers.broker import KafkaBroker
from tallystream_cli.servers.jars import cache_dir

VERSION = "3.3.2"
REPORTER = Path(__file__).parents[2] / "reporter"
DEPENDENCIES = ("confluent-kafka", "msgspec")
"""What the reporter needs. The reporter itself is imported from the repository."""


def environment(home: Path) -> dict[str, str]:
    """Return the variables with which `airflow` runs in `home`, after installing it and making its database.

    Raises:
        CalledProcessError: Airflow can't be installed, or its database can't be made.
    """
    folder = cache_dir() / "airflow" / f"{VERSION}-{sys.version_info.major}.{sys.version_info.minor}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "airflow.db").exists():
            _install(folder)
    (home / "dags").mkdir(parents=True)
    shutil.copy(folder / "airflow.db", home)
    return _variables(folder, home)


def _install(folder: Path) -> None:
    uv, python = Path(sys.executable).with_name("uv"), folder / "venv" / "bin" / "python"
    _run([str(uv), "venv", "--clear", "--python", sys.executable, str(folder / "venv")])
    _run([str(uv), "pip", "install", "--python", str(python), f"apache-airflow=={VERSION}", *DEPENDENCIES])
    home = folder / "home"
    _run([str(python.with_name("airflow")), "db", "migrate"], {**os.environ, **_variables(folder, home)})
    (home / "airflow.db").rename(folder / "airflow.db")  # last: it stands for a complete installation


def _variables(folder: Path, home: Path) -> dict[str, str]:
    return {
        "PATH": os.pathsep.join([str(folder / "venv" / "bin"), os.environ["PATH"]]),
        "PYTHONPATH": str(REPORTER),
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }


def _run(command: list[str], variables: dict[str, str] | None = None) -> None:
    subprocess.run(command, env=variables, check=True, timeout=600)


pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]  # the first run installs Airflow


def test_airflow_counts_the_work_of_every_task(
    broker: KafkaBroker, admin: AdminClient, topic_prefix: str, tmp_path: Path
) -> None:
    """Three mapped tasks end before a report is due: their counts are in the sums."""
    system = System(broker.bootstrap_servers, topic_prefix, admin, tmp_path)
    system.environment |= environment(tmp_path / "airflow") | {"TALLYSTREAM_INTERVAL": "3600"}
    shutil.copy(EXAMPLES / "airflow_dag.py", tmp_path / "airflow" / "dags")
    (test,) = commands("airflow")
    system.run(*test)
    assert "state=success" in system.log.read_text()
    assert system.count("rows.loaded") == 6000
    assert system.count("load") == 3
    assert system.lives() == 3
