"""The steps of the demonstration: send events, run two consumers, kill one between report and commit, restart it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from tallystream.errors import TallystreamError
from tallystream_aggregator.kafka import clients
from tallystream_cli.demo import app, events, journal, offsets
from tallystream_cli.servers.process import spawn, tail

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tallystream_cli.demo.display import Display
    from tallystream_cli.demo.sums import SumsReader

SENT, PROCESSED = "sent", "processed, by the sums"
POLL_S = 0.1
STOP_TIMEOUT_S = 30.0
NO_PROGRESS_TIMEOUT_S = 180.0
SLOW_S = 120
"""Until app-2 is restarted, each consumer processes at most a 120th of the events per second. So events are left for
app-2's second life even on a slow machine. Then both work at full speed."""


class ConsumerError(TallystreamError):
    """A consumer application ended unexpectedly, or did not stop."""


class StuckError(TallystreamError):
    """A condition that the demonstration waits for was not met in time."""


class AppProcess:
    """The processes of one instance ID, one after another, which share a journal."""

    def __init__(self, instance: str, folder: Path, options: Sequence[str]) -> None:
        self.instance = instance
        self._journal = folder / f"{instance}.journal"
        self._hold_file = folder / f"{instance}.hold"
        self._log = folder / f"{instance}.log"
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start a process. None may be running."""
        own = ("--instance", self.instance, "--journal", str(self._journal))
        hold = ("--hold-after-report", str(self._hold_file))
        command = [sys.executable, "-m", "tallystream_cli.demo.app", *self._options, *own, *hold]
        self._process = spawn(command, self._log)

    def check(self) -> None:
        """Check that the process runs, if it was started.

        Raises:
            ConsumerError: it has exited; the message ends with the last lines of its log.
        """
        code = None if self._process is None else self._process.poll()
        if code is not None:
            raise self._exited(code)

    def batches(self) -> list[journal.Batch]:
        """Return the batches in the journal.

        Raises:
            JournalError: the journal contradicts itself.
        """
        return journal.parse(self._journal.read_bytes()) if self._journal.exists() else []

    def hold(self) -> None:
        """Let the process stop between its next report and the commit."""
        self._hold_file.touch()

    def kill(self) -> None:
        """Kill the process with SIGKILL; the next one is not held."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        self._hold_file.unlink(missing_ok=True)

    def stop(self) -> None:
        """Stop the process with SIGTERM.

        Raises:
            ConsumerError: it failed, or did not stop in time and was killed.
        """
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            process.kill()
            process.wait()
            raise ConsumerError(f"{self.instance}: still ran {STOP_TIMEOUT_S:g} s after SIGTERM.") from error
        if code:
            raise self._exited(code)

    def _exited(self, code: int) -> ConsumerError:
        return ConsumerError(f"{self.instance}: exited with code {code}; its last output:\n{tail(self._log)}")


class Scenario:
    """Runs the steps on a broker. `tick` is called several times a second, and raises an error to stop."""

    def __init__(
        self,
        bootstrap_servers: str,
        folder: Path,
        number: int,
        *,
        sums: SumsReader,
        display: Display,
        tick: Callable[[], object],
        batch: int,
    ) -> None:
        self._servers = bootstrap_servers
        self._number = number
        self._sums = sums
        self._display = display
        self._tick = tick
        self._full_speed_file = folder / "full-speed"
        options = (
            *("--bootstrap-servers", bootstrap_servers, "--batch", str(batch)),
            *("--slow-until", str(self._full_speed_file), "--rate", str(number / SLOW_S)),
        )
        self.apps = [AppProcess(instance, folder, options) for instance in ("app-1", "app-2")]

    def send(self, sources: Sequence[events.Event]) -> int:
        """Send the events and return how many the topic has."""
        events.create_topic(self._servers)
        events.send(self._servers, sources, self._number, progress=self._on_sent)
        return sum(offsets.end_offsets(self._servers, events.TOPIC).values())

    def start_both(self) -> None:
        """Start app-1, then app-2, and return when each has committed a batch."""
        for one in self.apps:
            one.start()
            self.wait_until(lambda: _committed(one.batches()), f"{one.instance} has committed a batch")  # noqa: B023

    def kill(self) -> int:
        """Kill app-2 between report and commit; when app-1 has taken over, return how many records app-2 held."""
        first, second = self.apps
        second.hold()
        self.wait_until(lambda: journal.held(second.batches()), "app-2 has reported a batch and not committed it")
        second.kill()
        held = [batch for batch in second.batches() if batch.held][-1]
        ends = {partition: end for partition, _, end in held.line.spans}
        self.wait_until(
            lambda: _processed_up_to(ends, first.batches()), "app-1 has processed what app-2 had not committed"
        )
        return held.line.count

    def restart(self) -> None:
        """Start app-2 again with the same instance ID, and return when its new life has committed a batch."""
        second = self.apps[1]
        before = len(second.batches())
        second.start()
        self.wait_until(lambda: _committed(second.batches()[before:]), "app-2's second life has committed a batch")

    def finish(self) -> None:
        """Let both work at full speed until every event is committed, then stop them."""
        self._full_speed_file.touch()
        ends = offsets.end_offsets(self._servers, events.TOPIC)
        with clients.metadata_consumer({"bootstrap.servers": self._servers}, app.GROUP) as consumer:
            self.wait_until(
                lambda: offsets.committed_offsets(consumer, events.TOPIC, events.PARTITIONS) == ends,
                "the consumers have committed every event",
            )
        for one in self.apps:
            one.stop()

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        """Wait until a condition holds.

        Raises:
            StuckError: it did not hold, and the sums did not change, for `NO_PROGRESS_TIMEOUT_S`.
            ConsumerError: an application ended.
        """
        deadline, last_count = time.monotonic() + NO_PROGRESS_TIMEOUT_S, -1
        while not condition():
            self.check()
            count = self._sums.sums.count()
            if count != last_count:
                deadline, last_count = time.monotonic() + NO_PROGRESS_TIMEOUT_S, count
            if time.monotonic() > deadline:
                raise StuckError(f"demo: waited {NO_PROGRESS_TIMEOUT_S:g} s in vain until {what}.")
            time.sleep(POLL_S)

    def check(self) -> None:
        """Check the system and the applications, read the sums, and update the display."""
        self._tick()
        for one in self.apps:
            one.check()
        self._sums.refresh()
        self._display.count(PROCESSED, self._sums.sums.count())

    def kill_all(self) -> None:
        """Kill the applications. May be called again."""
        for one in self.apps:
            one.kill()

    def _on_sent(self, number: int) -> None:
        self._tick()
        self._display.count(SENT, number)


def _committed(batches: Sequence[journal.Batch]) -> bool:
    return any(batch.committed for batch in batches)


def _processed_up_to(ends: Mapping[int, int], batches: Sequence[journal.Batch]) -> bool:
    """Return whether the acknowledged batches reach the end offset of each partition."""
    reached: dict[int, int] = {}
    for batch in batches:
        if batch.acknowledged:
            for partition, _, end in batch.line.spans:
                reached[partition] = max(end, reached.get(partition, 0))
    return all(reached.get(partition, 0) >= end for partition, end in ends.items())
