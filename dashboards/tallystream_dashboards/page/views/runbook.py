"""Draw the runbook, or one section of it."""

from __future__ import annotations

import streamlit as st

from tallystream_dashboards.page import runbook
from tallystream_dashboards.page.html_table import literal
from tallystream_dashboards.page.links import page_link


def draw(section: str | None) -> None:
    """Draw one section, or without a section the whole runbook."""
    sections = runbook.sections()
    whole = f"[The whole runbook]({page_link({'view': 'runbook'})})"
    if section is not None and section not in sections:
        st.info(f"The runbook has no section {literal(section)}. {whole}", icon=":material/search_off:")
        return
    for title, text in sections.items():
        if section in (None, title):
            if title:
                st.subheader(title, anchor=False)
            st.markdown(text)
    if section is not None:
        st.markdown(whole)
