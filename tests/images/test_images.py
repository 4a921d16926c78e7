"""The built images, and the services of compose.yaml in them: `make images`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support import images
from support.health import ask
from support.wait import wait_until
from tallystream_aggregator.sinks.stores import StoreSettings, open_store
from tallystream_cli.servers.process import free_port

ENGINE = os.environ.get("TALLYSTREAM_ENGINE", "")
"""The program of the engine, as scripts/images sets it; empty without an engine."""

VERSION = tomllib.loads((images.COMPOSE / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
PORTS = ("KAFKA", "INFLUXDB", "PAGE", "GRAFANA", "PROMETHEUS", "AGGREGATOR", "SHIPPER", "LAG")


def engine(*arguments: str, timeout: float = 120) -> str:
    """Run a command of the engine and return its output.

    Raises:
        AssertionError: it failed; the message is its error output.
    """
    return _output([ENGINE, *arguments], timeout)


def inside(image: str, code: str) -> Any:
    """Run Python code in a container of one of our images, and return the JSON that it prints."""
    return json.loads(engine("run", "--rm", "--read-only", "--entrypoint", "python", f"{image}:{VERSION}", "-c", code))


@dataclass
class Project:
    """A project of Compose, with its secrets and ports in `env_file`."""

    name: str
    env_file: Path

    def compose(self, *arguments: str, timeout: float = 600) -> str:
        """Run `docker compose` and return its output."""
        files = ["--env-file", str(self.env_file), "--project-name", self.name, "--file", str(images.FILE)]
        return _output([str(images.tool("docker-compose")), *files, "--profile", "*", *arguments], timeout)

    def container(self, service: str) -> dict[str, Any]:
        """Return what the engine says about the container of a service."""
        (found,) = json.loads(engine("container", "inspect", f"{self.name}-{service}-1"))
        return dict(found)

    def variables(self) -> dict[str, str]:
        """Return the secrets and ports."""
        return images.variables(self.env_file)


@contextmanager
def project(folder: Path) -> Iterator[Project]:
    """Yield a project with new secrets and free ports. At the end its containers and volumes are removed."""
    images.init_env(folder)
    with (folder / ".env").open("a", encoding="utf-8") as file:
        file.writelines(f"{name}_PORT={free_port()}\n" for name in PORTS)
    found = Project(f"tallystream-test-{os.getpid()}", folder / ".env")
    ended = threading.Event()
    checks = threading.Thread(target=_run_health_checks, args=(found.name, ended), daemon=True)
    if ENGINE == "podman":
        checks.start()
    try:
        yield found
    except BaseException:
        sys.stderr.write(found.compose("logs", "--tail", "30"))
        raise
    finally:
        ended.set()
        if checks.is_alive():
            checks.join()
        found.compose("down", "--volumes", "--timeout", "90")


def _run_health_checks(project: str, ended: threading.Event) -> None:
    # Podman leaves this to systemd, which a test machine may not have. 10 s is the interval of all checks.
    while not ended.wait(10):
        listed = subprocess.run(
            [ENGINE, "ps", "--quiet", "--filter", f"name={project}-"], capture_output=True, text=True, check=False
        )
        for container in listed.stdout.split():
            subprocess.run([ENGINE, "healthcheck", "run", container], capture_output=True, check=False, timeout=60)


def _output(command: list[str], timeout: float) -> str:
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout)
    assert done.returncode == 0, f"{command} failed after {time.monotonic() - began:.0f} s: {done.stderr[-4000:]}"
    return done.stdout


pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not ENGINE, reason="no container engine: run `make images`"),
]
OURS = ("aggregator", "shipper", "lag", "page", "sums", "demo-generator", "demo-app-1", "demo-app-2")
CONTENTS = """
import importlib.metadata, json, pathlib, shutil, sys
names = [one.metadata["Name"] for one in importlib.metadata.distributions()]
tools = [one for one in ("pip", "gcc", "cc", "java", "javac", "curl", "git") if shutil.which(one)]
jars = [path.name for path in pathlib.Path(sys.prefix).rglob("*.jar")]
print(json.dumps({"packages": names, "tools": tools, "jars": jars}))
"""


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """The services of compose.yaml, started by its documented command, with the demonstration."""
    with project(tmp_path_factory.mktemp("compose")) as found:
        found.compose("up", "--no-build", "--detach", "--wait", *OURS)
        yield found


def store(system: Project) -> StoreSettings:
    """Return the InfluxDB of the project, with the administrator's token."""
    secrets = system.variables()
    where = f"http://127.0.0.1:{secrets['INFLUXDB_PORT']}"
    return StoreSettings("influxdb", where, org="tallystream", bucket="tallystream", token=secrets["INFLUXDB_TOKEN"])


