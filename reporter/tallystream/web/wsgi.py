"""The middleware for WSGI applications: Flask, Django, Bottle and others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tallystream.web.request_metrics import MAX_ROUTES, OTHER, RequestMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tallystream.metric_factory import MetricFactory

    Environ = dict[str, Any]
    Application = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]

METHOD = "REQUEST_METHOD"


class WsgiMiddleware:
    """Counts and times the requests of a WSGI application.

        app.wsgi_app = WsgiMiddleware(app.wsgi_app)    # Flask
        application = WsgiMiddleware(application)      # any other

    The metrics are those of `RequestMetrics`. A request ends when the server has sent the whole response, or the
    application raises. If it raises after its response has begun, the status is 500 too.

    Args:
        app: the application.
        registry: the registry of the metrics, or a child of it; None: the default registry.
        route: returns the route of a request from its environment when its response begins, such as `/orders/<id>`;
            None: as Flask knows it. Without a route, or if the function raises, it is `other`.
        max_routes: the number of routes with metrics of their own. All further ones are the route `other`.
    """

    def __init__(
        self,
        app: Application,
        *,
        registry: MetricFactory | None = None,
        route: Callable[[Environ], str | None] | None = None,
        max_routes: int = MAX_ROUTES,
    ) -> None:
        self._app = app
        self._metrics = RequestMetrics(registry, max_routes=max_routes, find=route or route_of)

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Pass a request on to the application, and count it."""
        began = self._metrics.begin()
        found: dict[str, Any] = {"route": OTHER, "status": 500}

        def start(status: str, *arguments: Any) -> Any:
            found["route"], found["status"] = self._metrics.route(environ), status.split(" ", 1)[0]
            return start_response(status, *arguments)

        def end() -> None:
            self._metrics.end(began, method=environ[METHOD], **found)

        def fail() -> None:
            found["status"] = 500

        try:
            body = self._app(environ, start)
        except BaseException as error:
            if isinstance(error, Exception):
                fail()
            end()
            raise
        return _Body(body, fail, end)


class _Body:
    """The body of a response, with functions that are called when it raises, and once at its end."""

    def __init__(self, body: Iterable[bytes], fail: Callable[[], None], end: Callable[[], None]) -> None:
        self._body, self._fail, self._end = body, fail, end
        self._has_ended = False

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._body
        except Exception:
            self._fail()
            raise

    def close(self) -> None:
        """Close the body. A WSGI server calls it, whether or not it has sent all of it (PEP 3333), or even twice."""
        try:
            if hasattr(self._body, "close"):
                self._body.close()
        except Exception:
            self._fail()
            raise
        finally:
            if not self._has_ended:
                self._has_ended = True
                self._end()


def route_of(environ: Environ) -> str | None:
    """Return the route of a request to Flask, None if it has none."""
    rule = getattr(environ.get("werkzeug.request"), "url_rule", None)
    return None if rule is None else str(rule)
