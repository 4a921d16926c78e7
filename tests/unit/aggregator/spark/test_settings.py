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
def test_a_setting_that_cannot_work_names_its_option(setting: str, value: object) -> None:
    """The sentence begins with the option as it is typed."""
    arguments = {"bootstrap_servers": "broker:9092", "checkpoint": Path("c"), setting: value}
    with pytest.raises(ConfigError, match=r"^--"):
        AggregateSettings(**arguments)  # type: ignore[arg-type]


def test_settings_do_not_show_kafka_options() -> None:
    """A password among the Kafka options is not part of the settings' representation."""
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
def test_an_aim_gives_an_interval_and_a_delay(text: str, pacing: Pacing) -> None:
    """The delay ends before two thirds of the aim have passed, and the look after it comes by then or sooner."""
    assert parse_latency(text) == pacing


@pytest.mark.parametrize("aim_ms", range(200, 60_000, 777))
def test_a_record_waits_for_two_thirds_of_the_aim_at_most(aim_ms: int) -> None:
    """Looks come at multiples of the interval; one comes between the end of the delay and two thirds of the aim."""
    pacing = parse_latency(f"{aim_ms}ms")
    looks = -(-pacing.delay_ms // pacing.interval_ms)
    assert pacing.delay_ms < looks * pacing.interval_ms <= aim_ms * 2 / 3


@pytest.mark.parametrize("text", ["", "soon", "LOW", "1", "-1s", "0s", "199ms", "61s", "1h", "1s ", "nan s", "1e1s"])
def test_what_is_no_aim_is_refused(text: str) -> None:
    """The sentence names the option, the value and what can be given."""
    with pytest.raises(ConfigError, match=r"^--latency( is not set|: '.+' can't be used); give a duration from 200ms"):
        parse_latency(text)


def test_with_an_aim_a_batch_waits_for_the_delay_or_for_a_full_batch() -> None:
    """The names are those of Spark's Kafka source; with `low` it has no reason to wait."""
    assert parse_latency("1s").source(50_000) == {"minOffsetsPerTrigger": "50000", "maxTriggerDelay": "555ms"}
    assert parse_latency("low").source(50_000) == {}
