"""A bench for each reporter: it creates the reporter, breaks its destination, and reads the destination."""

from __future__ import annotations

import io
import json
import logging
import re
import socketserver
import threading
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from support.http_stub import HttpStub, Request, Response
from tallystream import (
    ConsoleReporter,
    GraphiteReporter,
    InfluxReporter,
    JsonLinesReporter,
    LoggingReporter,
    MetricRegistry,
)
from tallystream.reporters.scheduled import ScheduledReporter


class Bench(ABC):
    """Access to a reporter under test and to its destination, which fails while `broken`.

    `pattern` matches the line of a counter without tags, whose count is its group.
    """

    broken = False
    pattern = r"{name} counter count=(\d+)$"

    @abstractmethod
    def make(self, registry: MetricRegistry, **options: Any) -> ScheduledReporter:
        """Return a reporter of the registry to this bench's destination."""

    @abstractmethod
    def lines(self) -> list[str]:
        """Return the text of each received metric or attribute, oldest first."""

    def break_destination(self) -> None:
        self.broken = True

    def repair_destination(self) -> None:
        self.broken = False

    def close(self) -> None:  # noqa: B027 (most benches have nothing to close)
        """Close the servers of the bench."""

    def counts(self, name: str) -> list[int]:
        """Return the received counts of the counter `name`, oldest first."""
        found = (re.match(self.pattern.format(name=re.escape(name)), line) for line in self.lines())
        return [int(one[1]) for one in found if one is not None]


class BreakableStream(io.StringIO):
    """A stream that fails while the bench is broken."""

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self.bench = bench

    def write(self, text: str) -> int:
        if self.bench.broken:
            raise OSError("no space left on device")
        return super().write(text)


class Console(Bench):
    """The console reporter, to a stream."""

    def __init__(self, _: Path) -> None:
        self.stream = BreakableStream(self)

    def make(self, registry: MetricRegistry, **options: Any) -> ScheduledReporter:
        return ConsoleReporter(registry, stream=self.stream, **options)

    def lines(self) -> list[str]:
        return [line for line in self.stream.getvalue().split("\n") if line and not line.startswith("-- ")]


class Logging(Bench):
    """The logging reporter, to its own logger."""

    def __init__(self, _: Path) -> None:
        self.logger = logging.getLogger(f"bench-{id(self)}")
        self.logger.setLevel(logging.INFO)
        self.logger.propagate = False
        self.stream = BreakableStream(self)
        self.handler = RaisingHandler(self.stream)
        self.logger.addHandler(self.handler)

    def make(self, registry: MetricRegistry, **options: Any) -> ScheduledReporter:
        return LoggingReporter(registry, logger=self.logger, **options)

    def lines(self) -> list[str]:
        return [line for line in self.stream.getvalue().split("\n") if line]


class RaisingHandler(logging.StreamHandler[BreakableStream]):
    """A handler that raises its errors, as a handler may."""

    def handleError(self, _: logging.LogRecord) -> None:  # noqa: N802 (the name is logging's)
        """Raise the error that is being handled."""
        raise  # noqa: PLE0704 (called while an exception is handled)


class JsonLines(Bench):
    """The reporter to a file."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / "metrics.jsonl"

    def make(self, registry: MetricRegistry, **options: Any) -> ScheduledReporter:
        return JsonLinesReporter(registry, path=self.path, **options)

    def lines(self) -> list[str]:
        """Return each metric of each line as JSON."""
        if not self.path.is_file():
            return []
        text = self.path.read_text(encoding="utf-8")
        return [
            json.dumps(metric, ensure_ascii=False)
            for row in text.split("\n")[:-1]
            for metric in json.loads(row)["metrics"]
        ]

    def counts(self, name: str) -> list[int]:
        metrics = map(json.loads, self.lines())
        return [one["count"] for one in metrics if (one["name"], one["type"]) == (name, "counter")]

    def break_destination(self) -> None:
        self.path.rename(self.folder / "moved")
        self.path.mkdir()

    def repair_destination(self) -> None:
        self.path.rmdir()
        (self.folder / "moved").rename(self.path)


class Graphite(Bench):
    """The reporter to Graphite, and a listener that keeps its lines, as Carbon does."""

    pattern = r"tally\.{name}\.count(?:;\S*)? (\d+) "

    def __init__(self, _: Path) -> None:
        self.port = 0
        self.data: list[bytes] = []
        self.repair_destination()

    def make(self, registry: MetricRegistry, **options: Any) -> ScheduledReporter:
        return GraphiteReporter(registry, instance="i-1", host="127.0.0.1", port=self.port, prefix="tally", **options)

    def lines(self) -> list[str]:
        return b"".join(self.data).decode().split("\n")[:-1]

    def break_destination(self) -> None:
        self.close()

    def repair_destination(self) -> None:
        data = self.data

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                data.append(self.rfile.read())

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True

        self.server = Server(("127.0.0.1", self.port), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class Influx(Bench):
    """The reporter to InfluxDB, and a stub of its write endpoint; other tests use a real InfluxDB."""

    pattern = r"{name},.*metric_type=counter\S* count=(\d+)i"

    def __init__(self, _: Path) -> None:
        self.data: list[str] = []
        self._stub = HttpStub(self._answer).start()

    def _answer(self, request: Request) -> Response:
        assert request.path == "/api/v2/write?org=o&bucket=b&precision=ms"
        assert request.headers["authorization"] == "Token hush"
        if self.broken:
            return Response(503)
        self.data.append(request.body.decode())
        return Response(204)

    def make(self, registry: MetricRegistry, **options: Any) -> ScheduledReporter:
        token = " hush\n"  # as in a file
        return InfluxReporter(registry, instance="i-1", url=self._stub.url, token=token, org="o", bucket="b", **options)

    def lines(self) -> list[str]:
        return "\n".join(self.data).split("\n") if self.data else []

    def close(self) -> None:
        self._stub.stop()


BENCHES: dict[str, type[Bench]] = {
    "console": Console,
    "logging": Logging,
    "jsonlines": JsonLines,
    "graphite": Graphite,
    "influx": Influx,
}
