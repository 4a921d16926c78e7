"""Find the Java launcher, and require a version on which Spark runs."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from tallystream.errors import ConfigError

JAVA_VERSIONS = (17, 21)


def java() -> str:
    """Return the Java launcher: that of `JAVA_HOME`, or else `java` from the PATH."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def java_version() -> str:
    """Return the version of the Java that starts Spark, such as 17.0.15.

    Raises:
        ConfigError: Java is missing or of a version on which Spark does not run.
    """
    launcher = java()
    try:
        output = subprocess.run([launcher, "-version"], capture_output=True, text=True, check=False, timeout=60).stderr
    except OSError as error:
        raise ConfigError("java", launcher, "install Java 17 or 21, or point JAVA_HOME at one") from error
    found = re.search(r'version "((?:1\.)?(\d+)[^"]*)"', output)
    if found is None or int(found.group(2)) not in JAVA_VERSIONS:
        line = output.strip().splitlines()[0] if output.strip() else launcher
        raise ConfigError("java", line, "install Java 17 or 21, or point JAVA_HOME at one")
    return found.group(1)
