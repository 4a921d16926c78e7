"""The operators' pages agree with the code: commands, options, permissions, alerts, guarantees."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation

from support import reference
from support.acls import PERMISSIONS as ACLS
from tallystream_aggregator.kafka.topics import Topics, policies
from tallystream_aggregator.table.state import STATE_VERSION
from tallystream_cli.influx_tokens import PERMISSIONS
from tallystream_dashboards.grafana.generate import alert_rules

ROOT = Path(__file__).parents[3]
PAGES = ("install", "runbook", "upgrade", "deploy", "configuration", "guides/burrow")
RUNNING = (ROOT / "docs" / "running.md").read_text(encoding="utf-8")
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")


def lines(page: str) -> list[str]:
    """Return the command lines of `tallystream` in a page, from code blocks and between backticks."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8").replace("\\\n", "")
    blocks = re.findall(
        r"^(?: {4}|ExecStart=)(?:[\w/]+/)?(?:[A-Z_]+=\S+ )*(?:[\w/]+/)?(tallystream [a-z].*)$", text, re.MULTILINE
    )
    blocks += re.findall(r"^(tallystream .*)$", "".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL)), re.MULTILINE)
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


@pytest.mark.parametrize("path", sorted({*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")}), ids=lambda path: path.stem)
def test_no_page_has_the_marks_of_a_merge(path: Path) -> None:
    """Git marks both sides of a conflict in the file, and accepts it like that."""
    assert re.search(r"^(<{7}|={7}|>{7})( |$)", path.read_text(encoding="utf-8"), re.MULTILINE) is None


CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")


def test_the_tables_are_those_of_the_command_line() -> None:
    """The tables have every option with its default, its environment variable and its meaning."""
    assert reference.update(CONFIGURATION) == CONFIGURATION, reference.REMEDY


@pytest.mark.parametrize("name", sorted(set(reference.commands()) - {reference.GENERAL}))
def test_every_command_has_a_section(name: str) -> None:
    """A sentence is between the heading and the table."""
    section = re.search(rf"^### {name}\n\n(.+?)\n\n<!-- options: {name} -->\n", CONFIGURATION, re.MULTILINE | re.DOTALL)
    assert section is not None, reference.REMEDY


def test_every_table_belongs_to_a_command() -> None:
    """No table of a removed command is left."""
    assert set(re.findall(r"<!-- options: (.+?) -->", CONFIGURATION)) == {*reference.commands(), reference.SHARED}


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
    named = set(re.findall(r"`((?:[A-Z]+_)+[A-Z]+|PYTHONPATH)(?:=[^`]*)?`", CONFIGURATION))
    assert read - named == set()
    ours = {name for name in named if name.startswith(("TALLYSTREAM_", "INFLUXDB_", "GRAFANA_"))}
    unknown = {name for name in ours - read if name.removesuffix("_FILE") not in source}
    assert {name for name in unknown if not name.startswith("TALLYSTREAM_KAFKA_")} == set()


def test_every_topic_is_written_and_read() -> None:
    """For each topic there are ACLs to write, read and create it; the table names no other topic."""
    topics = [acl for acl in ACLS if acl.resource == "topic"]
    assert {acl.name for acl in topics} - {"*"} == set(policies(Topics()))
    for name in policies(Topics()):
        given = {operation for acl in topics if acl.name == name for operation in acl.operations}
        assert {"Read", "Write", "Create"} <= given, name


def test_every_command_that_uses_kafka_has_permissions() -> None:
    """The commands of the table are those with --bootstrap-servers, and there is the reporter."""
    commands = {name for name in reference.commands() if "--bootstrap-servers" in options(name)}
    assert {acl.command for acl in ACLS} == {"reporter", *commands}


def test_only_the_aggregator_may_write_its_topics() -> None:
    """Only `aggregate` and `rebuild` write sums, rows, events and the ledger."""
    for acl in ACLS:
        if acl.resource == "topic" and "Write" in acl.operations:
            assert acl.command in ("aggregate", "rebuild") or acl.name in ("metrics", "metrics-dead"), acl


def test_every_operation_exists() -> None:
    """Each operation in the table is one of Kafka's."""
    known = {one.name.replace("_", "") for one in AclOperation}
    assert {word.upper() for acl in ACLS for word in acl.operations} <= known


def test_the_page_agrees_with_the_tokens_of_compose() -> None:
    """The table of InfluxDB's permissions has what the service `influxdb-tokens` grants."""
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8").partition("## InfluxDB")[2]
    names = {
        "shipper": "`ship`",
        "lag": "`lag collect`",
        "page": "`page`, `top`, `sums`, `instances`, `compare`, `lag show`",
        "grafana": "Grafana's data source",
    }
    for service, actions in PERMISSIONS.items():
        (cell,) = re.findall(rf"^\| {re.escape(names[service])} \| (.+) \|$", text, re.MULTILINE)
        assert {action for action in ("read", "write") if re.search(rf"\b{action}\b", cell)} == set(actions)


GUARANTEES = (ROOT / "docs" / "guarantee-tests.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", GUARANTEES)))
ROWS = [line for line in GUARANTEES.splitlines() if line.startswith("| ") and not line.startswith("| guarantee")]


def test_every_guarantee_names_its_test() -> None:
    """Each row names its tests, or refers to those of the row above."""
    assert ROWS
    assert all("::" in row or row.endswith("| the same |") for row in ROWS)


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_every_named_test_exists(file: str, test: str) -> None:
    """The file has a test of that name."""
    assert f"def {test}(" in (ROOT / "tests" / file).read_text(encoding="utf-8")
