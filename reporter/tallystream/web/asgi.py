"""The middleware for ASGI applications: FastAPI, Starlette, Quart, Litestar, Django and others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from tallystream.reporters.scheduled import report_all
from tallystream.web.asgi_routes import route_of
from tallystream.web.request_metrics import MAX_ROUTES, RequestMetrics

if TYPE_CHECKING:
    from tallystream.metric_factory import MetricFactory

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

CLIENT_LEFT = 499
"""The status of a request whose client left before there was one, as in nginx."""

MAX_REPORT_S = 5.0
"""The maximum seconds that the end of a lifespan waits for the reports."""


class AsgiMiddleware:
    """Counts and times the HTTP requests of an ASGI application.

        app.add_middleware(AsgiMiddleware)    # FastAPI, Starlette
        app = AsgiMiddleware(app)             # any other

    The metrics are those of `RequestMetrics`. A request ends when the application has answered it, or raised. If it
    raises after its response has begun, the status is 500 too. If the client has disconnected, or the request is
    cancelled, the status is that of the response, or 499 if it has not begun.
    WebSockets are passed on and not counted. When the application's lifespan ends, all reporters make a
    report: after that, a server may end the process by a signal.

    Args:
        app: the application.
        registry: the registry of the metrics, or a child of it; None: the default registry.
        route: returns the route of a request from its scope after it was answered, such as `/orders/{id}`; None: as
            FastAPI and Starlette know it, with the prefixes of routers and mounts. Without a route, or if the
            function raises, it is `other`.
        max_routes: the number of routes with metrics of their own. All further ones are the route `other`.
    """

    def __init__(
        self,
        app: Application,
        *,
        registry: MetricFactory | None = None,
        route: Callable[[Scope], str | None] | None = None,
        max_routes: int = MAX_ROUTES,
    ) -> None:
        self._app = app
        self._metrics = RequestMetrics(registry, max_routes=max_routes, find=route or route_of)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the application, and count it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, _reporting_at_shutdown(send))
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, is_answered, has_left = 0, False, False

        async def receive_and_note() -> Message:
            nonlocal has_left
            message = await receive()
            has_left = has_left or (message["type"] == "http.disconnect" and not is_answered)
            return message

        async def send_and_note(message: Message) -> None:
            nonlocal status, is_answered, has_left
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "http.response.body":
                is_answered = not message.get("more_body", False)
            try:
                await send(message)
            except OSError:  # the client has disconnected
                has_left = True
                raise

        began = self._metrics.begin()
        try:
            await self._app(scope, receive_and_note, send_and_note)
            status = status or 500
        except Exception:
            status = (status or CLIENT_LEFT) if has_left else 500
            raise
        except BaseException:  # the request is cancelled, by the server or by the event loop
            status = status or CLIENT_LEFT
            raise
        finally:
            self._metrics.end(began, route=self._metrics.route(scope), method=scope["method"], status=status)


def _reporting_at_shutdown(send: Send) -> Send:
    async def report_and_send(message: Message) -> None:
        if message["type"].startswith("lifespan.shutdown."):
            report_all(MAX_REPORT_S)  # in this thread: the application has nothing else to do
        await send(message)

    return report_and_send
