"""Checks of this machine's installation: Python, packages, Java, jars, the archive of Spark's classes."""

from __future__ import annotations

import os
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tallystream_aggregator import java
from tallystream_cli.doctor.findings import failed, guarded, not_checked, ok, warning
from tallystream_cli.servers import jars

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from tallystream_cli.doctor.findings import Finding

DISTRIBUTIONS = ("tallystream", "tallystream-aggregator", "tallystream-dashboards", "tallystream-cli")
SPARK = "tallystream-cli[spark]"
SECONDS = 10.0
"""The time for one check."""


def check_installation() -> Iterator[Finding]:
    """Check everything on this machine that no option names."""
    yield python(".".join(map(str, sys.version_info[:3])), requires_python())
    installed = installed_versions()
    yield same_release({name: installed.get(name) for name in DISTRIBUTIONS})
    yield requirements(requirements_of(DISTRIBUTIONS), installed)
    yield page(installed.get("streamlit"))
    yield spark(installed.get("pyspark"))
    yield from guarded("Java", SECONDS, check_java)
    yield from guarded("jars", SECONDS, check_jars)


def python(running: str, supported: str) -> Finding:
    """Check the version of Python against the range that the distributions support."""
    if Version(running) in SpecifierSet(supported):
        return ok("Python", f"{running}, {sys.executable}")
    return failed("Python", f"{running} is not supported", f"install Python {supported} and the packages there")


def same_release(versions: Mapping[str, str | None]) -> Finding:
    """Check that the four distributions are installed and have the same version."""
    if missing := [name for name, found in versions.items() if found is None]:
        return failed("release", f"{', '.join(missing)} not installed", "pip install tallystream-cli")
    numbers = sorted({found for found in versions.values() if found is not None})
    if len(numbers) == 1:
        return ok("release", f"{numbers[0]}, all {len(versions)} packages")
    found = ", ".join(f"{name} {number}" for name, number in versions.items())
    return failed("release", f"the packages are of several releases: {found}", f"pip install --upgrade {SPARK}")


def requirements(required: Iterable[str], installed: Mapping[str, str]) -> Finding:
    """Check the installed versions of other packages against the ranges. Optional packages may be missing.

    So may Streamlit, which `page` checks: the Spark image is without it.
    """
    wrong, number = [], 0
    for text in required:
        one = Requirement(text)
        optional = one.name == "streamlit" or (one.marker is not None and "extra" in str(one.marker))
        found = installed.get(one.name)
        if one.marker is not None and not optional and not one.marker.evaluate():
            continue
        number += 1
        if found is None and not optional:
            wrong.append(f"{one.name} is not installed")
        elif found is not None and Version(found) not in SpecifierSet(str(one.specifier), prereleases=True):
            wrong.append(f"{one.name} {found} (needs {one.specifier})")
    if wrong:
        return failed("packages", ", ".join(wrong), f"pip install --upgrade {SPARK}")
    return ok("packages", f"{number} requirements are met")


def page(streamlit: str | None) -> Finding:
    """Check that Streamlit is installed."""
    if streamlit is None:
        return warning("page", "streamlit is not installed, so the page can't run", "pip install streamlit")
    return ok("page", f"streamlit {streamlit}")


def spark(pyspark: str | None) -> Finding:
    """Check that PySpark is installed. `requirements` checks its version."""
    if pyspark is None:
        return warning("Spark", "pyspark is not installed, so aggregate and up can't run", f"pip install {SPARK}")
    return ok("Spark", f"pyspark {pyspark}")


def check_java() -> list[Finding]:
    """Check the version of the Java that starts Spark."""
    where = "from JAVA_HOME" if os.environ.get("JAVA_HOME") else "from PATH"
    return [ok("Java", f"{java.version()}, {java.launcher()} {where}")]


def check_jars() -> Iterator[Finding]:
    """Check the broker's jars in the cache, and whether there is an archive of Spark's classes."""
    folder, locked = jars.cache_dir() / "jars" / "broker", jars.read_lock("broker")
    yield broker_jars({one.file_name: one.sha256 for one in locked}, _digests(folder, locked))
    yield archive()


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


def archive() -> Finding:
    """Check whether there is an archive of Spark's classes."""
    check = "class archive"
    if find_spec("pyspark") is None:
        return not_checked(check, "Spark is missing")
    from tallystream_aggregator.spark.session import archive_path

    path = archive_path()
    if not os.access(path, os.R_OK):
        return warning(
            check, "none, so each start takes twice as long", "python -m tallystream_aggregator.spark.cds_archive"
        )
    return ok(check, str(path))


def installed_versions() -> dict[str, str]:
    """Return the versions of the four distributions and of the packages that they require, if installed."""
    names = {Requirement(one).name for one in requirements_of(DISTRIBUTIONS)} | set(DISTRIBUTIONS)
    return {name: found for name in names if (found := _version(name)) is not None}


def requirements_of(distributions: Iterable[str]) -> list[str]:
    """Return what the distributions require of other packages, extras included."""
    found = [text for name in distributions if _version(name) is not None for text in requires(name) or ()]
    return sorted({text for text in found if Requirement(text).name not in DISTRIBUTIONS})


def requires_python() -> str:
    """Return the range of Python's versions that the command supports."""
    from importlib.metadata import metadata

    return metadata("tallystream-cli")["Requires-Python"] or ""


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _digests(folder: Path, locked: Iterable[jars.Jar]) -> dict[str, str | None]:
    return {one.file_name: jars.sha256_of(folder / one.file_name) for one in locked}
