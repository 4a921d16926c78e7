"""The Compose file, as it is resolved with new secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support import images


@pytest.fixture(scope="session")
def env_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of compose/init-env."""
    folder = tmp_path_factory.mktemp("env")
    images.init_env(folder)
    return folder / ".env"


@pytest.fixture(scope="session")
def services(env_file: Path) -> dict[str, dict[str, Any]]:
    """The services by name."""
    return dict(images.resolved(env_file)["services"])
