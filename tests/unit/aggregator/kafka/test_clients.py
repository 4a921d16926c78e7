"""The Kafka clients: where they are created, their log, and the error of a wrong option."""

from __future__ import annotations

import logging
import re
import socket
from pathlib import Path

import pytest

from support.wait import wait_until
from tallystream.errors import ConfigError
from tallystream_aggregator.kafka import clients

SOURCES = [Path(__file__).parents[4] / name for name in ("aggregator", "dashboards", "compose")]


def test_every_client_is_created_by_one_module() -> None:
    """Other modules do not call the constructors, which print librdkafka's messages."""
    constructors = re.compile(r"(?<!\w)(?<!clients\.)(?:Consumer|Producer|AdminClient)\(")
    files = [path for source in SOURCES for path in source.rglob("*.py") if path.name != "clients.py"]
    assert files
    assert [str(path) for path in files if constructors.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("create", [clients.consumer, clients.producer, clients.admin])
def test_the_error_of_a_wrong_option_names_it(create: object) -> None:
    """It has librdkafka's message and no value, because a value may be a secret."""
    with pytest.raises(ConfigError) as raised:
        create({"bootstrap.servers": "localhost:1", "group.id": "g", "sasl.passwrd": "secret"})  # type: ignore[operator]
    assert str(raised.value) == (
        "--kafka: ['group.id', 'sasl.passwrd'] can't be used; correct the option that librdkafka names: "
        'No such configuration property: "sasl.passwrd".'
    )


def test_a_client_logs_the_same_message_once_a_minute(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer fails to connect many times. Python's log has one record, and standard error is empty."""
    monkeypatch.setattr(clients.log, "filters", [type(one)() for one in clients.log.filters])
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
