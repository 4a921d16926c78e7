"""The logger of what is left out: the same complaint once a minute."""

from __future__ import annotations

import logging

from tallystream.reporter._quiet import OncePerKind

log = logging.getLogger("tallystream.reporter.pyformance")
log.addFilter(OncePerKind())
