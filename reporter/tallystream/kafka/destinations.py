"""The lives of each registry at each destination, stored for the registry, so that a later reporter continues them."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, ref

import msgspec

from tallystream.errors import DuplicateReporterError
from tallystream.kafka.life import LifeHistory
from tallystream.process.fork import Step, after_fork_in_child

if TYPE_CHECKING:
    from tallystream.registry import MetricRegistry


class Destination(msgspec.Struct, eq=False):
    """The lives of one registry at one topic of a cluster, under one instance ID; `owner` returns their reporter."""

    instance: str
    lives: LifeHistory
    owner: Callable[[], object | None] = lambda: None

    def release(self) -> None:
        """Allow another reporter to continue the lives."""
        self.owner = lambda: None


class _Destinations:
    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self._lock = Lock()
        self._all: WeakKeyDictionary[MetricRegistry, dict[tuple[str, str], Destination]] = WeakKeyDictionary()

    def claim(self, owner: object, registry: MetricRegistry, cluster: str, topic: str, instance: str) -> Destination:
        """Return the destination, of which `owner` becomes the reporter.

        Raises:
            DuplicateReporterError: another reporter reports the registry there, or one with another instance ID did.
        """
        with self._lock:
            new = Destination(instance, LifeHistory(registry.app))
            found = self._all.setdefault(registry, {}).setdefault((cluster, topic), new)
            if found.instance != instance and found.lives.has_begun:
                remedy = f"this registry is reported to {topic!r} as {found.instance!r} already; use the same"
                raise DuplicateReporterError("instance", instance, remedy)
            if found.owner() not in (None, owner):
                remedy = f"another reporter reports it to {topic!r} of the same cluster: stop that one first"
                raise DuplicateReporterError("registry", registry.app, remedy)
            found.owner, found.instance = ref(owner), instance
            return found


_destinations = _Destinations()
claim = _destinations.claim
after_fork_in_child(Step.DESTINATIONS, _destinations.forget)
