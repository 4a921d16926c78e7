"""The logger of skipped metrics and values, which logs the same message once a minute."""

from __future__ import annotations

import logging

from tallystream.reporter._quiet import OncePerKind

log = logging.getLogger("tallystream.reporter.pyformance")
log.addFilter(OncePerKind())
