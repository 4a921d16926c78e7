"""The differences between a current and a desired JSON value, by path."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

ID_FIELDS = ("uid", "refId", "id", "name")
"""The items of a list are matched by the first of these fields that every item has, with different values."""
TITLE_FIELDS = ("title", "name", "refId")
SERVER_DEFAULTS = frozenset({"intervalMs", "maxDataPoints"})
"""Fields that Grafana adds to queries."""
MISSING: Any = object()
MAX_WIDTH = 60
"""The length of a value in a line, in characters."""
CONTEXT = 12
"""How many characters are shown before the first difference between two long strings."""
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


class Change(NamedTuple):
    """One difference. Its sign is `+` (added), `-` (removed) or `~` (changed); the text shows the values."""

    sign: str
    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.sign} {self.path}: {self.text}"


def difference(current: Any, desired: Any, path: str = "") -> list[Change]:
    """Return the changes from the current to the desired value, in the order of the desired one.

    An empty value equals a missing one, since Grafana adds and removes empty fields.
    """
    if isinstance(current, dict) and isinstance(desired, dict):
        return [
            change
            for key in _keys(current, desired)
            for change in _field(current, desired, key, f"{path}.{key}" if path else key)
        ]
    if isinstance(current, list) and isinstance(desired, list):
        return _lists(current, desired, path)
    if _equal(current, desired) or (is_empty(current) and is_empty(desired)):
        return []
    return [Change("~", path, _transition(current, desired))]


def is_empty(value: Any) -> bool:
    """Return whether a value is null, false, an empty string or list, or an object of empty values. 0 is not empty."""
    if isinstance(value, dict):
        return all(map(is_empty, value.values()))
    return value is None or value is False or value in ("", [])


def _field(current: dict[str, Any], desired: dict[str, Any], key: str, path: str) -> list[Change]:
    if key in current and key in desired:
        return difference(current[key], desired[key], path)
    if key in desired:
        return [] if is_empty(desired[key]) else [Change("+", path, _short(desired[key]))]
    return [] if is_empty(current[key]) or key in SERVER_DEFAULTS else [Change("-", path, _short(current[key]))]


def _lists(current: list[Any], desired: list[Any], path: str) -> list[Change]:
    field = next((name for name in ID_FIELDS if _identifies(current, name) and _identifies(desired, name)), None)
    changes: list[Change] = []
    if field is None:
        old, new = dict(enumerate(current)), dict(enumerate(desired))
    else:
        old, new = {item[field]: item for item in current}, {item[field]: item for item in desired}
        if [key for key in old if key in new] != [key for key in new if key in old]:
            changes.append(Change("~", path, "in another order"))
    for key in _keys(old, new):
        before, after = old.get(key, MISSING), new.get(key, MISSING)
        item_path = f"{path}[{_title(before if after is MISSING else after) or key}]"
        if before is MISSING:
            changes.append(Change("+", item_path, _short(after)))
        elif after is MISSING:
            changes.append(Change("-", item_path, _short(before)))
        else:
            changes += difference(before, after, item_path)
    return changes


def _keys(current: dict[Any, Any], desired: dict[Any, Any]) -> list[Any]:
    return [*desired, *(key for key in current if key not in desired)]


def _identifies(items: Sequence[Any], field: str) -> bool:
    values = [item.get(field) for item in items if isinstance(item, dict)]
    ids = [value for value in values if isinstance(value, str | int) and not isinstance(value, bool)]
    return len(items) == len(ids) == len(set(ids))


def _equal(current: Any, desired: Any) -> bool:
    seconds = _seconds(current)
    if seconds is not None and seconds == _seconds(desired):
        return True
    # In Python, unlike in JSON, true equals 1.
    return bool(current == desired) and isinstance(current, bool) is isinstance(desired, bool)


def _seconds(value: Any) -> int | None:
    """Return a duration in seconds, None for anything else: Grafana writes 5m for 300s."""
    if not isinstance(value, str) or not re.fullmatch(r"(\d+[smhdw])+", value):
        return None
    return sum(int(number) * UNITS[unit] for number, unit in re.findall(r"(\d+)([smhdw])", value))


def _title(item: Any) -> str:
    if not isinstance(item, dict):
        return ""
    return next((str(item[name]) for name in TITLE_FIELDS if item.get(name)), "")


def _short(value: Any) -> str:
    """Return a value as JSON, or a description if that is long."""
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= MAX_WIDTH:
        return text
    if isinstance(value, dict):
        return f'"{_title(value)}"' if _title(value) else f"{len(value)} fields"
    if isinstance(value, list):
        return f"{len(value)} items"
    return f"{text[: MAX_WIDTH - 2]}…{text[-1]}"


def _transition(current: Any, desired: Any) -> str:
    if isinstance(current, str) and isinstance(desired, str) and max(len(current), len(desired)) > MAX_WIDTH:
        differing = next((i for i, (a, b) in enumerate(zip(current, desired, strict=False)) if a != b), 0)
        start = max(0, differing - CONTEXT)
        current, desired = (("…" if start else "") + text[start:] for text in (current, desired))
    return f"{_short(current)} → {_short(desired)}"
