"""compose/: the Compose file as Docker Compose resolves it, and the instructions of the Dockerfiles."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "compose"
FILE = COMPOSE / "compose.yaml"
DOCKERFILES = {"tallystream-spark": "spark", "tallystream-page": "page", "tallystream-demo": "page"}
"""Our image → its Dockerfile in compose/images."""


def tool(name: str) -> Path:
    """Return the path of a program of this environment; skip the test if this machine has none."""
    path = Path(sys.executable).with_name(name)
    if not path.exists():
        pytest.skip(f"{name} exists only for Linux on x86-64")
    return path


class Instruction(NamedTuple):
    """One instruction of a Dockerfile: the word, in capitals, and what follows it."""

    word: str
    rest: str


def init_env(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run compose/init-env for a folder."""
    return subprocess.run([COMPOSE / "init-env", folder], capture_output=True, text=True, check=True, timeout=60)


def variables(env_file: Path) -> dict[str, str]:
    """Return the variables of a .env file."""
    lines = (line for line in env_file.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#"))
    return dict(line.split("=", 1) for line in lines)


def config(env_file: Path | None, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `docker-compose config`, which checks the file and resolves its variables, with all profiles."""
    env = ["--env-file", str(env_file or "/dev/null")]
    command = [str(tool("docker-compose")), *env, "-f", str(FILE), "--profile", "*", "config"]
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, check=False, timeout=60, env={"HOME": "/nonexistent"}
    )


def resolved(env_file: Path) -> dict[str, Any]:
    """Return the file as Compose resolves it."""
    done = config(env_file, "--format", "json")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return dict(json.loads(done.stdout))


def instructions(name: str) -> list[Instruction]:
    """Return the instructions of compose/images/NAME.Dockerfile."""
    text = (COMPOSE / "images" / f"{name}.Dockerfile").read_text(encoding="utf-8")
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    joined = lines.replace("\\\n", " ").splitlines()
    return [Instruction(*re.split(r"\s+", line.strip(), maxsplit=1)) for line in joined if line.strip()]


def final_stage(name: str) -> dict[str, list[str]]:
    """Return the instructions of the last stage: word → the rest of each of its instructions."""
    found: dict[str, list[str]] = {}
    for word, rest in instructions(name):
        if word == "FROM":
            found = {}
        found.setdefault(word, []).append(rest)
    return found


def image_of(service: dict[str, Any]) -> str | None:
    """Return the Dockerfile of a service's image, None if the image is not ours."""
    return DOCKERFILES.get(service["image"].partition(":")[0])


def environment(service: dict[str, Any]) -> dict[str, str]:
    """Return the environment of one of our services: that of its image, then its own."""
    name = image_of(service)
    assert name is not None
    pairs = [pair for rest in final_stage(name)["ENV"] for pair in rest.split()]
    return {**dict(pair.split("=", 1) for pair in pairs), **service.get("environment", {})}


def command(service: dict[str, Any]) -> list[str]:
    """Return the command line of one of our services: entry point and arguments."""
    name = image_of(service)
    assert name is not None
    entry = service.get("entrypoint") or json.loads(final_stage(name)["ENTRYPOINT"][-1])
    return [*entry, *service["command"]]


def healthcheck(service: dict[str, Any]) -> list[str]:
    """Return the command of a service's health check, from the Compose file or the image; empty if it has none."""
    stated = service.get("healthcheck", {})
    if stated.get("disable"):
        return []
    if "test" in stated:
        assert stated["test"][0] == "CMD"
        return list(stated["test"][1:])
    name = image_of(service)
    if name is None:
        return []
    (rest,) = final_stage(name)["HEALTHCHECK"]
    return list(json.loads(rest[rest.index("CMD") + 3 :]))
