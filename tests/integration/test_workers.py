"""The examples with several processes: workers are recycled, ended and killed, and the sums are the work done."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import psutil
import pytest

from support.examples import EXAMPLES, ROOT, System
from support.guides import commands
from support.kafka import read_topic
from support.processes import children, kill_tree
from support.wait import wait_until
from tallystream_cli.servers.process import free_port

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

    from tallystream_cli.servers.broker import KafkaBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(700)]


@pytest.fixture
def system(
    broker: KafkaBroker, admin: AdminClient, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> System:
    monkeypatch.chdir(ROOT)  # the guides' commands name paths from here
    return System(broker.bootstrap_servers, topic_prefix, admin, tmp_path)


class WebServer:
    """A server of the guide on a free port, and a client that repeats a request whose connection ends."""

    def __init__(self, system: System, server: str, max_requests: int = 0) -> None:
        serve = next(words for words in commands("web") if words[0] == server)
        curl = next(words for words in commands("web") if words[0] == "curl")
        self.port = free_port()
        system.environment |= {"GUNICORN_CMD_ARGS": f"--bind 127.0.0.1:{self.port}", "UVICORN_PORT": str(self.port)}
        if max_requests:
            system.environment["GUNICORN_CMD_ARGS"] += f" --max-requests {max_requests}"
            system.environment["UVICORN_LIMIT_MAX_REQUESTS"] = str(max_requests)
        self.process = system.start(*serve)
        wait_until(self._listens, 120, f"{serve[0]} listens")
        self.order(0)
        system.run(*(word.replace(":8000/", f":{self.port}/") for word in curl))

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
        except OSError:
            return False
        return True

    def workers(self) -> set[psutil.Process]:
        """Return the processes that serve. Another child of uvicorn tracks the resources of multiprocessing."""
        found = set()
        for child in children(psutil.Process(self.process.pid)):
            with contextlib.suppress(psutil.Error):  # it has ended
                if "resource_tracker" not in " ".join(child.cmdline()):
                    found.add(child)
        return found

    def kill(self) -> None:
        """Kill what a failed test has left: the workers of uvicorn do not end with it."""
        kill_tree(self.process)

    def order(self, items: int) -> None:
        """Order some items."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/orders/{items}", method="POST")
        for _ in range(20):
            try:
                with urllib.request.urlopen(request, timeout=120) as response:
                    assert response.status == 200
                    return
            except urllib.error.HTTPError:
                raise
            except OSError:  # a worker that ends closes connections on which it has read no request
                continue
        raise AssertionError(f"the order of {items} was not answered")

    def order_all(self, numbers: range) -> None:
        """Order as many items as each number says, eight orders at once."""
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(self.order, numbers))


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


@pytest.mark.parametrize("name", ["gunicorn", "uvicorn"])
def test_a_web_worker_that_is_killed_is_replaced(system: System, name: str) -> None:
    """What the killed worker had reported stays in the sums, and its replacement counts, all under one instance ID."""
    server = WebServer(system, name)
    try:
        server.order_all(range(100))
        wait_until(lambda: system.count("http.server.requests") == 102, 60, "all are reported")
        workers = server.workers()
        killed = min(workers, key=lambda worker: worker.pid)
        killed.kill()
        wait_until(
            lambda: killed not in (now := server.workers()) and len(now) == len(workers), 60, "another worker runs"
        )
        server.order_all(range(100, 200))
        system.end(server.process)
    finally:
        server.kill()
    assert system.count("orders.placed") == 3 + sum(range(200))
    assert system.count("http.server.requests") == system.count("http.server.duration") == 202
    assert {record.key for record in read_topic(system.servers, system.topics.metrics)} == {b"host-1"}


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


def start_worker(system: System, *command: str) -> subprocess.Popen[bytes]:
    """Start a Celery worker that reads tasks from files, and wait until it is ready."""
    for name in ("queue", "control"):
        (system.folder / name).mkdir()
    path = os.pathsep.join(map(str, [system.folder, EXAMPLES, ROOT / "tests"]))
    system.environment |= {
        "CELERY_CONFIG_MODULE": "support.celery_files",
        "CELERY_FILES": str(system.folder),
        "PYTHONPATH": path,
    }
    process = system.start(*command)
    wait_until(lambda: " ready." in system.log.read_text(), 120, "the worker is ready")
    return process


def pool_of(worker: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Return the running processes of a Celery worker's pool."""
    running = []
    for child in children(psutil.Process(worker.pid)):
        with contextlib.suppress(psutil.NoSuchProcess):
            if child.status() != psutil.STATUS_ZOMBIE:
                running.append(child)
    return running


def test_celery_counts_every_task_of_recycled_processes(system: System) -> None:
    """Ten processes end after 50 tasks each, most of them before a report is due: all outcomes are counted.

    The last two processes report on schedule.
    """
    system.environment["TALLYSTREAM_INTERVAL"] = "4"
    worker, send = commands("celery")
    process = start_worker(system, *worker)
    try:
        system.run(*send)
        wait_until(lambda: system.count("celery.duration") == 550, 120, "all runs are reported")
        wait_until(lambda: len(pool_of(process)) == 2, 60, "the last process is replaced")
        system.end(process)
    finally:
        kill_tree(process)
    assert system.counts("celery.tasks", "outcome") == {"success": 450, "failure": 50, "retry": 50}
    assert system.count("celery.duration") == 550
    assert system.count("orders.shipped") == 450
    assert system.lives() >= 12  # 550 runs are those of 11 processes, and the main process reports too


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


POOL, EXECUTOR = commands("process-pools")


@pytest.mark.parametrize("command", [POOL, [*POOL, "fork"], EXECUTOR], ids=["pool", "pool-fork", "executor"])
def test_pools_of_processes(system: System, command: list[str]) -> None:
    """Two thousand short tasks in children that end after 250, before a report is due: each task is counted."""
    system.environment["TALLYSTREAM_INTERVAL"] = "3600"
    system.run(*command)
    assert str(sum(number * number for number in range(2000))) in system.log.read_text()
    assert system.count("tasks.done") == 2000
    assert system.lives() >= 8
