"""Imports, forks, signals and the exit of the process."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tallystream import MetricRegistry
from tallystream.testing import InMemoryReporter

HERE = Path(__file__).parent


def run(program: str) -> str:
    """Run a program in a new interpreter and return its output; fail if the program fails."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_import_loads_no_kafka_client() -> None:
    """Importing the package loads neither confluent_kafka nor other slow modules; start() loads it."""
    assert run("""
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


def test_a_rejected_reporter_does_not_take_part_in_forks() -> None:
    """A fork ignores a reporter whose constructor raised, and logs nothing."""
    assert run("""
        import os, sys
        from tallystream import ConfigError, KafkaReporter, MetricRegistry
        errors = []
        sys.unraisablehook = lambda what: errors.append(str(what.exc_value))
        try:
            options = {"group.id": "x", "bootstrap.servers": "y"}
            KafkaReporter(MetricRegistry("a"), bootstrap_servers="127.0.0.1:1", instance="i", options=options)
        except ConfigError as error:
            kept = error.__traceback__
        else:
            print("no error")
        pid = os.fork()
        if not pid:
            os._exit(len(errors))
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), len(errors))
    """).split() == ["0", "0"]


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


def test_a_forked_child_counts_from_zero_and_does_not_use_the_parents_producer() -> None:
    """The child has its own life, and ends without the parent's producer."""
    out = run("""
        import os, threading
        from tallystream import KafkaReporter, MetricRegistry
        registry = MetricRegistry("orders")
        counter, gauge = registry.counter("c"), registry.gauge("g")
        counter.inc(5); gauge.set(1); registry.position("t", 0).advance(0, 3)
        reporter = KafkaReporter(registry, bootstrap_servers="127.0.0.1:1", instance="i", own_metrics=False).start()
        reporter._connection.cluster = lambda topic, timeout: "known"
        assert not reporter.report_now(timeout=0.1)
        # Every lock is held by another thread at the moment of the fork.
        held, go = threading.Event(), threading.Event()
        def hold():
            with registry.atomic(), counter._lock, reporter._report_lock:
                held.set(); go.wait()
        thread = threading.Thread(target=hold, daemon=True); thread.start(); held.wait()
        child = os.fork()
        if not child:
            counter.inc()
            print([(m.name, m.count) for m in registry.snapshot()], reporter._lives.in_flight, flush=True)
            print(reporter._thread._thread.is_alive(), reporter._connection.is_open, flush=True)
            reporter.stop(timeout=0.1)
            raise SystemExit(7)
        _, status = os.waitpid(child, 0)
        go.set(); thread.join()
        print(os.waitstatus_to_exitcode(status), counter.count, len(reporter._lives.in_flight))
        reporter.stop(timeout=0)
    """)
    assert out.splitlines() == ["[('c', 1)] []", "True False", "7 5 1"]


def test_a_fork_while_a_metric_is_created_leaves_no_unreported_metric() -> None:
    """After a fork at any line of the creation, the child's metric is reported."""
    out = run("""
        import os, sys
        from tallystream import MetricRegistry
        codes = []
        def trace(frame, event, _):
            if event == "call":
                return trace if frame.f_code is MetricRegistry.get.__code__ else None
            if event == "line" and not (child := os.fork()):
                sys.settrace(None)
                registry.counter("c").inc()
                os._exit([(m.name, m.count) for m in registry.snapshot()] == [("c", 1)])
            elif event == "line":
                codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            return trace
        registry = MetricRegistry("orders")
        sys.settrace(trace)
        registry.counter("c")
        sys.settrace(None)
        print(len(codes) > 5, set(codes))
    """)
    assert out.strip() == "True {1}"


