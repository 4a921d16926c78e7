"""What a new user tries in the first hour, on one local system: every number that is shown agrees with a journal.

`make tour` plays all scenes, with Spark. `make test` plays those that are marked with `integration`, without Spark.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from support.commands import run, shown
from support.example_servers import WebServer, pool_of, start_worker
from support.examples import System
from support.guides import ROOT, blocks, commands
from support.journalled import COUNTED, WINDOWS
from support.kafka import read_topic
from support.processes import kill_tree
from support.spark_flights import Flights
from support.wait import wait_until

pytestmark = pytest.mark.timeout(1800)

SPARK = bool(os.environ.get("TALLYSTREAM_TOUR"))
JOURNALLED = ROOT / "tests" / "support" / "journalled.py"


class Tour(System):
    """A system of `tallystream up`, the programs that report to it, and what its commands show."""

    def __init__(self, servers: str, folder: Path) -> None:
        self.admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        super().__init__(servers, "", self.admin, folder)

    def journal(self, name: str) -> list[list[str]]:
        """Return the words of each line of a journal; no line if there is none yet."""
        path = self.folder / name
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def shown(self, *words: str) -> list[dict[str, Any]]:
        """Return the objects that a command prints."""
        return shown(self.folder, *words)

    def sum(self, app: str, name: str) -> int:
        """Return the sum of an app over all tags."""
        return sum(one["value"] for one in self.shown("sums", name, "--app", app))

    def wait_for(self, app: str, name: str, number: int) -> None:
        """Wait until a sum is this number."""
        wait_until(lambda: self.sum(app, name) >= number, 120, f"{name} is {number}")
        assert self.sum(app, name) == number

    def states(self, app: str) -> dict[str, str]:
        return {one["instance"]: one["state"] for one in self.shown("instances", app)}

    def problems(self, app: str) -> list[str]:
        """Return what is not well with an app."""
        (state,) = self.shown("top", "--once")
        return [text for text in state["problems"] if f"app {app} " in text]

    def assert_ended(self, app: str) -> None:
        """Check that all instances of an app have ended, and that this is no problem."""
        wait_until(lambda: set(self.states(app).values()) == {"ended"}, 60, f"{app} has ended")
        assert not self.problems(app)

    def compared(self, number: int, *words: str, **more: int) -> dict[str, dict[str, int]]:
        """Return the bounds of each number once so many records are sent, none is in flight, and `more` is exact.

        Until then it is of a moment before, or nothing has a sum.
        """
        wanted = {name: exactly(value) for name, value in {"sent": number, "in_flight": 0, **more}.items()}
        found: dict[str, Any] = {}

        def is_processed() -> bool:
            found.update(*self.shown("compare", *words))
            return found.items() >= wanted.items()

        wait_until(is_processed, 120, "all is processed")
        return found

    def assert_counted(self, number: int, counter: str) -> None:
        """Check what `compare` says of a counter without positions: so many counts, and bounds that contain the rest.

        All of it was sent, and nothing is lost, in flight, or twice.
        """

        def is_known() -> bool:
            return any(one["counted"] == exactly(number) for one in self.shown("compare", counter))

        wait_until(is_known, 120, f"{counter} is {number}")
        (found,) = self.shown("compare", counter)
        truth = {"sent": number, "lost": 0, "in_flight": 0, "twice": 0, "processed_twice": 0}
        assert all(contains(found[name], true) for name, true in truth.items()), found


@pytest.fixture(scope="module")
def tour(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tour]:
    """A local system with a store on disk."""
    folder = tmp_path_factory.mktemp("tour")
    up = run("up", "--detach", "--broker-port", "0", "--page-port", "0", folder=folder, timeout=800, spark=SPARK)
    try:
        assert up.returncode == 0, up.stderr
        servers = json.loads((folder / ".tallystream" / "system.json").read_bytes())["bootstrap_servers"]
        yield Tour(servers, folder)
    finally:
        down = run("down", folder=folder, timeout=400)
    assert down.returncode == 0, down.stderr


def exactly(number: int) -> dict[str, int]:
    return {"at_least": number, "at_most": number}


def contains(bounds: dict[str, Any], number: int) -> bool:
    return bounds["at_least"] <= number and (bounds["at_most"] is None or number <= bounds["at_most"])


@pytest.mark.integration
def test_first_steps(tour: Tour) -> None:
    """The printed program, run three times, twice at once, counts three times a thousand orders, and has ended."""
    (program,) = blocks("../first-steps", "python")
    (tour.folder / "orders.py").write_text(program)
    both = [tour.start("python", tour.folder / "orders.py") for _ in range(2)]
    tour.run("python", tour.folder / "orders.py")
    assert [one.wait(60) for one in both] == [0, 0]
    (found,) = tour.shown("sums", "orders.*", "--wait", "60")
    assert (found["app"], found["name"], found["type"]) == ("shop", "orders.placed", "counter")
    tour.wait_for("shop", "orders.placed", 3000)
    tour.assert_counted(3000, "shop/orders.placed")
    tour.assert_ended("shop")


@pytest.mark.integration
def test_pools_of_processes(tour: Tour, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of two thousand short tasks is counted, in children that end after 250, before a report is due."""
    monkeypatch.setitem(tour.environment, "TALLYSTREAM_INTERVAL", "3600")
    pool, executor = commands("process-pools")
    runs = (pool, [*pool, "fork"], executor)
    for command in runs:
        tour.run(*command)
    assert tour.log.read_text().count(str(sum(number * number for number in range(2000)))) == len(runs)
    tour.wait_for("squares", "tasks.done", 2000 * len(runs))
    tour.assert_counted(2000 * len(runs), "squares/tasks.done")
    (instance,) = tour.shown("instances", "squares")
    assert instance["lives"] >= 8 * len(runs)
    tour.assert_ended("squares")


