"""Run a whole system for hours, under churn, and see whether anything that it takes grows.

PYTHONPATH=tests python -m support.soak --hours 8 [--minutes 15] [--spark]
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from pathlib import Path

from support.soak.curves import draw, gain, picture
from support.soak.system import Soak


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stdout.flush()


def main() -> int:
    """Return 1 if a curve rises, a sum is wrong, or a part ended by itself."""
    parser = argparse.ArgumentParser(prog="make soak", allow_abbrev=False)
    parser.add_argument("--hours", type=float, default=0)
    parser.add_argument("--minutes", type=float, default=0)
    parser.add_argument("--spark", action="store_true")
    given, folder = parser.parse_args(), Path(".build/soak").resolve()
    length_s = (given.hours * 60 + given.minutes) * 60
    shutil.rmtree(folder, ignore_errors=True)
    system = Soak(folder, length_s, say, spark=given.spark)
    try:
        system.start()
        problems = [*system.run(), *system.differences()]
    finally:
        system.supervisor.stop()
    gains = {title: gain(points, length_s / 2, length_s) for title, points in system.curves.items()}
    for title, found in gains.items():
        say(f"{title}: {found}")
    problems += [f"{title} rises" for title, found in gains.items() if found.rises]
    (folder / "curves.json").write_text(json.dumps(system.curves), encoding="utf-8")
    svg = folder / "curves.svg"
    svg.write_text(picture(system.curves, gains, length_s), encoding="utf-8")
    say(f"the curves are in {draw(svg)}")
    for problem in problems:
        say(f"PROBLEM: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
