"""--help: complete sentences, and the options of a default command."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from support import reference
from tallystream_cli import main


def shown(*words: str) -> str:
    """Return a help page, with each run of white space as one space."""
    return " ".join(CliRunner().invoke(main.app, [*words, "--help"], prog_name="tallystream").stdout.split())


@pytest.mark.parametrize(("group", "app"), [("", main.app), ("lag", main.lag_app), ("dashboards", main.dashboards_app)])
def test_each_command_is_listed_with_a_complete_sentence(group: str, app: Any) -> None:
    """The first sentence of each command's help is complete."""
    text = shown(*group.split())
    assert "..." not in text.partition("Commands:")[2]
    for one in app.registered_commands:
        sentence = " ".join((one.callback.__doc__ or "").partition("\n\n")[0].split()).partition(". ")[0].rstrip(".")
        assert sentence in text


def test_the_help_of_lag_has_the_options_of_lag_show() -> None:
    """`lag --help` lists the options and the argument of `lag show`, because `show` can be left out."""
    text = shown("lag")
    for one in reference.commands()["lag show"].params:
        if one.name != "help":
            assert (one.opts[0] if one.param_type_name == "option" else "[GROUP]") in text


@pytest.mark.parametrize("name", ["aggregate", "ship", "lag collect", "dashboards push"])
def test_every_option_is_in_a_section(name: str) -> None:
    """A command whose options are in sections shows all of them."""
    text = shown(*name.split())
    for one in reference.commands()[name].params:
        assert one.opts[0] in text
