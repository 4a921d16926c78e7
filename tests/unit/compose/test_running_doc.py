"""docs/running.md against the command line: every command and option is there, with its default, and no other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from tallystream.compose import cli

DOC = (Path(__file__).parents[3] / "docs" / "running.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in DOC.splitlines() if line.startswith("| `--")]
GENERAL = {"--help", "--version", "--log-level", "--log-format"}


def commands() -> dict[str, Any]:
    """Return the commands by the words that call them."""
    found: dict[str, Any] = {}
    for name, one in get_command(cli.app).commands.items():  # type: ignore[attr-defined]
        below = getattr(one, "commands", None)
        found |= {name: one} if below is None else {f"{name} {word}": command for word, command in below.items()}
    return found


def options(command: Any) -> dict[str, Any]:
    """Return a command's options by their long names."""
    return {name: one for one in command.params for name in (*one.opts, *one.secondary_opts) if name.startswith("--")}


def shown(default: object) -> str:
    """Return a default as the page writes it, the commas of large numbers aside."""
    if default is True:
        return "on"
    return f"{default:g}" if isinstance(default, float) else str(default)


@pytest.mark.parametrize("name", commands())
def test_every_option_is_in_the_page(name: str) -> None:
    """Each option of each command is in a table of the page, or among those of every command."""
    assert f"tallystream {name}" in DOC
    documented = {option for row in ROWS for option in re.findall(r"--[a-z-]+", row[0])} | GENERAL
    assert set(options(commands()[name])) - documented == set()


def test_the_page_names_no_option_that_is_not_there() -> None:
    """What the page calls an option is one, wherever in the page it stands."""
    known = {option for command in commands().values() for option in options(command)} | GENERAL
    assert set(re.findall(r"(?<![\w-])--[a-z]+(?:-[a-z]+)*", DOC)) - known == set()


@pytest.mark.parametrize("name", commands())
def test_the_defaults_are_those_of_the_page(name: str) -> None:
    """A row whose option has a default of its own says that default."""
    for option, parameter in options(commands()[name]).items():
        default = parameter.default
        if option in GENERAL or default is None or default is False or default == "" or callable(default):
            continue
        rows = [row for row in ROWS if re.search(rf"{option}\b(?!-)", row[0])]
        # A row of four cells is for several commands: options, of which commands, defaults, meaning.
        cells = [row[2] if len(row) == 4 else row[1] for row in rows]
        wanted = re.escape(shown(default).replace(",", ""))
        assert any(re.search(rf"(?<!\w){wanted}(?!\w)", cell.replace(",", "")) for cell in cells), (
            f"{name} {option}: {shown(default)} is not in {cells}"
        )
