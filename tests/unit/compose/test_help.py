"""--help: whole sentences, and every option of a command that may be left out of the line."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from tallystream_cli import main, reference


def shown(*words: str) -> str:
    """Return a help page, each run of white space as one space."""
    return " ".join(CliRunner().invoke(main.app, [*words, "--help"], prog_name="tallystream").stdout.split())


@pytest.mark.parametrize(("group", "app"), [("", main.app), ("lag", main.lag_app), ("dashboards", main.dashboards_app)])
def test_each_command_is_listed_with_a_whole_sentence(group: str, app: Any) -> None:
    """Nothing is cut: the first sentence of each command's text is there to its end."""
    text = shown(*group.split())
    assert "..." not in text.partition("Commands:")[2]
    for one in app.registered_commands:
        sentence = " ".join((one.callback.__doc__ or "").partition("\n\n")[0].split()).partition(". ")[0].rstrip(".")
        assert sentence in text


def test_the_help_of_lag_has_the_options_of_lag_show() -> None:
    """`lag orders --watch` is `lag show orders --watch`: so `lag --help` lists the options and the argument."""
    text = shown("lag")
    for one in reference.commands()["lag show"].params:
        if one.name != "help":
            assert (one.opts[0] if one.param_type_name == "option" else "[GROUP]") in text
