"""The states of an instance, and the name of the sum with their numbers.

An instance is *living* while it reports. An *ended* one said that it ends, by a `final` record. A *silent* one stopped
without saying so.
"""

from __future__ import annotations

from typing import Final, Literal

InstanceState = Literal["living", "ended", "silent"]
LIVING: Final = "living"
ENDED: Final = "ended"
SILENT: Final = "silent"

INSTANCES, INSTANCES_NAME = "instances", "tallystream.instances"
"""The type and the name of the sum with the numbers of an app's instances. No metric of a record has this type."""


def state_of(*, is_living: bool, is_final: bool) -> InstanceState:
    """Return the state of an instance. `is_final` tells whether its last record is final."""
    if is_living:
        return LIVING
    return ENDED if is_final else SILENT
