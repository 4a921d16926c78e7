"""The log as JSON, one object a line, by a real process."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from datetime import datetime

from tallystream_cli.logs import FORMAT_ENV, JsonLines


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `tallystream` with these arguments and variables."""
    command = [sys.executable, "-m", "tallystream_cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env={**os.environ, **env})


def test_a_line_is_one_object_whatever_is_in_it() -> None:
    """Newlines, quotes and other languages in the message; the exception with its trace; the time in UTC."""
    try:
        int('a "bad"\nvalue')
    except ValueError:
        record = logging.getLogger("a.b").makeRecord("a.b", 30, "f", 1, "%s\n%s", ("één", '"'), sys.exc_info())
    line = JsonLines().format(record)
    assert "\n" not in line
    said = json.loads(line)
    assert (said["level"], said["logger"], said["message"]) == ("WARNING", "a.b", 'één\n"')
    assert said["exception"].startswith("Traceback")
    assert said["exception"].endswith("invalid literal for int() with base 10: 'a \"bad\"\\nvalue'")
    assert datetime.fromisoformat(said["ts"]).timestamp() == int(record.created * 1000) / 1000


def test_a_line_without_an_exception_has_no_such_field() -> None:
    """Four fields, no more."""
    record = logging.getLogger("a").makeRecord("a", 20, "f", 1, "m", (), None)
    assert json.loads(JsonLines().format(record)).keys() == {"ts", "level", "logger", "message"}


def test_the_sentence_of_a_failure_is_a_line_of_the_log(tmp_path: object) -> None:
    """By option and by variable; as text it is the sentence alone."""
    bad = ("page", "--store", f"local:{tmp_path}/s.db", "--port", "70000")
    for done in (run("--log-format", "json", *bad), run(*bad, **{FORMAT_ENV: "json"})):
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        said = json.loads(line)
        assert (said["level"], said["logger"]) == ("ERROR", "tallystream")
        assert said["message"].startswith("--port: 70000 can't be used; ")
    assert run(*bad).stderr.startswith("--port: 70000 can't be used; ")


def test_what_nobody_expected_is_a_line_of_the_log_too() -> None:
    """An exception that ends the process has its trace in one object."""
    script = "from tallystream_cli import logs as _logs; _logs.set_up('info', 'json'); 1 / 0"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert json.loads(line)["exception"].endswith("ZeroDivisionError: division by zero")


HOSTILE = "group evil\x1b[2J\n2026-01-01 INFO all is well\u202e"


def test_names_in_the_log_are_text() -> None:
    """A name can't begin a line of its own, and no escape in it reaches the terminal, in neither form of the log."""
    script = "from tallystream_cli import logs as _logs; import logging; _logs.set_up('info', '{}'); {}"
    for form in ("text", "json"):
        for words in (f"logging.info({HOSTILE!r})", f"print(_logs.final_line({HOSTILE!r}))"):
            code = [sys.executable, "-c", script.format(form, words)]
            done = subprocess.run(code, capture_output=True, text=True, check=True, timeout=60)
            said = (done.stdout + done.stderr).removesuffix("\n")
            if form == "text" and words.startswith("print"):  # a failure may quote lines of a log
                said = said.replace("\n", "")
            assert said.isprintable()
            assert "evil\\x1b[2J" in said or "evil\\u001b[2J" in said
