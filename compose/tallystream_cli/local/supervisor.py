"""Start components in order, restart those that die, and stop all of them in reverse order."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tallystream.errors import TallystreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tallystream_cli.local.component import Component

MIN_PAUSE_S, MAX_PAUSE_S = 0.5, 30.0
HEALTHY_AFTER_S = 60.0
"""After a run of this length, the pause before the next restart is the shortest one again."""
POLL_S = 0.1

State = Literal["waiting", "starting", "up", "died", "stopped"]


class StartError(TallystreamError):
    """A component did not start; the message ends with the last lines of its log."""


@dataclass(slots=True)
class Backoff:
    """The pauses between the restarts of one component."""

    deaths: int = 0

    def next_pause(self, ran_s: float) -> float:
        """Return the pause in seconds before the next restart: 0.5, 1, 2 … 30; `ran_s` is how long it ran."""
        if ran_s >= HEALTHY_AFTER_S:
            self.deaths = 0
        self.deaths += 1
        return float(min(MAX_PAUSE_S, MIN_PAUSE_S * 2.0 ** min(self.deaths - 1, 30)))


@dataclass(slots=True)
class Watched:
    """A component with its state; times are of the supervisor's clock, in seconds."""

    component: Component
    state: State = "waiting"
    restarts: int = 0
    started_at: float = 0.0
    restart_at: float = 0.0
    backoff: Backoff = field(default_factory=Backoff)


class Supervisor:
    """Keeps components running. One thread uses it.

    `say` gets a sentence for each event. `on_change` gets all components after each change of a state.
    """

    def __init__(
        self,
        components: Sequence[Component],
        *,
        say: Callable[[str], None],
        on_change: Callable[[Sequence[Watched]], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.watched = [Watched(component) for component in components]
        self._say = say
        self._on_change = on_change
        self._clock = clock
        self._sleep = sleep

    def start(self, *, on_ready: Callable[[str], None] = lambda _: None) -> None:
        """Start the first component, which the others need, then the others together; return when all are ready.

        `on_ready` gets the name of each component that is ready.

        Raises:
            StartError: a component ended, or was not ready in time.
        """
        for group in (self.watched[:1], self.watched[1:]):
            for watched in group:
                self._begin(watched)
            while any(watched.state == "starting" for watched in group):
                for watched in group:
                    if watched.state == "starting" and self._became_ready(watched):
                        on_ready(watched.component.name)
                self._sleep(POLL_S)

    def _became_ready(self, watched: Watched) -> bool:
        component, passed = watched.component, self._clock() - watched.started_at
        code = component.poll()
        if code is not None:
            raise StartError(f"{component.name}: exited with code {code}:\n{component.last_output()}")
        if component.ready():
            self._set(watched, "up")
            self._say(f"{component.name} is up after {passed:.1f} s")
            return True
        if passed > component.start_timeout_s:
            raise StartError(f"{component.name}: not up after {passed:.0f} s:\n{component.last_output()}")
        return False

    def tick(self) -> None:
        """Check every component once: detect those that died, restart those whose pause has ended."""
        for watched in self.watched:
            if watched.state in {"up", "starting"}:
                self._check(watched)
            elif watched.state == "died" and self._clock() >= watched.restart_at:
                self._restart(watched)

    def _restart(self, watched: Watched) -> None:
        watched.restarts += 1
        try:
            self._begin(watched)
        except (OSError, TallystreamError) as error:
            self._mark_died(watched, f"can't be started ({error})")
        else:
            self._say(f"{watched.component.name}: restart {watched.restarts}")

    def stop(self) -> None:
        """Stop every component, the last one first. May be called again."""
        for watched in reversed(self.watched):
            if watched.state not in {"waiting", "stopped"}:
                watched.component.stop()
                self._set(watched, "stopped")
                self._say(f"{watched.component.name} is stopped")

    def _check(self, watched: Watched) -> None:
        component, passed = watched.component, self._clock() - watched.started_at
        code = component.poll()
        if code is not None:
            self._mark_died(watched, f"died (code {code})")
        elif watched.state == "starting" and component.ready():
            self._set(watched, "up")
            self._say(f"{component.name} is up again after {passed:.1f} s")
        elif watched.state == "starting" and passed > component.start_timeout_s:
            component.stop()
            self._mark_died(watched, f"was not up after {passed:.0f} s and is stopped")

    def _mark_died(self, watched: Watched, how: str) -> None:
        pause = watched.backoff.next_pause(self._clock() - watched.started_at)
        watched.restart_at = self._clock() + pause
        self._set(watched, "died")
        self._say(f"{watched.component.name} {how}; it is restarted in {pause:g} s")

    def _begin(self, watched: Watched) -> None:
        # The state changes first, so that `stop` also stops a component whose start Ctrl-C interrupts.
        watched.state, watched.started_at = "starting", self._clock()
        watched.component.begin()
        self._set(watched, "starting")

    def _set(self, watched: Watched, state: State) -> None:
        watched.state = state
        self._on_change(self.watched)
