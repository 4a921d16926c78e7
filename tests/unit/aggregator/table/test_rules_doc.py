"""docs/table.md names functions and tests that exist, and both for every rule."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tallystream_aggregator import table

PACKAGE = Path(table.__file__).parents[1]
TESTS = Path(__file__).parent
DOC = (Path(__file__).parents[4] / "docs" / "table.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::([\w.]+)`", DOC)))
RULES = [line for line in DOC.splitlines() if re.match(r"\| \d+ \|", line)]


@cache
def names(path: Path) -> set[str]:
    """Return the functions and classes of a module, and the methods as `Class.method`."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found.update(f"{node.name}.{one.name}" for one in node.body if isinstance(one, ast.FunctionDef))
    return found


def test_every_rule_names_its_function_and_its_test() -> None:
    """The rules are numbered from 1 to 13. The third column has functions, the fourth one tests."""
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in RULES]
    assert [row[0] for row in cells] == [str(number) for number in range(1, 14)]
    for _, _, functions, tests in cells:
        assert re.fullmatch(r"`table/[\w/]+\.py::[\w.]+`(, `table/[\w/]+\.py::[\w.]+`)*", functions)
        assert re.fullmatch(r"`test_\w+\.py::test_\w+`(, `test_\w+\.py::test_\w+`)*", tests)


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_named_functions_and_tests_exist(file: str, name: str) -> None:
    """A file with a folder belongs to the package. A file without one is a test module in this folder."""
    assert name in names((PACKAGE if "/" in file else TESTS) / file)
