"""The web servers and the Celery worker of the examples, as the guides start them."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import psutil

from support.examples import EXAMPLES, System
from support.guides import ROOT, commands
from support.processes import children, kill_tree, running
from support.wait import wait_until
from tallystream_cli.servers.process import free_port


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

    def replace_a_worker(self) -> None:
        """Kill the oldest process that serves, and return when another one runs."""
        workers = self.workers()
        killed = min(workers, key=lambda worker: worker.pid)
        killed.kill()
        wait_until(
            lambda: killed not in (now := self.workers()) and len(now) == len(workers), 60, "another worker runs"
        )

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
    return running(children(psutil.Process(worker.pid)))
