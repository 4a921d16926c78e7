"""The start times of batches for the latency that `--latency` sets. Pure."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from tallystream.errors import ConfigError

LOW = "low"
LOW_INTERVAL_MS = 100
MAX_INTERVAL_MS = 250
MIN_AIM_MS, MAX_AIM_MS = 200, 60_000

_DURATION = re.compile(r"(\d+(?:\.\d+)?) ?(ms|s|m)")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000}


class Pacing(NamedTuple):
    """Spark checks for records every `interval_ms`.

    A check that finds records starts a batch if `delay_ms` have passed since the start of the last batch, or if the
    records fill a batch.
    """

    interval_ms: int
    delay_ms: int

    def source(self, max_records: int) -> dict[str, str]:
        """Return the options of Spark's Kafka source. A batch is full with `max_records` records."""
        if not self.delay_ms:
            return {}
        return {"minOffsetsPerTrigger": str(max_records), "maxTriggerDelay": f"{self.delay_ms}ms"}


def parse_latency(text: str) -> Pacing:
    """Return the pacing for a latency: a duration such as `500ms`, `1s` or `1m`, or `low`.

    With a duration, a record waits for at most two thirds of it until a batch starts, or until the running batch ends.
    The last third is for its batch. With `low`, a batch starts as soon as there are records.

    Raises:
        ConfigError: `text` is neither, or the duration is below 200 ms or above 1 minute.
    """
    if text == LOW:
        return Pacing(LOW_INTERVAL_MS, 0)
    match = _DURATION.fullmatch(text)
    aim_ms = float(match[1]) * _UNIT_MS[match[2]] if match else 0
    if not MIN_AIM_MS <= aim_ms <= MAX_AIM_MS:
        raise ConfigError("--latency", text, "give a duration from 200ms to 1m, as in 500ms or 2s, or low")
    wait_ms = aim_ms * 2 / 3
    polls = max(2, math.ceil(wait_ms / MAX_INTERVAL_MS))
    interval_ms = int(wait_ms / polls)
    # The delay ends between the last two checks, so the pacing stays the same if a check is some milliseconds off.
    return Pacing(interval_ms, int((polls - 0.5) * interval_ms))
