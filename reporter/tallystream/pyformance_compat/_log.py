"""The logger of skipped metrics and values, which logs the same message once a minute."""

from __future__ import annotations

import logging

from tallystream.log_throttle import RateLimitFilter

log = logging.getLogger("tallystream.pyformance_compat")
log.addFilter(RateLimitFilter())
