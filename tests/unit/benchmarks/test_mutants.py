"""The errors that `make mutants` makes in a file."""

from __future__ import annotations

from pathlib import Path

from benchmarks.mutants.errors import mutants_of

SOURCE = '''"""A text: 1 < 2."""
if TYPE_CHECKING:
    import typing
def most(counts: dict[str, int | None], *, at_least=0) -> int:
    for count in counts:
        if count and 1 <= count < 9:
            continue
        if not count:
            raise ValueError(f"{count + 1} is too low", 1)
    self.last = max(counts)
    _log.info("%d", 1 + 1)
    return zip(counts, counts, strict=True) if at_least else None
'''


def test_every_kind_of_error_is_made_where_it_changes_what_the_code_does(tmp_path: Path) -> None:
    """Conditions, numbers, operators, calls and statements change; texts, types, messages and logging do not."""
    file = tmp_path / "most.py"
    file.write_text(SOURCE, encoding="utf-8")
    found = list(mutants_of(file, tmp_path))
    assert [(one.line, one.old.partition("\n")[0], one.new) for one in found] == [
        (4, "0", "(1)"),
        (6, "count and 1 <= count < 9", "(1 <= count < 9)"),
        (6, "count and 1 <= count < 9", "(count)"),
        (6, "1 <= count < 9", "(1 < count < 9)"),
        (6, "1 <= count < 9", "(1 <= count <= 9)"),
        (6, "1", "(2)"),
        (6, "9", "(10)"),
        (7, "continue", "pass"),
        (8, "not count", "(count)"),
        (9, 'raise ValueError(f"{count + 1} is too low", 1)', "pass"),
        (10, "self.last = max(counts)", "pass"),
        (10, "max(counts)", "(min(counts))"),
        (12, "return zip(counts, counts, strict=True) if at_least else None", "return"),
        (
            12,
            "zip(counts, counts, strict=True) if at_least else None",
            "(None if at_least else zip(counts, counts, strict=True))",
        ),
    ]
    assert {one.function for one in found} == {"most.py:4"}
    assert found[0].source(tmp_path).decode() == SOURCE.replace("at_least=0", "at_least=(1)")
