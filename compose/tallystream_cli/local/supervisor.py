"""Starts components in order, starts again the ones that die, stops them all in reverse order."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tallystream.errors import TallystreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tallystream_cli.local.component import Component

FIRST_S, LONGEST_S = 0.5, 30.0
STEADY_S = 60.0
"""A component that ran this long is taken to be well: its next death is the first one again."""


@dataclass(slots=True)
class Backoff:
    """Counts the deaths of one component. Times are seconds of any clock that never goes back."""

    deaths: int = 0

    def died(self, ran_s: float) -> float:
        """Return the pause in seconds before the next start: 0.5, 1, 2 … 30; `ran_s` is how long it had run."""
        if ran_s >= STEADY_S:
            self.deaths = 0
        self.deaths += 1
        return float(min(LONGEST_S, FIRST_S * 2.0 ** min(self.deaths - 1, 30)))


State = Literal["waiting", "starting", "up", "died", "stopped"]
POLL_S = 0.1


class StartError(TallystreamError):
    """A component did not come up; the message ends with what it said last."""


@dataclass(slots=True)
class Watched:
    """One component and what happened to it; times are of the supervisor's clock, in seconds."""

    component: Component
    state: State = "waiting"
    restarts: int = 0
    began: float = 0.0
    again: float = 0.0
    backoff: Backoff = field(default_factory=Backoff)


class Supervisor:
    """Keeps components running. `say` gets a sentence for everything that happens; used by one thread.

    `changed` is called after each change of a state, with all of them.
    """

    def __init__(
        self,
        components: Sequence[Component],
        *,
        say: Callable[[str], None],
        changed: Callable[[Sequence[Watched]], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self.watched = [Watched(component) for component in components]
        self._say = say
        self._changed = changed
        self._clock = clock
        self._pause = pause

    def start(self, *, after: Callable[[str], None] = lambda _: None) -> None:
        """Start the first component, which the others need, then all the others together; return when all are ready.

        `after` is called with the name of each that is ready.

        Raises:
            StartError: one ended, or was not ready in its time.
        """
        for group in (self.watched[:1], self.watched[1:]):
            for one in group:
                self._begin(one)
            while any(one.state == "starting" for one in group):
                for one in group:
                    if one.state == "starting" and self._is_up(one):
                        after(one.component.name)
                self._pause(POLL_S)

    def _is_up(self, one: Watched) -> bool:
        code, passed = one.component.poll(), self._clock() - one.began
        if code is not None:
            raise StartError(f"{one.component.name}: ended with code {code}:\n{one.component.last_output()}")
        if one.component.ready():
            self._set(one, "up")
            self._say(f"{one.component.name} is up, after {passed:.1f} s")
            return True
        if passed > one.component.max_wait_s:
            raise StartError(f"{one.component.name}: not up after {passed:.0f} s:\n{one.component.last_output()}")
        return False

    def tick(self) -> None:
        """Look once at every component: notice the dead, start again those whose pause is over."""
        for one in self.watched:
            if one.state in {"up", "starting"}:
                self._look(one)
            elif one.state == "died" and self._clock() >= one.again:
                self._restart(one)

    def _restart(self, one: Watched) -> None:
        one.restarts += 1
        try:
            self._begin(one)
        except (OSError, TallystreamError) as error:
            self._died(one, f"can't be started ({error})")
        else:
            self._say(f"{one.component.name} is started again ({one.restarts})")

    def stop(self) -> None:
        """Stop every component, the last one first; safe to call again."""
        for one in reversed(self.watched):
            if one.state not in {"waiting", "stopped"}:
                one.component.stop()
                self._set(one, "stopped")
                self._say(f"{one.component.name} is stopped")

    def _look(self, one: Watched) -> None:
        code, passed = one.component.poll(), self._clock() - one.began
        if code is not None:
            self._died(one, f"died (code {code})")
        elif one.state == "starting" and one.component.ready():
            self._set(one, "up")
            self._say(f"{one.component.name} is up again, after {passed:.1f} s")
        elif one.state == "starting" and passed > one.component.max_wait_s:
            one.component.stop()
            self._died(one, f"was not up after {passed:.0f} s and is ended")

    def _died(self, one: Watched, how: str) -> None:
        pause = one.backoff.died(self._clock() - one.began)
        one.again = self._clock() + pause
        self._set(one, "died")
        self._say(f"{one.component.name} {how}; it is started again in {pause:g} s")

    def _begin(self, one: Watched) -> None:
        # The state comes first: a Ctrl-C in the middle of a start leaves no process that `stop` knows nothing of.
        one.state, one.began = "starting", self._clock()
        one.component.begin()
        self._set(one, "starting")

    def _set(self, one: Watched, state: State) -> None:
        one.state = state
        self._changed(self.watched)
