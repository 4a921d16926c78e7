"""Applications with OpenTelemetry's SDKs as processes: otlp_application.py, and OtlpApplication.java."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tallystream_aggregator import java
from tallystream_cli.servers import jars
from tallystream_cli.servers.process import Server

FOLDER = Path(__file__).parent


class Application(Server):
    """An application that exports to `url` every 200 ms. `instance` is its service.instance.id."""

    def __init__(
        self, folder: Path, instance: str, url: str, command: Sequence[str], env: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(instance, folder / f"{instance}.log")
        self.instance, self._command = instance, command
        self._env = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": url,
            "OTEL_EXPORTER_OTLP_TIMEOUT": "2",
            "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "cumulative",
            "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION": "base2_exponential_bucket_histogram",
            "OTEL_METRIC_EXPORT_INTERVAL": "200",
            "OTEL_SERVICE_NAME": "orders",
            "OTEL_RESOURCE_ATTRIBUTES": f"service.instance.id={instance}",
            **(env or {}),
        }

    def begin(self) -> None:
        self._spawn(self._command, self._env)

    def ready(self) -> bool:
        """Return True: nothing tells more than that it runs."""
        return True


def python_application(folder: Path, instance: str, url: str) -> Application:
    """Return an application with the SDK for Python."""
    return Application(folder, instance, url, [sys.executable, str(FOLDER / "otlp_application.py")])


def java_application(folder: Path, instance: str, url: str, classes: Path) -> Application:
    """Return an application with the SDK for Java, from what `compile_java` returned."""
    command = [java.launcher(), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", _class_path(classes), "OtlpApplication"]
    env = {
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "2000",  # milliseconds here, seconds in Python
        "OTEL_LOGS_EXPORTER": "none",
        "OTEL_TRACES_EXPORTER": "none",
    }
    return Application(folder, instance, url, command, env)


def find_javac() -> str | None:
    """Return the compiler next to the `java` that starts Spark, or else the one on the PATH."""
    return shutil.which(java.launcher() + "c") or shutil.which("javac")


def compile_java(folder: Path) -> Path:
    """Compile OtlpApplication.java into `folder`, and return it. Missing jars are downloaded."""
    source = str(FOLDER / "OtlpApplication.java")
    command = [find_javac() or "javac", "--release", "17", "-Xlint:all", "-Werror", "-cp", _class_path()]
    done = subprocess.run(
        [*command, "-d", str(folder), source], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return folder


def _class_path(*more: Path) -> str:
    return ":".join(map(str, [*more, *jars.fetch("opentelemetry")]))
