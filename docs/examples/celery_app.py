"""A Celery application whose tasks count, under a prefork pool that replaces its processes.

    celery --workdir docs/examples --app celery_app worker --loglevel INFO --concurrency 2 --max-tasks-per-child 50
    python docs/examples/celery_app.py 500

The second command sends 500 tasks. Celery's broker is that of CELERY_BROKER_URL, or of the module of settings that
CELERY_CONFIG_MODULE names. Requires tallystream and Celery.
"""

from __future__ import annotations

import sys

from celery import Celery, Task

from tallystream import report
from tallystream.celery import count_tasks

app = Celery("shop")
app.config_from_envvar("CELERY_CONFIG_MODULE", silent=True)
registry = report("shop")  # in each process of the worker, and in each process that sends tasks
count_tasks(registry)
shipped = registry.counter("orders.shipped")


@app.task(bind=True, name="ship", max_retries=1, default_retry_delay=0, ignore_result=True)  # type: ignore[untyped-decorator]
def ship(self: Task, order: int) -> None:
    """Do the application's work. Of ten orders one is refused, and one needs a second attempt."""
    if order % 10 == 0:
        raise ValueError(f"the order {order} has no address")
    if order % 10 == 1 and self.request.retries == 0:
        raise self.retry()
    shipped.inc()


if __name__ == "__main__":
    for number in range(int(sys.argv[1])):
        ship.delay(number)
