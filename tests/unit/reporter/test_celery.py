"""The tasks of Celery that count: each run has one outcome."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from celery import Celery, signals
from celery.exceptions import Ignore, Reject

from tallystream import MetricRegistry, record
from tallystream.celery import count_tasks
from tallystream.testing import InMemoryReporter, ManualClock, assert_count, find

OUTCOMES = {"success": None, "failure": ValueError(), "ignored": Ignore(), "rejected": Reject()}


@pytest.fixture
def registry(clock: ManualClock) -> Iterator[MetricRegistry]:
    """A registry with the metrics of all tasks that run in this process."""
    registry = MetricRegistry("shop", clock=clock)
    count_tasks(registry)
    yield registry
    for signal in (signals.task_prerun, signals.task_postrun, signals.task_failure):
        signal.disconnect(dispatch_uid="tallystream")


def test_a_run_of_a_task_has_one_outcome(registry: MetricRegistry, clock: ManualClock) -> None:
    """Its duration counts with any outcome. A run that ends the process is counted by no process but the main one."""
    app = Celery("shop", set_as_current=False)

    @app.task(name="ship")
    def ship(error: BaseException | None) -> None:
        clock.advance(0.5)
        if error is not None:
            raise error

    for error in OUTCOMES.values():
        ship.apply((error,))
    with pytest.raises(SystemExit):
        ship.apply((SystemExit(),))
    for outcome in OUTCOMES:
        assert_count(registry, "celery.tasks", 1, tags={"task": "ship", "outcome": outcome})
    durations = find(registry, "celery.duration", tags={"task": "ship"})
    assert isinstance(durations, record.Timer)
    assert (durations.count, durations.sum) == (4, 2.0)


def test_the_end_of_a_process_of_celerys_pool_makes_a_last_report(registry: MetricRegistry) -> None:
    """Each reporter makes one, and stops."""
    reporters = [InMemoryReporter(registry, interval=3600).start() for _ in range(2)]
    signals.worker_process_shutdown.send(sender="worker", pid=1, exitcode=0)
    assert [len(reporter.reports) for reporter in reporters] == [1, 1]
    assert not any(reporter.is_running for reporter in reporters)
