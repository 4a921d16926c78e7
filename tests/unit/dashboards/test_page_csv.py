"""The CSV of the page's tables."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystream_dashboards.page.exports import csv_text


@given(
    st.lists(st.fixed_dictionaries({"name": st.text(alphabet='ab ,;"\r\n\t=+-@é'), "lag": st.integers()}), min_size=1)
)
def test_every_cell_is_read_back(rows: list[dict[str, object]]) -> None:
    """A reader of CSV gets the same texts, but for an apostrophe before one that looks like a formula."""
    for row, read in zip(rows, csv.DictReader(io.StringIO(csv_text(rows), newline="")), strict=True):
        assert read["name"] in (row["name"], f"'{row['name']}")
        assert not read["name"].lstrip().startswith(("=", "+", "-", "@"))
        assert int(read["lag"]) == row["lag"]


SKIPPED = " \t\r\n\x0b\x0c\x1c\x85\xa0\u1680\u2000\u2028\u2029\u200b\u202e\u3000\ufeff"
"""Spaces, line breaks and invisible characters, which a spreadsheet may skip before a formula."""

SIGNS = "=+-@\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b\u2212"
"""What begins a formula: the plain signs, the full-width ones, the small ones and the minus sign."""


@given(st.text(alphabet=SKIPPED, max_size=3), st.sampled_from(SIGNS), st.text(max_size=5))
def test_a_name_is_no_formula(before: str, sign: str, after: str) -> None:
    """A spreadsheet shows a hostile name as text, also behind what it skips, and in the full-width and small forms."""
    name = before + sign + after.replace("\r", "").replace("\n", "")
    text = csv_text([{"name": name, "value": -2}])
    assert next(csv.DictReader(io.StringIO(text, newline=""))) == {"name": f"'{name}", "value": "-2"}


@pytest.mark.parametrize("name", ["a;=1+1", "a,=1+1", "a|=1", 'a"\n=1', "orders - all", "é", "\xa0orders", ""])
def test_every_cell_is_quoted(name: str) -> None:
    """No separator of any locale divides a cell. Names that are no formulas, and negative numbers, stay as they are."""
    assert csv_text([{"name": name, "value": -2}]) == '"name","value"\r\n"{}","-2"\r\n'.format(name.replace('"', '""'))


def test_numbers_are_exact() -> None:
    """Numbers have all their digits, and what is not known is empty."""
    row = {"count": 2**63 + 1, "mean": 0.1 + 0.2, "lag": None, "gone": False}
    assert csv_text([row]) == f'"count","mean","lag","gone"\r\n"{2**63 + 1}","0.30000000000000004","","false"\r\n'
