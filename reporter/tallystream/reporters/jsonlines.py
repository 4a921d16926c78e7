"""The reporter to a file: one line with a JSON object for each snapshot."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from tallystream.reporters.local import LocalReporter

if TYPE_CHECKING:
    from tallystream.record import Metric
    from tallystream.registry import MetricRegistry
    from tallystream.reporters.base import Reportable

_encoder = msgspec.json.Encoder()


class JsonLinesReporter(LocalReporter):
    """Appends each snapshot to a file as `{"app", "ts", "metrics": [{"name", "tags", "type", attributes …}]}`.

    The file is opened for each report, so it may be moved at any time. Several processes may append to the same file.

    Args:
        registry: the registry to report.
        path: the file. Its folder must exist.
        options: the arguments of `LocalReporter` (interval, include, attributes …).
    """

    kind: ClassVar[str] = "jsonlines"

    def __init__(self, registry: MetricRegistry | Reportable, *, path: str | os.PathLike[str], **options: Any) -> None:
        self._path = os.fspath(path)
        super().__init__(registry, **options)

    def _write(self, metrics: list[Metric], ts_ms: int) -> int:
        shown = [{"name": m.name, "tags": m.tags, "type": m.type, **self.shape.values(m)} for m in metrics]
        line = _encoder.encode({"app": self.registry.app, "ts": ts_ms, "metrics": shown}) + b"\n"
        # One unbuffered write, so that lines of several processes do not mix.
        with open(self._path, "ab", buffering=0) as file:  # noqa: PTH123 - pathlib is slow to import
            file.write(line)
        return len(line)
