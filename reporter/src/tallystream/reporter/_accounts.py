"""Which lives a registry has had at which destination: kept beside the registry, so that a later reporter counts on."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, ref

import msgspec

from tallystream.reporter._forks import Step, after_fork_in_child
from tallystream.reporter.errors import ConfigError
from tallystream.reporter.lives import Lives

if TYPE_CHECKING:
    from tallystream.reporter.registry import MetricRegistry


class Account(msgspec.Struct, eq=False):
    """The lives of one registry at one destination, under one instance ID; `owner` is who reports there now."""

    instance: str
    lives: Lives
    owner: Callable[[], object | None] = lambda: None

    def release(self) -> None:
        """Let another reporter go on here."""
        self.owner = lambda: None


class _Accounts:
    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self._lock = Lock()
        self._all: WeakKeyDictionary[MetricRegistry, dict[tuple[str, str], Account]] = WeakKeyDictionary()

    def claim(self, owner: object, registry: MetricRegistry, servers: str, topic: str, instance: str) -> Account:
        with self._lock:
            accounts = self._all.setdefault(registry, {})
            key = (servers, topic)
            account = accounts.get(key)
            if account is None:
                account = accounts[key] = Account(instance, Lives(registry.app, 1000))
            if account.instance != instance:
                raise ConfigError(
                    "instance", instance, f"this registry is reported to {topic!r} as {account.instance!r} already"
                )
            if account.owner() not in (None, owner):
                raise ConfigError(
                    "registry", registry.app, f"another reporter reports it to {topic!r}: stop that one first"
                )
            account.owner = ref(owner)
            return account


_accounts = _Accounts()
claim = _accounts.claim
after_fork_in_child(Step.ACCOUNTS, _accounts.forget)
