"""Increment a counter a million times in each of 8 threads, and print the result as JSON. Runs in any interpreter."""

from __future__ import annotations

import json
import sys
import threading
import time

import without_msgspec

if "--without-msgspec" in sys.argv:
    without_msgspec.install()

from tallystream import MetricRegistry

THREADS, EACH = 8, 1_000_000


def main() -> None:
    """Count in 8 threads while another thread reads the counter, and print the result."""
    sys.setswitchinterval(1e-4)  # threads switch fifty times as often as by default
    counter = MetricRegistry("bench").counter("c")
    barrier = threading.Barrier(THREADS)
    backward, done = [0], threading.Event()

    def work() -> None:
        barrier.wait()
        for _ in range(EACH):
            counter.inc()

    def watch() -> None:
        last = 0
        while not done.wait(0.001):
            now = counter.count
            backward[0] += now < last
            last = now

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    watcher = threading.Thread(target=watch)
    watcher.start()
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - begin
    done.set()
    watcher.join()
    free = not getattr(sys, "_is_gil_enabled", lambda: True)()
    print(
        json.dumps(
            {
                "version": sys.version.split()[0] + (" without GIL" if free else ""),
                "lost": THREADS * EACH - counter.count,
                "backward": backward[0],
                "ns": seconds / THREADS / EACH * 1e9,
            }
        )
    )


if __name__ == "__main__":
    main()
