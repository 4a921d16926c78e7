"""The façade's reporters, its imports and its forks."""

from __future__ import annotations

import io
import socket
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from support.interpreter import run_program
from support.pyformances import Clock, ours, same
from tallystream import ConfigError
from tallystream.pyformance_compat.reporters import CarbonReporter, ConsoleReporter, Reporter

HOSTILE = "a b\nforged 99,c=d"


def filled(library: Any, clock: Clock) -> Any:
    """Return a registry with metrics of all types."""
    registry = library.MetricsRegistry(clock)
    for power in range(10):
        registry.histogram("hist").add(2**power)
    registry.gauge("gcb", lambda: 123)
    registry.gauge("text").set_value("up")
    registry.meter("m1").mark()
    with registry.timer("t1").time():
        registry.counter("c1").inc()
        registry.counter("counter-2").dec()
        clock.add(1)
    return registry


def test_console() -> None:
    """Texts with the same lines, with the clock's time and with a given one."""

    def program(library: Any, clock: Clock) -> list[str]:
        stream = io.StringIO()
        registry = filled(library, clock)
        reporter = library.reporters.ConsoleReporter(registry, 1, stream, clock)
        reporter.report_now()
        reporter.report_now(registry=library.MetricsRegistry(), timestamp=1_000_000_000)
        return sorted(stream.getvalue().replace(" = 0.0\n", " = 0\n").split("\n"))

    assert "                 avg = 102.3" in same(program)


def test_the_console_is_the_current_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    """The real pyformance keeps the standard error of the import, and ignores a timestamp of 0."""
    ConsoleReporter(ours.MetricsRegistry()).report_now(timestamp=0)
    assert capsys.readouterr().err.startswith("== 1970-01-01 00:00:00 ==")


def test_carbon() -> None:
    """Lines as pyformance's, with numbers of any type; a key can forge none, and what is not finite is left out."""
    registry, clock = filled(ours, Clock()), Clock(3)
    registry.counter(HOSTILE).inc(5)
    registry.gauge("nan")
    for name, value in {"int64": np.int64(6), "decimal": Decimal("2.5"), "true": True, "huge": 10**400}.items():
        registry.gauge(name).set_value(value)
    with socket.create_server(("127.0.0.1", 0)) as carbon:
        port = carbon.getsockname()[1]
        CarbonReporter(registry, 5, "app.", "127.0.0.1", port, clock).report_now()
        connection, _ = carbon.accept()
        with connection, connection.makefile() as received:
            lines = received.read().splitlines()
    assert {"app.c1.count 1 3", "app.a_b_forged_99,c_d.count 5 3", "app.gcb.value 123 3"} <= set(lines)
    assert {"app.int64.value 6 3", "app.decimal.value 2.5 3", "app.true.value 1 3"} <= set(lines)
    assert [line for line in lines if any(text in line for text in ("nan", "huge", "text", "\nforged"))] == []
    CarbonReporter(ours.MetricsRegistry(), port=port).report_now()  # without values it opens no connection


def test_stopping_makes_a_last_report() -> None:
    """The real pyformance loses what was counted since the last report. A stopped reporter may be started again."""
    registry, stream = ours.MetricsRegistry(Clock()), io.StringIO()
    reporter = ConsoleReporter(registry, 3600, stream)
    for expected in (7, 14):
        assert reporter.start()
        registry.counter("late").inc(7)
        reporter.stop()
        assert stream.getvalue().endswith(f"late:\n               count = {expected}\n\n")


def test_a_reporter_without_a_method_or_an_interval_is_rejected() -> None:
    """The base class can't report; an interval of 0 is a loop without a pause in pyformance."""
    assert Reporter().registry is ours.global_registry()
    with pytest.raises(NotImplementedError):
        Reporter().report_now()
    with pytest.raises(ConfigError, match=r"interval: 0 can't be used"):
        Reporter(reporting_interval=0)


def run(program: str) -> str:
    """Return what a program prints. A warning is an error."""
    return run_program(program, "-W", "error")


def test_the_import_loads_little() -> None:
    """Beside the package itself, only modules of the façade are loaded: no network code."""
    loaded = run("""
        import sys
        import tallystream
        before = set(sys.modules)
        from tallystream import pyformance_compat as pyformance
        pyformance.counter("c").inc()
        pyformance.count_calls(lambda: 0)()
        with pyformance.timer("t").time():
            pyformance.histogram("h").add(1)
        pyformance.dump_metrics(); pyformance.global_registry().tallystream.snapshot()
        print(*sorted(name for name in set(sys.modules) - before if "pyformance_compat" not in name))
    """)
    assert loaded == "\n"


def test_pyformances_own_tests_pass() -> None:
    """The tests of the types and the registry in pyformance's distribution pass."""
    assert "OK" in run(
        """
        import importlib, importlib.metadata, random, sys, unittest, unittest.mock, warnings
        from pathlib import Path
        from tallystream import pyformance_compat as ours
        random.seed(1)  # one test asserts the content of a random sample
        warnings.simplefilter("ignore")  # those of pyformance, about six and open files
        folder = Path(ours.__file__).parent
        for path in folder.rglob("*.py"):
            name = ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix("__init__").rstrip(".")
            if name:
                sys.modules[f"pyformance.{name}"] = importlib.import_module(f"{ours.__name__}.{name}")
        sys.modules |= {"pyformance": ours, "mock": unittest.mock}
        suite = unittest.defaultTestLoader.loadTestsFromNames(
            [f"tests.test__{name}" for name in ("counter", "gauge", "histogram", "meter", "registry", "timer")]
        )
        done = unittest.TextTestRunner(sys.stdout, warnings="ignore").run(suite)
        assert done.wasSuccessful() and done.testsRun == 12, done
        """
    )


def test_a_forked_child_counts_from_zero() -> None:
    """It repeats no counts of its parent, whatever locks are held; a counter that fell stays an updown."""
    assert run("""
        import os, threading
        from tallystream import pyformance_compat as pyformance
        registry = pyformance.global_registry()
        registry.counter("old").inc(3)
        registry.clear()
        counter, meter, timer = registry.counter("c"), registry.meter("m"), registry.timer("t")
        histogram, jobs = registry.histogram("h"), registry.counter("jobs")
        gauge = registry.gauge("g"); gauge.set_value(4)
        counter.inc(5); meter.mark(6); timer.time().stop(); histogram.add(7); jobs.inc(9)
        jobs.dec()
        reporter = pyformance.reporters.ConsoleReporter(reporting_interval=3600, stream=open(os.devnull, "w"))
        reporter.start()
        held, go = threading.Event(), threading.Event()
        def hold():
            with counter._value._lock, meter.tallystream._lock, histogram._lock, timer._lock, timer.tallystream._lock:
                held.set(); go.wait()
        thread = threading.Thread(target=hold, daemon=True); thread.start(); held.wait()
        child = os.fork()
        if not child:
            counter.inc(); jobs.inc(2)
            values = {m.name: getattr(m, "count", getattr(m, "value", None)) for m in registry.tallystream.snapshot()}
            print(sorted(values.items()), registry.counter("c").get_count(), reporter.start(), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        go.set(); thread.join(); reporter.stop()
        print(counter.get_count())
    """).split("\n") == [
        "[('c', 1), ('g', 4), ('h', 0), ('jobs', 2), ('m', 0), ('old', 0), ('t', 0)] 1 False",
        "5",
        "",
    ]
