"""The middleware for ASGI and WSGI applications: which requests count, with which tags, and when they end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing, nullcontext
from typing import Any

import pytest
from flask import Flask
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Mount, Route
from werkzeug.test import Client

from support.web import DURATION, REQUESTS, active, request, tags
from tallystream import MetricRegistry, record
from tallystream.testing import InMemoryReporter, ManualClock, assert_count, find
from tallystream.web import AsgiMiddleware, WsgiMiddleware


def seconds(registry: MetricRegistry, route: str) -> float:
    """Return how long all GET requests of a route took."""
    found = find(registry, DURATION, tags=tags(route, "GET"))
    assert isinstance(found, record.Timer)
    return found.sum


def starlette(registry: MetricRegistry, clock: ManualClock, **options: Any) -> Starlette:
    """Return an application with the middleware."""

    async def order(request: Any) -> PlainTextResponse:
        clock.advance(0.5)
        return PlainTextResponse(str(request.path_params["number"]), status_code=201)

    async def fail(_: Any) -> PlainTextResponse:
        raise RuntimeError

    return Starlette(
        routes=[
            Route("/orders/{number:int}", order, methods=["GET", "POST"]),
            Mount("/admin", routes=[Route("/fail", fail)]),
        ],
        middleware=[Middleware(AsgiMiddleware, registry=registry, **options)],
    )


def test_asgi_requests_count_by_route_method_and_status(registry: MetricRegistry, clock: ManualClock) -> None:
    """The route is the template, also below a mount, so that an ID makes no new metric. An exception is a 5xx."""
    app = starlette(registry, clock)
    assert [request(app, f"/orders/{number}") for number in (1, 2)] == [(201, b"1"), (201, b"2")]
    request(app, "/orders/3", "POST")
    request(app, "/admin/fail")
    request(app, "/nowhere")
    assert_count(registry, REQUESTS, 2, tags=tags("/orders/{number:int}", "GET", "2xx"))
    assert_count(registry, REQUESTS, 1, tags=tags("/orders/{number:int}", "POST", "2xx"))
    assert_count(registry, REQUESTS, 1, tags=tags("/admin/fail", "GET", "5xx"))
    assert_count(registry, REQUESTS, 1, tags=tags("other", "GET", "4xx"))
    assert (seconds(registry, "/orders/{number:int}"), active(registry)) == (1.0, 0)


async def play(script: str, receive: Any, send: Any) -> None:
    """Do what the words of a script say: an ASGI application in all its ways to end."""
    for word in script.split():
        if word == "start":
            await send({"type": "http.response.start", "status": 200})
        elif word in ("part", "end"):
            await send({"type": "http.response.body", "body": b"x", "more_body": word == "part"})
        elif word == "receive":
            await receive()
        elif word == "hang":
            await asyncio.Event().wait()
        else:
            raise RuntimeError


@pytest.mark.parametrize(
    ("script", "sending_fails", "status"),
    [
        ("start part end", False, "2xx"),
        ("start hang", False, "2xx"),  # cancelled
        ("hang", False, "4xx"),  # cancelled before the response: like nginx's 499
        ("receive fail", False, "4xx"),  # the client left while it sent its body: Starlette raises ClientDisconnect
        ("receive", False, "4xx"),  # the same, as Django does: it returns without a response
        ("start end receive fail", False, "5xx"),  # a server says "disconnected" after the response, too
        ("start part fail", False, "5xx"),  # the client did not get the whole response
        ("start part", True, "2xx"),  # the server's `send` raises OSError: the client has disconnected
        ("fail", False, "5xx"),
        ("", False, "5xx"),
    ],
)
def test_how_an_asgi_request_ends(registry: MetricRegistry, script: str, sending_fails: bool, status: str) -> None:
    """An error of the application is a 5xx; a client that leaves, or a cancelled request, is none."""
    seen: list[float] = []

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        seen.append(active(registry))
        await play(script, receive, send)

    async def receive() -> dict[str, str]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if sending_fails and message["type"] == "http.response.body":
            raise OSError

    async def run() -> None:
        middleware = AsgiMiddleware(app, registry=registry)
        task = asyncio.create_task(middleware({"type": "http", "method": "GET"}, receive, send))  # type: ignore[arg-type]
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    assert_count(registry, REQUESTS, 1, tags=tags("other", "GET", status))
    assert (seen, active(registry)) == ([1], 0)


def test_web_sockets_are_not_counted(registry: MetricRegistry) -> None:
    """They are passed on."""
    seen: list[str] = []

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        seen.append(scope["type"])

    asyncio.run(AsgiMiddleware(app, registry=registry)({"type": "websocket"}, None, None))  # type: ignore[arg-type]
    assert (seen, active(registry)) == (["websocket"], 0)


def test_the_end_of_an_asgi_lifespan_makes_a_report(registry: MetricRegistry, clock: ManualClock) -> None:
    """A server may end the process by a signal after that. A reporter that is not running makes none."""
    reporter, other = (InMemoryReporter(registry, interval=3600) for _ in range(2))
    app, sent = starlette(registry, clock), []
    messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

    async def receive() -> dict[str, Any]:
        registry.counter("served").inc()
        return next(messages)

    async def send(message: Any) -> None:
        sent.append((message["type"], len(reporter.reports)))

    with reporter:
        asyncio.run(app({"type": "lifespan"}, receive, send))
        assert sent == [("lifespan.startup.complete", 0), ("lifespan.shutdown.complete", 1)]
        assert record.Counter(name="served", count=2) in reporter.reports[0]
        assert other.reports == []


def test_a_streamed_response_ends_with_its_last_part(registry: MetricRegistry, clock: ManualClock) -> None:
    """The duration includes the whole body."""

    async def parts() -> Any:
        for _ in range(3):
            clock.advance(1)
            yield b"x"

    async def stream(_: Any) -> StreamingResponse:
        return StreamingResponse(parts())

    app = Starlette(routes=[Route("/stream", stream)], middleware=[Middleware(AsgiMiddleware, registry=registry)])
    assert request(app, "/stream") == (200, b"xxx")
    assert seconds(registry, "/stream") == 3.0


def test_the_number_of_routes_and_methods_is_limited(registry: MetricRegistry, clock: ManualClock) -> None:
    """Routes beyond `max_routes` are one, and so are unknown methods, so that no client can create metrics."""
    app = starlette(registry, clock, route=lambda scope: scope["path"], max_routes=2)
    for path in ("/a", "/b", "/c", "/d", "/a"):
        request(app, path)
    request(app, "/a", "BREW")
    assert_count(registry, REQUESTS, 2, tags=tags("/a", "GET", "4xx"))
    assert_count(registry, REQUESTS, 2, tags=tags("other", "GET", "4xx"))
    assert_count(registry, REQUESTS, 1, tags=tags("/a", "other", "4xx"))
    assert find(registry, REQUESTS, tags=tags("/c", "GET", "4xx")) is None


def flask(registry: MetricRegistry, clock: ManualClock) -> Client:
    """Return a client of an application with the middleware."""
    app = Flask("shop")
    app.wsgi_app = WsgiMiddleware(app.wsgi_app, registry=registry)  # type: ignore[method-assign, arg-type]

    @app.get("/orders/<int:number>")
    def order(number: int) -> str:
        clock.advance(0.5)
        return str(number)

    @app.get("/fail")
    def fail() -> str:
        raise RuntimeError

    @app.get("/stream")
    def stream() -> Iterator[bytes]:
        clock.advance(1)
        yield b"x"
        clock.advance(1)

    return Client(app)


def test_wsgi_requests_count_by_route_method_and_status(registry: MetricRegistry, clock: ManualClock) -> None:
    """The route is Flask's rule. A request ends when its response is closed, so a stream's duration is that of all."""
    client = flask(registry, clock)
    for path in ("/orders/1", "/orders/2", "/fail", "/stream", "/nowhere"):
        with client.get(path) as response:
            response.get_data()
    assert_count(registry, REQUESTS, 2, tags=tags("/orders/<int:number>", "GET", "2xx"))
    assert_count(registry, REQUESTS, 1, tags=tags("/fail", "GET", "5xx"))
    assert_count(registry, REQUESTS, 1, tags=tags("other", "GET", "4xx"))
    assert (seconds(registry, "/stream"), active(registry)) == (2.0, 0)


def raising(step: str) -> Any:
    """Return a WSGI application that raises in this step, after its response has begun."""

    class Body:
        def __iter__(self) -> Iterator[bytes]:
            yield b"x"
            if step == "iterate":
                raise RuntimeError

        def close(self) -> None:
            if step == "close":
                raise RuntimeError

    def app(_environ: Any, start: Any) -> Body:
        start("200 OK", [])
        if step == "call":
            raise RuntimeError
        return Body()

    return app


@pytest.mark.parametrize("step", ["call", "iterate", "close", "nothing"])
def test_a_wsgi_response_that_fails_midway_is_a_5xx(registry: MetricRegistry, step: str) -> None:
    """So is one that fails when its body is iterated or closed. The exception continues to the server."""
    sent: list[bytes] = []
    with nullcontext() if step == "nothing" else pytest.raises(RuntimeError):
        body: Any = WsgiMiddleware(raising(step), registry=registry)({"REQUEST_METHOD": "GET"}, lambda *_: None)
        with closing(body):
            sent.extend(body)
        body.close()  # a server or another middleware may close it again
    assert_count(registry, REQUESTS, 1, tags=tags("other", "GET", "2xx" if step == "nothing" else "5xx"))
    assert (active(registry), sent) == (0, [] if step == "call" else [b"x"])
