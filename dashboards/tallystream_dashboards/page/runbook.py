"""The sections of the runbook as the page shows them. `runbook.md` beside this module is a copy of docs/runbook.md."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from tallystream_dashboards.page.links import page_link

TEXT = Path(__file__).with_name("runbook.md")
_LINK = re.compile(r"\[([^\]]+)\]\(([^)#\s]*)(?:#([\w-]+))?\)")


@cache
def sections() -> dict[str, str]:
    """Return the sections as Markdown, by their titles, which for an alert is its slug. The first one has no title."""
    parts = re.split(r"^## ", TEXT.read_text(encoding="utf-8"), flags=re.MULTILINE)
    texts = {"": parts[0].partition("\n")[2], **dict(part.split("\n", 1) for part in parts[1:])}
    return {title: _LINK.sub(_linked, text).strip() for title, text in texts.items()}


def _linked(link: re.Match[str]) -> str:
    """Return a link to a section of the runbook as one to this page, and a link to other docs as their name."""
    text, document, anchor = link.groups()
    if document:
        return text if text == document else f"{text} (docs/{document})"
    return f"[{text}]({page_link({'view': 'runbook', 'section': anchor})})"
