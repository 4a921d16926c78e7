"""The settings of `tallystream aggregate`, and the rows of its ledger."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystream.aggregator.ledger import LedgerRow, decode, encode, key
from tallystream.aggregator.spark.aggregate import AggregateSettings
from tallystream.reporter.errors import ConfigError


@pytest.mark.parametrize(
    ("setting", "value"), [("max_records_per_trigger", 0), ("trigger_ms", -1), ("bootstrap_servers", "")]
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


def test_a_ledger_row_survives_its_bytes() -> None:
    """Offsets and times come back as they were written, and the version is always there."""
    row = LedgerRow(kind="batch", query="aggregate", epoch=2, batch=7, ts=5, end={"metrics": {"0": 9}})
    assert decode(encode(row)) == row
    assert encode(row).startswith(b'{"v":1,')
    assert key(row) == b'["aggregate",7]'
