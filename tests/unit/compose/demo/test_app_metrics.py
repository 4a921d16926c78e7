"""The metrics of the consumer application, through the reporter and through the OpenTelemetry SDK."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tallystream_cli.demo import otlp_metrics
from tallystream_cli.demo.app import metrics_of, parser
from tallystream_cli.demo.app_metrics import ReporterMetrics
from tallystream_cli.demo.otlp_metrics import OtlpMetrics
from tallystream_cli.servers.process import free_port


class Processed(NamedTuple):
    """A message, as far as the metrics need it."""

    topic: str
    partition: int
    offset: int


MESSAGES = [Processed("flights", 0, offset) for offset in range(5, 8)]


def options(*more: str) -> list[str]:
    """Return the arguments of an application whose broker does not run."""
    return ["--bootstrap-servers", f"127.0.0.1:{free_port()}", "--instance", "app-1", "--journal", "-", *more]


@pytest.mark.parametrize(
    ("more", "positions"), [((), [(5, 8)]), (("--no-positions",), [])], ids=["positions", "no positions"]
)
def test_positions_can_be_left_out(more: tuple[str, ...], positions: list[tuple[int, int]]) -> None:
    """The counter has the same value with and without them."""
    metrics = metrics_of(parser().parse_args(options(*more)))
    assert isinstance(metrics, ReporterMetrics)
    metrics.processed(MESSAGES, [-3, 0, 12], 0.5)  # type: ignore[arg-type]
    found = metrics._reporter.registry.snapshot()
    assert [one.count for one in found if one.name == "flights.processed"] == [3]
    assert [(one.start, one.position) for one in found if one.type == "position"] == positions


def test_an_export_that_is_not_acknowledged_is_not_published(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a broker `publish` returns False each time, so nothing is committed; the log has the reason."""
    monkeypatch.setattr(otlp_metrics, "INTERVAL_MS", 200)
    with metrics_of(parser().parse_args(options("--otlp-topic", "otlp_metrics"))) as metrics:
        assert isinstance(metrics, OtlpMetrics)
        metrics.processed(MESSAGES, [-3, 0, 12], 0.5)  # type: ignore[arg-type]
        assert [metrics.publish(timeout_s=0.2), metrics.publish(timeout_s=0.2)] == [False, False]
    assert "export failed: no answer in time" in capsys.readouterr().err
