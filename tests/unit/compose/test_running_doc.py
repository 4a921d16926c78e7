"""docs/running.md compared with the command line: the page has every command, and no option that does not exist.

docs/configuration.md has every option with its default: see test_configuration_doc.py.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from support import reference

DOC = (Path(__file__).parents[3] / "docs" / "running.md").read_text(encoding="utf-8")
COMMANDS = reference.commands()


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {reference.GENERAL}))
def test_every_command_is_in_the_page(name: str) -> None:
    """The page has the command in the form in which it is called."""
    assert f"tallystream {name}" in DOC


def test_the_page_names_no_option_that_does_not_exist() -> None:
    """Each word of the page that looks like an option is an option of some command."""
    known = {option for one in COMMANDS.values() for option in _options(one)} | {"--help"}
    assert set(re.findall(r"(?<![\w-])--[a-z]+(?:-[a-z]+)*", DOC)) - known == set()


def _options(command: Any) -> set[str]:
    return {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
