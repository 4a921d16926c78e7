"""docs/configuration.md against the code: every command, option, default and environment variable, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tallystream_cli import reference

ROOT = Path(__file__).parents[3]
DOC = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
REMEDY = "run python -m tallystream_cli.reference docs/configuration.md, and write what a reader needs to know"


def test_the_tables_are_those_of_the_command_line() -> None:
    """Every option of every command, with its default, its environment variable and its meaning."""
    assert reference.update(DOC) == DOC, REMEDY


@pytest.mark.parametrize("name", sorted(set(reference.commands()) - {reference.GENERAL}))
def test_every_command_has_a_section(name: str) -> None:
    """With a sentence of its own between the heading and the table."""
    section = re.search(rf"^### {name}\n\n(.+?)\n\n<!-- options: {name} -->\n", DOC, re.MULTILINE | re.DOTALL)
    assert section is not None, REMEDY


def test_no_table_is_of_a_command_that_is_gone() -> None:
    """Each table belongs to a command, or to several."""
    assert set(re.findall(r"<!-- options: (.+?) -->", DOC)) == {*reference.commands(), reference.SHARED}


def test_every_variable_that_the_code_reads_is_in_the_page() -> None:
    """And the page names none that is not read, but Spark's own."""
    source = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("*/tallystream*/**/*.py"))
    read = set(re.findall(r'environ(?:\.get|\.setdefault)?[\[(]"([A-Z][A-Z_]+)"', source))
    read |= set(re.findall(r'\benv\.get\("([A-Z][A-Z_]+)"', source)) | set(re.findall(r'envvar="([A-Z_]+)"', source))
    read |= {f"TALLYSTREAM_{name}" for name in re.findall(r'PREFIX \+ "([A-Z_]+)"', source)} - {"TALLYSTREAM_KAFKA_"}
    for constant in ("ENV", "FORMAT_ENV"):
        read |= set(re.findall(rf'^{constant} = "([A-Z_]+)"', source, re.MULTILINE))
    read.add("TALLYSTREAM_PAGE_PASSWORD_FILE")  # made of ENV
    assert len(read) > 15
    named = set(re.findall(r"`((?:[A-Z]+_)+[A-Z]+|PYTHONPATH)(?:=[^`]*)?`", DOC))
    assert read - named == set()
    ours = {name for name in named if name.startswith(("TALLYSTREAM_", "INFLUXDB_", "GRAFANA_"))}
    unknown = {name for name in ours - read if name.removesuffix("_FILE") not in source}
    assert {name for name in unknown if not name.startswith("TALLYSTREAM_KAFKA_")} == set()


def test_what_people_wrote_stays() -> None:
    """A note outlives the update, also when its option moves to another table; a wrong default does not."""
    noted = re.sub(r"(\| `--retire-after-h` \|).*\| [^|]*\|\n", r"\1 `7` | | old | mine |\n", DOC, count=1)
    assert "`7` | | old | mine" in noted
    updated = reference.update(noted)
    assert "| `--retire-after-h` | `24` |" in updated
    assert "| mine |" in updated
    moved = DOC.replace("<!-- options: page -->", "<!-- options: gone -->", 1)
    assert "| several pages on one machine |" in reference.update(moved).rpartition("<!-- options: page -->")[2]
