"""Checks of this machine's installation: Spark, Java, jars. `pip check` compares the versions of the packages."""

from __future__ import annotations

import os
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tallystream_aggregator import java
from tallystream_cli.doctor.findings import failed, guarded, ok, warning
from tallystream_cli.servers import jars

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from tallystream_cli.doctor.findings import Finding

SECONDS = 10.0
"""The time for one check."""


def check_installation() -> Iterator[Finding]:
    """Check everything on this machine that no option names."""
    yield package("Spark", "pyspark", "aggregate and up", "pip install tallystream-cli[spark]")
    yield package("page", "streamlit", "the page", "pip install streamlit")
    yield from guarded("Java", SECONDS, check_java)
    yield from guarded("jars", SECONDS, check_jars)


def package(check: str, name: str, needed_by: str, remedy: str) -> Finding:
    """Check that an optional package is installed."""
    if find_spec(name) is None:
        return warning(check, f"{name} is not installed, so {needed_by} can't run", remedy)
    return ok(check, f"{name} {version(name)}")


def check_java() -> list[Finding]:
    """Check the version of the Java that starts Spark."""
    where = "from JAVA_HOME" if os.environ.get("JAVA_HOME") else "from PATH"
    return [ok("Java", f"{java.version()}, {java.launcher()} {where}")]


def check_jars() -> Iterator[Finding]:
    """Check the broker's jars in the cache."""
    folder, locked = jars.cache_dir() / "jars" / "broker", jars.read_lock("broker")
    yield broker_jars({one.file_name: one.sha256 for one in locked}, _digests(folder, locked))


def broker_jars(locked: Mapping[str, str], found: Mapping[str, str | None]) -> Finding:
    """Compare the SHA-256 of the jars in the cache, None for a missing one, with those of the release."""
    check, fetch = "jars", "python -m tallystream_cli.servers.jars"
    if changed := [name for name, digest in found.items() if digest is not None and digest != locked[name]]:
        return failed(check, f"{', '.join(changed)} is not the file of this release", f"{fetch} downloads it again")
    if missing := [name for name, digest in found.items() if digest is None]:
        return warning(
            check,
            f"{len(missing)} of {len(locked)} are not in the cache; up and demo download them at the start",
            fetch,
        )
    return ok(check, f"{len(locked)} with the digests of this release")


def _digests(folder: Path, locked: Iterable[jars.Jar]) -> dict[str, str | None]:
    return {one.file_name: jars.sha256_of(folder / one.file_name) for one in locked}
