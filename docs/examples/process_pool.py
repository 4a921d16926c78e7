"""A pool of processes in which every task is counted, however short it is.

    python docs/examples/process_pool.py localhost:9092 2000

Sums the squares of the first 2,000 numbers in four processes. The second argument may be followed by a start method of
multiprocessing: fork, forkserver or spawn. Requires only tallystream.
"""

from __future__ import annotations

import multiprocessing
import sys

from tallystream import MetricRegistry, report

registry = MetricRegistry("squares")
tasks = registry.counter("tasks.done")


def begin(servers: str) -> None:
    """Start the reporter. The pool calls this in each child, before the first task."""
    report("squares", registry=registry, bootstrap_servers=servers)


def square(number: int) -> int:
    """Do the application's work."""
    tasks.inc()
    return number * number


def main(servers: str, numbers: str, method: str | None = None) -> None:
    """Run the tasks in a pool."""
    context = multiprocessing.get_context(method)
    with context.Pool(4, initializer=begin, initargs=(servers,)) as pool:
        sys.stdout.write(f"{sum(pool.map(square, range(int(numbers))))}\n")
        # The end of the block terminates the children, and their counts since the last report are lost.
        # close() and join() before it let the children end normally, with a last report.
        pool.close()
        pool.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
