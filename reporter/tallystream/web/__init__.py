"""Middleware that counts and times the requests of web applications: `AsgiMiddleware` and `WsgiMiddleware`."""

from __future__ import annotations

from tallystream.web.asgi import AsgiMiddleware
from tallystream.web.wsgi import WsgiMiddleware

__all__ = ["AsgiMiddleware", "WsgiMiddleware"]
