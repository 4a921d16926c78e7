"""Services of compose.yaml as plain processes: the same commands, environment and health checks at other addresses."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support import images
from support.wait import wait_until
from tallystream_aggregator import java
from tallystream_cli.servers import jars
from tallystream_cli.servers.process import free_port, spawn, tail

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_LOOPBACK = {"://": "://127.0.0.1:", "kafka": "127.0.0.1:", "localhost": "127.0.0.1:"}
PORTS = ("9400", "9464", "8501")
DATA = "/var/lib/tallystream"


@dataclass
class ServiceRunner:
    """Runs services in `folder`. `replacements` maps addresses and paths, `pythons` maps images to interpreters."""

    folder: Path
    replacements: Mapping[str, str]
    pythons: Mapping[str, Path]

    @contextmanager
    def run(self, services: Mapping[str, Any], *names: str) -> Iterator[dict[str, Service]]:
        """Start services, and stop them with SIGTERM. A service with another exit code than 0 fails the test."""
        running: dict[str, Service] = {}
        try:
            for name in names:
                running[name] = Service(name, services[name], self)
            yield running
            for one in running.values():
                one.process.send_signal(signal.SIGTERM)
            for one in running.values():
                assert one.process.wait(one.max_wait_s) == 0, one.output()
        finally:
            for one in running.values():
                if one.process.poll() is None:
                    os.killpg(one.process.pid, signal.SIGKILL)
                    one.process.wait()


class Service:
    """One of our services. A container can't write to `home` and `work`, so they must stay empty."""

    def __init__(self, name: str, service: Mapping[str, Any], runner: ServiceRunner) -> None:
        self.name = name
        folder = runner.folder / name
        self.home, self.work, data = folder / "home", folder / "work", folder / "data"
        memory = folder / "tmp"
        for one in (self.home, self.work, data, memory):
            one.mkdir(parents=True)
        self.log = folder / "log"
        self.max_wait_s = _seconds(service["stop_grace_period"])
        ports = {port: str(free_port()) for port in PORTS}
        self._replacements = {**runner.replacements, "/tmp/": f"{memory}/", DATA: str(data), **ports}
        python = runner.pythons[images.image_of(dict(service)) or ""]
        programs = {"tallystream": [str(python.with_name("tallystream"))], "python": [str(python)], "test": ["test"]}
        first, *rest = (self._replace(word) for word in images.command(dict(service)))
        self._environment = self._clean_environment(images.environment(dict(service)))
        self.process = spawn(
            ["/usr/bin/env", "-C", str(self.work), *programs[first], *rest], self.log, self._environment
        )
        check = images.healthcheck(dict(service))
        self._check = [*programs[check[0]], *(self._replace(word) for word in check[1:])] if check else []

    def port(self, of: str) -> int:
        """Return the port that replaces a port of the container."""
        return int(self._replacements[of])

    def healthy(self) -> bool:
        """Run the health check as Docker does. The process must still run."""
        assert self.process.poll() is None, self.output()
        return subprocess.run(self._check, capture_output=True, check=False, timeout=60).returncode == 0

    def wait_healthy(self, timeout: float) -> None:
        """Wait until the health check passes."""
        wait_until(self.healthy, timeout, f"{self.name} is healthy", poll=0.5)

    def output(self) -> str:
        """Return the end of its log."""
        return f"{self.name}:\n{tail(self.log, 30)}"

    def _replace(self, text: str) -> str:
        return replace_addresses(text, self._replacements)

    def _clean_environment(self, given: Mapping[str, str]) -> dict[str, str | None]:
        """Return the container's environment with replaced paths, and without this process's variables."""
        bin_folder = Path(shutil.which(java.launcher()) or "").resolve().parent
        wanted = {name: self._replace(value) for name, value in given.items()}
        if "JAVA_HOME" in wanted:
            wanted |= {"JAVA_HOME": str(bin_folder.parent), "TALLYSTREAM_CACHE": str(jars.cache_dir())}
        wanted |= {"PATH": f"{bin_folder}:/usr/bin:/bin", "HOME": str(self.home)}
        return {**dict.fromkeys(os.environ), **wanted}


class Kafka:
    """The service `kafka` as its image starts it. Kafka's own code creates the configuration from the environment."""

    def __init__(self, service: Mapping[str, Any], folder: Path) -> None:
        self.ports = {port: free_port() for port in ("19092", "9092", "9093")}
        self._folder = folder
        environment = {name: self._translated(value) for name, value in service["environment"].items()}
        command = [java.launcher(), "-Xmx512m", "-cp", os.pathsep.join(map(str, jars.fetch("broker")))]
        config = folder / "config"
        for name in ("default", "mounted", "config"):
            (folder / name).mkdir(parents=True)
        self.log = folder / "log"
        # As the image's entry point does: Kafka writes server.properties, formats its data, and starts.
        folders = {"default": folder / "default", "mounted": folder / "mounted", "final": config}
        setup = [f"--{name}-configs-dir={path}" for name, path in folders.items()]
        done = subprocess.run(
            [*command, "kafka.docker.KafkaDockerWrapper", "setup", *setup],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        self.properties = (config / "server.properties").read_text(encoding="utf-8")
        self.process = spawn([*command, "kafka.Kafka", str(config / "server.properties")], self.log)

    def _translated(self, text: str) -> str:
        text = text.replace("/var/lib/kafka/data", str(self._folder / "data"))
        text = re.sub(r"(://|\bkafka|\blocalhost):(?=\d)", lambda match: _LOOPBACK[match[1]], text)
        return re.sub(r"(?<=:)\d+\b", lambda match: str(self.ports.get(match[0], match[0])), text)

    def stop(self) -> None:
        """Kill it, because its data is not needed."""
        self.process.kill()
        self.process.wait()


def replace_addresses(text: str, replacements: Mapping[str, str]) -> str:
    """Return `text` with all keys of `replacements` replaced, each once.

    A port is replaced only if no letter or digit is beside it: a random secret can contain the digits of a port.
    """
    patterns = (rf"\b{old}\b" if old.isdigit() else re.escape(old) for old in replacements)
    return re.sub("|".join(patterns), lambda match: replacements[match[0]], text)


def own_python() -> Path:
    """Return this environment's interpreter, which has all packages of Spark's image."""
    return Path(sys.executable)


def _seconds(duration: str) -> float:
    minutes, _, seconds = duration.rstrip("s").rpartition("m")
    return 60.0 * int(minutes or 0) + float(seconds or 0)
