"""The local system for real: up, what happens when parts of it are killed, and that nothing is left of it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import urllib.request
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from support.kafka import command, run
from support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]

FREE_PORTS = ("--broker-port", "0", "--page-port", "0")
LIMIT_S = 400.0


def known(data: Path) -> dict[str, Any]:
    """Return the record of the system, empty before there is one."""
    with suppress(FileNotFoundError):
        return dict(json.loads((data / "system.json").read_bytes()))
    return {}


def component(data: Path, name: str) -> dict[str, Any]:
    """Return what the record says of a component."""
    return next((one for one in known(data).get("components", []) if one["name"] == name), {})


def processes(data: Path) -> list[psutil.Process]:
    """Return every process of the sessions that this system's components lead, and all that name its folder."""
    sessions = {one["process"]["pid"] for one in known(data).get("components", []) if "process" in one}
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            mine = os.getsid(process.pid) in sessions or any(str(data) in word for word in process.cmdline())
            if mine and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


@contextmanager
def starting(data: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run `tallystream up` as a shell would, in a process group of its own; at the end nothing of it may be left."""
    data.mkdir()
    with (data / "said").open("wb") as said:
        process = subprocess.Popen(
            command("up", "--data", str(data), *FREE_PORTS), stdout=said, stderr=said, start_new_session=True
        )
    try:
        yield process
        wait_until(lambda: not processes(data), 60, "nothing of the system is left")
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(LIMIT_S)


def used_by_commands_of_its_folder(data: Path) -> None:
    """`lag` and `verify`, told nothing, read this system's store and broker and say which."""
    lag = run("lag", "--json", folder=data.parent)
    assert lag.stderr.startswith(f"store local:{data / 'store.db'}, of the local system in {data}\n")
    # The aggregator has summed nothing yet: the sentence is of this broker's topic.
    verify = run("verify", folder=data.parent)
    assert f"broker {known(data)['bootstrap_servers']}, of the local system in {data}" in verify.stderr
    assert "metrics-agg has no sum of that period" in verify.stderr


def creates_topics_on_first_use(data: Path) -> None:
    """An application's topic is there when it is first written; a command that reads creates none."""
    servers = known(data)["bootstrap_servers"]
    options = {"bootstrap.servers": servers, "log_level": 0}
    producer, errors = Producer(options), list[str]()
    producer.produce("orders", b"one", on_delivery=lambda error, _: errors.append(str(error)))
    assert producer.flush(60) == 0
    assert errors == ["None"]
    assert run("verify", "--bootstrap-servers", servers, "--topic-prefix", "typo-").returncode == 2
    topics = AdminClient(options).list_topics(timeout=30).topics
    assert not [name for name in topics if name.startswith("typo-")]


def test_a_killed_component_is_started_again_and_said(tmp_path: Path) -> None:
    """Detached, the system is up with every component; kill -9 of the aggregator: again up; down leaves nothing."""
    data = tmp_path / ".tallystream"
    up = run("up", "--detach", *FREE_PORTS, timeout=2 * LIMIT_S, folder=tmp_path)
    try:
        assert up.returncode == 0, up.stderr
        assert "page is up" in up.stderr
        assert run("status", "--data", str(data)).returncode == 0
        with urllib.request.urlopen(known(data)["page_url"], timeout=30) as page:
            assert page.status == 200
        creates_topics_on_first_use(data)
        used_by_commands_of_its_folder(data)
        again = run("up", "--data", str(data), *FREE_PORTS)
        assert again.returncode == 2
        assert again.stderr.startswith("--data: ")
        assert "stop it with tallystream down" in again.stderr
        assert len(again.stderr.splitlines()) == 1

        os.kill(component(data, "aggregate")["process"]["pid"], signal.SIGKILL)
        wait_until(lambda: component(data, "aggregate")["state"] != "up", 30, "the record says that it died")
        assert run("status", "--data", str(data)).returncode == 1
        wait_until(lambda: component(data, "aggregate")["state"] == "up", LIMIT_S, "the aggregator is up again")
        assert component(data, "aggregate")["restarts"] >= 1
        said = run("status", "--data", str(data))
        assert said.returncode == 0, said.stdout
        log = (data / "up.log").read_text()
        assert "aggregate died (code -9); it is restarted in 0.5 s" in log
        assert "aggregate is up again" in log
    finally:
        down = run("down", "--data", str(data), timeout=LIMIT_S)
    assert down.returncode == 0, down.stderr
    assert processes(data) == []
    assert run("status", "--data", str(data)).returncode == 1
    assert run("down", "--data", str(data)).stdout.startswith("down: no system runs")


def test_ctrl_c_while_starting_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C, sent to the whole process group as a terminal does, in the middle of the start: exit 0, nothing left."""
    data = tmp_path / "data"
    with starting(data) as process:
        wait_until(lambda: component(data, "aggregate").get("process"), LIMIT_S, "the aggregator has been started")
        wait_until(lambda: len(processes(data)) > 3, LIMIT_S, "what it starts itself is there, too")
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(LIMIT_S) == 0
        assert (data / "said").read_text().count(" stopping\n") == 1
        assert "Traceback" not in (data / "said").read_text()


def test_a_killed_supervisor_takes_everything_with_it(tmp_path: Path) -> None:
    """SIGKILL of `up` itself ends its components and their children too; the folder can be used again, to SIGTERM."""
    data = tmp_path / "data"
    with starting(data) as process:
        wait_until(lambda: component(data, "page").get("state") == "up", LIMIT_S, "the page is up")
        process.kill()
        process.wait()
    (data / "said").unlink()
    assert run("status", "--data", str(data)).returncode == 1
    process = subprocess.Popen(command("up", "--data", str(data), *FREE_PORTS), stderr=subprocess.PIPE)
    try:
        wait_until(lambda: known(data)["supervisor"]["pid"] == process.pid, LIMIT_S, "the folder is in use again")
        wait_until(lambda: component(data, "broker").get("state") == "up", LIMIT_S, "the broker has its data again")
        admin = AdminClient({"bootstrap.servers": known(data)["bootstrap_servers"]})
        assert "metrics-agg" in admin.list_topics(timeout=30).topics
    finally:
        process.terminate()
        _, said = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, said
    assert processes(data) == []


@pytest.mark.parametrize("option", ["--broker-port", "--page-port"])
def test_a_taken_port_is_one_sentence(tmp_path: Path, option: str) -> None:
    """A port that something listens on: exit code 2, the option and the port in one sentence, nothing was started."""
    other = {"--broker-port": "--page-port", "--page-port": "--broker-port"}[option]
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done = run("up", "--data", str(tmp_path / "data"), option, str(port), other, "0")
    assert done.returncode == 2
    assert f"{option}: {port} can't be used; it can't be opened" in done.stderr
    assert processes(tmp_path / "data") == []
