"""What was measured: one JSON line a figure and side, kept so that a run that was broken off can go on."""

from __future__ import annotations

import json
import statistics
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class Result(NamedTuple):
    """One figure of one side in one round; `found` is what was measured."""

    figure: str
    side: str
    round: int
    found: dict[str, Any]


class Results:
    """All results of a run. Those of `path` are taken over where `resume` says so, else the file begins again."""

    def __init__(self, path: Path, *, resume: bool = False) -> None:
        self._path = path
        self.all: list[Result] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        if resume and path.exists():
            self.all = [Result(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
        else:
            path.write_text("", encoding="utf-8")

    def has(self, figure: str, side: str, number: int) -> bool:
        """Tell whether a figure was measured."""
        return any(one[:3] == (figure, side, number) for one in self.all)

    def add(self, result: Result) -> None:
        """Keep a result, here and in the file."""
        self.all.append(result)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result._asdict()) + "\n")

    def medians(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Return, by figure and side, the median of each number over the rounds."""
        return medians(self.all)


def medians(results: Iterable[Result]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return, by figure and side, the median of each number over the rounds; a verdict holds when all rounds hold it.

    What is neither is that of the last round.
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
