"""`doctor`: a finding is a line, a check that raises is a finding, and the exit codes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from support.commands import call
from tallystream.errors import ConfigError
from tallystream_cli.commands.doctor import as_json, as_table
from tallystream_cli.doctor.findings import failed, guarded, not_checked, ok
from tallystream_cli.doctor.run import package

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tallystream_cli.doctor.findings import Finding

FINDINGS = [ok("Python", "3.11"), failed("broker", "none", "start it"), not_checked("store", "none is named")]


def test_each_finding_is_a_line_with_its_remedy() -> None:
    """The last line has the number of each status."""
    assert as_table(FINDINGS).splitlines() == [
        "status       check   finding",
        "ok           Python  3.11",
        "failed       broker  none → start it",
        "not checked  store   none is named",
        "1 ok, 1 failed, 1 not checked",
    ]
    output = json.loads(as_json(FINDINGS))
    assert output["ok"] is False
    assert output["findings"][1] == {"status": "failed", "check": "broker", "found": "none", "remedy": "start it"}


def test_a_check_that_raises_is_a_finding() -> None:
    """An error of a setting has its remedy, any other error its text."""

    def wrong() -> Iterator[Finding]:
        raise ConfigError("--x", "1", "give 2")
        yield

    def damaged() -> Iterator[Finding]:
        raise OSError(5, "Input/output error")
        yield

    assert guarded("c", wrong) == [failed("c", "--x: 1", "give 2")]
    (found,) = guarded("c", damaged)
    assert (found.status, found.found) == ("failed", "[Errno 5] Input/output error")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--store", "nonsense"),
        ("--command", "nonsense"),
        ("--kafka", "nonsense"),
        ("--kafka", "no.such.option=1"),
        ("--topic-prefix", "/"),
    ],
)
def test_a_wrong_option_has_exit_code_2(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is checked, and one line names the option."""
    assert call(monkeypatch, "doctor", "--bootstrap-servers", "127.0.0.1:1", *arguments) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith(arguments[0])


def test_a_missing_package_is_a_warning() -> None:
    """Without PySpark or Streamlit, as in the images, other commands run."""
    assert package("page", "no_such_package", "the page", "install it").status == "warning"
    assert package("Spark", "pyspark", "aggregate", "install it").status == "ok"
