"""The logger for skipped metrics and values, which logs messages for the same metric at most once a minute."""

from __future__ import annotations

import logging

from tallystream.log_throttle import RateLimitFilter

log = logging.getLogger("tallystream.pyformance_compat")
log.addFilter(RateLimitFilter())
