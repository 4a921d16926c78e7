"""The tables of docs/configuration.md: every option of every command, as the command line has it.

`python -m tallystream_cli.reference docs/configuration.md` brings the tables up to date. What people wrote stays:
the text around the tables, and the last cell of each row.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

from typer.main import get_command

SHARED = "several commands"
"""What the table is called of options that mean the same in two commands or more."""

GENERAL = "tallystream"

_BEGIN, _END = "<!-- options: {} -->", "<!-- end -->"


class Option(NamedTuple):
    """One option or argument, as it is written, and all that the table says of it."""

    names: str
    default: str
    environment: str
    meaning: str


def commands() -> dict[str, Any]:
    """Return every command by the words that call it; that of the options before a command is `tallystream`."""
    from tallystream_cli import main as cli

    root = get_command(cli.app)
    return {GENERAL: root, **_below(root, "")}


def _below(group: Any, words: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, command in group.commands.items():
        called = f"{words} {name}".strip()
        found |= _below(command, called) if hasattr(command, "commands") else {called: command}
    return found


def options(command: Any) -> list[Option]:
    """Return a command's options and arguments in their order, without --help."""
    return [_option(one) for one in command.params if one.name != "help"]


def tables() -> dict[str, list[tuple[Option, str]]]:
    """Return the rows by table: those of each command, and those of several, which also say of which."""
    users: dict[Option, list[str]] = {}
    for name, command in commands().items():
        for option in options(command):
            users.setdefault(option, []).append(name)
    found: dict[str, list[tuple[Option, str]]] = {GENERAL: [], SHARED: []}
    for option, names in users.items():
        found.setdefault(names[0] if len(names) == 1 else SHARED, []).append((option, ", ".join(names)))
    return found


def update(text: str) -> str:
    """Return the page with every table as the command line has it; a table that is missing comes at the end."""
    everywhere = _notes(text)
    for name, rows in tables().items():
        begin = _BEGIN.format(name)
        found = re.search(rf"{re.escape(begin)}\n(.*?){_END}", text, re.DOTALL)
        table = f"{begin}\n{_table(rows, everywhere | _notes(found[1] if found else ''), shared=name == SHARED)}{_END}"
        text = text.replace(found[0], table) if found else f"{text.rstrip()}\n\n### {name}\n\n{table}\n"
    return text


def _option(one: Any) -> Option:
    written = [*one.opts, *one.secondary_opts]
    argument = one.param_type_name == "argument"
    names = f"`{(one.metavar or one.name).upper()}`" if argument else ", ".join(f"`{name}`" for name in written)
    variables = [one.envvar] if isinstance(one.envvar, str) else one.envvar or []
    meaning = " ".join((getattr(one, "help", None) or "").split()).replace("|", "\\|")
    return Option(names, _default(one), ", ".join(f"`{name}`" for name in variables), meaning)


def _default(one: Any) -> str:
    default = one.default() if callable(one.default) else one.default
    if one.required:
        return "required"
    if one.param_type_name == "option" and one.is_flag:
        return "on" if default is True else "off"
    if default in (None, "", (), []) or type(default).__name__ == "Sentinel":
        return "none"
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"


def _notes(table: str) -> dict[str, str]:
    """Return the last cells of a table by the names of the options with their meaning, and by the names alone."""
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in table.splitlines() if line.startswith("| `")]
    notes: dict[str, str] = {}
    for names, *_, meaning, note in ([cell.strip() for cell in cells] for cells in rows):
        if note:
            notes[f"{names} {meaning}"] = note
            notes.setdefault(names, note)
    return notes


def _table(rows: list[tuple[Option, str]], notes: dict[str, str], *, shared: bool) -> str:
    if not rows:
        return "It has no options but those of several commands.\n"
    heads = ["option", *(["of"] if shared else []), "default", "environment", "meaning", "when to change it"]
    lines = [heads, ["---"] * len(heads)]
    for option, users in rows:
        of = [users] if shared else []
        lines.append(
            [option.names, *of, option.default, option.environment, option.meaning, notes.get(option.names, "")]
        )
    return "".join(f"| {' | '.join(cells)} |\n".replace("|  |", "| |") for cells in lines)


def main(arguments: list[str]) -> int:
    """Bring the page up to date, and say whether it was; the exit code is 0 in both cases."""
    path = Path(arguments[0])
    before = path.read_text(encoding="utf-8") if path.exists() else "# Configuration\n"
    after = update(before)
    path.write_text(after, encoding="utf-8")
    sys.stderr.write(f"{path} {'was up to date' if after == before else 'is brought up to date'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
