"""A real OpenTelemetry Collector on loopback, and its destination. `python -m support.collector` builds it.

The Collector's own builder builds it once from its Go modules, into the user's cache. It has no queue and no retries:
its response to a request is that of its destination, which runs in the process of the test.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any, Self

import yaml

from support import built
from support.built import Program
from support.http_stub import HttpStub, Request, Response
from tallystream.errors import TallystreamError
from tallystream_aggregator.sinks.base import SinkUnavailableError
from tallystream_aggregator.sinks.otlp.sink import OtlpSink
from tallystream_cli.servers.jars import cache_dir
from tallystream_cli.servers.process import Server, free_port

VERSION = "0.155.0"
CORE = "go.opentelemetry.io/collector"
CONTRIB = "github.com/open-telemetry/opentelemetry-collector-contrib"
BUILDER = f"""
dist: {{name: otelcol, description: For the tests of Tallystream, output_path: out}}
receivers: [{{gomod: {CORE}/receiver/otlpreceiver v{VERSION}}}]
processors: [{{gomod: {CORE}/processor/batchprocessor v{VERSION}}}]
exporters:
  - gomod: {CORE}/exporter/debugexporter v{VERSION}
  - gomod: {CORE}/exporter/otlphttpexporter v{VERSION}
  - gomod: {CONTRIB}/exporter/kafkaexporter v{VERSION}
"""

_CONFIG = """
receivers:
  otlp: {{protocols: {{http: {{endpoint: "127.0.0.1:{port}"}}}}}}
exporters:
  otlp_http:
    endpoint: {destination}
    encoding: json
    compression: none
    sending_queue: {{enabled: false}}
    retry_on_failure: {{enabled: false}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines: {{metrics: {{receivers: [otlp], exporters: [otlp_http]}}}}
"""


def cached_path() -> Path:
    """Return the path of the binary in the cache, whether or not it exists. The path depends on the components."""
    digest = hashlib.sha256(BUILDER.encode()).hexdigest()[:8]
    return cache_dir() / "otelcol" / f"otelcol-{VERSION}-{digest}"


def find_or_build() -> Path:
    """Return the Collector from the cache, or build it. See `built.find_or_build`."""
    return built.find_or_build(Program("OpenTelemetry Collector", cached_path(), (("go",),), _build))


def _build(work: Path) -> Path:
    (work / "builder.yaml").write_text(BUILDER, encoding="utf-8")
    env = {**os.environ, "GOBIN": str(work), "GOWORK": "off", "CGO_ENABLED": "0"}
    for command in (
        ["go", "install", f"{CORE}/cmd/builder@v{VERSION}"],
        [str(work / "builder"), "--config=builder.yaml"],
    ):
        built.compile_with(command, work, env)
    return work / "out" / "otelcol"


class Destination(HttpStub):
    """The destination of the Collector. It keeps each request, as JSON."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.received: list[dict[str, Any]] = []

    def _answer(self, request: Request) -> Response:
        self.received.append(json.loads(request.body))
        return Response(200, b"{}", "application/json")


def documented_config(bootstrap_servers: str, topic: str) -> dict[str, Any]:
    """Return the configuration in docs/otlp.md, with this broker and this topic."""
    text = (Path(__file__).parents[2] / "docs" / "otlp.md").read_text(encoding="utf-8")
    config: dict[str, Any] = yaml.safe_load(text.split("```yaml\n")[1].split("```")[0])
    config["exporters"]["kafka"]["brokers"] = [bootstrap_servers]
    config["exporters"]["kafka"]["metrics"]["topic"] = topic
    return config


class Collector(Server):
    """One Collector. A restart keeps its port.

    `config` replaces its configuration, except the addresses on which it listens. It then has no `destination`.
    """

    def __init__(self, folder: Path, binary: Path, *, config: dict[str, Any] | None = None) -> None:
        super().__init__("otelcol", folder / "otelcol.log")
        self._folder, self._binary, self._config = folder, binary, config
        self._port = free_port()
        self.destination = Destination()

    @property
    def url(self) -> str:
        """The URL for --store otlp:URL."""
        return f"http://127.0.0.1:{self._port}"

    def begin(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        config = self._folder / "otelcol.yaml"
        config.write_text(self._config_text(), encoding="utf-8")
        self._spawn([str(self._binary), f"--config={config}"])

    def _config_text(self) -> str:
        if self._config is not None:
            http = {"endpoint": f"127.0.0.1:{self._port}"}
            receivers = {"otlp": {"protocols": {"http": http}}}
            service = {**self._config["service"], "telemetry": {"metrics": {"level": "none"}}}
            return json.dumps({**self._config, "receivers": receivers, "service": service})
        return _CONFIG.format(port=self._port, destination=self.destination.url)

    def ready(self) -> bool:
        sink = OtlpSink(self.url)
        try:
            sink.setup()
        except SinkUnavailableError:
            return False
        finally:
            sink.close()
        return True

    def __enter__(self) -> Self:
        self.destination.start()
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.destination.stop()


if __name__ == "__main__":
    try:
        find_or_build()
    except TallystreamError as error:
        sys.exit(str(error))
