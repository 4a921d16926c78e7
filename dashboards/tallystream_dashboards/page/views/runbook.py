"""Draw the runbook, or one section of it. `runbook.md` in the package is a copy of docs/runbook.md."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import streamlit as st

from tallystream_dashboards.page.html_table import literal
from tallystream_dashboards.page.url_state import page_link

TEXT = Path(__file__).parents[1] / "runbook.md"
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


def draw(section: str | None) -> None:
    """Draw one section, or without a section the whole runbook."""
    texts = sections()
    whole = f"[The whole runbook]({page_link({'view': 'runbook'})})"
    if section is not None and section not in texts:
        st.info(f"The runbook has no section {literal(section)}. {whole}", icon=":material/search_off:")
        return
    for title, text in texts.items():
        if section in (None, title):
            if title:
                st.subheader(title, anchor=False)
            st.markdown(text)
    if section is not None:
        st.markdown(whole)
