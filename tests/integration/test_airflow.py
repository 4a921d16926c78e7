"""The guide to Airflow, with Airflow's own command."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from support import airflow
from support.examples import EXAMPLES, System
from support.guides import commands

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

    from tallystream_cli.servers.broker import KafkaBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]  # the first run installs Airflow


def test_airflow_counts_the_work_of_every_task(
    broker: KafkaBroker, admin: AdminClient, topic_prefix: str, tmp_path: Path
) -> None:
    """Three mapped tasks end before a report is due: their counts are in the sums."""
    system = System(broker.bootstrap_servers, topic_prefix, admin, tmp_path)
    system.environment |= airflow.environment(tmp_path / "airflow") | {"TALLYSTREAM_INTERVAL": "3600"}
    shutil.copy(EXAMPLES / "airflow_dag.py", tmp_path / "airflow" / "dags")
    (test,) = commands("airflow")
    system.run(*test)
    assert "state=success" in system.log.read_text()
    assert system.count("rows.loaded") == 6000
    assert system.count("load") == 3
    assert system.lives() == 3
