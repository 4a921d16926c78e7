"""The command line: help, errors and exit codes."""

from __future__ import annotations

import os
import platform
import re
import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from support import reference
from support.commands import call
from support.guides import ROOT
from tallystream.process.signals import SignalSafeEvent
from tallystream_aggregator.jobs import forget
from tallystream_aggregator.jobs.aggregate import job
from tallystream_aggregator.sinks.stores import StoreSettings, open_store
from tallystream_cli import main, options
from tallystream_dashboards.exit_codes import BAD, GOOD, INTERRUPTED, UNKNOWN, UNUSABLE

COMMANDS = reference.commands()
HELP = {**COMMANDS, "": COMMANDS[reference.GENERAL], "lag": COMMANDS["lag show"], "dashboards": None}
"""The command by the words before --help. `show` can be left out, and `dashboards` has only commands."""


@pytest.mark.parametrize("words", sorted(HELP.keys() - {reference.GENERAL}))
def test_every_command_has_help(words: str) -> None:
    """--help says what the command does and lists its options and arguments."""
    ended = CliRunner().invoke(main.app, [*words.split(), "--help"], prog_name="tallystream")
    shown, command = " ".join(ended.stdout.split()), HELP[words]
    assert ended.exit_code == 0
    assert f"tallystream {words}".strip() in shown
    assert " --help" in shown
    for one in command.params if command is not None else ():
        assert one.opts[0] in shown


@pytest.mark.parametrize(("words", "completed"), [("la", ["lag"]), ("sums --wat", ["--watch"])])
def test_the_shell_completes_commands_and_options(words: str, completed: list[str]) -> None:
    """`--show-completion` prints the function of the shell, which calls the command with these variables."""
    environment = {
        "_TALLYSTREAM_COMPLETE": "complete_bash",
        "COMP_WORDS": f"tallystream {words}",
        "COMP_CWORD": str(len(words.split())),
    }
    ended = CliRunner().invoke(main.app, [], prog_name="tallystream", env=environment)
    assert ended.stdout.split() == completed


