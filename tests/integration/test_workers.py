"""The examples with several processes: workers are recycled, ended and killed, and the sums are the work done."""

from __future__ import annotations

import os
import signal
import socket
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import psutil
import pytest

from support.examples import EXAMPLES, ROOT, System
from support.guides import commands
from support.kafka import read_topic
from support.wait import wait_until
from tallystream_cli.servers.process import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

    from tallystream_cli.servers.broker import KafkaBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture
def system(
    broker: KafkaBroker, admin: AdminClient, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> System:
    monkeypatch.chdir(ROOT)  # the guides' commands name paths from here
    return System(broker.bootstrap_servers, topic_prefix, admin, tmp_path)


CELERY_CONFIG = """
broker_url = "filesystem://"
broker_transport_options = {{"data_folder_in": {queue!r}, "data_folder_out": {queue!r}, "control_folder": {control!r}}}
"""
WAITING_APP = """
import time
from celery_app import app

@app.task(name="wait", ignore_result=True)
def wait():
    print("a task waits", flush=True)
    time.sleep(600)

if __name__ == "__main__":
    wait.delay()
"""


def use_files_as_broker(system: System) -> None:
    """Let Celery use a folder instead of a broker, by a module of settings."""
    for name in ("queue", "control"):
        (system.folder / name).mkdir()
    where = {name: str(system.folder / name) for name in ("queue", "control")}
    (system.folder / "celery_config.py").write_text(CELERY_CONFIG.format(**where))
    path = os.pathsep.join([str(system.folder), str(EXAMPLES)])
    system.environment |= {"CELERY_CONFIG_MODULE": "celery_config", "PYTHONPATH": path}


def test_celery_counts_every_task_of_recycled_processes(system: System) -> None:
    """Ten processes end after 50 tasks each, before a report is due: all outcomes are counted, by their last reports."""
    use_files_as_broker(system)
    system.environment["TALLYSTREAM_INTERVAL"] = "3600"
    worker, send = commands("celery")
    process = system.start(*worker)
    try:
        system.run(*send)
        ended = (" succeeded in ", " raised unexpected: ")
        wait_until(lambda: sum(map(system.log.read_text().count, ended)) == 500, 120, "all tasks have ended")
        system.end(process)
    finally:
        process.kill()
        process.wait()
    assert system.counts("celery.tasks", "outcome") == {"success": 450, "failure": 50, "retry": 50}
    assert system.count("celery.duration") == 550
    assert system.count("orders.shipped") == 450
    assert system.lives() >= 12  # 550 runs are those of 11 processes, and the main process reports too


def test_celery_counts_a_task_whose_process_is_killed(system: System) -> None:
    """The main process counts its failure, once, and no other count is lost, when the process ends by a signal."""
    use_files_as_broker(system)
    (system.folder / "waiting_app.py").write_text(WAITING_APP)
    program = ["celery", "--app", "waiting_app", "worker", "--loglevel", "INFO", "--concurrency", "1"]
    process = system.start(*program)
    try:
        for number, by in enumerate((signal.SIGKILL, signal.SIGTERM), start=1):
            system.run(sys.executable, EXAMPLES / "celery_app.py", "20")
            wait_until(lambda: system.count("orders.shipped") == 18 * number, 60, "the tasks are reported")  # noqa: B023
            system.run(sys.executable, system.folder / "waiting_app.py")
            wait_until(lambda: system.log.read_text().count("a task waits") == number, 60, "a task waits")  # noqa: B023
            (child,) = psutil.Process(process.pid).children()
            child.send_signal(by)
            wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, 60, "it has ended")  # noqa: B023
        wait_until(lambda: system.counts("celery.tasks", "task").get("wait") == 2, 60, "the failures are reported")
        system.end(process)
    finally:
        process.kill()
        process.wait()
    assert system.counts("celery.tasks", "task") == {"ship": 44, "wait": 2}
    assert system.counts("celery.tasks", "outcome") == {"success": 36, "failure": 6, "retry": 4}