@pytest.mark.integration
def test_pyformance(tour: Tour) -> None:
    """The printed program over pyformance's API is summed."""
    tour.run("python", "-c", "\n".join(blocks("../pyformance", "python")))
    tour.wait_for("orders", "records", 1)
    tour.assert_counted(1, "orders/records")
    tour.assert_ended("orders")


@pytest.mark.integration
def test_celery(tour: Tour, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten processes end after 50 tasks each, most of them before a report is due: all outcomes are counted.

    The last two processes report on schedule.
    """
    monkeypatch.setattr(tour, "environment", {**tour.environment, "TALLYSTREAM_INTERVAL": "4"})
    worker, send = commands("celery")
    process = start_worker(tour, *worker)
    try:
        tour.run(*send)
        tour.wait_for("shop", "celery.duration", 550)
        wait_until(lambda: len(pool_of(process)) == 2, 60, "the last process is replaced")
        tour.end(process)
    finally:
        kill_tree(process)
    outcomes = {one["tags"]["outcome"]: one["value"] for one in tour.shown("sums", "celery.tasks", "--app", "shop")}
    assert outcomes == {"success": 450, "failure": 50, "retry": 50}
    assert (tour.sum("shop", "orders.shipped"), tour.sum("shop", "celery.duration")) == (450, 550)
    tour.assert_counted(550, "shop/celery.tasks")
    tour.assert_ended("shop")


@pytest.mark.integration
def test_everything_is_well(tour: Tour) -> None:
    """So far all programs have ended by themselves: nothing is wrong."""
    (state,) = tour.shown("top", "--once")
    assert state["well"], state["problems"]


@pytest.mark.integration
def test_fastapi(tour: Tour, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every answered order is counted once, though a worker is killed and replaced. The server that ends has ended."""
    monkeypatch.setattr(tour, "environment", dict(tour.environment))
    before, answered = tour.sum("shop", "orders.placed"), 3 + sum(range(200))
    server = WebServer(tour, "uvicorn")
    try:
        server.order_all(range(100))
        tour.wait_for("shop", "http.server.requests", 102)
        server.replace_a_worker()
        server.order_all(range(100, 200))
        tour.end(server.process)
    finally:
        server.kill()
    tour.wait_for("shop", "orders.placed", before + answered)
    tour.assert_counted(before + answered, "shop/orders.placed")
    assert tour.sum("shop", "http.server.requests") == tour.sum("shop", "http.server.duration") == 202


@pytest.mark.tour
def test_spark_monitor(tour: Tour) -> None:
    """A job of Spark is killed while it works, and ends after all is read: the numbers of `compare` are true."""
    (tour.folder / "job").mkdir()
    flights = Flights(tour.servers, tour.admin, "spark-", tour.folder / "job")
    flights.environment["TALLYSTREAM_TOPIC_PREFIX"] = ""
    send = (sys.executable, JOURNALLED, "send", tour.folder / "scored", tour.servers, flights.input, "scoring.sent")
    job = flights.job()
    try:
        tour.run(*send, "3000")
        job.start()
        wait_until(lambda: job.ended or sum(flights.committed()) == 3000, 300, "all records are committed")
        for _ in range(3):
            tour.run(*send, "1000")
        job.kill()
        job = flights.job(ends=True)
        job.start()
        assert job.wait(300) == 0, job.log.read_text()
    finally:
        job.kill()
    found = tour.compared(6000, "scoring.sent", "spark.records", "--tag", "query=scores", "--group", flights.group)
    twice = len(read_topic(tour.servers, flights.input + "-scored")) - 6000
    assert found["lost"] == exactly(0)
    assert contains(found["processed_twice"], twice)
    wait_until(lambda: set(tour.states("scoring").values()) == {"ended"}, 60, "the job has ended")


@pytest.mark.integration
def test_kills_of_a_consumer(tour: Tour) -> None:
    """One of two instances is killed in each window of a batch: all numbers of `compare` are true.

    Nothing is lost, what was counted twice is exact, and the bound of what was processed twice contains the truth.
    An instance that is killed and does not come back is silent, and a problem. One that was stopped has ended.
    """

    def consumer(instance: str, *window: str) -> subprocess.Popen[bytes]:
        words = ("consume", tour.folder / "worked", tour.servers, tour.input, instance, *window)
        return tour.start("python", JOURNALLED, *words)

    def held() -> dict[str, int]:
        return {words[1]: int(words[2]) for words in tour.journal("worked") if words[0] == "holds"}

    def is_held(window: str) -> bool:
        """Send more records unless an instance waits in this window."""
        if window in held():
            return True
        tour.run("python", JOURNALLED, "send", tour.folder / "sent", tour.servers, tour.input, "flights.sent", "300")
        return False

    first = consumer("flights-1")
    for window in WINDOWS:
        second = consumer("flights-2", window)
        wait_until(lambda: is_held(window), 120, f"flights-2 waits {window}")  # noqa: B023
        second.kill()
        second.wait()
    second = consumer("flights-2")
    sent = {tuple(words[1:]) for words in tour.journal("sent")}
    wait_until(lambda: sum(tour.committed()) == len(sent), 120, "all is committed")
    tour.end(second)
    worked = [tuple(words[1:]) for words in tour.journal("worked") if words[0] == "worked"]
    assert set(worked) == sent
    counted_twice = held()[COUNTED]
    words = ("flights.sent", "flights.processed", "--group", tour.group)
    found = tour.compared(len(sent), *words, counted=len(sent) + counted_twice)
    assert found["lost"] == exactly(0)
    assert found["twice"] == exactly(counted_twice)
    assert contains(found["processed_twice"], len(worked) - len(sent))
    assert found["processed_twice"]["at_most"] is not None

    first.send_signal(signal.SIGKILL)
    first.wait()
    states = {"flights-1": "silent", "flights-2": "ended"}
    wait_until(lambda: tour.states("flights") == states, 120, "the killed instance is silent")
    assert any("fell silent" in problem for problem in tour.problems("flights"))
    tour.assert_ended("senders")


@pytest.mark.integration
def test_all_sums_agree_with_the_records(tour: Tour) -> None:
    """`verify` finds no difference."""
    verify = run("verify", folder=tour.folder)
    assert verify.returncode == 0, verify.stdout + verify.stderr
