"""The lives of each registry at each destination, stored for the registry, so that a later reporter continues them."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, ref

import msgspec

from tallystream.errors import DuplicateReporterError
from tallystream.fork import Step, after_fork_in_child
from tallystream.kafka.life import LifeHistory

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
        """Allow another reporter to continue here."""
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
            DuplicateReporterError: another reporter, or another instance ID, reports the registry there.
        """
        with self._lock:
            accounts = self._all.setdefault(registry, [])
            for account in accounts:
                if (account.address, account.topic) == (address, topic):
                    _take(account, owner, registry, instance)
                    return account
            account = Destination(address, topic, instance, LifeHistory(registry.app, 1000), owner=ref(owner))
            accounts.append(account)
            return account

    def identify(self, account: Destination, cluster: str, owner: object, registry: MetricRegistry) -> Destination:
        """Return the destination of this cluster, when the address of the claimed one has been found to belong to it.

        Raises:
            DuplicateReporterError: another reporter, or another instance ID, reports there, under another address.
        """
        with self._lock:
            if account.cluster == cluster:
                return account
            accounts = self._all[registry]
            found = next((a for a in accounts if (a.cluster, a.topic) == (cluster, account.topic)), None)
            if found is not None:
                _take(found, owner, registry, account.instance)
            elif account.cluster is None:
                account.cluster = cluster
                return account
            else:
                lives = LifeHistory(registry.app, 1000)
                found = Destination(account.address, account.topic, account.instance, lives, cluster, ref(owner))
                accounts.append(found)
            # The address belongs to `found` from now on.
            found.address, account.address = account.address, ""
            account.release()
            if account.cluster is None:
                accounts.remove(account)
            return found


def _take(account: Destination, owner: object, registry: MetricRegistry, instance: str) -> None:
    if account.instance != instance:
        raise DuplicateReporterError(
            "instance",
            instance,
            f"this registry is reported to {account.topic!r} as {account.instance!r} already; use the same",
        )
    if account.owner() not in (None, owner):
        raise DuplicateReporterError(
            "registry",
            registry.app,
            f"another reporter reports it to {account.topic!r} of the same cluster ({account.address}): stop that one "
            "first",
        )
    account.owner = ref(owner)


_destinations = _Destinations()
claim, identify = _destinations.claim, _destinations.identify
after_fork_in_child(Step.ACCOUNTS, _destinations.forget)