def test_the_spark_image_has_only_what_its_commands_use() -> None:
    """It has no page, build tools, Hive, machine learning or shell. Each native library is for one system."""
    found = inside("tallystream-spark", CONTENTS)
    assert {"pyspark", "pandas", "pyarrow", "tallystream-cli"} <= set(found["packages"])
    assert not {"streamlit", "altair", "pillow", "hatchling", "setuptools", "pip"} & set(found["packages"])
    assert found["tools"] == ["java"]
    unused = ("hive-exec", "spark-mllib", "spark-connect", "spark-repl", "scala-compiler", "derby", "zookeeper")
    assert [jar for jar in found["jars"] if jar.startswith(unused) or "osx" in jar or "windows" in jar] == []
    assert any(jar.startswith("spark-kubernetes") for jar in found["jars"])


def test_the_page_image_has_no_java_and_no_spark() -> None:
    """It has Streamlit, and neither PySpark nor build tools."""
    found = inside("tallystream-page", CONTENTS)
    assert "streamlit" in found["packages"]
    assert not {"pyspark", "hatchling", "setuptools", "pip"} & set(found["packages"])
    assert (found["tools"], found["jars"]) == ([], [])


def test_every_service_becomes_healthy(system: Project) -> None:
    """`up --wait` ends when all health checks pass. The page answers on its port."""
    states = {name: system.container(name)["State"] for name in ("kafka", "influxdb", *OURS)}
    assert {name for name, state in states.items() if state["Status"] != "running"} == set()
    checked = {name: found for name, state in states.items() if (found := health(state))}
    assert {"kafka", "influxdb", "aggregator", "shipper", "lag", "page", "sums", "demo-generator"} <= set(checked)
    assert set(checked.values()) == {"healthy"}
    status, _ = ask(f"http://127.0.0.1:{system.variables()['PAGE_PORT']}/")
    assert status == 200


@pytest.mark.parametrize("name", OURS)
def test_a_service_is_confined(system: Project, name: str) -> None:
    """It runs as user 10001 without capabilities, gains no privileges, and can write only to volumes and /tmp."""
    status = system.compose("exec", "-T", name, "cat", "/proc/1/status", "/proc/self/status")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert fields["Uid"].split() == fields["Gid"].split() == ["10001"] * 4
    assert int(fields["CapBnd"], 16) == int(fields["CapEff"], 16) == 0
    assert fields["NoNewPrivs"] == "1"
    probe = "import pathlib; [pathlib.Path(one, 'probe').touch() for one in ('/opt/tallystream', '/etc', '/usr')]"
    with pytest.raises(AssertionError, match="Read-only file system"):
        system.compose("exec", "-T", name, "python", "-c", probe)
    limits = system.container(name)["HostConfig"]
    assert limits["ReadonlyRootfs"]
    assert limits["Memory"] > 0


def test_flights_reach_the_store_and_all_sums_agree(system: Project) -> None:
    """Sums and lag are in InfluxDB with the tokens of least privilege, Prometheus can scrape a sum, verify agrees.

    After a kill of the aggregator the sums still agree.
    """
    reader = open_store(store(system))
    wanted = {"flights.processed", "instance:flights.processed", "tallystream.lag.groups"}
    wait_until(lambda: wanted <= set(reader.measurements()), 300, "sums and lag are in the store")
    reader.close()
    scrape = "from urllib.request import urlopen; print(urlopen('http://127.0.0.1:9464/metrics').read().decode())"
    wait_until(
        lambda: "\nflights_processed_total{" in system.compose("exec", "-T", "sums", "python", "-c", scrape),
        300,
        "Prometheus can scrape the sum",
    )
    before = verified(system)
    engine("kill", "--signal", "KILL", f"{system.name}-aggregator-1")
    system.compose("up", "--no-build", "--no-recreate", "--detach", "--wait", "aggregator")
    wait_until(lambda: verified(system) > before, 300, "sums after the kill agree")


def test_a_stop_is_clean(system: Project) -> None:
    """Each service ends with exit code 0 within the time that Compose gives it."""
    system.compose("stop", *OURS)
    assert {name: system.container(name)["State"]["ExitCode"] for name in OURS} == dict.fromkeys(OURS, 0)


def verified(system: Project) -> int:
    """Return the number of records that `verify` has compared; all sums agree."""
    verify = ("tallystream", "verify", "--json")
    return int(json.loads(system.compose("exec", "-T", "lag", *verify, timeout=300))["records"])


def health(state: dict[str, Any]) -> str:
    """Return the state of a container's health check, or an empty text if it has none."""
    found = state.get("Health") or state.get("Healthcheck") or {}
    return str(found.get("Status") or "")
