"""`tallystream forget`: its output and its options, without a broker."""

from __future__ import annotations

import signal
import threading

import pytest
from typer.testing import CliRunner

from tallystream.errors import ConfigError
from tallystream_aggregator.jobs import forget
from tallystream_aggregator.jobs.forget import Plan, RemovedLife
from tallystream_aggregator.kafka.clients import Cluster
from tallystream_aggregator.shutdown import stop_on_signals
from tallystream_aggregator.table.records.decode import Forget
from tallystream_cli import main
from tallystream_cli.commands.forget import MAX_ROWS, as_dict, as_text

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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--instance is not set; name the instance whose lives are removed, or a metric with --metric"),
        (["--instance", "a", "--metric", "b"], "--metric: 'b' can't be used; leave it out, or --instance a"),
        (["--metric", "a", "--life", "x"], "--life: 'x' can't be used; give it with --instance"),
        (["--instance", "a", "--type", "counter"], "--type: 'counter' can't be used; give it with --metric"),
        (["--instance", "a", "--tag", "b=c"], "--tag: {'b': 'c'} can't be used; give it with --metric"),
        (["--metric", "a", "--tag", "b"], "--tag: 'b' can't be used; give NAME=VALUE"),
        (["--metric", "a", "--type", "gage"], "the type is not one of counter"),
        (["--instance", "a", "--life", "x"], "matching regex"),
        (["--metric", "a", "--timeout", "0"], "--timeout"),
    ],
)
def test_options_that_do_not_go_together_are_rejected(arguments: list[str], message: str) -> None:
    """The error comes before any request to a broker."""
    result = CliRunner().invoke(main.app, ["forget", *arguments])
    assert isinstance(result.exception, ConfigError)
    assert message in str(result.exception)


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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_first_record_publishes_nothing(number: signal.Signals) -> None:
    """No request is sent to a broker."""
    messages: list[str] = []
    with stop_on_signals() as stop:
        signal.raise_signal(number)
        assert stop.wait(60)
        settings = forget.ForgetSettings(Cluster("127.0.0.1:1"), Forget(metric="a"))
        assert not forget.publish(settings, PLAN, messages.append, stop)
    assert messages == ["stopped: nothing is published"]
