"""Imports and forks."""

from __future__ import annotations

from support.interpreter import run_program


def run(program: str) -> str:
    """Return what a program prints. A warning is an error."""
    return run_program(program, "-W", "error")[0]


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
            with registry._clearing, counter._lock, meter._lock, histogram._lock, timer._lock:
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