def test_the_last_report_is_made_at_exit() -> None:
    """A process that ends without stop(), and a child of multiprocessing, make their last report."""
    out = run("""
        import multiprocessing, sys
        from tallystream import MetricRegistry
        from tallystream.reporters.local import LocalReporter
        class Printer(LocalReporter):
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


def test_a_forked_child_that_ends_before_a_report_is_due_makes_its_last_report() -> None:
    """A child of `os.fork`, as a worker of gunicorn with --preload, reports what it has counted when it ends."""
    out = run("""
        import os
        from tallystream import MetricRegistry
        from tallystream.reporters.local import LocalReporter
        class Printer(LocalReporter):
            kind = "printer"
            def _write(self, metrics, ts_ms):
                return print([m.count for m in metrics], flush=True) or 0
        registry = MetricRegistry("orders")
        registry.counter("c").inc(3)
        Printer(registry, interval=3600, own_metrics=False).start()
        child = os.fork()
        registry.counter("c").inc()
        if child:
            os.waitpid(child, 0)
    """)
    assert out.splitlines() == ["[1]", "[4]"]


def test_the_last_report_has_the_counts_of_functions_at_exit() -> None:
    """Functions that were registered after the import run before it, also those from before the reporter started."""
    out = run("""
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
    out = run("""
        from tallystream import MetricRegistry
        from tallystream.reporters.local import LocalReporter
        class Printer(LocalReporter):
            def _write(self, metrics, ts_ms):
                return print([m.count for m in metrics], flush=True) or 0
        class Interrupted(Printer):
            def stop(self, timeout=5.0):
                raise KeyboardInterrupt
        registry = MetricRegistry("orders")
        registry.counter("c").inc(5)
        for kind in (Printer, Interrupted):
            kind(registry, interval=3600, own_metrics=False).start()
    """)
    assert out.splitlines() == ["[5]"]


def test_a_fork_closes_a_producer_that_may_be_resolving_names() -> None:
    """Every child that is forked right after the start ends, and the parent continues.

    A child that inherits the C library's lock of name resolution could never end.
    """
    out = run("""
        import os, signal
        from tallystream import KafkaReporter, MetricRegistry
        codes, open_before, open_after = set(), set(), set()
        for number in range(10):
            registry = MetricRegistry("orders")
            reporter = KafkaReporter(registry, bootstrap_servers="localhost:1", instance="i", interval=3600).start()
            open_before.add(reporter._connection.is_open)
            child = os.fork()
            if not child:
                signal.alarm(30)
                reporter.stop(timeout=0.05)
                os._exit(7)
            open_after.add(reporter._connection.is_open)
            codes.add(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            while not reporter._connection.is_open:
                reporter.report_now(timeout=0.01)
            reporter.stop(timeout=0)
        print(codes, open_before, open_after)
    """)
    assert out.strip() == "{7} {True} {False}"


def test_a_fork_waits_at_most_0_2_s_for_all_hooks_together() -> None:
    """Two reports that do not end, a producer and a source share one deadline."""
    out = run("""
        import os
        from tallystream.process import fork as _forks; from tallystream import KafkaReporter, MetricRegistry
        now = [0.0]
        _forks.monotonic = lambda: now[0]
        class Busy:
            def acquire(self, timeout):
                now[0] += timeout / 2
                return False
        class Producer:
            def list_topics(self, topic, timeout):
                return self
            cluster_id = "c"
            def poll(self, seconds): pass
            def produce(self, *args, **options): pass
            def purge(self, blocking): pass
            def flush(self, seconds):
                now[0] += seconds
        class Source:
            kind = "other"
            def read(self):
                return []
        registry = MetricRegistry("orders")
        def reporter(number):
            return KafkaReporter(
                registry, bootstrap_servers="b", topic=f"t-{number}", instance="i", interval=3600,
                producer=lambda *_: Producer(),
            )
        first, second, third = map(reporter, range(3))
        third._open(); third._report()
        first._report_lock = second._report_lock = Busy()
        registry.add_source(Source())
        joined, = registry._sources
        joined.lock = Busy()
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
        print(0 < now[0] <= 0.2 + 1e-9, third._connection.is_open, third._report_lock.acquire(blocking=False))
    """)
    assert out.strip() == "True False True"


def test_reporters_continue_after_a_fork_that_one_was_not_prepared_for() -> None:
    """If a reporter can't be prepared, this is logged and counted, and all reporters of the parent go on."""
    out = run("""
        import os, sys, logging
        logging.basicConfig(stream=sys.stdout, format="%(message)s")
        from tallystream import MetricRegistry
        from tallystream.testing import InMemoryReporter
        class Unprepared(InMemoryReporter):
            def _prepare_fork(self, deadline):
                raise error
        registry = MetricRegistry("orders")
        reporters = [InMemoryReporter(registry), Unprepared(registry), InMemoryReporter(registry)]
        for error in (OSError("no such device"), SystemExit()):
            child = os.fork()
            if not child:
                os._exit(0)
            os.waitpid(child, 0)
        print([each.report_now(timeout=5) for each in reporters], [each.failures for each in reporters])
    """)
    assert out.splitlines() == [
        "the reporter could not be prepared for a fork: no such device",
        "the reporter could not be prepared for a fork: SystemExit()",
        "[True, True, True] [0, 2, 0]",
    ]


def test_a_signal_handler_that_raises_during_a_fork_stops_no_reporter() -> None:
    """All locks are free after the fork, whichever of them it was waiting for."""
    out = run("""
        import os, signal, sys, threading
        from types import SimpleNamespace
        from tallystream import MetricRegistry
        from tallystream.testing import InMemoryReporter
        sys.unraisablehook = lambda what: raised.append(type(what.exc_value))
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        class Lock:
            def __init__(self):
                self.lock = threading.Lock()
            def acquire(self, timeout):
                waits.append(self)
                if len(waits) == interrupted:
                    signal.raise_signal(signal.SIGTERM)
                return self.lock.acquire(timeout=timeout)
            def release(self):
                self.lock.release()
        registry, raised = MetricRegistry("orders"), []
        reporters = [InMemoryReporter(registry) for _ in range(3)]
        for number in range(3):
            registry.add_source(SimpleNamespace(kind="other", read=list), tags={"number": str(number)})
        for reporter in reporters:
            reporter._report_lock = Lock()
        for adapter in registry._sources:
            adapter.lock = Lock()
        locks = [each._report_lock for each in reporters] + [each.lock for each in registry._sources]
        for interrupted in range(1, 7):
            waits = []
            child = os.fork()
            if not child:
                os._exit(0)
            os.waitpid(child, 0)
            print(len(waits), sum(each.lock.locked() for each in locks))
        print(raised == [SystemExit] * 6)
    """)
    assert out.splitlines() == [f"{waits} 0" for waits in range(1, 7)] + ["True"]


def test_a_signal_that_arrives_while_the_process_is_copied_stops_no_reporter() -> None:
    """Python calls the signal's handler at the start of the hook that resumes the reporters."""
    out = run("""
        import ctypes, functools, logging, os, signal, sys  # the hooks of logging come first
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        raise_in_c = functools.partial(ctypes.CDLL(None)["raise"], signal.SIGTERM)  # Python calls the handler later
        os.register_at_fork(after_in_parent=raise_in_c)
        from tallystream import MetricRegistry
        from tallystream.testing import InMemoryReporter
        sys.unraisablehook = lambda what: print(repr(what.exc_value))
        reporter = InMemoryReporter(MetricRegistry("orders"))
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
        print(reporter.report_now(timeout=1))
    """)
    assert out.splitlines() == ["SystemExit(0)", "True"]


def test_a_fork_keeps_a_working_connection() -> None:
    """A producer that has delivered a record stays open in the parent; the child has its own."""
    out = run("""
        import os, time
        from tallystream import KafkaReporter, MetricRegistry
        time.time_ns = lambda: 1_234_000_000  # the append times of the mock broker
        registry = MetricRegistry("orders")
        options = {"test.mock.num.brokers": 1}
        reporter = KafkaReporter(registry, bootstrap_servers="in-process", instance="i", interval=3600, options=options)
        assert reporter.start().report_now(30)
        child = os.fork()
        if not child:
            assert reporter.report_now(30) and reporter.sent == 1
            raise SystemExit(7)
        is_open = reporter._connection.is_open
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(code, is_open, reporter.report_now(30), reporter.sent, reporter.stop())
    """)
    assert out.strip() == "7 True True 2 True"


def test_a_signal_handler_can_stop_a_reporter_at_any_time() -> None:
    """If a metric's lock is held, stop() returns in time, and the last report is made at exit."""
    out = run("""
        import os, signal
        from tallystream import MetricRegistry
        from tallystream.reporters.local import LocalReporter
        class Printer(LocalReporter):
            kind = "printer"
            def _write(self, metrics, ts_ms):
                return print([m.count for m in metrics], flush=True) or 0
        registry = MetricRegistry("orders")
        histogram = registry.histogram("h")
        histogram.update(1)
        reporter = Printer(registry, interval=3600, own_metrics=False).start()
        signal.signal(signal.SIGTERM, lambda *_: print(reporter.stop(timeout=0.1), flush=True))
        with histogram._lock:
            os.kill(os.getpid(), signal.SIGTERM)
            for _ in range(10): pass
            print("resumed", flush=True)  # before the lock is free: the last report prints after it
    """)
    lines = out.splitlines()
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


def test_these_tests_print_nothing_after_pytests_summary() -> None:
    """A reporter that a test does not stop makes its last report at the end of that test."""
    leaves_one_open = f"{HERE / 'test_kafka_reporter.py'}::test_the_reporters_own_metrics_are_in_its_registry"
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(HERE.parents[2]), leaves_one_open]
    done = subprocess.run(command, cwd=HERE.parents[2], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines()[-1].startswith("1 passed")
    assert done.stderr == ""
