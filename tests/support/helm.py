"""Helm, which renders the chart in deploy/kubernetes without a cluster. `python -m support.helm` builds it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from support import built
from support.built import Program
from tallystream.errors import TallystreamError
from tallystream_cli.servers.jars import cache_dir

VERSION = "3.22.0"


def find_or_build() -> Path:
    """Return Helm from the cache, or build it from its Go modules. See `built.find_or_build`."""
    path = cache_dir() / "helm" / f"helm-{VERSION}"
    return built.find_or_build(Program("Helm", path, (("go",),), _build))


def _build(work: Path) -> Path:
    env = {**os.environ, "GOBIN": str(work), "GOWORK": "off", "CGO_ENABLED": "0", "GOGC": "400"}
    # Without optimizations the build takes three quarters of the time.
    fast = ["-gcflags=all=-N -l", "-ldflags=-s -w"]
    built.compile_with(["go", "install", *fast, f"helm.sh/helm/v3/cmd/helm@v{VERSION}"], work, env)
    return work / "helm"


if __name__ == "__main__":
    try:
        find_or_build()
    except TallystreamError as error:
        sys.exit(str(error))
