"""The page's optional password: Streamlit's own password field, before anything else is drawn."""

from __future__ import annotations

import hmac
import os
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from tallystream.reporter.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

ENV = "TALLYSTREAM_PAGE_PASSWORD"


def from_environment(env: Mapping[str, str] | None = None) -> str:
    """Return the password that the environment, or the file that it names, asks for; empty: none.

    Raises:
        ConfigError: the file can't be read, or is empty.
    """
    env = os.environ if env is None else env
    path = env.get(f"{ENV}_FILE", "")
    if not path:
        return env.get(ENV, "")
    try:
        found = Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(f"{ENV}_FILE", path, f"it can't be read: {error.strerror}") from error
    if not found:
        raise ConfigError(f"{ENV}_FILE", path, "it is empty: write the password into it")
    return found


def let_in(password: str) -> bool:
    """Draw the field, where a password is wanted and was not given yet; say whether the visitor may go on."""
    if not password or st.session_state.get("let_in"):
        return True
    st.title("Tallystream", anchor=False)
    given = st.text_input("Password", type="password", key="password")
    if given and hmac.compare_digest(given.encode(), password.encode()):
        st.session_state["let_in"] = True
        st.rerun()
    if given:
        st.error("That is not the password.", icon=":material/lock:")
    return False
