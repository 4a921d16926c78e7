"""Forks of a process that reports."""

from __future__ import annotations

from support.interpreter import run_program


def test_a_forked_child_counts_from_zero_and_does_not_use_the_parents_producer() -> None:
    """The child has its own life, and ends without the parent's producer."""
    out = run_program("""
        import os, threading
        from tallystream import KafkaReporter, MetricRegistry
        registry = MetricRegistry("orders")
        counter, gauge = registry.counter("c"), registry.gauge("g")
        counter.inc(5); gauge.set(1); registry.position("t", 0).advance(0, 3)
        options = {"bootstrap_servers": "127.0.0.1:1", "interval": 3600, "own_metrics": False}
        reporter = KafkaReporter(registry, instance="i", **options).start()
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


def test_a_fork_closes_a_producer_that_may_be_resolving_names() -> None:
    """Every child that is forked right after the start ends, and the parent continues.

    A child that inherits the C library's lock of name resolution could never end.
    """
    out = run_program("""
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


def test_reporters_continue_after_a_fork_that_one_was_not_prepared_for() -> None:
    """If a reporter can't be prepared, this is logged and counted, and all reporters of the parent go on."""
    out = run_program("""
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
        "<Unprepared of 'orders'>: the reporter could not be prepared for a fork: no such device",
        "<Unprepared of 'orders'>: the reporter could not be prepared for a fork: SystemExit()",
        "[True, True, True] [0, 2, 0]",
    ]


def test_a_signal_that_arrives_while_the_process_is_copied_stops_no_reporter() -> None:
    """Python calls the signal's handler at the start of the hook that resumes the reporters."""
    out = run_program("""
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
    out = run_program("""
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
