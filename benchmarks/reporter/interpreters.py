"""Finds the Python interpreters of this machine, and runs measurements in new processes of them."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SOURCE = ROOT / "reporter"
WANTED = ["3.11", "3.12", "3.13", "3.13t", "3.14", "3.14t"]
PRINT_VERSION = """
import sys, sysconfig
print("%d.%d" % sys.version_info[:2] + "t" * bool(sysconfig.get_config_var("Py_GIL_DISABLED")))
"""
MODULES = {  # name: (imported module, packages to install for it)
    "tallystream": ("tallystream", "msgspec"),
    "msgspec": ("msgspec", "msgspec"),
    "prometheus_client": ("prometheus_client", "prometheus_client"),
    "pyformance": ("pyformance", "pyformance setuptools"),
    "opentelemetry-sdk": ("opentelemetry.sdk.metrics", "opentelemetry-sdk"),
}


def found() -> dict[str, str]:
    """Return the path of each wanted version on the PATH, of pyenv or of uv. 3.13t is 3.13 without GIL."""
    roots = [
        Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions",
        Path.home() / ".local/share/uv/python",
    ]
    paths: dict[str, str] = {}
    for wanted in WANTED:
        name = f"python{wanted}"
        own = sys.executable if wanted == f"3.{sys.version_info.minor}" else None
        places = [own, shutil.which(name), *sorted(str(p) for root in roots for p in root.glob(f"*/bin/{name}"))]
        for path in places:
            if path and _is(path, wanted):
                paths[wanted] = path
                break
    return paths


def _is(path: str, wanted: str) -> bool:
    # python3.13 may be an interpreter without GIL.
    done = subprocess.run([path, "-c", PRINT_VERSION], check=False, capture_output=True, text=True)
    return done.stdout.strip() == wanted


def _environment(**more: str) -> dict[str, str]:
    left_out = ("VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")
    return {**{k: v for k, v in os.environ.items() if k not in left_out}, "PYTHONPATH": str(SOURCE), **more}


def new_environment(path: str, packages: list[str], folder: str) -> str:
    """Return the interpreter of a new environment in `folder` that has only these packages."""
    uv, python = str(Path(sys.executable).with_name("uv")), f"{folder}/bin/python"
    subprocess.run([uv, "venv", "-q", "--python", path, folder], env=_environment(), check=True)
    wanted = [f"{package}=={version(package)}" for package in packages]
    if wanted:
        install = [uv, "pip", "install", "-q", "--python", python, *wanted]
        subprocess.run(install, env=_environment(), check=True, capture_output=True)
    return python


def exactness(path: str) -> dict[str, Any]:
    """Run `exactness.py` with this interpreter, in an environment that has only msgspec.

    If msgspec can't be installed, it runs with a replacement for msgspec, and `version` says so.
    """
    with TemporaryDirectory() as folder:
        command, without = [str(HERE / "exactness.py")], ""
        try:
            python = new_environment(path, ["msgspec"], folder)
        except subprocess.CalledProcessError:
            python = new_environment(path, [], f"{folder}/empty")
            command.append("--without-msgspec")
            without = f" (only the counter: msgspec {version('msgspec')} can't be installed)"
        done = subprocess.run([python, *command], env=_environment(), check=False, capture_output=True, text=True)
    if done.returncode:
        return {"error": re.sub(r"\s+", " ", done.stderr).strip()[-200:]}
    found = dict(json.loads(done.stdout.splitlines()[-1]))
    return found | {"version": found["version"] + without}


def import_ms(rounds: int) -> dict[str, float]:
    """Return the processor time of importing each package in a new interpreter, in ms.

    It is the median with the import, minus the median without it. Each package has its own environment with only its
    dependencies. Modules are already compiled.
    """
    # Importing tallystream must not import Kafka. Check it once, in an environment with Kafka.
    check = "import sys, tallystream; sys.exit('confluent_kafka' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)
    with TemporaryDirectory() as folder:
        paths = {
            name: new_environment(sys.executable, packages.split(), f"{folder}/{name}")
            for name, (_, packages) in MODULES.items()
        }
        measured: dict[str, list[tuple[float, float]]] = {name: [] for name in MODULES}
        for number in range(rounds + 1):
            for name, (module, _) in MODULES.items():
                times = (_seconds(paths[name], "pass", folder), _seconds(paths[name], f"import {module}", folder))
                if number:  # the first round compiles
                    measured[name].append(times)
    return {
        name: (statistics.median(full for _, full in times) - statistics.median(empty for empty, _ in times)) * 1000
        for name, times in measured.items()
    }


def _seconds(path: str, program: str, folder: str) -> float:
    environment = _environment(PYTHONPYCACHEPREFIX=f"{folder}/compiled")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([path, "-W", "ignore", "-c", program], env=environment, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
