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
    """The lives of one registry at one destination, under one instance ID; `owner` returns the current reporter.

    A destination is a topic of a cluster. `cluster` is None until a broker at `address` was reached and returned the
    cluster's ID. Only then is it known whether two addresses belong to the same cluster.
    """

    address: str
    topic: str
    instance: str
    lives: LifeHistory
    cluster: str | None = None
    owner: Callable[[], object | None] = lambda: None

    def release(self) -> None:
        """Allow another reporter to continue the lives."""
        self.owner = lambda: None


class _Destinations:
    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self._lock = Lock()
        self._all: WeakKeyDictionary[MetricRegistry, list[Destination]] = WeakKeyDictionary()

    def claim(self, owner: object, registry: MetricRegistry, address: str, topic: str, instance: str) -> Destination:
        """Return the destination of this address, which `identify` may replace.

        Raises:
            DuplicateReporterError: another reporter reports the registry there, or one with another instance ID did.
        """
        with self._lock:
            known = self._all.setdefault(registry, [])
            for destination in known:
                if (destination.address, destination.topic) == (address, topic):
                    _claim(destination, owner, registry, instance)
                    return destination
            destination = Destination(address, topic, instance, LifeHistory(registry.app), owner=ref(owner))
            known.append(destination)
            return destination

    def identify(self, destination: Destination, cluster: str, owner: object, registry: MetricRegistry) -> Destination:
        """Return the destination of this cluster, when the address of the claimed one has been found to belong to it.

        Raises:
            DuplicateReporterError: another reporter, or another instance ID, reports there, under another address.
        """
        with self._lock:
            if destination.cluster == cluster:
                return destination
            known = self._all[registry]
            found = next((d for d in known if (d.cluster, d.topic) == (cluster, destination.topic)), None)
            if found is not None:
                _claim(found, owner, registry, destination.instance)
            elif destination.cluster is None:
                destination.cluster = cluster
                return destination
            else:
                lives = LifeHistory(registry.app)
                address, topic, instance = destination.address, destination.topic, destination.instance
                found = Destination(address, topic, instance, lives, cluster, ref(owner))
                known.append(found)
            # The address belongs to `found` from now on.
            found.address, destination.address = destination.address, ""
            destination.release()
            if destination.cluster is None:
                known.remove(destination)
            return found


def _claim(destination: Destination, owner: object, registry: MetricRegistry, instance: str) -> None:
    if destination.instance != instance and destination.lives.has_begun:
        raise DuplicateReporterError(
            "instance",
            instance,
            f"this registry is reported to {destination.topic!r} as {destination.instance!r} already; use the same",
        )
    if destination.owner() not in (None, owner):
        raise DuplicateReporterError(
            "registry",
            registry.app,
            f"another reporter reports it to {destination.topic!r} of the same cluster ({destination.address}): "
            "stop that one first",
        )
    destination.owner, destination.instance = ref(owner), instance


_destinations = _Destinations()
claim, identify = _destinations.claim, _destinations.identify
after_fork_in_child(Step.DESTINATIONS, _destinations.forget)
