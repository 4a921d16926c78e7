"""The middleware for ASGI applications: FastAPI, Starlette, Quart, Litestar, Django and others, and their routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from tallystream.reporters.scheduled import report_all
from tallystream.web.request_metrics import MAX_ROUTES, RequestMetrics

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

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
            status = status or (CLIENT_LEFT if has_left else 500)
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


def route_of(scope: Mapping[str, Any]) -> str | None:
    """Return the route of a request that FastAPI or Starlette has answered, None if it has none.

    It begins with the prefixes of the routers and mounts that it is below.
    """
    route, root = scope.get("route"), scope.get("root_path", "")
    path: str | None = getattr(route, "path", None)
    # Newer versions of FastAPI keep an included router as it is. Its routes lack the prefix, and the context has it.
    context = scope.get("fastapi", {}).get("effective_route_context")
    if route is not None and getattr(context, "original_route", None) is route:
        path = context.path
    base = scope.get("app_root_path", root)
    if "endpoint" in scope and (path is None or base != root):  # or it is below a mount
        return _find(getattr(scope.get("router"), "routes", ()), _below(base, scope["path"]), scope["endpoint"]) or path
    return path


def _below(base: str, path: str) -> str:
    return path[len(base) :] if path.startswith(base + "/") else path


def _find(routes: Iterable[Any], path: str, endpoint: Any) -> str | None:
    for route in _included(routes):
        regex = getattr(route, "path_regex", None)  # a host has none
        match = None if regex is None else regex.match(path)
        if regex is not None and match is None:
            continue
        template: str = getattr(route, "path", "")
        if getattr(route, "endpoint", None) is endpoint or getattr(route, "app", None) is endpoint:
            return template
        if routes_below := getattr(route, "routes", None):
            below = _find(routes_below, path if match is None else "/" + match["path"], endpoint)
            if below is not None:
                return template + below
    return None


def _included(routes: Iterable[Any]) -> Iterator[Any]:
    for route in routes:
        if hasattr(route, "effective_route_contexts"):  # a router that FastAPI has included
            for context in route.effective_route_contexts():
                yield getattr(context, "starlette_route", None) or context
        else:
            yield route
