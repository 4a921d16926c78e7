"""The table of permissions in docs/security.md.

`PYTHONPATH=tests python -m support.acl_table docs/security.md` updates it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from support.doc_page import update_page
from tallystream_cli.permissions import PERMISSIONS

_START, _END = "<!-- acls -->\n", "<!-- end -->"


def table() -> str:
    """Return the table of docs/security.md: names for which a command needs the same share a row."""
    names: dict[tuple[str, str, str], list[str]] = {}
    for one in PERMISSIONS:
        names.setdefault((one.command, one.resource, ", ".join(one.operations)), []).append(f"`{one.name}`")
    rows = [("command", "resource", "operations", "names"), ("---",) * 4]
    rows += [(*key, ", ".join(found)) for key, found in names.items()]
    return "".join(f"| {' | '.join(row)} |\n".replace("| --- |", "|---|").replace(" --- |", "---|") for row in rows)


def update(text: str) -> str:
    """Return the page with an up-to-date table."""
    before, start, rest = text.partition(_START)
    return f"{before}{start}{table()}{_END}{rest.partition(_END)[2]}"


if __name__ == "__main__":
    update_page(Path(sys.argv[1]), update)
