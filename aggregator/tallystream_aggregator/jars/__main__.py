"""`python -m tallystream_aggregator.jars spark files broker`: fetch the named sets of jars, by default all three."""

from __future__ import annotations

import sys
import time

from tallystream_aggregator.jars import JarsError, fetch


def main(sets: list[str]) -> int:
    """Fetch each set and return the exit code: 2 if a set could not be fetched, else 0."""
    for name in sets:
        started = time.monotonic()
        try:
            paths = fetch(name)
        except JarsError as error:
            sys.stderr.write(f"{error}\n")
            return 2
        if (took_s := time.monotonic() - started) > 1:
            sys.stderr.write(f"jars: {len(paths)} jars of {name} fetched and verified in {took_s:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["spark", "files", "broker"]))
