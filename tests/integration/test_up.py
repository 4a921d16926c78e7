"""`tallystream up` and `down`: components and the supervisor are killed, and no process remains."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource

from support.commands import command, run
from support.processes import named, tree
from support.wait import wait_until
from tallystream_cli.local import state_file

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]

FREE_PORTS = ("--broker-port", "0", "--page-port", "0")
LIMIT_S = 400.0


def system_record(data: Path) -> dict[str, Any]:
    """Return the record of the system, empty if it has none yet."""
    with suppress(FileNotFoundError):
        return dict(json.loads((data / "system.json").read_bytes()))
    return {}


def component(data: Path, name: str) -> dict[str, Any]:
    """Return a component's entry in the record, empty if it has none."""
    return next((one for one in system_record(data).get("components", []) if one["name"] == name), {})


def processes(data: Path) -> list[psutil.Process]:
    """Return the processes of the system: those with its folder as an argument, and what these have started."""
    found = {one.pid: one for one in state_file.remaining(data)}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if any(str(data) in word for word in process.cmdline()) and process.status() != psutil.STATUS_ZOMBIE:
                found[process.pid] = process
    return list(found.values())


def wait_for_lag(data: Path) -> None:
    """Wait until the aggregator has read the lag and written it to the store."""

    def is_ready() -> bool:
        with suppress(OSError), urllib.request.urlopen(system_record(data)["api_url"] + "/readyz", timeout=30):
            return True
        return False

    wait_until(is_ready, LIMIT_S, "the lag is read")


@contextmanager
def starting_system(data: Path, *, spark: bool) -> Iterator[subprocess.Popen[bytes]]:
    """Run `tallystream up` as a shell does, in its own process group; at the end no process of it may be left.

    Yields when the aggregator has a process, with Spark while its JVM starts.
    """
    with (data / "output").open("wb") as output:
        process = subprocess.Popen(
            command("up", "--data", str(data), *FREE_PORTS, spark=spark),
            stdout=output,
            stderr=output,
            start_new_session=True,
        )

    def is_starting() -> bool:
        assert process.poll() is None, (data / "output").read_text()
        pid = component(data, "aggregate").get("pid")
        if pid is None or system_record(data)["supervisor"] != process.pid:
            return False
        return not spark or bool(named(tree(pid), "java"))

    try:
        wait_until(is_starting, LIMIT_S, "the aggregator starts")
        yield process
        wait_until(lambda: not processes(data), 60, "no process of the system is left")
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(LIMIT_S)


def assert_nothing_is_wrong(data: Path) -> None:
    """`doctor` without options checks this system's broker, store and checkpoint; no check fails."""
    doctor = run("doctor", "--json", folder=data.parent)
    assert doctor.returncode == 0, doctor.stdout
    statuses = {one["check"]: one["status"] for one in json.loads(doctor.stdout)["findings"]}
    for check in ("broker", "topic metrics", "aggregator", "store", "checkpoint"):
        assert statuses[check] == "ok", doctor.stdout


def assert_topics_are_created_on_first_use(data: Path) -> None:
    """An application's topic is created when it is first written; a command that reads creates none.

    The topic of `--otlp-topic` is created for the aggregator.
    """
    servers = system_record(data)["bootstrap_servers"]
    options = {"bootstrap.servers": servers, "log_level": 0}
    producer, errors = Producer(options), list[str]()
    producer.produce("orders", b"one", on_delivery=lambda error, _: errors.append(str(error)))
    assert producer.flush(60) == 0
    assert errors == ["None"]
    resource = ConfigResource(ConfigResource.Type.TOPIC, "orders")
    admin = AdminClient(options)
    config = admin.describe_configs([resource])[resource].result(30)
    assert config["message.timestamp.type"].value == "LogAppendTime"  # `metrics` can be created in this way, too
    assert run("verify", "--bootstrap-servers", servers, "--topic-prefix", "typo-").returncode == 2
    topics = admin.list_topics(timeout=30).topics
    assert not [name for name in topics if name.startswith("typo-")]
    assert "otlp_metrics" in topics


def test_a_killed_component_is_started_again(tmp_path: Path) -> None:
    """With --detach every component starts. After kill -9 the aggregator restarts. `down` leaves no process.

    The aggregator collects the lag, before and after.
    """
    data = tmp_path / ".tallystream"
    up = run("up", "--detach", *FREE_PORTS, "--otlp-topic", "otlp_metrics", timeout=2 * LIMIT_S, folder=tmp_path)
    try:
        assert up.returncode == 0, up.stderr
        assert "page is up" in up.stderr
        with urllib.request.urlopen(system_record(data)["page_url"], timeout=30) as page:
            assert page.status == 200
        assert_topics_are_created_on_first_use(data)
        assert "metrics-agg has no sum" in run("verify", folder=tmp_path).stderr
        assert_nothing_is_wrong(data)
        again = run("up", "--data", str(data), *FREE_PORTS)
        assert again.returncode == 2
        assert again.stderr.startswith("--data: ")
        assert "stop it with tallystream down" in again.stderr
        assert len(again.stderr.splitlines()) == 1

        wait_for_lag(data)
        os.kill(component(data, "aggregate")["pid"], signal.SIGKILL)
        wait_until(lambda: component(data, "aggregate")["state"] != "up", 30, "the record has its death")
        wait_until(lambda: component(data, "aggregate")["state"] == "up", LIMIT_S, "the aggregator is up again")
        assert component(data, "aggregate")["restarts"] >= 1
        status = run("status", "--data", str(data))
        assert status.returncode == 0, status.stdout
        log = (data / "up.log").read_text()
        assert "aggregate died (code -9); it is restarted in 0.5 s" in log
        assert "aggregate is up again" in log
        wait_for_lag(data)
    finally:
        down = run("down", "--data", str(data), timeout=LIMIT_S)
    assert down.returncode == 0, down.stderr
    assert processes(data) == []


def test_a_killed_supervisor_and_ctrl_c_leave_no_process(tmp_path: Path) -> None:
    """SIGKILL of `up` also ends its components and their children. A new system starts in the folder.

    Ctrl-C while Spark's JVM starts, sent to the process group as by a terminal, gives exit code 0 and leaves no
    process either.
    """
    data = tmp_path / "data"
    data.mkdir()
    with starting_system(data, spark=False) as process:
        process.kill()
        process.wait()
    assert run("status", "--data", str(data)).returncode == 1
    with starting_system(data, spark=True) as process:
        assert system_record(data)["supervisor"] == process.pid
        admin = AdminClient({"bootstrap.servers": system_record(data)["bootstrap_servers"]})
        assert "metrics-agg" in admin.list_topics(timeout=30).topics
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(LIMIT_S) == 0
        assert (data / "output").read_text().count(" stopping\n") == 1
        assert "Traceback" not in (data / "output").read_text()
