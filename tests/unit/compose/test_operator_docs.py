"""The operators' pages: they have every command, their command lines are valid, every alert has a section."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from support import reference
from tallystream_aggregator.table.state import STATE_VERSION
from tallystream_dashboards.grafana.generate import alert_rules

ROOT = Path(__file__).parents[3]
PAGES = ("install", "runbook", "upgrade", "deploy", "configuration")
RUNNING = (ROOT / "docs" / "running.md").read_text(encoding="utf-8")
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")


def lines(page: str) -> list[str]:
    """Return the command lines of `tallystream` in a page, from code blocks and between backticks."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8").replace("\\\n", "")
    blocks = re.findall(
        r"^(?: {4}|ExecStart=)(?:[\w/]+/)?(?:[A-Z_]+=\S+ )*(?:[\w/]+/)?(tallystream [a-z].*)$", text, re.MULTILINE
    )
    return [re.split(r"\s+#", line)[0] for line in [*blocks, *re.findall(r"`(tallystream [a-z][^`]*)`", text)]]


def options(name: str) -> set[str]:
    """Return the options of a command."""
    command: Any = reference.commands()[name]
    return {option for one in command.params for option in (*one.opts, *one.secondary_opts)}


@pytest.mark.parametrize("name", sorted(set(reference.commands()) - {reference.GENERAL}))
def test_every_command_is_in_the_page_on_running(name: str) -> None:
    """The page has the command in the form in which it is called. docs/configuration.md has its options."""
    assert f"tallystream {name}" in RUNNING


def test_the_page_on_running_names_no_option_that_does_not_exist() -> None:
    """Each word of the page that looks like an option is an option of some command."""
    known = {option for name in reference.commands() for option in options(name)} | {"--help"}
    assert set(re.findall(r"(?<![\w-])--[a-z]+(?:-[a-z]+)*", RUNNING)) - known == set()


@pytest.mark.parametrize("page", PAGES)
def test_every_command_line_is_valid(page: str) -> None:
    """The command and each of its options exist."""
    found = lines(page)
    assert found
    names = reference.commands()
    for line in found:
        words = shlex.split(line)[1:]
        name = next((" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in names), words[0])
        name = "lag show" if name == "lag" else name
        assert name in names, line
        assert {word for word in words if word.startswith("--")} <= options(name), line


def test_every_alert_has_a_section_in_the_runbook() -> None:
    """The headings are the slugs in the order of the rules. Each section says what to check and what to do."""
    sections = re.split(r"^## ", RUNBOOK, flags=re.MULTILINE)[1:]
    found = {section.partition("\n")[0]: section for section in sections}
    assert [name for name in found if name != "After an outage"] == list(alert_rules())
    for slug in alert_rules():
        section = found[slug]
        assert re.search(r"^Look at", section, re.MULTILINE), slug
        assert re.search(r"^Do[:,]", section, re.MULTILINE), slug
        assert re.match(r"\S+\n\n\*.+\*", section, re.DOTALL), f"{slug}: the alert's message comes first"


def test_the_state_version_is_that_of_the_code() -> None:
    """The page on upgrades has the version that the code writes and reads."""
    text = (ROOT / "docs" / "upgrade.md").read_text(encoding="utf-8")
    assert f"has a state version, now {STATE_VERSION}." in text


@pytest.mark.parametrize("page", PAGES)
def test_the_named_files_exist(page: str) -> None:
    """Paths of the repository between backticks or in command lines exist."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    named = set(re.findall(r"(?<![\w/.-])((?:tests|compose|deploy|docs|scripts)/[\w/.-]*\w)", text)) - {"compose/.env"}
    for path in named:
        assert (ROOT / path).exists(), path


def test_the_modules_that_a_value_passes_exist() -> None:
    """The lists of docs/architecture.md name them, from `inc()` to a point in InfluxDB."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"^(?:\d+\.|-) `(tallystream[\w.]*)`", text, re.MULTILINE)
    assert len(named) > 30
    assert not [name for name in named if importlib.util.find_spec(name) is None]


@pytest.mark.parametrize("page", ["README.md", "docs/running.md"])
def test_the_setup_comes_before_the_commands_of_the_environment(page: str) -> None:
    """A user who follows a page from its start has `.venv/bin/tallystream` before it is used."""
    text = (ROOT / page).read_text(encoding="utf-8")
    assert "make setup" in text.partition(".venv/bin/tallystream")[0]


INSTALL = (ROOT / "docs" / "install.md").read_text(encoding="utf-8").partition("\n## 1. ")[2].partition("\n## 2. ")[0]


def test_the_reporter_can_be_installed_alone() -> None:
    """An application needs one package, and the page has the command that installs only it."""
    commands = re.findall(r"^ {4}(?:\S*/)?(pip install .*)$", INSTALL, re.MULTILINE)
    assert "pip install tallystream" in commands
