"""The committed list of jars: one line a jar, `set group:artifact:revision sha256`."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Jar:
    """One artifact of Maven coordinates, and the digest that its file must have."""

    set: str
    group: str
    artifact: str
    revision: str
    sha256: str

    @property
    def file_name(self) -> str:
        """The name under which the jar is kept."""
        return f"{self.artifact}-{self.revision}.jar"


def read_lock(of: str) -> list[Jar]:
    """Return the jars of the set `of` (`spark`, `files` or `broker`), in the order of the list."""
    text = (files("tallystream_aggregator.jars") / "jars.lock").read_text(encoding="utf-8")
    jars = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            set_, coordinates, sha256 = line.split()
            if set_ == of:
                group, artifact, revision = coordinates.split(":")
                jars.append(Jar(set_, group, artifact, revision, sha256))
    return jars
