"""The commands without a broker: one error, and no output of librdkafka."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from support.commands import call
from tallystream_aggregator.kafka import auth

if TYPE_CHECKING:
    from pathlib import Path

COMMANDS = [
    "verify",
    "ship --store local:{tmp}/s.db",
    "ship --store prometheus:0",
    "rebuild --shards 2",
    "aggregate --checkpoint {tmp}/c",
]


@pytest.mark.parametrize("line", COMMANDS)
def test_the_error_of_an_unavailable_broker_is_one_sentence(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The last line names the option, the address, the reason and the remedy; the exit code is 2.

    Everything is printed through Python's log, and no file is created.
    """
    with socket.socket() as closed:  # bound but not listening, so that no other process takes the port
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        words = [*line.format(tmp=tmp_path).split(), "--bootstrap-servers", address]
        monkeypatch.setattr(auth, "MAX_WAIT_S", 0.5)
        monkeypatch.setattr("signal.signal", lambda *_: None)  # the log handlers of this process are kept
        assert call(monkeypatch, *words) == 2
    output = capfd.readouterr()
    assert output.out == ""
    lines = output.err.splitlines()
    assert not [one for one in lines if one.startswith("%")]
    assert len(lines) <= 3
    assert lines[-1] == (
        f"--bootstrap-servers: '{address}' can't be used; no broker answers at this address (Connection refused): "
        "start the broker, or correct the address."
    )
    assert not list(tmp_path.iterdir())
