"""What happens, in order: events, two consumers, a kill between report and commit, a return, the end of the work."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tallystream.errors import TallystreamError
from tallystream_cli.demo import app, dataset, journal
from tallystream_cli.demo import topic as kafka
from tallystream_cli.demo.consumers import AppProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tallystream_cli.demo.display import Display
    from tallystream_cli.demo.sums import Watch

SENT, PROCESSED = "sent", "processed, by the aggregate"
POLL_S = 0.1
LIMIT_S = 180.0
SLOW_S = 120
"""Until the kill and the return are over, each consumer keeps to events / SLOW_S a second: so there is something left
to do for app-2's second life on the slowest machine. Then both work flat out."""


class StuckError(TallystreamError):
    """Something that was waited for did not happen."""


class Scenario:
    """Runs on a broker that is up. `tick` is called several times a second, and raises what should end it all."""

    def __init__(
        self,
        bootstrap_servers: str,
        folder: Path,
        events: int,
        *,
        watch: Watch,
        display: Display,
        tick: Callable[[], object],
        batch: int,
    ) -> None:
        self._servers = bootstrap_servers
        self._events = events
        self._watch = watch
        self._display = display
        self._tick = tick
        self._hurry = folder / "flat-out"
        options = {
            "--bootstrap-servers": bootstrap_servers,
            "--batch": str(batch),
            "--slow-until": str(self._hurry),
            "--rate": str(events / SLOW_S),
        }
        self.apps = [AppProcess(name, folder, options) for name in ("app-1", "app-2")]

    def send(self, events: Sequence[dataset.Event]) -> int:
        """Send the events and return how many of them the topic has."""
        dataset.create_topic(self._servers)
        dataset.send(self._servers, events, self._events, progress=self._sent)
        consumer = kafka.reader(self._servers)
        try:
            return sum(kafka.ends(consumer, dataset.TOPIC, dataset.PARTITIONS).values())
        finally:
            consumer.close()

    def share(self) -> None:
        """Start app-1, then app-2, and return when both have processed and committed something."""
        for one in self.apps:
            one.start()
            self.until(lambda: _committed(one.batches()), f"{one.instance} has committed a batch")  # noqa: B023

    def kill(self) -> int:
        """Kill app-2 between report and commit; return, once app-1 has taken over, how many records it held."""
        first, second = self.apps
        second.hold()
        self.until(lambda: journal.held(second.batches()), "app-2 has reported a batch and not committed it")
        second.kill()
        held = [batch for batch in second.batches() if batch.held][-1]
        wanted = {partition: end for partition, _, end in held.line.spans}
        self.until(lambda: _reached(first.batches(), wanted), "app-1 has taken over what app-2 had not committed")
        return held.line.count

    def come_back(self) -> None:
        """Start app-2 again under the same instance ID, and return when its new life has committed something."""
        second = self.apps[1]
        before = len(second.batches())
        second.start()
        self.until(lambda: _committed(second.batches()[before:]), "app-2's second life has committed a batch")

    def finish(self) -> None:
        """Let both work flat out until every event is committed, then end them."""
        self._hurry.touch()
        consumer = kafka.reader(self._servers, app.GROUP)
        try:
            goal = kafka.ends(consumer, dataset.TOPIC, dataset.PARTITIONS)
            self.until(
                lambda: kafka.committed(consumer, dataset.TOPIC, dataset.PARTITIONS) == goal,
                "the consumers have committed every event",
            )
        finally:
            consumer.close()
        for one in self.apps:
            one.stop()

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait for a condition, up to a limit that starts again whenever the aggregate moves.

        Raises:
            StuckError: it did not come true; the message says what was waited for.
            ConsumerError: an application ended.
        """
        limit, seen = time.monotonic() + LIMIT_S, -1
        while not condition():
            self.attend()
            now = self._watch.sums.count()
            if now != seen:
                limit, seen = time.monotonic() + LIMIT_S, now
            if time.monotonic() > limit:
                raise StuckError(f"demo: gave up after {LIMIT_S:g} s waiting until {what}.")
            time.sleep(POLL_S)

    def attend(self) -> None:
        """Look after the system, the applications and the watch; move the bar."""
        self._tick()
        for one in self.apps:
            one.check()
        if self._watch.error is not None:
            raise StuckError(f"demo: the aggregate can't be followed: {self._watch.error}") from self._watch.error
        self._display.count(PROCESSED, self._watch.sums.count())

    def end(self) -> None:
        """End the applications at once, whatever state they are in; safe to call again."""
        for one in self.apps:
            one.kill()

    def _sent(self, number: int) -> None:
        self._tick()
        self._display.count(SENT, number)


def _committed(batches: Sequence[journal.Batch]) -> bool:
    return any(batch.committed for batch in batches)


def _reached(batches: Sequence[journal.Batch], wanted: dict[int, int]) -> bool:
    """Tell whether acknowledged batches go up to the wanted offset of each partition."""
    reached: dict[int, int] = {}
    for batch in batches:
        if batch.acknowledged:
            for partition, _, end in batch.line.spans:
                reached[partition] = max(end, reached.get(partition, 0))
    return all(reached.get(partition, 0) >= end for partition, end in wanted.items())
