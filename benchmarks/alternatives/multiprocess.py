"""The multiprocess mode of prometheus_client: one file for each process that ever ran. Each scrape reads all files."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.mmap_dict import MmapedDict, mmap_key
from prometheus_client.multiprocess import MultiProcessCollector

if TYPE_CHECKING:
    from pathlib import Path

METRICS, VALUE = 50, 7.0


def measure(folder: Path, processes: int) -> dict[str, Any]:
    """Write the files of `processes` processes with 50 counters each, and measure one scrape."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"records_processed_{number:02d}" for number in range(METRICS)]
    for process in range(processes):
        file = MmapedDict(str(folder / f"counter_{process}.db"))
        for name in names:
            file.write_value(mmap_key(name, f"{name}_total", (), (), "help"), VALUE, 0.0)
        file.close()
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=str(folder))  # type: ignore[no-untyped-call]
    began, cpu = time.perf_counter(), time.process_time()
    text = generate_latest(registry).decode()
    took_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    size = sum(path.stat().st_size for path in folder.iterdir())
    exact = all(f"{name}_total {processes * VALUE}" in text for name in names)
    return {"processes": processes, "scrape_s": took_s, "cpu_s": cpu_s, "files_mb": size / 1e6, "exact": exact}
