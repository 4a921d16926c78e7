"""The settings of `tallystream aggregate`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystream.errors import ConfigError
from tallystream_aggregator.jobs.aggregate.settings import AggregateSettings, parse_latency, parse_memory
from tallystream_aggregator.kafka.clients import Cluster
from tallystream_aggregator.table import TableSettings


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("max_rate", 0),
        ("shards", 0),
        ("shards", 1025),
        ("epoch_s", 0.5),
        ("latency", "soon"),
        ("table", TableSettings(max_table_bytes=0)),
    ],
)
def test_the_error_of_an_invalid_setting_names_the_option(setting: str, value: object) -> None:
    """It begins with the option."""
    arguments = {"cluster": Cluster("broker:9092"), "checkpoint": Path("c"), setting: value}
    with pytest.raises(ConfigError, match=r"^--"):
        AggregateSettings(**arguments)  # type: ignore[arg-type]


def test_settings_do_not_show_kafka_options() -> None:
    """They may have a password."""
    settings = AggregateSettings(Cluster("broker:9092", kafka={"sasl.password": "hidden-word"}), Path("c"))
    assert "hidden-word" not in repr(settings)


@pytest.mark.parametrize(
    ("text", "spacing_s"), [("1s", 0.5), ("500ms", 0.25), ("1.5 s", 0.75), ("1m", 30), ("low", 0.02)]
)
def test_a_step_begins_after_half_of_the_latency(text: str, spacing_s: float) -> None:
    """The other half is for what the step takes."""
    assert parse_latency(text) == spacing_s


@pytest.mark.parametrize("text", ["", "soon", "LOW", "1", "-1s", "0s", "199ms", "61s", "1h", "1s ", "nan s", "1e1s"])
def test_an_invalid_latency_is_rejected(text: str) -> None:
    """The error names the option, the value and the valid values."""
    with pytest.raises(ConfigError, match=r"^--latency( is not set|: '.+' can't be used); give a duration from 200ms"):
        parse_latency(text)


@pytest.mark.parametrize(("text", "size"), [("800m", 800 << 20), ("2g", 2 << 30), ("1Gb", 1 << 30), ("512", 512)])
def test_an_amount_of_memory_has_the_units_of_spark(text: str, size: int) -> None:
    """A number without a unit is in bytes."""
    assert parse_memory("--table-memory", text) == size


@pytest.mark.parametrize("text", ["", "-1g", "1.5g", "much", "1gib"])
def test_anything_else_is_rejected_with_the_name_of_the_option(text: str) -> None:
    """The message has the remedy."""
    with pytest.raises(ConfigError, match=r"--table-memory.*as in 800m or 2g"):
        parse_memory("--table-memory", text)
