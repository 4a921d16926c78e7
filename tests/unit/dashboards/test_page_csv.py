"""The CSV of the page's tables."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystream_dashboards.data.lines import Line, chart_data
from tallystream_dashboards.data.pipeline import Hop
from tallystream_dashboards.page import exports
from tallystream_dashboards.page.exports import csv_text


@given(
    st.lists(st.fixed_dictionaries({"name": st.text(alphabet='ab ,"\r\n\t=+-@é'), "lag": st.integers()}), min_size=1)
)
def test_every_cell_is_read_back(rows: list[dict[str, object]]) -> None:
    """A reader of CSV gets the same texts, but for an apostrophe before one that looks like a formula."""
    for row, read in zip(rows, csv.DictReader(io.StringIO(csv_text(rows), newline="")), strict=True):
        assert read["name"] in (row["name"], f"'{row['name']}")
        assert not read["name"].lstrip(" ").startswith(("=", "+", "-", "@", "\t", "\r"))
        assert int(read["lag"]) == row["lag"]


@pytest.mark.parametrize("name", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "  =1"])
def test_a_name_is_no_formula(name: str) -> None:
    """A spreadsheet shows a hostile name as text. A negative number stays a number."""
    assert csv_text([{"name": name, "value": -2}]).splitlines()[1].replace('"', "") == f"'{name},-2"


def test_numbers_are_exact() -> None:
    """Numbers have all their digits, and what is not known is empty."""
    row = {"count": 2**63 + 1, "mean": 0.1 + 0.2, "lag": None, "gone": False}
    assert csv_text([row]) == f"count,mean,lag,gone\r\n{2**63 + 1},0.30000000000000004,,false\r\n"


def test_the_rows_of_hops_and_charts() -> None:
    """A hop has its delay in seconds, a chart each point of its lines."""
    assert exports.hops([Hop("a → b", "1 min", None, "Why.", 61.5)]) == [
        {"hop": "a → b", "status": None, "delay_s": 61.5, "why": "Why."}
    ]
    assert exports.points(chart_data([Line("a", [1, 2], [5, None])], 0, 2)) == [
        {"series": "a", "ts_ms": 1, "value": 5},
        {"series": "a", "ts_ms": 2, "value": None},
    ]
