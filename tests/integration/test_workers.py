"""The examples with several processes: workers are recycled, ended and killed, and the sums are the work done."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from support.example_servers import WebServer, pool_of, start_worker
from support.examples import EXAMPLES, System
from support.guides import ROOT
from support.processes import kill_tree
from support.wait import wait_until
from tallystream_cli.servers.broker import KafkaBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(700)]


@pytest.fixture
def system(
    broker: KafkaBroker, admin: AdminClient, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> System:
    monkeypatch.chdir(ROOT)  # the guides' commands name paths from here
    return System(broker.bootstrap_servers, topic_prefix, admin, tmp_path)


@pytest.mark.parametrize("name", ["gunicorn", "uvicorn"])
def test_web_workers_that_end_report_every_request(system: System, name: str) -> None:
    """Workers end after 40 requests each, and by SIGTERM, before a report is due: every response is counted."""
    system.environment["TALLYSTREAM_INTERVAL"] = "3600"
    server = WebServer(system, name, max_requests=40)
    try:
        first = server.workers()
        server.order_all(range(200))
        wait_until(lambda: first & server.workers() != first, 60, "a worker is replaced")
        system.end(server.process)
    finally:
        server.kill()
    assert system.count("orders.placed") == 3 + sum(range(200))
    assert system.count("http.server.requests") == system.count("http.server.duration") == 202


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


def test_celery_counts_a_task_whose_process_is_killed(system: System) -> None:
    """The main process counts its failure, once, and no other count is lost, when the process ends by a signal."""
    (system.folder / "waiting_app.py").write_text(WAITING_APP)

    def runs() -> dict[str, int]:
        return system.counts("celery.tasks", "task")

    program = ["celery", "--app", "waiting_app", "worker", "--loglevel", "INFO", "--concurrency", "1"]
    process = start_worker(system, *program)
    try:
        for number, by in enumerate((signal.SIGKILL, signal.SIGTERM), start=1):
            system.run(sys.executable, EXAMPLES / "celery_app.py", "20")
            wait_until(lambda: runs().get("ship") == 22 * number, 60, "the tasks are reported")  # noqa: B023
            system.run(sys.executable, system.folder / "waiting_app.py")
            wait_until(lambda: system.log.read_text().count("a task waits") == number, 60, "a task waits")  # noqa: B023
            (child,) = pool_of(process)
            child.send_signal(by)
            wait_until(lambda: child not in pool_of(process), 60, "it has ended")  # noqa: B023
        wait_until(lambda: runs().get("wait") == 2, 60, "the failures are reported")
        system.end(process)
    finally:
        kill_tree(process)
    assert runs() == {"ship": 44, "wait": 2}
    assert system.counts("celery.tasks", "outcome") == {"success": 36, "failure": 6, "retry": 4}
