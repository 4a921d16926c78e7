"""Imports and forks."""

from __future__ import annotations

from support.interpreter import run_program


def run(program: str) -> str:
    """Return what a program prints. A warning is an error."""
    return run_program(program, "-W", "error")[0]


def test_the_import_loads_little() -> None:
    """Beside the package itself, only modules of the façade are loaded: no reporter, network code or signal."""
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
        print(*(name for name in sys.modules if "_compat.reporters" in name or name.endswith("._signal")))
    """)
    assert loaded.split("\n") == ["", "", ""]


def test_the_reporters_are_imported_on_first_use() -> None:
    """As attributes of the package, and by import, without deprecation warnings."""
    assert run("""
        from tallystream import pyformance_compat as pyformance
        print(pyformance.reporters.ConsoleReporter.__name__)
        from tallystream.pyformance_compat.reporters import ConsoleReporter
        from tallystream.pyformance_compat.registry import set_global_registry
        print(ConsoleReporter is pyformance.reporters.ConsoleReporter)
        reporter = pyformance.reporters.ConsoleReporter(reporting_interval=60)
        print(reporter.start(), reporter.start(), reporter.stop())
    """).split() == ["ConsoleReporter", "True", "True", "False", "None"]


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


def test_without_blinker_there_is_no_signal() -> None:
    """A call above the threshold is timed, and call_too_long is None."""
    assert run("""
        import sys
        sys.modules["blinker"] = None  # its import fails, as if it were not installed
        from tallystream import pyformance_compat as pyformance
        timer = pyformance.meters.Timer(threshold=1e-9)
        with timer.time(fn="f"):
            sum(range(1000))
        print(timer.get_count(), pyformance.call_too_long)
        from tallystream.pyformance_compat.meters import call_too_long, timer_signals
        print(call_too_long, timer_signals)
    """).split() == ["1.0", "None", "None", "None"]


def test_a_forked_child_counts_from_zero() -> None:
    """It repeats no counts of its parent, whatever locks are held; a counter that fell stays an updown."""
    assert run("""
        import os, threading
        from tallystream import pyformance_compat as pyformance
        registry = pyformance.global_registry()
        counter, meter, timer = registry.counter("c"), registry.meter("m"), registry.timer("t")
        histogram, jobs = registry.histogram("h"), registry.counter("jobs")
        gauge = registry.gauge("g"); gauge.set_value(4)
        counter.inc(5); meter.mark(6); timer.time().stop(); histogram.add(7); jobs.inc(9)
        jobs.dec()
        registry.counter("old").inc(3); registry.tallystream.snapshot()
        reporter = pyformance.reporters.ConsoleReporter(reporting_interval=3600, stream=open(os.devnull, "w"))
        reporter.start()
        held, go = threading.Event(), threading.Event()
        def hold():
            with registry._making, counter._lock, meter._lock, histogram._lock, timer.hist._lock:
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
        "[('c', 1), ('g', 4), ('h', 0), ('jobs', 2), ('m', 0), ('old', 0), ('t', 0)] 1 True",
        "5",
        "",
    ]
