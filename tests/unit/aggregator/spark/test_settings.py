"""The settings of `tallystream aggregate`, and the start times of batches for a latency."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystream.errors import ConfigError
from tallystream_aggregator.spark.query.settings import AggregateSettings, Pacing, parse_latency
from tallystream_aggregator.table import TableSettings


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("max_records_per_trigger", 0),
        ("latency", "soon"),
        ("bootstrap_servers", ""),
        ("table", TableSettings(max_app_metrics=0)),
    ],
)
def test_the_error_of_an_invalid_setting_names_the_option(setting: str, value: object) -> None:
    """It begins with the option."""
    arguments = {"bootstrap_servers": "broker:9092", "checkpoint": Path("c"), setting: value}
    with pytest.raises(ConfigError, match=r"^--"):
        AggregateSettings(**arguments)  # type: ignore[arg-type]


def test_settings_do_not_show_kafka_options() -> None:
    """They may have a password."""
    settings = AggregateSettings("broker:9092", Path("c"), kafka={"sasl.password": "hidden-word"})
    assert "hidden-word" not in repr(settings)


@pytest.mark.parametrize(
    ("text", "pacing"),
    [
        ("1s", Pacing(222, 555)),
        ("500ms", Pacing(166, 249)),
        ("200ms", Pacing(66, 99)),
        ("1.5 s", Pacing(250, 875)),
        ("10s", Pacing(246, 6_519)),
        ("1m", Pacing(250, 39_875)),
        ("low", Pacing(100, 0)),
    ],
)
def test_a_latency_determines_the_interval_and_the_delay(text: str, pacing: Pacing) -> None:
    """The delay ends before two thirds of the latency, and the next check comes by then."""
    assert parse_latency(text) == pacing


@pytest.mark.parametrize("latency_ms", range(200, 60_000, 777))
def test_a_record_waits_for_at_most_two_thirds_of_the_latency(latency_ms: int) -> None:
    """A check comes between the end of the delay and two thirds of the latency."""
    pacing = parse_latency(f"{latency_ms}ms")
    checks = -(-pacing.delay_ms // pacing.interval_ms)
    assert pacing.delay_ms < checks * pacing.interval_ms <= latency_ms * 2 / 3


@pytest.mark.parametrize("text", ["", "soon", "LOW", "1", "-1s", "0s", "199ms", "61s", "1h", "1s ", "nan s", "1e1s"])
def test_an_invalid_latency_is_rejected(text: str) -> None:
    """The error names the option, the value and the valid values."""
    with pytest.raises(ConfigError, match=r"^--latency( is not set|: '.+' can't be used); give a duration from 200ms"):
        parse_latency(text)


def test_a_batch_waits_for_the_delay_or_until_it_is_full() -> None:
    """With `low` it does not wait."""
    assert parse_latency("1s").source(50_000) == {"minOffsetsPerTrigger": "50000", "maxTriggerDelay": "555ms"}
    assert parse_latency("low").source(50_000) == {}
