"""docs/configuration.md has every command, option, default and environment variable of the code, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support import reference

ROOT = Path(__file__).parents[3]
DOC = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")


def test_the_tables_are_those_of_the_command_line() -> None:
    """The tables have every option with its default, its environment variable and its meaning."""
    assert reference.update(DOC) == DOC, reference.REMEDY


@pytest.mark.parametrize("name", sorted(set(reference.commands()) - {reference.GENERAL}))
def test_every_command_has_a_section(name: str) -> None:
    """A sentence is between the heading and the table."""
    section = re.search(rf"^### {name}\n\n(.+?)\n\n<!-- options: {name} -->\n", DOC, re.MULTILINE | re.DOTALL)
    assert section is not None, reference.REMEDY


def test_every_table_belongs_to_a_command() -> None:
    """No table of a removed command is left."""
    assert set(re.findall(r"<!-- options: (.+?) -->", DOC)) == {*reference.commands(), reference.SHARED}


def test_the_environment_variables_are_those_that_the_code_reads() -> None:
    """The page names every variable that the code reads, and no others except Spark's."""
    source = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("*/tallystream*/**/*.py"))
    read = set(re.findall(r'environ(?:\.get|\.setdefault)?[\[(]"([A-Z][A-Z_]+)"', source))
    read |= set(re.findall(r'\benv\.get\("([A-Z][A-Z_]+)"', source)) | set(re.findall(r'envvar="([A-Z_]+)"', source))
    read |= {f"TALLYSTREAM_{name}" for name in re.findall(r'PREFIX \+ "([A-Z_]+)"', source)} - {"TALLYSTREAM_KAFKA_"}
    for constant in ("ENV", "FORMAT_ENV"):
        read |= set(re.findall(rf'^{constant} = "([A-Z_]+)"', source, re.MULTILINE))
    read.add("TALLYSTREAM_PAGE_PASSWORD_FILE")  # the code derives it from ENV
    assert len(read) > 15
    named = set(re.findall(r"`((?:[A-Z]+_)+[A-Z]+|PYTHONPATH)(?:=[^`]*)?`", DOC))
    assert read - named == set()
    ours = {name for name in named if name.startswith(("TALLYSTREAM_", "INFLUXDB_", "GRAFANA_"))}
    unknown = {name for name in ours - read if name.removesuffix("_FILE") not in source}
    assert {name for name in unknown if not name.startswith("TALLYSTREAM_KAFKA_")} == set()


def test_an_update_keeps_notes() -> None:
    """An update keeps a note, also if its option moves to another table, and corrects a wrong default."""
    noted = re.sub(r"(\| `--forget-after-days` \|).*\n", r"\1 `8` | old *mine* |\n", DOC, count=1)
    assert "`8` | old *mine*" in noted
    updated = reference.update(noted)
    assert "| `--forget-after-days` | `7` |" in updated
    assert " *mine* |" in updated
    moved = DOC.replace("<!-- options: page -->", "<!-- options: gone -->", 1)
    assert (
        " *beyond loopback, with a proxy in front* |" in reference.update(moved).rpartition("<!-- options: page -->")[2]
    )
