"""A container engine, Docker or Podman, and a project of `docker compose` on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import tomllib
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from support import images
from tallystream_cli.servers.process import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
