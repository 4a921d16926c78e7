"""`tallystream doctor`, and its output."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from support.commands import run
from tallystream_cli.doctor.findings import Finding


class Result(NamedTuple):
    """What the command returned: its exit code, and its findings by what was checked."""

    code: int
    lines: dict[str, Finding]

    @property
    def failed(self) -> dict[str, Finding]:
        return {check: line for check, line in self.lines.items() if line.status == "failed"}


def doctor(*arguments: str, env: Mapping[str, str] | None = None) -> Result:
    done = run("doctor", "--json", *arguments, env=env, timeout=120)
    assert done.stdout, done.stderr
    output = json.loads(done.stdout)
    assert output["ok"] is (done.returncode == 0)
    lines = {one["check"]: Finding(**one) for one in output["findings"]}
    assert len(lines) == len(output["findings"])
    return Result(done.returncode, lines)
