"""Runs figures: each side of each figure gets a new broker.

In each round, the sides run one after the other; every second round has the reverse order. Every sum is checked. The
exit code is 1 if one was wrong, or if a side did not finish.
"""

from __future__ import annotations

import argparse
import math
import shlex
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from benchmarks.aggregator import report
from benchmarks.aggregator.goals import OURS as OUR_NAME
from benchmarks.aggregator.results import Result, Results
from benchmarks.aggregator.sides import (
    ALL,
    LINGER_0,
    OURS,
    PEER,
    PEER_LINGER_0,
    BuildError,
    KafkaStreams,
    Ours,
    Side,
    SideError,
)
from benchmarks.aggregator.topic import LoadError
from benchmarks.speed import work_ms
from tallystream_cli.servers.broker import KafkaBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.aggregator.goals import Found

ROOT = Path(__file__).parents[2]


class Figure(Protocol):
    """One figure, and the sides that take part in it."""

    @property
    def name(self) -> str:
        """Its name in `--only`."""

    @property
    def sides(self) -> tuple[str, ...]:
        """Their names in `--sides`."""

    def measure(self, bootstrap_servers: str, side: Side, folder: Path, scale: float) -> dict[str, Any]:
        """Measure one side, with the size multiplied by `scale`."""


class Benchmark(NamedTuple):
    """A command that measures `figures`. A run of all figures at full size writes their `tables` into `page`."""

    command: str
    description: str
    figures: Sequence[Figure]
    tables: Callable[[Found], str]
    build: Path
    page: Path


def run(benchmark: Benchmark, arguments: Sequence[str] | None = None) -> int:
    """Measure the figures of the options and print the tables. A complete run also writes them into the page."""
    options = _options(benchmark, arguments)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)  # both stop the started processes in an orderly way
    results = Results(options.results, resume=options.resume)
    try:
        failures = _measure(benchmark, options, results)
    except KeyboardInterrupt:
        _log("interrupted: all processes were stopped; --resume measures the rest")
        return 130
    except BuildError as error:
        _log(str(error))
        return 2
    found = results.medians()
    command = f"{benchmark.command} {shlex.join(options.given)}".rstrip()
    text = report.machine(command, options.scale, options.rounds, found) + "\n" + benchmark.tables(found)
    print(text)
    complete = options.scale == 1 and not options.only and options.sides == list(ALL) and not options.option
    out = options.out or (benchmark.page if complete and not failures else None)
    if out is not None:
        out.write_text(report.into(out.read_text(encoding="utf-8"), text), encoding="utf-8")
    for failure in failures:
        _log(failure)
    return 1 if failures else 0


def _measure(benchmark: Benchmark, options: argparse.Namespace, results: Results) -> list[str]:
    failures = []
    for figure in benchmark.figures:
        if options.only and figure.name not in options.only:
            continue
        for number in range(1, options.rounds + 1):
            keys = [key for key in figure.sides if key in options.sides]
            for key in keys if number % 2 else reversed(keys):
                side = _side(key, tuple(options.option))
                if results.has(figure.name, side.name, number):
                    continue
                _log(f"{figure.name}, {side.name}, round {number}")
                work = benchmark.build / "work"
                shutil.rmtree(work, ignore_errors=True)
                speed_ms = work_ms()
                try:
                    with KafkaBroker(work / "broker") as broker:
                        servers, folder = broker.bootstrap_servers, work / "side"
                        found = figure.measure(servers, side, folder, options.scale)
                except (SideError, LoadError) as error:
                    failures.append(f"{figure.name}, {side.name}: {error}")
                    _log(failures[-1])
                    continue
                finally:
                    _keep_log(benchmark.build, f"{figure.name}-{key}.log")
                results.add(Result(figure.name, side.name, number, {**found, "work_ms": speed_ms}))
                _log(_line(found))
                if not found["exact"]:
                    failures.append(f"{figure.name}, {side.name}: the sums are wrong")
    return failures


def _side(key: str, options: tuple[str, ...]) -> Side:
    if key == OURS:
        return Ours(options=options, name=OUR_NAME)
    return KafkaStreams() if key == PEER else KafkaStreams(mode="lowlat-linger0", name=LINGER_0)


def _keep_log(build: Path, name: str) -> None:
    log = build / "work" / "side" / "log"
    if log.exists():
        (build / "logs").mkdir(parents=True, exist_ok=True)
        shutil.copy(log, build / "logs" / name)
    shutil.rmtree(build / "work", ignore_errors=True)


def _line(found: dict[str, object]) -> str:
    shown = {key: value for key, value in found.items() if not isinstance(value, dict)}
    numbers = {key: round(value, 3) if isinstance(value, float) else value for key, value in shown.items()}
    return "  " + ", ".join(f"{key} {value}" for key, value in numbers.items())


def _options(benchmark: Benchmark, arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=benchmark.command, description=benchmark.description)
    names = [figure.name for figure in benchmark.figures]
    sides = f"{OURS}, {PEER} (exactly_once_v2), {PEER_LINGER_0} (at_least_once, linger 0); default: all"
    parser.add_argument("--only", type=_listed(names), default=[], help=f"figures: {', '.join(names)}")
    parser.add_argument("--sides", type=_listed(ALL), default=list(ALL), help=sides)
    parser.add_argument("--scale", type=_positive, default=1.0, help="a factor for the updates, seconds and rows")
    parser.add_argument(
        "--rounds", "--repeat", type=int, default=1, help="how often each side is measured; medians are shown"
    )
    parser.add_argument("--resume", action="store_true", help="keep the results in the file, and measure the rest")
    parser.add_argument(
        "--option", action="append", default=[], help="an option for tallystream aggregate; may be repeated"
    )
    parser.add_argument("--results", type=Path, default=benchmark.build / "results.jsonl", help="the results file")
    parser.add_argument("--out", type=_page, help="the page for the tables, which has the two marks of results")
    options = parser.parse_args(arguments)
    options.given = list(sys.argv[1:] if arguments is None else arguments)
    return options


def _listed(known: Sequence[str]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        names = text.split(",")
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: give one or more of {', '.join(known)}")
        return names

    return parse


def _page(text: str) -> Path:
    path = Path(text)
    try:
        report.into(path.read_text(encoding="utf-8"), "")
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(
            f"{text}: give a page with the marks {report.BEGIN} and {report.END}"
        ) from error
    return path


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: give a number greater than 0")
    return value


def _log(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)
