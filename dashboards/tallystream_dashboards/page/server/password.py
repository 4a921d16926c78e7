"""The page's optional password, as the environment has it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tallystream.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

ENV = "TALLYSTREAM_PAGE_PASSWORD"


def from_environment(env: Mapping[str, str] | None = None) -> str:
    """Return the password that the environment, or the file that it names, asks for; empty: none.

    Raises:
        ConfigError: the file can't be read, is empty, or is not UTF-8.
    """
    env = os.environ if env is None else env
    path = env.get(f"{ENV}_FILE", "")
    if not path:
        return env.get(ENV, "")
    try:
        found = Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(f"{ENV}_FILE", path, f"it can't be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ConfigError(f"{ENV}_FILE", path, "it is not UTF-8: write the password into it as text") from None
    if not found:
        raise ConfigError(f"{ENV}_FILE", path, "it is empty: write the password into it")
    return found
