"""Generate the tables of docs/configuration.md: every option of every command.

`PYTHONPATH=tests python -m support.reference` updates them. The text around the tables, and the notes in italics at the
end of rows, are written by hand and kept.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from typer.main import get_command

SHARED = "several commands"
"""The name of the table of options that two or more commands share."""

GENERAL = "tallystream"
"""The name of the table of options that precede the command."""

DOCS = Path(__file__).parents[2] / "docs"
REMEDY = "run PYTHONPATH=tests python -m support.reference, and write what a reader needs to know"

_START, _END = "<!-- options: {} -->", "<!-- end -->"


class Option(NamedTuple):
    """The cells of an option or argument in the table."""

    names: str
    default: str
    meaning: str


def commands() -> dict[str, Any]:
    """Return every command by its name; the name of the root command is `tallystream`."""
    from tallystream_cli import main as cli

    root = get_command(cli.app)
    return {GENERAL: root, **_subcommands(root, "")}


def _subcommands(group: Any, prefix: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, command in group.commands.items():
        full_name = f"{prefix} {name}".strip()
        found |= _subcommands(command, full_name) if hasattr(command, "commands") else {full_name: command}
    return found


def options(command: Any) -> list[Option]:
    """Return the options and arguments of a command in order, without --help."""
    return [_option(param) for param in command.params if param.name != "help"]


def tables() -> dict[str, list[tuple[Option, str]]]:
    """Return the rows of each table by its name: each option, with the names of the commands that have it."""
    all_commands = commands()
    users: dict[Option, list[str]] = {}
    for name, command in all_commands.items():
        for option in options(command):
            users.setdefault(option, []).append(name)
    rows: dict[str, list[tuple[Option, str]]] = {name: [] for name in (*all_commands, SHARED)}
    for option, names in users.items():
        rows[names[0] if len(names) == 1 else SHARED].append((option, ", ".join(names)))
    return rows


def update(text: str) -> str:
    """Return the page with up-to-date tables; a table that is missing is appended."""
    everywhere = {key: note for key, note in _notes(text).items() if key[1]}
    for name, rows in tables().items():
        start = _START.format(name)
        found = re.search(rf"{re.escape(start)}\n(.*?){_END}", text, re.DOTALL)
        table = f"{start}\n{_table(rows, everywhere | _notes(found[1] if found else ''), shared=name == SHARED)}{_END}"
        text = text.replace(found[0], table) if found else f"{text.rstrip()}\n\n### {name}\n\n{table}\n"
    return text


def _option(param: Any) -> Option:
    if param.param_type_name == "argument":
        names = f"`{(param.metavar or param.name).upper()}`"
    else:
        names = ", ".join(f"`{name}`" for name in [*param.opts, *param.secondary_opts])
    variables = [param.envvar] if isinstance(param.envvar, str) else param.envvar or []
    named = f"({', '.join(f'`{name}`' for name in variables)})" if variables else ""
    meaning = " ".join([*(getattr(param, "help", None) or "").split(), *named.split()]).replace("|", "\\|")
    return Option(names, _default(param), meaning)


def _default(param: Any) -> str:
    default = param.default() if callable(param.default) else param.default
    if param.required:
        return "required"
    if param.param_type_name == "option" and param.is_flag:
        return "on" if default is True else "off"
    if default in (None, "", (), []) or type(default).__name__ == "Sentinel":
        return "none"
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"


def _notes(table: str) -> dict[tuple[str, str], str]:
    """Return the notes at the end of the meanings, by the option's names and meaning, and by its names and ""."""
    notes: dict[tuple[str, str], str] = {}
    for names, meaning, note in re.findall(r"^\| (`.+?`) \| .*\| (.*?) ?\*([^*]+)\* \|$", table, re.MULTILINE):
        notes[names, meaning] = notes[names, ""] = note
    return notes


def _table(rows: list[tuple[Option, str]], notes: dict[tuple[str, str], str], *, shared: bool) -> str:
    if not rows:
        return ""
    header = ["option", *(["of"] if shared else []), "default", "meaning"]
    lines = []
    for option, users in rows:
        commands = [users] if shared else []
        note = notes.get((option.names, option.meaning)) or notes.get((option.names, ""))
        meaning = f"{option.meaning} *{note}*" if note else option.meaning
        lines.append([option.names, *commands, option.default, meaning])
    head = f"| {' | '.join(header)} |\n|{'---|' * len(header)}\n"
    return head + "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


if __name__ == "__main__":
    page = DOCS / "configuration.md"
    page.write_text(update(page.read_text(encoding="utf-8")), encoding="utf-8")
