"""--help: complete sentences, and the options of a default command."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from support import reference
from tallystream_cli import main


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
def test_every_option_is_in_a_section(name: str) -> None:
    """A command whose options are in sections shows all of them."""
    text = shown(*name.split())
    for one in reference.commands()[name].params:
        assert one.opts[0] in text
