"""The banner at the top of every view: everything well, or what is not, since when, why, and what to do."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import streamlit as st

from tallystream_dashboards import formatting
from tallystream_dashboards.data.problems import action, problems
from tallystream_dashboards.page import components
from tallystream_dashboards.page.url_state import page_link
from tallystream_dashboards.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import tzinfo

    from tallystream_dashboards.data.problems import Problem
    from tallystream_dashboards.page.reading import PageData
    from tallystream_dashboards.page.url_state import Selection

SHOWN = 3
"""How many problems of one kind are shown at once. The others are behind a button."""
MAX_PROBLEMS = 50
"""How many problems of one kind are listed."""


def draw_banner(data: PageData, *, zone: tzinfo) -> None:
    """Draw whether everything is well; draw nothing over an empty store."""
    if data.has_points:
        now_ms = data.period.end_ms
        found = problems(data.groups, data.observed, now_ms=now_ms)
        clock = components.clock(zone, now_ms)
        lag_known = data.groups.round_ms is not None
        st.html(banner(found, data.selection, clock, lag_known=lag_known, now_ms=now_ms))


def headline(found: Sequence[Problem], *, lag_known: bool, past: bool) -> str:
    """Return the answer in one sentence."""
    if not lag_known:
        return "It is not known whether everything is well: the store has no lag."
    if not found:
        return "Everything was well." if past else "Everything is well."
    critical = sum(problem.severity == "critical" for problem in found)
    if len(found) == 1:
        return f"1 {'critical problem' if critical else 'warning'}"
    parts = [f"{critical:,} critical"] if critical else []
    warnings = len(found) - critical
    parts += [formatting.counted(warnings, "warning")] if warnings else []
    return f"{len(found):,} problems: {', '.join(parts)}"


def banner(
    found: Sequence[Problem],
    selection: Selection,
    clock: Callable[[int], str],
    *,
    lag_known: bool,
    now_ms: int,
) -> str:
    """Return the banner. A screen reader announces the headline when it changes."""
    severity = "unknown" if not lag_known else "well"
    if found:
        severity = "critical" if any(problem.severity == "critical" for problem in found) else "warning"
    sentence = headline(found, lag_known=lag_known, past=selection.at is not None)
    kinds: dict[str, list[Problem]] = {}
    for problem in found:
        kinds.setdefault(problem.slug, []).append(problem)
    items = [_kind(kind, selection, clock, now_ms=now_ms) for kind in kinds.values()]
    listed = f"<ol>{''.join(items)}</ol>" if found else ""
    return (
        f'<section class="banner {severity}" aria-label="State of the system">'
        f'<div role="status"><h2>{sentence}</h2></div>{listed}</section>'
    )


def _kind(kind: Sequence[Problem], selection: Selection, clock: Callable[[int], str], *, now_ms: int) -> str:
    """Return the problems of one kind, with what to do about all of them."""
    items = [_item(problem, selection, clock, now_ms=now_ms) for problem in kind[:MAX_PROBLEMS]]
    if len(kind) > MAX_PROBLEMS:
        items.append(f"<p>{len(kind) - MAX_PROBLEMS:,} more are not listed.</p>")
    more = f"<details><summary>{len(kind) - SHOWN:,} more</summary>{''.join(items[SHOWN:])}</details>"
    runbook = page_link({"view": "runbook", "section": kind[0].slug})
    # The runbook opens beside the page, so that the problem stays in view.
    return (
        f"<li>{''.join(items[:SHOWN])}{more if items[SHOWN:] else ''}<p>What to do: {_text(action(kind))} "
        f'<a href="{escape(runbook)}" target="_blank">Runbook: {kind[0].slug}</a></p></li>'
    )


def _item(problem: Problem, selection: Selection, clock: Callable[[int], str], *, now_ms: int) -> str:
    since = ""
    if problem.since_ms is not None:
        ago = formatting.duration((now_ms - problem.since_ms) / 1000)
        since = f" since {clock(problem.since_ms)} ({ago})"
    return (
        f'<p><span class="severity">{problem.severity}</span><strong>{_text(problem.what)}</strong>{since}</p>'
        f'<p>{_text(problem.why)} <a href="{escape(page_link(problem.details, selection))}">Details</a></p>'
    )


def _text(text: str) -> str:
    return escape(printable(text))
