"""What depends on the process: what an import loads, forks, and the end."""

from __future__ import annotations

import subprocess
import sys
import textwrap


def run(program: str) -> str:
    """Run a program in a fresh interpreter and return what it printed; its failure is the test's."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_import_brings_no_kafka_client() -> None:
    """Importing the package, and counting, loads no confluent_kafka; a reporter that starts does."""
    assert run("""
        import sys
        from tallystream.reporter import KafkaReporter, MetricRegistry
        registry = MetricRegistry("orders")
        registry.counter("c").inc()
        print("confluent_kafka" in sys.modules, "asyncio" in sys.modules)
        reporter = KafkaReporter(registry, bootstrap_servers="127.0.0.1:1", instance="i").start()
        print("confluent_kafka" in sys.modules)
        reporter.stop(timeout=0)
    """).split() == ["False", "False", "True"]


def test_a_forked_child_counts_from_zero_and_leaves_the_producer_alone() -> None:
    """The child has none of its parent's counts, a life of its own, and ends without touching the parent's producer."""
    out = run("""
        import os, threading
        from tallystream.reporter import KafkaReporter, MetricRegistry
        registry = MetricRegistry("orders")
        counter, gauge = registry.counter("c"), registry.gauge("g")
        counter.inc(5); gauge.set(1); registry.position("t", 0).cover(0, 3)
        reporter = KafkaReporter(registry, bootstrap_servers="127.0.0.1:1", instance="i", own_metrics=False).start()
        assert not reporter.report_now(timeout=0.1)
        # Every lock is held by another thread at the moment of the fork.
        held, go = threading.Event(), threading.Event()
        def hold():
            with registry.together(), counter._lock, reporter._reporting:
                held.set(); go.wait()
        thread = threading.Thread(target=hold, daemon=True); thread.start(); held.wait()
        child = os.fork()
        if not child:
            counter.inc()
            print([(m.name, m.count) for m in registry.snapshot()], reporter._lives.under_way, flush=True)
            print(reporter._thread.is_alive(), reporter._producer, flush=True)
            reporter.stop(timeout=0.1)
            raise SystemExit(7)
        _, status = os.waitpid(child, 0)
        go.set(); thread.join()
        print(os.waitstatus_to_exitcode(status), counter.count, len(reporter._lives.under_way))
        reporter.stop(timeout=0)
    """)
    assert out.splitlines() == ["[('c', 1)] []", "True None", "7 5 1"]


def test_the_last_report_comes_at_exit() -> None:
    """A process that ends without stop(), and a forked multiprocessing child that does, make their last report."""
    out = run("""
        import multiprocessing, sys
        from tallystream.reporter import MetricRegistry
        from tallystream.reporter._simple import SimpleReporter
        class Printer(SimpleReporter):
            kind = "printer"
            def _write(self, metrics, ts_ms):
                return print([m.count for m in metrics], flush=True) or 0
        registry = MetricRegistry("orders")
        registry.counter("c").inc(3)
        Printer(registry, interval=3600, own_metrics=False).start()
        child = multiprocessing.get_context("fork").Process(target=lambda: registry.counter("c").inc())
        child.start(); child.join()
        registry.counter("c").inc()
    """)
    assert out.splitlines() == ["[1]", "[4]"]
