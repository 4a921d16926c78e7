"""Secrets from environment variables or files: they replace references `$NAME` in resources, and are never shown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tallystream.errors import ConfigError
from tallystream_aggregator.sinks.http import secret_file

if TYPE_CHECKING:
    from collections.abc import Mapping

_REFERENCE = re.compile(r"\$(?:{(\w+)}|(\w+))")


class Secrets:
    """Reads secrets, and remembers those that it read, so that `redact` can remove them from texts."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self._known: set[str] = set()

    def get(self, name: str, remedy: str) -> str:
        """Return the value of the variable NAME, or the content of the file that the variable NAME_FILE names.

        Raises:
            ConfigError: neither is set (`remedy` says what to set), or the file can't be read or is empty.
        """
        secret = self._env.get(name, "").strip() or self._from_file(name, remedy)
        self._known.add(secret)
        return secret

    def resolve(self, value: Any) -> Any:
        """Return JSON with every `$NAME` in its strings replaced by the secret.

        Raises:
            ConfigError: a secret is not set.
        """
        if isinstance(value, dict):
            return {key: self.resolve(item) for key, item in value.items()}
        if isinstance(value, str):
            return _REFERENCE.sub(lambda m: self.get(m[1] or m[2], "set it: it is pushed to Grafana"), value)
        return value

    def redact(self, text: str) -> str:
        """Return the text with every known secret replaced by ***."""
        for secret in sorted(self._known, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    def _from_file(self, name: str, remedy: str) -> str:
        variable = f"{name}_FILE"
        path = self._env.get(variable)
        if not path:
            raise ConfigError(name, "", f"{remedy}, or name a file that contains it in {variable}")
        content = secret_file(variable, self._env)
        if not content:
            raise ConfigError(variable, path, "it is empty: write the secret into it")
        return content
