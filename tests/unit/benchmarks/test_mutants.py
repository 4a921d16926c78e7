"""`make mutants`: the errors that it makes in a file, and how it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.mutants.errors import mutants_of
from support.wait import wait_until

SOURCE = '''"""A text: 1 < 2."""
if TYPE_CHECKING:
    import typing
def most(counts: dict[str, int | None], *, at_least=0) -> int:
    for count in counts:
        if count and 1 <= count < 9:
            continue
        if not count:
            raise ValueError(f"{count + 1} is too low", 1)
    self.last = max(counts)
    _log.info("%d", 1 + 1)
    return zip(counts, counts, strict=True) if at_least else None
'''


def test_every_kind_of_error_is_made_where_it_changes_what_the_code_does(tmp_path: Path) -> None:
    """Conditions, numbers, operators, calls and statements change; texts, types, messages and logging do not."""
    file = tmp_path / "most.py"
    file.write_text(SOURCE, encoding="utf-8")
    found = list(mutants_of(file, tmp_path))
    assert [(one.line, one.old.partition("\n")[0], one.new) for one in found] == [
        (4, "0", "(1)"),
        (6, "count and 1 <= count < 9", "(1 <= count < 9)"),
        (6, "count and 1 <= count < 9", "(count)"),
        (6, "1 <= count < 9", "(1 < count < 9)"),
        (6, "1 <= count < 9", "(1 <= count <= 9)"),
        (6, "1", "(2)"),
        (6, "9", "(10)"),
        (7, "continue", "pass"),
        (8, "not count", "(count)"),
        (9, 'raise ValueError(f"{count + 1} is too low", 1)', "pass"),
        (10, "self.last = max(counts)", "pass"),
        (10, "max(counts)", "(min(counts))"),
        (12, "return zip(counts, counts, strict=True) if at_least else None", "return"),
        (
            12,
            "zip(counts, counts, strict=True) if at_least else None",
            "(None if at_least else zip(counts, counts, strict=True))",
        ),
    ]
    assert {one.function for one in found} == {"most.py:4"}
    assert found[0].source(tmp_path).decode() == SOURCE.replace("at_least=0", "at_least=(1)")


TOOL = """
import pathlib
import sys
from benchmarks.mutants import __main__, runs

runs.ROOT = __main__.ROOT = pathlib.Path(sys.argv.pop())
runs.BUILD = __main__.BUILD = runs.ROOT / "build"
__main__.PACKAGES["lag"] = (["tests/most.py"], ["tests/test_most.py"])
sys.exit(__main__.main())
"""

SLOW_TEST = """
import pathlib
import time
from most import most

def test_most():
    if most(1, 2) != 2:
        pathlib.Path(__file__).with_name("began").touch()
        time.sleep(600)
"""


def test_a_mutant_that_runs_ends_with_the_tool(tmp_path: Path) -> None:
    """SIGTERM ends the tool, and the process of the mutant whose tests are running."""
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "most.py").write_text("def most(one, two):\n    return max(one, two)\n", encoding="utf-8")
    (tests / "test_most.py").write_text(SLOW_TEST, encoding="utf-8")
    end, held = os.pipe()
    command = [sys.executable, "-c", TOOL, "--package", "lag", "--jobs", "1", str(tmp_path)]
    with subprocess.Popen(command, pass_fds=(held,)) as tool:
        os.close(held)
        wait_until((tests / "began").exists, 60, "the mutant runs")
        tool.terminate()
    assert tool.returncode == 1
    assert os.read(end, 1) == b"", "a process holds the other end"
    os.close(end)
