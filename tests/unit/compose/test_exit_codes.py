"""The exit codes: the same for the same thing, whatever the command."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support import reference
from support.commands import call
from support.guides import ROOT
from tallystream_aggregator.jobs import forget
from tallystream_aggregator.sinks.stores import StoreSettings, open_store
from tallystream_dashboards.exit_codes import BAD, GOOD, INTERRUPTED, UNKNOWN, UNUSABLE

COMMANDS = sorted(reference.commands().keys() - {reference.GENERAL})
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
        *((f"{command} --nonsense", UNUSABLE) for command in COMMANDS),
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
        ("dashboards generate --out {}/damaged.db/grafana", UNUSABLE),
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
