"""The command line: help, errors and exit codes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from support import reference
from support.commands import call
from tallystream.errors import ConfigError, TallystreamError
from tallystream_cli import main, options

COMMANDS = sorted({*reference.commands(), "lag", "dashboards"} - {reference.GENERAL})


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_every_command_has_help(command: str) -> None:
    """--help says what the command does and lists its options."""
    shown = CliRunner().invoke(main.app, [*command.split(), "--help"], prog_name="tallystream")
    assert shown.exit_code == 0
    assert f"tallystream {command}".strip() in shown.stdout
    assert "  --help" in shown.stdout


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


BAD = [
    ("aggregate --checkpoint {tmp}/c --latency soon", "--latency: 'soon' can't be used; give a duration from "),
    ("aggregate --checkpoint {tmp}/c --max-rate 0", "--max-rate: 0 can't be used; "),
    ("aggregate --checkpoint {tmp}/c --from yesterday", "--from: 'yesterday' can't be used; "),
    *(
        (f"aggregate --checkpoint {{tmp}}/c {option} {text}", f"{option}: {float(text)} can't be used; give ")
        for option in ("--forget-after-days",)
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
    ("alert --webhook h:9093 --store local:{tmp}", "--webhook: 'h:9093' can't be used; give a URL"),
    ("lag collect --store local:{tmp}/s.db --interval 900", "--interval: 900.0 can't be used; "),
    ("up --data {tmp}/file/d --broker-port 0 --page-port 0", "--data: "),
    ("up --detach --data {tmp}/file/d --broker-port 0 --page-port 0", "--data: "),
    ("dashboards generate --out {tmp}/g --threshold lag-seconds=-1", "--threshold: 'lag-seconds=-1' can't be used; "),
]


@pytest.mark.parametrize(("line", "sentence"), BAD)
def test_an_invalid_setting_is_one_sentence(
    line: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sentence names the option, its value and the remedy; the exit code is 2."""
    (tmp_path / "file").touch()
    monkeypatch.setattr("signal.signal", lambda *_: None)  # the log handlers of this process are kept
    assert call(monkeypatch, *(word.format(tmp=tmp_path) for word in line.split())) == 2
    error = capsys.readouterr().err
    assert error.startswith(sentence)
    assert error.count("\n") == 1


UNKNOWN = [
    ("aggregate", "aggregate", "'--checkpoint'"),
    ("ship --rows", "ship", "'--store'"),
    ("up --broker-port many", "up", "'--broker-port'"),
    ("up --page-port -1", "up", "'--page-port'"),
    ("--log-level loud status", "", "'--log-level'"),
    ("dashboards generate --out g --flavour sql", "dashboards generate", "'--flavour'"),
    ("up --nonsense", "up", "--nonsense"),
    ("lag collect --nonsense", "lag collect", "--nonsense"),
    ("nonsense", "", "'nonsense'"),
]


@pytest.mark.parametrize(("line", "command", "named"), UNKNOWN)
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


@pytest.mark.parametrize(
    ("error", "code"),
    [(ConfigError("a", 1, "give b"), 2), (TallystreamError("failed"), 1), (KeyboardInterrupt(), 130)],
)
def test_the_exit_code_of_an_error(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """2 for an invalid setting, 1 for a failure, 130 for Ctrl-C, without a traceback."""

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("tallystream_cli.local.state_file.running", fail)
    assert call(monkeypatch, "status") == code
    assert "Traceback" not in capsys.readouterr().err


def test_an_output_that_is_not_unicode_shows_escapes(tmp_path: Path) -> None:
    """Characters that the encoding of standard output lacks are written as Python's escapes."""
    code = (
        "import sys; from tallystream_cli import main as cli; from tallystream_cli.commands import system; "
        "cli.app.command('arrow')(lambda: print('a \u2192 b')); sys.argv = ['tallystream', 'arrow']; cli.main()"
    )
    env = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=False, cwd=tmp_path)
    assert (ran.stdout, ran.returncode) == (b"a \\u2192 b\n", 0), ran.stderr.decode()


def test_status_and_down_of_an_unused_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both say that no system runs. `status` says how to start it and has exit code 1, `down` has 0."""
    assert call(monkeypatch, "status", "--data", str(tmp_path)) == 1
    assert capsys.readouterr().out.endswith(f"start it with: tallystream up --data {tmp_path}\n")
    assert call(monkeypatch, "down", "--data", str(tmp_path)) == 0
    assert capsys.readouterr().out == f"down: no system runs in {tmp_path}\n"


def test_kafka_options_come_from_the_environment_and_the_command_line() -> None:
    """The command line takes precedence. Other variables are ignored. A value can have an equals sign."""
    env = {"TALLYSTREAM_KAFKA_SASL_PASSWORD": "s=cret", "TALLYSTREAM_KAFKA_CLIENT_ID": "env", "PATH": "/bin"}
    assert options.kafka_options(["client.id=line", "sasl.username=a=b"], env) == {
        "sasl.password": "s=cret",
        "client.id": "line",
        "sasl.username": "a=b",
    }


def test_a_kafka_option_without_a_key_does_not_show_its_value() -> None:
    """The value may be a secret."""
    with pytest.raises(ConfigError) as error:
        options.kafka_options(["=hush"], {})
    assert "hush" not in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (
            ("aggregate", "--checkpoint", "{}", "--drop-tag", "pod", "--keep-tags", "topic"),
            "--keep-tags: 'topic' .*without --drop-tag",
        ),
        (("rebuild", "--drop-tag", "pod", "--keep-tags", "topic"), "--keep-tags: 'topic' .*without --drop-tag"),
        (
            ("rebuild", "--all-tags", "--drop-tag", "pod"),
            "--all-tags: '--drop-tag pod' .*without --drop-tag and --keep",
        ),
        (("rebuild", "--shards", "0"), "--shards: 0 .*from 1 to 1024"),
        (("rebuild", "--shards", "2", "--timeout", "0"), "--timeout: 0.*1 or more"),
    ],
)
def test_options_for_the_tags_of_the_sums_exclude_each_other(
    arguments: tuple[str, ...], error: str, tmp_path: Path
) -> None:
    """This is found before anything is read."""
    found = CliRunner().invoke(main.app, [one.format(tmp_path / "checkpoint") for one in arguments])
    assert isinstance(found.exception, ConfigError)
    assert re.search(error, str(found.exception))


def shown(*words: str) -> str:
    """Return a help page, with each run of white space as one space."""
    return " ".join(CliRunner().invoke(main.app, [*words, "--help"], prog_name="tallystream").stdout.split())


def test_the_help_of_lag_has_the_options_of_lag_show() -> None:
    """`lag --help` lists the options and the argument of `lag show`, because `show` can be left out."""
    text = shown("lag")
    for one in reference.commands()["lag show"].params:
        if one.name != "help":
            assert (one.opts[0] if one.param_type_name == "option" else "[GROUP]") in text


@pytest.mark.parametrize("name", ["aggregate", "ship", "lag collect", "dashboards push"])
def test_the_help_with_sections_has_every_option_in_one_of_them(name: str) -> None:
    """An option that is in none would be missing from the help."""
    text = shown(*name.split())
    for one in reference.commands()[name].params:
        assert one.opts[0] in text
