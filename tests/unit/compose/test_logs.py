"""The log as text and as JSON, in real processes."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from datetime import datetime

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


def test_a_json_line_without_an_exception() -> None:
    """It has four fields."""
    record = logging.getLogger("a").makeRecord("a", 20, "f", 1, "m", (), None)
    assert json.loads(JsonFormatter().format(record)).keys() == {"ts", "level", "logger", "message"}


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
        for call in (f"logging.info({HOSTILE!r})", f"print(logs.error_line({HOSTILE!r}))"):
            code = [sys.executable, "-c", script.format(log_format, call)]
            done = subprocess.run(code, capture_output=True, text=True, check=True, timeout=60)
            output = (done.stdout + done.stderr).removesuffix("\n")
            if log_format == "text" and call.startswith("print"):  # an error may quote lines of a log
                output = output.replace("\n", "")
            assert output.isprintable()
            assert "evil\\x1b[2J" in output or "evil\\u001b[2J" in output
