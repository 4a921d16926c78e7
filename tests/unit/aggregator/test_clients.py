"""The Kafka clients: one place makes them, their messages go to Python's log, a wrong option is one sentence."""

from __future__ import annotations

import logging
import re
import socket
from pathlib import Path

import pytest

from support.wait import wait_until
from tallystream.errors import ConfigError
from tallystream_aggregator.kafka import clients

SOURCES = [Path(__file__).parents[3] / name for name in ("aggregator", "dashboards", "compose")]


def test_every_client_is_made_here() -> None:
    """No other module calls the constructors, which print what librdkafka says."""
    made = re.compile(r"(?<!\w)(?<!clients\.)(?:Consumer|Producer|AdminClient)\(")
    files = [path for source in SOURCES for path in source.rglob("*.py") if path.name != "clients.py"]
    assert files
    assert [str(path) for path in files if made.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("make", [clients.consumer, clients.producer, clients.admin])
def test_a_wrong_option_is_one_sentence(make: object) -> None:
    """It names the option in librdkafka's words, and shows no value: one may be a secret."""
    with pytest.raises(ConfigError) as refused:
        make({"bootstrap.servers": "localhost:1", "group.id": "g", "sasl.passwrd": "hush"})  # type: ignore[operator]
    assert str(refused.value) == (
        "--kafka: ['group.id', 'sasl.passwrd'] can't be used; correct the option that librdkafka names: "
        'No such configuration property: "sasl.passwrd".'
    )


def test_what_a_client_says_goes_to_the_log_once_a_minute(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer that can't connect, again and again: one record by Python's logging, nothing on standard error."""
    monkeypatch.setattr(clients.log, "filters", [type(one)() for one in clients.log.filters])  # of no other test
    with socket.socket() as closed, caplog.at_level(logging.INFO):
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        errors: list[object] = []
        consumer = clients.consumer(
            {"bootstrap.servers": address, "group.id": "g", "reconnect.backoff.ms": 1, "error_cb": errors.append}
        )
        try:
            wait_until(lambda: consumer.poll(0.1) or (caplog.records and len(errors) > 3), 30, "it has tried")
        finally:
            consumer.close()
    records = [record for record in caplog.records if record.name == "tallystream.librdkafka"]
    assert [record.getMessage().count("Connection refused") for record in records] == [1]
    assert capfd.readouterr().err == ""
