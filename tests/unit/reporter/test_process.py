"""Imports, signals, and the end of a process."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from support.interpreter import run_program
from tallystream import MetricRegistry
from tallystream.testing import InMemoryReporter


def test_the_import_loads_no_kafka_client() -> None:
    """Importing the package loads neither confluent_kafka nor other slow modules; start() loads it."""
    assert run_program("""
        import logging  # it loads dataclasses on Python 3.14
        import sys
        import msgspec
        before = set(sys.modules)
        from tallystream import KafkaReporter, MetricRegistry
        registry = MetricRegistry("orders")
        registry.counter("c").inc()
        brought = set(sys.modules) - before
        print(brought & {"confluent_kafka", "asyncio", "inspect", "dataclasses", "socket"})
        reporter = KafkaReporter(registry, bootstrap_servers="127.0.0.1:1", instance="i").start()
        print("confluent_kafka" in sys.modules)
        reporter.stop(timeout=0)
    """).split() == ["set()", "True"]


@pytest.mark.parametrize("begin", ["start", "report_now"])
def test_the_thread_of_the_last_report_takes_no_signal(begin: str) -> None:
    """A signal that the main thread blocks when it has stopped the reporter waits, and ends no process by that thread.

    A process of Celery's pool blocks SIGTERM while it holds the lock of the pool's results.
    """
    registry, blocked = MetricRegistry("orders"), list[set[signal.Signals]]()
    reporter = InMemoryReporter(registry, interval=3600)
    getattr(reporter, begin)()
    registry.gauge("signals", function=lambda: blocked.append(signal.pthread_sigmask(signal.SIG_BLOCK, ())))
    assert reporter.stop()
    assert signal.SIGTERM in blocked[-1]
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


PRINTER = """
from tallystream import MetricRegistry
from tallystream.reporters.local import LocalReporter

class Printer(LocalReporter):
    kind = "printer"

    def _write(self, metrics, ts_ms):
        return print([m.count for m in metrics], flush=True) or 0

registry = MetricRegistry("orders")
"""
"""The beginning of a program: a reporter that prints the counts of each report."""


def reports_of(program: str) -> list[str]:
    """Return what the printers of a program print."""
    return run_program(PRINTER + textwrap.dedent(program)).splitlines()


def test_a_child_of_multiprocessing_keeps_no_reporter_that_was_stopped() -> None:
    """A child that makes one after another takes no more memory, also for those that its parent made."""
    output = run_program("""
        import gc, multiprocessing, weakref
        from tallystream import MetricRegistry
        from tallystream.testing import InMemoryReporter
        inherited = [InMemoryReporter(MetricRegistry("x"))]
        def work():
            references = [weakref.ref(inherited.pop())]
            for _ in range(3):
                with InMemoryReporter(MetricRegistry("x")) as reporter:
                    references.append(weakref.ref(reporter))
                del reporter
            gc.collect()
            print([reference() for reference in references])
        child = multiprocessing.get_context("fork").Process(target=work)
        child.start()
        child.join()
    """)
    assert output == "[None, None, None, None]\n"


def test_the_last_report_has_the_counts_of_functions_at_exit() -> None:
    """Functions that were registered after the import run before it, also those from before the reporter started."""
    out = run_program("""
        import atexit
        from tallystream import MetricRegistry
        from tallystream.reporters.local import LocalReporter
        class Printer(LocalReporter):
            def __init__(self, kind):
                self.kind = kind
                super().__init__(registry, interval=3600, own_metrics=False)
            def _write(self, metrics, ts_ms):
                return print(self.kind, [m.count for m in metrics], flush=True) or 0
        registry = MetricRegistry("orders")
        counter = registry.counter("c")
        atexit.register(counter.inc, 2)
        first, second, stopped = (Printer(kind).start() for kind in ("first", "second", "stopped"))
        stopped.stop()
        atexit.register(counter.inc, 3)
    """)
    assert out.splitlines() == ["stopped [0]", "second [5]", "first [5]"]


def test_an_interrupt_at_exit_costs_no_other_reporter_its_last_report() -> None:
    """A signal handler, as that of Ctrl-C, may raise while a reporter stops. The others make their last reports."""
    out = reports_of("""
        class Interrupted(Printer):
            def stop(self, timeout=5.0):
                raise KeyboardInterrupt
        registry.counter("c").inc(5)
        for kind in (Printer, Interrupted):
            kind(registry, interval=3600, own_metrics=False).start()
    """)
    assert out == ["[5]"]


def test_a_signal_handler_can_stop_a_reporter_at_any_time() -> None:
    """If a metric's lock is held, stop() returns in time, and the last report is made at exit."""
    lines = reports_of("""
        import os, signal
        histogram = registry.histogram("h")
        histogram.update(1)
        reporter = Printer(registry, interval=3600, own_metrics=False).start()
        signal.signal(signal.SIGTERM, lambda *_: print(reporter.stop(timeout=0.1), flush=True))
        with histogram._lock:
            os.kill(os.getpid(), signal.SIGTERM)
            for _ in range(10): pass
            print("resumed", flush=True)  # before the lock is free: the last report prints after it
    """)
    assert lines[:2] == ["False", "resumed"]
    assert set(lines[2:]) == {"[1]"}


POOL = """
    import multiprocessing, os, sys
    from concurrent.futures import ProcessPoolExecutor
    from tallystream import MetricRegistry
    from tallystream.reporters.local import LocalReporter
    class Appending(LocalReporter):
        kind = "appending"
        def _write(self, metrics, ts_ms):
            with open(sys.argv[3], "a") as file:
                return file.write(f"{os.getpid()} {metrics[0].count}\\n")
    registry = MetricRegistry("orders")
    tasks = registry.counter("tasks")
    reporter = Appending(registry, interval=3600, own_metrics=False)
    if sys.argv[2] == "module":
        reporter.start()
    def start():
        reporter.start()
    def work(number):
        tasks.inc()
    if __name__ == "__main__":
        context = multiprocessing.get_context(sys.argv[1])
        begin = None if sys.argv[2] == "module" else start
        if sys.argv[2] == "executor":
            with ProcessPoolExecutor(2, mp_context=context, initializer=begin) as executor:
                list(executor.map(work, range(200)))
        else:
            with context.Pool(2, initializer=begin) as pool:
                pool.map(work, range(200), chunksize=1)
                pool.close()
                pool.join()
"""


@pytest.mark.parametrize("made", ["module", "initializer", "executor"])
@pytest.mark.parametrize("method", ["fork", "forkserver"])  # "spawn": tests/integration/test_examples.py
def test_the_children_of_a_pool_report_everything(method: str, made: str, tmp_path: Path) -> None:
    """No count of a short task is lost, with every start method, and with an executor."""
    script, reports = tmp_path / "pool.py", tmp_path / "reports"
    script.write_text(textwrap.dedent(POOL))
    command = [sys.executable, script, method, made, reports]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    newest = dict(line.split() for line in reports.read_text().splitlines())
    assert sum(map(int, newest.values())) == 200
