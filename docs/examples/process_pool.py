"""Pools of processes in which every task is counted, however short it is.

    python docs/examples/process_pool.py pool 2000
    python docs/examples/process_pool.py executor 2000 spawn

Sums the squares of the first 2,000 numbers in four processes at a time, each of which ends after 250 numbers: with a
multiprocessing.Pool, or with a ProcessPoolExecutor. The last argument is a start method of multiprocessing: fork (only
for the pool), forkserver or spawn. Requires only tallystream.
"""

from __future__ import annotations

import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor

from tallystream import MetricRegistry, report

registry = MetricRegistry("squares")
tasks = registry.counter("tasks.done")


def begin() -> None:
    """Start the reporter. The pool calls this in each child, before the first task."""
    report("squares", registry=registry)


def square(number: int) -> int:
    """Do the application's work."""
    tasks.inc()
    return number * number


def use_pool(numbers: int, method: str) -> int:
    """Run the tasks in a pool whose processes end after five chunks of 50 tasks."""
    context = multiprocessing.get_context(method)
    with context.Pool(4, initializer=begin, maxtasksperchild=5) as pool:
        total = sum(pool.map(square, range(numbers), chunksize=50))
        # The end of the block terminates the children, and their counts since the last report are lost.
        # close() and join() before it let the children end normally, with a last report.
        pool.close()
        pool.join()
    return total


def use_executor(numbers: int, method: str) -> int:
    """Run the tasks in an executor whose processes end after one chunk of 250 tasks."""
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(4, context, initializer=begin, max_tasks_per_child=1) as executor:
        return sum(executor.map(square, range(numbers), chunksize=250))


if __name__ == "__main__":
    use = {"pool": use_pool, "executor": use_executor}[sys.argv[1]]
    sys.stdout.write(f"{use(int(sys.argv[2]), *sys.argv[3:] or ['spawn'])}\n")
