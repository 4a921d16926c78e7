"""Celery's settings in tests: a folder of files as its broker, without what makes that broker unreliable."""

from __future__ import annotations

import json
import os
import time
import uuid
from pathlib import Path
from typing import Any

from celery import platforms
from kombu.transport import filesystem

FOLDER = Path(os.environ["CELERY_FILES"])
QUEUE, CONTROL = FOLDER / "queue", FOLDER / "control"

broker_url = "filesystem://"
broker_transport_options = {
    "data_folder_in": str(QUEUE),
    "data_folder_out": str(QUEUE),
    "control_folder": str(CONTROL),
}


def put(self: filesystem.Channel, queue: str, payload: object, **_: Any) -> None:
    """Add a complete message to a queue. Kombu shows an empty file first, and a worker that reads it fails."""
    message = QUEUE / f"{time.monotonic_ns()}_{uuid.uuid4()}.{queue}.msg"
    new = message.with_suffix(".new")
    new.write_text(json.dumps(payload))
    new.rename(message)


filesystem.Channel._put = put  # type: ignore[method-assign]

# Linux kills a process of Celery's pool when the thread that forked it ends (PR_SET_PDEATHSIG). If Celery reads its
# broker without an event loop, as it reads files, a thread of the main process replaces processes, and ends before
# they do. One that is killed while it waits for a task leaves the queue locked, and the worker waits for it forever.
# So that is off: with most brokers, the main thread forks all processes, and none is killed.
platforms.set_pdeathsig = lambda _: None
