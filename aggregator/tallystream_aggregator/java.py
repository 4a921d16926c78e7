"""Find the Java that runs Spark and a local broker."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from tallystream.errors import ConfigError

VERSIONS = (17, 21)


def launcher() -> str:
    """Return the Java launcher: that of `JAVA_HOME`, or else `java` from the PATH."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java").absolute()) if home else "java"


def version() -> str:
    """Return the version of the Java that starts Spark, such as 17.0.15.

    Raises:
        ConfigError: Java is missing or of a version on which Spark does not run.
    """
    java = launcher()
    try:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60).stderr
    except OSError as error:
        raise ConfigError("java", java, "install Java 17 or 21, or point JAVA_HOME at one") from error
    found = re.search(r'version "((?:1\.)?(\d+)[^"]*)"', output)
    if found is None or int(found.group(2)) not in VERSIONS:
        line = output.strip().splitlines()[0] if output.strip() else java
        raise ConfigError("java", line, "install Java 17 or 21, or point JAVA_HOME at one")
    return found.group(1)
