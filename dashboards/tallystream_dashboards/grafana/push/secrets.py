"""Secrets: from the environment or from files, filled in where a resource refers to them by `$NAME`, never shown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tallystream.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_REFERENCE = re.compile(r"\$(?:{(\w+)}|(\w+))")


class Secrets:
    """The secrets that were asked for: what they are is hidden in every text that goes through `hidden`."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self._known: set[str] = set()

    def get(self, name: str, remedy: str) -> str:
        """Return a secret: the variable NAME, or what the file holds that NAME_FILE names.

        Raises:
            ConfigError: there is none, or the file can't be read or is empty; `remedy` says what to set.
        """
        found = self._env.get(name, "").strip() or self._from_file(name, remedy)
        self._known.add(found)
        return found

    def filled(self, value: Any) -> Any:
        """Return JSON with every `$NAME` in its texts replaced by the secret.

        Raises:
            ConfigError: a secret is not there.
        """
        if isinstance(value, dict):
            return {key: self.filled(one) for key, one in value.items()}
        if isinstance(value, list):
            return [self.filled(one) for one in value]
        if isinstance(value, str):
            return _REFERENCE.sub(
                lambda found: self.get(found[1] or found[2], "set it: it is pushed to Grafana"), value
            )
        return value

    def hidden(self, text: str) -> str:
        """Return a text without any of the secrets."""
        for secret in sorted(self._known, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    def _from_file(self, name: str, remedy: str) -> str:
        path = self._env.get(f"{name}_FILE", "")
        if not path:
            raise ConfigError(name, "", f"{remedy}, or name a file that contains it in {name}_FILE")
        try:
            read = Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text"
            raise ConfigError(f"{name}_FILE", path, f"it can't be read: {reason}") from error
        if not read:
            raise ConfigError(f"{name}_FILE", path, "it is empty: write the secret into it")
        return read
