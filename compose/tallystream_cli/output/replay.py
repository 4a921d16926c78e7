"""`tallystream replay` in the terminal: progress on standard error; Ctrl-C and SIGTERM end it between two writes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tallystream_aggregator.jobs.replay import run
from tallystream_aggregator.shipping.shipper import StoppedError
from tallystream_aggregator.shutdown import StopRequest

if TYPE_CHECKING:
    from tallystream_aggregator.jobs.replay import ReplaySettings

INTERRUPTED = 130


def replay(settings: ReplaySettings) -> int:
    """Replay, say how many points were written, and return 0; 130 when a signal ended it before the end."""
    stop = StopRequest().install()
    try:
        done = run(settings, stop, lambda sentence: sys.stderr.write(f"{sentence}\n"))
    except StoppedError:
        sys.stderr.write("stopped: what was written stays, and is written again by the next replay\n")
        return INTERRUPTED
    sys.stdout.write(f"{done.points:,} points of {done.period.batches} batches are in the store\n")
    return 0
