"""The measured values in a file with one JSON line for each figure and side, so that a run can be resumed."""

from __future__ import annotations

import json
import statistics
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class Result(NamedTuple):
    """One figure of one side in one round. `found` has the measured values."""

    figure: str
    side: str
    round: int
    found: dict[str, Any]


class Results:
    """All results of a run. With `resume`, those in the file `path` are kept; otherwise the file is emptied."""

    def __init__(self, path: Path, *, resume: bool = False) -> None:
        self._path = path
        self.all: list[Result] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        if resume and path.exists():
            self.all = [Result(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
        else:
            path.write_text("", encoding="utf-8")

    def has(self, figure: str, side: str, number: int) -> bool:
        """Return whether a figure was measured."""
        return any(one[:3] == (figure, side, number) for one in self.all)

    def add(self, result: Result) -> None:
        """Add a result to the list and to the file."""
        self.all.append(result)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result._asdict()) + "\n")

    def medians(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Return the median of each number over the rounds, by figure and side."""
        return medians(self.all)


def medians(results: Iterable[Result]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the median of each number over the rounds, by figure and side.

    A bool is true if it is true in all rounds. Other values are those of the last round.
    """
    rounds: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for result in results:
        rounds.setdefault((result.figure, result.side), []).append(result.found)
    return {
        place: {key: _middle([one.get(key) for one in found]) for key in found[-1]} for place, found in rounds.items()
    }


def _middle(values: list[Any]) -> Any:
    if all(isinstance(value, bool) for value in values):
        return all(values)
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return statistics.median(values)
    return values[-1]
