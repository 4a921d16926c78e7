"""The tests of a package with and without an error, each time in a process of its own.

A process is forked from one that has imported what the tests need from others, and no module of the project: so it
takes little time to start, and the import of one module loads the mutant. No file is changed.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import threading
import time
import traceback
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, settings

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from benchmarks.mutants.errors import Mutant

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / ".build" / "mutants"
"""The output of the last run of each mutant, to read and to delete."""


FOLDERS = ("reporter", "aggregator", "dashboards", "compose", "tests")
"""If something in these has changed, the tests are noted again."""


OPTIONS = ["-q", "-x", "-m", "not integration and not browser", "--hypothesis-seed=0"]
OPTIONS += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # plugins were imported before the fork


Verdict = Literal["killed", "took too long", "survived"]


class Noted(NamedTuple):
    """What is noted of a test: how long it takes, and the functions of the package that it calls."""

    seconds: float
    functions: list[str]


class _Examples:
    """Tries the same examples in every run, and looks for no smaller ones."""

    def pytest_sessionstart(self) -> None:
        settings.register_profile(
            "mutants",
            deadline=None,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        )
        settings.load_profile("mutants")


class _Notes(_Examples):
    """Notes each test."""

    def __init__(self, sources: Sequence[Path], output: Path) -> None:
        self.sources = set(map(str, sources))
        self.output = output
        self.tests: dict[str, Noted] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        called: set[Any] = set()

        def note(frame: Any, event: str, _argument: object) -> None:
            if event == "call":
                called.add(frame.f_code)

        begin = time.monotonic()
        threading.setprofile(note)
        sys.setprofile(note)
        result = yield
        sys.setprofile(None)
        codes = [code for code in called if code.co_filename in self.sources]
        functions = {f"{Path(code.co_filename).relative_to(ROOT)}:{code.co_firstlineno}" for code in codes}
        self.tests[item.nodeid] = Noted(time.monotonic() - begin, sorted(functions))
        return result

    def pytest_sessionfinish(self) -> None:
        sys.setprofile(None)
        files = ((name, getattr(module, "__file__", None)) for name, module in sys.modules.items())
        names = [name for name, file in files if file and "site-packages" in file]
        self.output.write_text(json.dumps({"tests": self.tests, "modules": names}), encoding="utf-8")


class _Chosen(_Examples):
    """Runs some tests, the fastest first, and fails one that takes much longer than without the error."""

    def __init__(self, tests: dict[str, Noted]) -> None:
        self.tests = tests

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        chosen = [item for item in items if item.nodeid in self.tests]
        items[:] = sorted(chosen, key=lambda item: self.tests[item.nodeid].seconds)
        for item in items:
            item.add_marker(pytest.mark.timeout(20 + 20 * self.tests[item.nodeid].seconds), append=False)


def note_tests(name: str, tests: list[Path], sources: Sequence[Path]) -> dict[str, Noted]:
    """Run the tests of a package without an error, import what they imported from others, and return what was noted."""
    output, notes = BUILD / f"{name}.txt", BUILD / f"{name}.json"
    changed = max(file.stat().st_mtime for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))
    if not notes.exists() or notes.stat().st_mtime < changed:
        pid = _start(output, list(map(str, tests)), _Notes(sources, notes))
        try:
            _, status = os.waitpid(pid, 0)
        finally:
            _end(pid)
        if status:
            sys.exit(f"{name}: the tests fail without an error, see {output}")
    noted = json.loads(notes.read_text(encoding="utf-8"))
    for module in noted["modules"]:
        with contextlib.suppress(Exception):  # what can't be imported alone is imported by the tests
            importlib.import_module(module)
    return {test: Noted(*one) for test, one in noted["tests"].items()}


def judge(mutants: list[Mutant], tests: dict[str, Noted], jobs: int, pause: Path) -> Iterator[tuple[Mutant, Verdict]]:
    """Yield each mutant when its tests have ended, with what became of it. None starts while `pause` exists."""
    left = mutants[::-1]
    running: dict[int, tuple[Mutant, Path]] = {}
    try:
        while left or running:
            while left and len(running) < jobs and not pause.exists():
                mutant = left.pop()
                chosen = tests_of(mutant, tests)
                files = sorted({test.partition("::")[0] for test in chosen})
                output = BUILD / f"{Path(mutant.path).stem}-{mutant.line}-{mutant.begin}.txt"
                running[_start(output, files, _Chosen(chosen), mutant)] = mutant, output
            time.sleep(0.02)
            pid, status = os.waitpid(-1, os.WNOHANG) if running else (0, 0)
            if pid:
                assert os.waitstatus_to_exitcode(status) != pytest.ExitCode.NO_TESTS_COLLECTED
                _end(pid)
                mutant, output = running.pop(pid)
                is_late = "from pytest-timeout" in output.read_text(encoding="utf-8", errors="replace")
                yield mutant, "survived" if status == 0 else "took too long" if is_late else "killed"
    finally:
        for pid in running:
            _end(pid)


def _end(pid: int) -> None:
    """End a process that runs tests, and what its tests have started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def tests_of(mutant: Mutant, tests: dict[str, Noted]) -> dict[str, Noted]:
    """Return the tests that call the mutant's function, or all if there are none."""
    found = {test: noted for test, noted in tests.items() if mutant.function in noted.functions}
    return found or tests


def _start(output: Path, arguments: list[str], plugin: _Examples, mutant: Mutant | None = None) -> int:
    """Start pytest in a new process, and return its ID."""
    pid = os.fork()
    if pid:
        return pid
    code = 99
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.nice(max(0, 15 - os.nice(0)))
        written = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(written, 1)
        os.dup2(written, 2)
        if mutant is not None:
            _load(mutant)
        code = pytest.main([*OPTIONS, *arguments], [plugin])
    except BaseException:  # noqa: BLE001  # the process is a fork, which must not return
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _load(mutant: Mutant) -> None:
    """Make the import of the mutant's module load the mutant."""
    path = str(ROOT / mutant.path)
    code = compile(mutant.source(ROOT), path, "exec")
    original = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, name: str) -> Any:
        return code if self.path == path else original(self, name)

    SourceFileLoader.get_code = get_code  # type: ignore[assignment, method-assign]