def test_help_needs_no_spark_and_no_streamlit() -> None:
    """Heavy modules are imported only when a command runs."""
    script = (
        "import sys; from typer.testing import CliRunner; from tallystream_cli import main as cli; "
        "assert CliRunner().invoke(cli.app, ['up', '--help']).exit_code == 0; "
        "print([name for name in ('pyspark', 'streamlit', 'pandas', 'confluent_kafka') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_the_version_is_that_of_the_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """--version prints the version and exits with code 0."""
    assert call(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"tallystream {version('tallystream-cli')}\n"


ALERT = "alert --store local:{tmp}/file --webhook"
DOCTOR = "doctor --bootstrap-servers 127.0.0.1:1"
INVALID = [
    ("aggregate --checkpoint {tmp}/c --latency soon", "--latency: 'soon' can't be used; give a duration from "),
    ("aggregate --checkpoint {tmp}/c --max-rate 0", "--max-rate: 0 can't be used; "),
    ("aggregate --checkpoint {tmp}/c --lag-port 0", "--lag-port: 0 can't be used; give it with --store"),
    (
        "aggregate --checkpoint {tmp}/c --lag-port 0 --store otlp:http://h",
        "--store: 'otlp:http://h' can't be used; only ship writes there: ",
    ),
    ("aggregate --checkpoint {tmp}/c --from yesterday", "--from: 'yesterday' can't be used; "),
    *(
        (f"aggregate --checkpoint {{tmp}}/c --forget-after-days {text}", f"--forget-after-days: {float(text)} can't")
        for text in ("nan", "inf", "1e308", "-1")
    ),
    *(
        (f"aggregate --checkpoint {{tmp}}/c --partitions {text}", f"--partitions: '{text}' can't be used; give the num")
        for text in ("a", "0-2", "0,,1")
    ),
    ("aggregate --checkpoint {tmp}/c --kafka acks", "--kafka: '***' can't be used; give KEY=VALUE"),
    ("ship --store tape:x", "--store: 'tape:x' can't be used; give local:PATH"),
    ("ship --store prometheus:0 --rows", "--rows: True can't be used; Prometheus gets only sums"),
    ("ship --store otlp:localhost:4318", "--store: 'otlp:localhost:4318' can't be used; "),
    ("page --store otlp:http://h:4318", "--store: 'otlp:http://h:4318' can't be used; only ship writes there: "),
    ("lag collect --store prometheus:1", "--store: 'prometheus:127.0.0.1:1' can't be used; only ship writes there: "),
    ("lag show --store prometheus:1", "--store: 'prometheus:127.0.0.1:1' can't be used; only ship writes there: "),
    ("up --data {tmp}/d --store otlp:http://h", "--store: 'otlp:http://h' can't be used; only ship writes there: "),
    ("page --store local:{tmp}/s.db --port 70000", "--port: 70000 can't be used; "),
    ("page --store local:{tmp}/s.db --refresh 0", "--refresh: 0.0 can't be used; "),
    (f"{ALERT} h:9093", "--webhook: 'h:9093' can't be used; give a URL"),
    ("lag collect --store local:{tmp}/s.db --interval 900", "--interval: 900.0 can't be used; "),
    ("up --data {tmp}/file/d --broker-port 0 --page-port 0", "--data: "),
    ("up --detach --data {tmp}/file/d --broker-port 0 --page-port 0", "--data: "),
    ("dashboards generate --out {tmp}/file/g", "--out: "),
    ("dashboards generate --out {tmp}/g --threshold lag-seconds=-1", "--threshold: 'lag-seconds=-1' can't be used; "),
    ("aggregate --checkpoint {tmp}/c --kafka =hush", "--kafka: '***' can't be used; give KEY=VALUE"),
    ("aggregate --checkpoint {tmp}/c --drop-tag a --keep-tags b", "--keep-tags: 'b' can't be used; give it without "),
    ("rebuild --drop-tag pod --keep-tags topic", "--keep-tags: 'topic' can't be used; give it without --drop-tag"),
    (
        "rebuild --all-tags --drop-tag pod",
        "--all-tags: '--drop-tag pod' can't be used; give it without --drop-tag and ",
    ),
    ("rebuild --shards 0", "--shards: 0 can't be used; give a whole number from 1 to 1024"),
    ("rebuild --shards 2 --timeout 0", "--timeout: 0.0 can't be used; give a number of seconds, 1 or more"),
    ("rebuild --timeout nan", "--timeout: nan can't be used; give a number of seconds, 1 or more"),
    ("forget", "--instance is not set; name the instance whose lives are removed, or a metric with --metric"),
    ("forget --instance a --metric b", "--metric: 'b' can't be used; leave it out, or --instance a"),
    ("forget --metric a --life x", "--life: 'x' can't be used; give it with --instance"),
    ("forget --instance a --type counter", "--type: 'counter' can't be used; give it with --metric"),
    ("forget --instance a --tag b=c", "--tag: {'b': 'c'} can't be used; give it with --metric"),
    ("forget --metric a --tag b", "--tag: 'b' can't be used; give NAME=VALUE"),
    ("forget --metric a --type gage", "forget: {'app': None, 'life': None, 'type': 'gage', "),
    ("forget --instance a --life x", "forget: {'app': None, 'life': 'x', "),
    ("forget --metric a --timeout 0", "--timeout: 0.0 can't be used"),
    ("forget --metric a --timeout nan", "--timeout: nan can't be used"),
    ("lag --store local:{tmp}/file --at noon", "--at: 'noon' can't be used; give a time in UTC"),
    ("sums --store local:{tmp}/file --at noon", "--at: 'noon' can't be used; give a time in UTC"),
    ("sums --store local:{tmp}/file --every 0.1", "--every: 0.1 can't be used; give seconds from 0.5 to 3600"),
    ("sums --store local:{tmp}/file --watch --at 2026-11-20", "--at: 1795132800000 can't be used; leave --watch out"),
    ("sums --store local:{tmp}/file --wait -1", "--wait: -1.0 can't be used; give seconds from 0 to 86400"),
    ("instances orders --store local:{tmp}/file --range 2h", "--range: '2h' can't be used; give one of 5m, 15m, 1h"),
    ("instances --store local:{tmp}/file --metric done", "--metric: 'done' can't be used; give the app"),
    ("compare a b c --store local:{tmp}/file", "NAMES: ('a', 'b', 'c') can't be used"),
    ("compare a --tag b --store local:{tmp}/file", "--tag: 'b' can't be used"),
    ("compare --tag a=b --store local:{tmp}/file", "--tag: "),
    (f"{ALERT} http://me:secret@h:9093", "--webhook: '***' can't be used; leave user and password out"),
    (f"{ALERT} http://h --every 0.5", "--every: 0.5 can't be used; give seconds from 1 to 120"),
    (f"{ALERT} http://h --every 121", "--every: 121.0 can't be used; give seconds from 1 to 120"),
    (f"{DOCTOR} --store nonsense", "--store: 'nonsense' can't be used; "),
    (f"{DOCTOR} --kafka nonsense", "--kafka: '***' can't be used; "),
    (f"{DOCTOR} --kafka no.such.option=1", "--kafka: "),
    (f"{DOCTOR} --topic-prefix /", "--topic-prefix: '/' can't be used; "),
]


@pytest.mark.parametrize(("line", "sentence"), INVALID)
def test_an_invalid_setting_is_one_sentence(
    line: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sentence names the option, its value and the remedy, and no secret; nothing else is done. The code is 2."""
    (tmp_path / "file").touch()
    monkeypatch.setattr("signal.signal", lambda *_: None)  # the log handlers of this process are kept
    assert call(monkeypatch, *(word.format(tmp=tmp_path) for word in line.split())) == 2
    output, error = capsys.readouterr()
    assert output == ""
    assert error.startswith(sentence)
    assert error.count("\n") == 1


def test_the_error_of_a_lag_port_in_use_names_its_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The aggregator's --http-port is another one."""
    monkeypatch.setattr(job, "run", lambda _, lag: lag(SignalSafeEvent()))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        line = f"aggregate --checkpoint c --store local:{tmp_path / 'store.db'} --lag-port {port}"
        assert call(monkeypatch, *line.split()) == 2
    assert f"--lag-port: {port} can't be used; it can't be listened on at 127" in capsys.readouterr().err


MISSPELLED = [
    ("aggregate", "aggregate", "'--checkpoint'"),
    ("aggregate --checkpoint c --lag-port 70000", "aggregate", "'--lag-port'"),
    ("ship --rows", "ship", "'--store'"),
    ("up --broker-port many", "up", "'--broker-port'"),
    ("up --page-port -1", "up", "'--page-port'"),
    ("--log-level loud status", "", "'--log-level'"),
    ("dashboards generate --out g --flavour sql", "dashboards generate", "'--flavour'"),
    ("lag collect --nonsense", "lag collect", "--nonsense"),
    ("nonsense", "", "'nonsense'"),
]


@pytest.mark.parametrize(("line", "command", "named"), MISSPELLED)
def test_an_unknown_or_missing_option_is_one_sentence(
    line: str, command: str, named: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sentence names the option, and the command whose help lists the options; the exit code is 2."""
    monkeypatch.delenv("TALLYSTREAM_STORE", raising=False)
    assert call(monkeypatch, *line.split()) == 2
    error, name = capsys.readouterr().err, f"tallystream {command}".strip()
    assert f"{name}: " in error
    assert named in error
    assert error.endswith(f"{name} --help lists the options.\n")
    assert error.count("\n") == 1


def test_ctrl_c_ends_a_command_with_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It prints no traceback."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tallystream_cli.local.state_file.running", interrupted)
    assert call(monkeypatch, "status") == INTERRUPTED
    assert capsys.readouterr().err == ""


def test_an_output_that_is_not_unicode_shows_escapes(tmp_path: Path) -> None:
    """Characters that the encoding of standard output lacks are written as Python's escapes."""
    code = (
        "import sys; from tallystream_cli import main as cli; from tallystream_cli.commands import system; "
        "cli.app.command('arrow')(lambda: print('a \u2192 b')); sys.argv = ['tallystream', 'arrow']; cli.main()"
    )
    env = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=False, cwd=tmp_path)
    assert (ran.stdout, ran.returncode) == (b"a \\u2192 b\n", 0), ran.stderr.decode()


_HEAPS = """
import re, sys, threading
from pathlib import Path
from tallystream_cli import main

sys.argv = ["tallystream", "--version"]
try:
    main.main()
except SystemExit:
    pass
running, allocated = threading.Event(), threading.Barrier(13)

def allocate() -> None:
    kept = bytes(10_000)
    allocated.wait()
    running.wait()

threads = [threading.Thread(target=allocate) for _ in range(12)]
for thread in threads:
    thread.start()
allocated.wait()
maps = Path("/proc/self/maps").read_text()
# A heap of glibc begins at a multiple of its largest size, 64 MiB.
print(len(re.findall("^[0-9a-f]+[048c]000000-[0-9a-f]+ rw-p 0+ 00:00 0 *$", maps, re.MULTILINE)))
running.set()
"""


@pytest.mark.skipif("glibc" not in platform.libc_ver(), reason="only glibc has a heap for each thread")
def test_a_process_with_many_threads_has_two_heaps() -> None:
    """Each heap keeps what it had at most, so a command would grow for days. Of the two, one is not a mapping."""
    env = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"}
    shown = subprocess.run([sys.executable, "-c", _HEAPS], check=True, capture_output=True, text=True, env=env)
    assert shown.stdout.splitlines()[-1] == "1"


def test_kafka_options_come_from_the_environment_and_the_command_line() -> None:
    """The command line takes precedence. Other variables are ignored. A value can have an equals sign."""
    env = {"TALLYSTREAM_KAFKA_SASL_PASSWORD": "s=cret", "TALLYSTREAM_KAFKA_CLIENT_ID": "env", "PATH": "/bin"}
    assert options.kafka_options(["client.id=line", "sasl.username=a=b"], env) == {
        "sasl.password": "s=cret",
        "client.id": "line",
        "sasl.username": "a=b",
    }


READERS = ("top --once", "sums", "instances", "compare", "lag", "alert --once --webhook http://127.0.0.1:1")


@pytest.fixture
def stores(tmp_path: Path) -> Path:
    """Return a folder with an empty store, and one that is damaged."""
    store = open_store(StoreSettings.parse(f"local:{tmp_path / 'empty.db'}"))
    store.setup()
    store.close()
    (tmp_path / "damaged.db").write_bytes(b"this is no database" * 1000)
    return tmp_path


@pytest.mark.parametrize(
    ("line", "code"),
    [
        *((f"{command} --nonsense", UNUSABLE) for command in sorted(COMMANDS.keys() - {reference.GENERAL})),
        *((f"{command} --store tape:x", UNUSABLE) for command in READERS),
        *((f"{command} --store local:{{}}/missing.db", UNUSABLE) for command in (*READERS, "page")),
        *((f"{command} --store local:{{}}/damaged.db", UNUSABLE) for command in READERS),
        *((f"{command} --store influxdb:http://127.0.0.1:1", UNKNOWN) for command in READERS[:-1]),
        *((f"{command} --store local:{{}}/empty.db", UNKNOWN) for command in READERS[:-1]),
        *((f"{command} nobody --store local:{{}}/empty.db", UNKNOWN) for command in READERS[1:-1]),
        ("compare --app nobody --store local:{}/empty.db", UNKNOWN),
        ("compare --group nobody --store local:{}/empty.db", UNKNOWN),
        ("compare nobody nothing --store local:{}/empty.db", UNKNOWN),
        ("alert --once --webhook http://127.0.0.1:1 --store local:{}/empty.db", BAD),
        ("status --data {}", BAD),
        ("down --data {}", GOOD),
        ("--version", GOOD),
    ],
)
def test_the_same_thing_has_the_same_code(
    line: str, code: int, stores: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A setting that can't be used is never taken for a store that can't be read, nor for something that is not well.

    What the store does not have is not known: it is no failure, and no wrong option.
    """
    for name in ("TOKEN", "ORG"):
        monkeypatch.setenv(f"INFLUXDB_{name}", "shop")
    monkeypatch.setattr("signal.signal", lambda *_: None)  # the log handlers of this process are kept
    assert call(monkeypatch, *(word.format(stores) for word in line.split())) == code
    shown = capsys.readouterr()
    assert shown.out + shown.err


def test_what_the_table_does_not_have_is_not_known(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`forget` has the code of the commands that read the store, for a name that matches nothing."""

    def read_plan(*_: object) -> forget.Plan:
        raise forget.NoMatchError("instance nobody: no life in the table matches.")

    monkeypatch.setattr(forget, "read_plan", read_plan)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    words = ("forget", "--instance", "nobody", "--bootstrap-servers", "127.0.0.1:1")
    assert call(monkeypatch, *words) == UNKNOWN
    assert "no life in the table matches" in capsys.readouterr().err


def test_the_documentation_has_each_code() -> None:
    """There is one table for all commands."""
    (table,) = re.findall(r"(?s)## Exit codes\n(.*)", (ROOT / "docs" / "running.md").read_text())
    assert re.findall(r"(?m)^\| (\d+) \|", table) == [str(one) for one in (GOOD, BAD, UNUSABLE, UNKNOWN, INTERRUPTED)]
