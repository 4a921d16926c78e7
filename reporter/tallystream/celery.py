"""Counts and times the tasks of Celery: `count_tasks()`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tallystream.instrumentation.default import default_registry

if TYPE_CHECKING:
    from tallystream.metric_factory import MetricFactory

__all__ = ["count_tasks"]


def count_tasks(registry: MetricFactory | None = None) -> None:
    """Count and time the tasks of a Celery worker. Call it once, in the module of the Celery application.

    - `celery.tasks`: a counter with the tags `task` and `outcome`: success, failure, retry, ignored or rejected,
    - `celery.duration`: a timer with the tag `task`.

    Each run of a task has one outcome, so a task that is retried twice and then succeeds counts as two retries and a
    success. If its process is killed, or its hard time limit is exceeded, the worker's main process counts a failure
    when Celery does.

    Args:
        registry: the registry of the metrics, or a child of it; None: the default registry.
    """
    from celery import signals  # an application without Celery does not have it

    tasks = _Tasks(default_registry() if registry is None else registry)
    signals.task_prerun.connect(tasks.begin, weak=False, dispatch_uid="tallystream")
    signals.task_postrun.connect(tasks.end, weak=False, dispatch_uid="tallystream")
    signals.task_failure.connect(tasks.fail, weak=False, dispatch_uid="tallystream")


class _Tasks:
    def __init__(self, registry: MetricFactory) -> None:
        self._registry = registry.child("celery")
        self._seconds = self._registry.clock.monotonic
        self._began: dict[str, float] = {}  # by the ID of the task: a process may run several at once

    def begin(self, *, task_id: str, **_: Any) -> None:
        self._began[task_id] = self._seconds()

    def end(self, *, task_id: str, task: Any, state: str | None, **_: Any) -> None:
        began = self._began.pop(task_id, None)
        if state is None:  # the process is ending: if the task failed by that, the main process counts it
            return
        if began is not None:
            self._registry.timer("duration", {"task": task.name}).update(max(0.0, self._seconds() - began))
        self._count(task, state.lower())

    def fail(self, *, sender: Any, exception: BaseException, **_: Any) -> None:
        from billiard.exceptions import TimeLimitExceeded, WorkerLostError

        if isinstance(exception, (WorkerLostError, TimeLimitExceeded)):
            self._count(sender, "failure")

    def _count(self, task: Any, outcome: str) -> None:
        self._registry.counter("tasks", {"task": task.name, "outcome": outcome}).inc()
