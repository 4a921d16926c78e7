"""What a command says: its log, its errors, and its end by a signal."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from support.commands import call
from tallystream_aggregator.kafka import auth
from tallystream_cli.local.system import interruptible
from tallystream_cli.logs import FORMAT_ENV, JsonFormatter


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `tallystream` with these arguments and variables."""
    command = [sys.executable, "-m", "tallystream_cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env={**os.environ, **env})


def test_a_json_line_is_one_object() -> None:
    """Newlines, quotes and non-ASCII letters are escaped or kept; it has the traceback, and the time in UTC."""
    try:
        int('a "bad"\nvalue')
    except ValueError:
        record = logging.getLogger("a.b").makeRecord("a.b", 30, "f", 1, "%s\n%s", ("één", '"'), sys.exc_info())
    line = JsonFormatter().format(record)
    assert "\n" not in line
    content = json.loads(line)
    assert (content["level"], content["logger"], content["message"]) == ("WARNING", "a.b", 'één\n"')
    assert content["exception"].startswith("Traceback")
    assert content["exception"].endswith("invalid literal for int() with base 10: 'a \"bad\"\\nvalue'")
    assert datetime.fromisoformat(content["ts"]).timestamp() == int(record.created * 1000) / 1000


def test_the_error_of_a_command_has_the_format_of_the_log(tmp_path: object) -> None:
    """As JSON it is one object, by option and by variable; as text it is the sentence."""
    bad = ("page", "--store", f"local:{tmp_path}/s.db", "--port", "70000")
    for done in (run("--log-format", "json", *bad), run(*bad, **{FORMAT_ENV: "json"})):
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        content = json.loads(line)
        assert (content["level"], content["logger"]) == ("ERROR", "tallystream")
        assert content["message"].startswith("--port: 70000 can't be used; ")
    assert run(*bad).stderr.startswith("--port: 70000 can't be used; ")


def test_an_unexpected_exception_is_a_json_line() -> None:
    """The object has the traceback of the exception that ended the process."""
    script = "from tallystream_cli import logs; logs.configure('info', 'json'); 1 / 0"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert json.loads(line)["exception"].endswith("ZeroDivisionError: division by zero")


HOSTILE = "group evil\x1b[2J\n2026-01-01 INFO all is well\u202e"


def test_names_in_the_log_are_escaped() -> None:
    """In both formats a name can't start a new line, and no escape sequence in it reaches the terminal."""
    script = "from tallystream_cli import logs; import logging; logs.configure('info', '{}'); {}"
    for log_format in ("text", "json"):
        for statement in (f"logging.info({HOSTILE!r})", f"print(logs.error_line({HOSTILE!r}))"):
            code = [sys.executable, "-c", script.format(log_format, statement)]
            done = subprocess.run(code, capture_output=True, text=True, check=True, timeout=60)
            output = (done.stdout + done.stderr).removesuffix("\n")
            if log_format == "text" and statement.startswith("print"):  # an error may quote lines of a log
                output = output.replace("\n", "")
            assert output.isprintable()
            assert "evil\\x1b[2J" in output or "evil\\u001b[2J" in output


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


@pytest.fixture
def hangup_ends_this_process() -> Iterator[None]:
    """The default handler of SIGHUP, also if these tests run with nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hangup_ends_this_process")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_only_code_that_checks_is_interrupted(number: signal.Signals) -> None:
    """The orderly stop after a signal, which does not check, is not cut short; the earlier handlers are restored."""
    before = signal.getsignal(number)
    with interruptible() as check:
        check()
        for _ in range(2):
            os.kill(os.getpid(), number)
            with pytest.raises(KeyboardInterrupt):
                check()
    assert signal.getsignal(number) == before


@pytest.mark.usefixtures("hangup_ends_this_process")
def test_with_nohup_a_closed_terminal_does_not_interrupt() -> None:
    """A SIGHUP that is ignored before stays ignored."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with interruptible() as check:
        os.kill(os.getpid(), signal.SIGHUP)
        check()
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
