"""Whether this machine or container has the memory that the table may take.

The limit of the table is a setting, and not derived from this memory: what is refused must not depend on the machine.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from tallystream.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tallystream_aggregator.jobs.aggregate.settings import AggregateSettings

log = logging.getLogger(__name__)

CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Where a container finds its limit: that of the second version of cgroups, and of the first."""

JVM_BYTES = 400 << 20
"""What Spark's JVM takes besides its heap."""

WORKER_BYTES = 400 << 20
"""What a Python worker takes besides its table: libraries, caches, and the records of a step."""

_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_MEMORY = re.compile(r"(\d{1,9})([kmgt]?)b?", re.IGNORECASE)


def parse_memory(option: str, text: str) -> int:
    """Return an amount of memory, as in `800m` or `2g`, in bytes.

    Raises:
        ConfigError: `text` is none.
    """
    found = _MEMORY.fullmatch(text.strip())
    if found is None:
        raise ConfigError(option, text, "give an amount of memory, as in 800m or 2g")
    return int(found[1]) << _UNITS[found[2].lower()]


def available_bytes(limits: Iterable[Path] = CGROUP_LIMITS) -> int:
    """Return how much memory this process may use: that of the machine, or of the container if it has less."""
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in limits:
        try:
            text = path.read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdecimal():  # and not "max"
            available = min(available, int(text))
    return available


def warn_of_memory(settings: AggregateSettings, shards: int, available: int | None = None) -> None:
    """Log a warning if the tables of all shards may take more memory than there is. On a cluster it is not known."""
    if settings.master is not None and not settings.master.startswith("local"):
        return
    most, table = available_bytes() if available is None else available, settings.table.max_table_bytes
    heap = parse_memory("--driver-memory", settings.driver_memory)
    needed = heap + JVM_BYTES + shards * (table + WORKER_BYTES)
    if needed > most:
        log.warning(
            "--table-memory: %d MB for each of %d shards, with Spark up to %d MB in all, and this machine or container "
            "has %d MB: give it more memory, or a lower --table-memory",
            *(table >> 20, shards, needed >> 20, most >> 20),
        )
