"""The commands by their options and outputs: lag, forget."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from support.lag import Rounds, group, round_of
from tallystream.errors import ConfigError
from tallystream_aggregator.jobs import forget
from tallystream_aggregator.jobs.forget import Plan, RemovedLife
from tallystream_aggregator.kafka.clients import Cluster
from tallystream_aggregator.shutdown import StopRequest
from tallystream_aggregator.sinks.sqlite.sink import LocalStore
from tallystream_aggregator.table.records.decode import Forget
from tallystream_cli import main
from tallystream_cli.commands.forget import MAX_ROWS, as_dict, as_text

AT_MS = 1_795_168_800_000
"""2026-11-20T10:00 UTC in epoch ms"""


@pytest.fixture
def spec(tmp_path: Path) -> str:
    """A store in which the group `billing` has stopped with a lag of 880 records at ten o'clock."""
    store = LocalStore(tmp_path / "store.db", retention_ms=0)
    store.setup()
    rounds = Rounds()
    for ago in range(300, -1, -2):
        end = 9_900 - ago * 10
        store.write(rounds.points(round_of(group("billing", (min(9_020, end), end), members=0)), AT_MS - ago * 1000))
    store.close()
    return f"local:{tmp_path / 'store.db'}"


@pytest.mark.parametrize("words", [["lag"], ["lag", "billing"], ["lag", "show", "billing"]])
def test_show_is_the_default_command(spec: str, words: list[str]) -> None:
    """`lag`, `lag GROUP` and `lag show GROUP` are the same command; the exit code for a stopped group is 2."""
    shown = CliRunner().invoke(main.app, [*words, "--store", spec, "--at", "2026-11-20T10:00"])
    assert "billing" in shown.stdout
    assert "ERR" in shown.stdout
    assert shown.exit_code == 2


@pytest.mark.parametrize(
    "words",
    [["lag"], ["instances"], ["sums", "--app"], ["compare", "--group"], ["compare", "n", "--tag", "a=b", "--tag"]],
)
def test_an_argument_that_is_not_utf_8_is_a_name_that_the_store_does_not_have(spec: str, words: list[str]) -> None:
    """It is typed in a terminal with another encoding. The answer has its bytes as escapes."""
    shown = CliRunner().invoke(main.app, [*words, "a=gr\udcf6\udcdfe", "--store", spec, "--at", "2026-11-20T10:00"])
    assert (shown.exit_code, shown.exception.__class__) == (3, SystemExit)


def test_a_store_that_can_not_be_looked_for_is_named(tmp_path: Path) -> None:
    """The name is too long, as the folder may be one that this user may not enter: the reason of the system is told."""
    for words in (["lag"], ["page"], ["lag", "collect"]):
        refused = CliRunner().invoke(main.app, [*words, "--store", f"local:{tmp_path / ('n' * 300)}"])
        assert isinstance(refused.exception, ConfigError)
        assert "File name too long" in str(refused.exception)


PLAN = Plan(
    [],
    [RemovedLife("shop", "app-1", "01", "living", metrics=3)],
    [("shop", "[b]orders", "counter", (("site", "x"),))],
)


def test_lives_and_metrics_are_as_text() -> None:
    """A note says which counts come back or stay."""
    text = as_text(PLAN, of_instance=True)
    for words in ("app-1", "living", "[b]orders site=x"):
        assert words in text
    assert "their next snapshot brings their counts back" in text
    assert "forgotten lives counted stays" in text
    assert "forgotten lives counted stays" not in as_text(PLAN, of_instance=False)


def test_the_tables_are_limited() -> None:
    """Their numbers of rows are printed then."""
    text = as_text(PLAN._replace(lives=PLAN.lives * (MAX_ROWS + 5)), of_instance=True)
    assert "and more: --json has all 25 lives and 1 sums" in text


def test_json_has_everything() -> None:
    """The object has the lives, and the sums that lose something."""
    assert as_dict(PLAN, published=False) == {
        "published": False,
        "lives": [{"app": "shop", "instance": "app-1", "life": "01", "state": "living", "metrics": 3}],
        "sums": [{"app": "shop", "name": "[b]orders", "type": "counter", "tags": {"site": "x"}}],
    }


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_table_is_read_publishes_nothing(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """Ctrl-C and SIGTERM both end the command with code 130 and a message."""

    def read_plan(*_: object) -> Plan:
        signal.raise_signal(number)
        threading.Event().wait(60)  # with other threads, Python may call the handler a little later
        return PLAN

    monkeypatch.setattr(forget, "read_plan", read_plan)
    before = signal.getsignal(signal.SIGTERM)
    try:
        result = CliRunner().invoke(main.app, ["forget", "--metric", "a", "--yes"])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert result.exit_code == 130
    assert result.stderr == "stopped: nothing is published\n"


def test_a_stop_before_the_first_record_publishes_nothing() -> None:
    """No request is sent to a broker."""
    messages, stop = list[str](), StopRequest()
    stop.set()
    settings = forget.ForgetSettings(Cluster("127.0.0.1:1"), Forget(metric="a"))
    assert not forget.publish(settings, PLAN, messages.append, stop)
    assert messages == ["stopped: nothing is published"]
