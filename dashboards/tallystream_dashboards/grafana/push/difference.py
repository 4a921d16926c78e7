"""What differs between what is there and what is wanted, path by path. Pure."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NAMES = ("uid", "refId", "id", "name")
"""By these the items of a list are told apart, where all have one and none has another's: the first that fits."""
TITLES = ("title", "name", "refId")
DEFAULTS = frozenset({"intervalMs", "maxDataPoints"})
"""What Grafana adds to queries by itself."""
ABSENT: Any = object()
WIDTH, CONTEXT = 60, 12
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


class Change(NamedTuple):
    """One difference. `sign`: `+` is added, `-` goes away, `~` changes. `text` is what is added, goes or changes."""

    sign: str
    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.sign} {self.path}: {self.text}"


def difference(found: Any, wanted: Any, path: str = "") -> list[Change]:
    """Return what has to change in what was found, in the order of what is wanted.

    What is empty on one side and missing on the other is the same: Grafana fills in and leaves out such fields.
    """
    if isinstance(found, dict) and isinstance(wanted, dict):
        return [change for key in _keys(found, wanted) for change in _entry(found, wanted, key, _joined(path, key))]
    if isinstance(found, list) and isinstance(wanted, list):
        return _lists(found, wanted, path)
    if _equal(found, wanted) or (empty(found) and empty(wanted)) or _same_time(found, wanted):
        return []
    return [Change("~", path, _both(found, wanted))]


def _entry(found: dict[str, Any], wanted: dict[str, Any], key: str, path: str) -> list[Change]:
    if key in found and key in wanted:
        return difference(found[key], wanted[key], path)
    if key in wanted:
        return [] if empty(wanted[key]) else [Change("+", path, shown(wanted[key]))]
    return [] if empty(found[key]) or key in DEFAULTS else [Change("-", path, shown(found[key]))]


def _lists(found: list[Any], wanted: list[Any], path: str) -> list[Change]:
    name = next((name for name in NAMES if _names(found, name) and _names(wanted, name)), None)
    if name is None:
        pairs = _entries({str(i): one for i, one in enumerate(found)}, {str(i): one for i, one in enumerate(wanted)})
    else:
        pairs = _entries({one[name]: one for one in found}, {one[name]: one for one in wanted})
    changes: list[Change] = []
    if name is not None and _order(found, wanted, name) != _order(wanted, found, name):
        changes.append(Change("~", path, "in another order"))
    for label, was, now in pairs:
        here = f"{path}[{label}]"
        if was is ABSENT:
            changes.append(Change("+", here, shown(now)))
        elif now is ABSENT:
            changes.append(Change("-", here, shown(was)))
        else:
            changes += difference(was, now, here)
    return changes


def _entries(found: dict[Any, Any], wanted: dict[Any, Any]) -> Iterator[tuple[str, Any, Any]]:
    for key in _keys(found, wanted):
        was, now = found.get(key, ABSENT), wanted.get(key, ABSENT)
        yield _title(was if now is ABSENT else now) or str(key), was, now


def _keys(found: dict[Any, Any], wanted: dict[Any, Any]) -> list[Any]:
    return [*wanted, *(key for key in found if key not in wanted)]


def _names(items: Sequence[Any], name: str) -> bool:
    named = [one.get(name) for one in items if isinstance(one, dict)]
    plain = [one for one in named if isinstance(one, str | int) and not isinstance(one, bool)]
    return len(items) == len(plain) == len(set(plain))


def _equal(found: Any, wanted: Any) -> bool:
    # To Python true is 1, and to Grafana it is not.
    return bool(found == wanted) and isinstance(found, bool) is isinstance(wanted, bool)


def _order(items: Sequence[Any], others: Sequence[Any], name: str) -> list[Any]:
    both = {one[name] for one in others}
    return [one[name] for one in items if one[name] in both]


def _same_time(found: Any, wanted: Any) -> bool:
    return _seconds(found) is not None and _seconds(found) == _seconds(wanted)


def _seconds(value: Any) -> int | None:
    """Return a duration in seconds, None for anything else: Grafana writes 5m for 300s."""
    if not isinstance(value, str) or not re.fullmatch(r"(\d+[smhdw])+", value):
        return None
    return sum(int(number) * UNITS[unit] for number, unit in re.findall(r"(\d+)([smhdw])", value))


def _title(item: Any) -> str:
    if not isinstance(item, dict):
        return ""
    return next((str(item[name]) for name in TITLES if item.get(name)), "")


def _joined(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def empty(value: Any) -> bool:
    """Tell whether a value says nothing: null, false, an empty text or list, an object of such; 0 is a number."""
    if isinstance(value, dict):
        return all(map(empty, value.values()))
    return value is None or value is False or value in ("", [])


def shown(value: Any) -> str:
    """Return a value as JSON, or what it is where that is long."""
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= WIDTH:
        return text
    if isinstance(value, dict):
        return f'"{_title(value)}"' if _title(value) else f"{len(value)} fields"
    if isinstance(value, list):
        return f"{len(value)} items"
    return f"{text[: WIDTH - 2]}…{text[-1]}"


def _both(found: Any, wanted: Any) -> str:
    if isinstance(found, str) and isinstance(wanted, str) and max(len(found), len(wanted)) > WIDTH:
        same = next((i for i, (a, b) in enumerate(zip(found, wanted, strict=False)) if a != b), 0)
        begin = max(0, same - CONTEXT)
        found, wanted = (("…" if begin else "") + text[begin:] for text in (found, wanted))
    return f"{shown(found)} → {shown(wanted)}"
