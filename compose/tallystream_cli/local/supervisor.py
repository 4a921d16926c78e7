"""Start components in order, restart those that die, and stop all of them in reverse order."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tallystream.errors import TallystreamError
from tallystream_cli.servers.process import POLL_S, Server, StartError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

MIN_PAUSE_S, MAX_PAUSE_S = 0.5, 30.0
HEALTHY_AFTER_S = 60.0
"""After a run of this length, the pause before the next restart is the shortest one again."""

State = Literal["waiting", "starting", "up", "died", "stopped"]


class Command(Server):
    """A command as a component, which creates the file `ready_file` when it is ready."""

    start_timeout_s = 300.0  # a start takes half a minute, but minutes on a busy machine

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        ready_file: Path,
        env: Mapping[str, str | None] | None = None,
    ) -> None:
        super().__init__(name, log)
        self._command = list(command)
        self._ready_file = ready_file
        self._env = env

    def begin(self) -> None:
        """Start the process and return at once."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._ready_file.unlink(missing_ok=True)
        self._spawn(self._command, self._env)

    def ready(self) -> bool:
        """Return whether the ready file exists."""
        return self._ready_file.exists()


@dataclass(slots=True)
class Watched:
    """A component with its state; times are of the supervisor's clock, in seconds. `deaths` are those in a row."""

    component: Server
    state: State = "waiting"
    restarts: int = 0
    deaths: int = 0
    started_at: float = 0.0
    restart_at: float = 0.0

    def next_pause(self, ran_s: float) -> float:
        """Return the seconds until the next restart after a death: 0.5, 1, 2 … 30; `ran_s` is how long it ran."""
        self.deaths = 1 if ran_s >= HEALTHY_AFTER_S else self.deaths + 1
        return float(min(MAX_PAUSE_S, MIN_PAUSE_S * 2.0 ** min(self.deaths - 1, 30)))


class Supervisor:
    """Keeps components running. One thread uses it.

    `say` gets a sentence for each event. `on_change` is called after each change of a state.
    """

    def __init__(
        self,
        components: Sequence[Server],
        *,
        say: Callable[[str], None],
        on_change: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.watched = [Watched(component) for component in components]
        self._say = say
        self._on_change = on_change
        self._clock = clock
        self._sleep = sleep

    def start(self, group: Sequence[Watched]) -> None:
        """Start some of the components together, and return when all of them are ready.

        Raises:
            StartError: a component ended, or was not ready in time.
        """
        for watched in group:
            self._begin(watched)
        while any(watched.state == "starting" for watched in group):
            for watched in group:
                self._check_start(watched, "is up")
            self._sleep(POLL_S)

    def tick(self) -> None:
        """Check every component once: detect those that died, restart those whose pause has ended."""
        for watched in self.watched:
            if watched.state == "starting":
                try:
                    self._check_start(watched, "is up again")
                except StartError as error:
                    watched.component.stop()
                    self._mark_died(watched, f"did not start ({error})")
            elif watched.state == "up" and (code := watched.component.poll()) is not None:
                self._mark_died(watched, f"died (code {code})")
            elif watched.state == "died" and self._clock() >= watched.restart_at:
                self._restart(watched)

    def stop(self) -> None:
        """Stop every component, the last one first. May be called again."""
        for watched in reversed(self.watched):
            if watched.state not in {"waiting", "stopped"}:
                watched.component.stop()
                self._set(watched, "stopped")
                self._say(f"{watched.component.name} is stopped")

    def _check_start(self, watched: Watched, what: str) -> None:
        passed = self._clock() - watched.started_at
        if watched.state == "starting" and watched.component.became_ready(passed):
            self._set(watched, "up")
            self._say(f"{watched.component.name} {what} after {passed:.1f} s")

    def _restart(self, watched: Watched) -> None:
        watched.restarts += 1
        try:
            self._begin(watched)
        except (OSError, TallystreamError) as error:
            self._mark_died(watched, f"can't be started ({error})")
        else:
            self._say(f"{watched.component.name}: restart {watched.restarts}")

    def _mark_died(self, watched: Watched, how: str) -> None:
        pause = watched.next_pause(self._clock() - watched.started_at)
        watched.restart_at = self._clock() + pause
        self._set(watched, "died")
        self._say(f"{watched.component.name} {how}; it is restarted in {pause:g} s")

    def _begin(self, watched: Watched) -> None:
        # The state changes first, so that `stop` also stops a component whose start fails.
        watched.state, watched.started_at = "starting", self._clock()
        watched.component.begin()
        watched.started_at = self._clock()  # once more, as the broker's jars may have been downloaded first
        self._set(watched, "starting")

    def _set(self, watched: Watched, state: State) -> None:
        watched.state = state
        self._on_change()
