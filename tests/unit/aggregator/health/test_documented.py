"""docs/configuration.md and the list of internal metrics."""

from __future__ import annotations

from pathlib import Path

from tallystream_aggregator.health.health import MAX_SILENCE_S
from tallystream_aggregator.health.internal_metrics import INTERNAL_METRICS

DOC = (Path(__file__).parents[4] / "docs" / "configuration.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in DOC.splitlines()]


def test_the_documentation_lists_every_internal_metric() -> None:
    """Names, descriptions and labels are in the order of the list."""
    found = [row for row in ROWS if row[0].startswith("`tallystream_")]
    wanted = []
    for one in INTERNAL_METRICS:
        by = f" By {' and '.join(f'`{label}`' for label in one.labels)}." if one.labels else ""
        wanted.append([f"`{one.exposed}`", one.help + by])
    assert found == wanted


def test_the_documentation_has_the_limit_of_a_stuck_query() -> None:
    """It is in seconds."""
    assert f"seen of its work for {MAX_SILENCE_S:.0f} s" in DOC
