"""The errors of the four distributions, in another process."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

from support.modules import modules
from tallystream import ConfigError, DuplicateReporterError
from tallystream_aggregator.shipping.dead_letters import LettersUnavailableError
from tallystream_aggregator.sinks.base import SinkUnavailableError
from tallystream_aggregator.stream.broker import Bounds, LostRecordsError, Place
from tallystream_aggregator.table import StateError

ARGUMENTS: dict[type[BaseException], tuple[Any, ...]] = {
    ConfigError: ("interval", 0, "use 1"),
    DuplicateReporterError: ("instance", "a", "use another"),
    LettersUnavailableError: ("metrics-dead", "no answer"),
    LostRecordsError: (Place("metrics", 0), 7, Bounds(1, 5, 5)),
    StateError: ("no entries",),
}
"""The arguments of the errors that make their message of them. All others get the message."""


def test_every_error_can_leave_a_pool_of_processes() -> None:
    """A pool pickles what a task raises. One that can't read it waits for ever, or stops as a whole."""
    kinds = {
        kind
        for module in modules()
        for kind in vars(module).values()
        if inspect.isclass(kind) and issubclass(kind, BaseException) and kind.__module__ == module.__name__
    }
    assert kinds >= {*ARGUMENTS, SinkUnavailableError}
    for kind in kinds:
        error = kind(*ARGUMENTS.get(kind, ("message",)))
        error.retry_after_s = 3.0
        for same in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert (type(same), str(same), vars(same)) == (kind, str(error), vars(error))
