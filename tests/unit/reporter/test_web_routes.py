"""The routes of requests: those that FastAPI and Starlette know, and functions that return none that can be used."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from werkzeug.test import Client

from support.web import DURATION, REQUESTS, active, request, tags
from tallystream import MetricRegistry, record
from tallystream.log_throttle import RateLimitFilter
from tallystream.testing import assert_count
from tallystream.web import AsgiMiddleware, WsgiMiddleware, request_metrics


def routers() -> APIRouter:
    """Return a router with a handler of FastAPI, one of Starlette, and a mount."""
    router = APIRouter()

    @router.get("/items/{number}")
    async def item(number: int) -> int:
        return number

    router.add_route("/plain/{name}", plain)
    router.mount("/files/{owner}", Starlette(routes=[Route("/{name}", plain)]))
    return router


async def plain(_: Any) -> PlainTextResponse:
    """Answer any request."""
    return PlainTextResponse("x")


def routes_of(registry: MetricRegistry, app: Any, *paths: str) -> dict[str, int]:
    """Send a GET request to each path, and return the number of requests of each route."""
    app.add_middleware(AsgiMiddleware, registry=registry)
    for path in paths:
        assert request(app, path)[0] in {200, 404}
    return {
        m.tags["route"]: m.count for m in registry.snapshot() if m.name == REQUESTS and isinstance(m, record.Counter)
    }


def test_the_route_has_the_prefixes_of_included_routers(registry: MetricRegistry) -> None:
    """Routers of FastAPI may be nested, and have the same handlers or the same paths below their prefixes."""
    shop = APIRouter(prefix="/shop")
    shop.include_router(routers(), prefix="/v1")
    app, other = FastAPI(), routers()
    app.include_router(shop, prefix="/api")
    app.include_router(other, prefix="/a")
    app.include_router(other, prefix="/b")
    paths = (
        "/api/shop/v1/items/1",
        "/api/shop/v1/plain/x",
        "/api/shop/v1/files/me/x",
        "/a/items/1",
        "/b/items/1",
        "/c",
    )
    assert routes_of(registry, app, *paths) == {
        "/api/shop/v1/items/{number}": 1,
        "/api/shop/v1/plain/{name}": 1,
        "/api/shop/v1/files/{owner}/{name}": 1,
        "/a/items/{number}": 1,
        "/b/items/{number}": 1,
        "other": 1,
    }
    assert request(app, "/a/items/1", "POST")[0] == 405
    assert_count(registry, REQUESTS, 1, tags=tags("/a/items/{number}", "POST", "4xx"))


@pytest.mark.parametrize("framework", [Starlette, FastAPI])
def test_the_route_has_the_prefixes_of_mounts(registry: MetricRegistry, framework: Any) -> None:
    """A mounted application keeps its prefix, and a handler below two mounts is counted below the right one."""
    sub = FastAPI()
    sub.include_router(routers(), prefix="/in")
    mounts = [Mount(f"/{name}", routes=[Route("/{name}", plain)]) for name in ("x", "y")]
    app = framework(routes=[*mounts, Mount("/v1", app=sub), Mount("/v2/{tenant}", app=sub)])
    paths = ("/x/1", "/y/1", "/y/2", "/v1/in/items/1", "/v2/me/in/items/1", "/v2/me/in/plain/1")
    assert routes_of(registry, app, *paths) == {
        "/x/{name}": 1,
        "/y/{name}": 2,
        "/v1/in/items/{number}": 1,
        "/v2/{tenant}/in/items/{number}": 1,
        "/v2/{tenant}/in/plain/{name}": 1,
    }


def no_route(_: object) -> str:
    """Raise."""
    raise LookupError("no such key")


async def answer(_scope: Any, _receive: Any, send: Any) -> None:
    """Answer any request."""
    await send({"type": "http.response.start", "status": 200})
    await send({"type": "http.response.body", "body": b"x"})


def answer_wsgi(_environ: Any, start: Any) -> list[bytes]:
    """Answer any request."""
    start("200 OK", [])
    return [b"x"]


@pytest.mark.parametrize(
    "route", [no_route, *(lambda _, route=route: route for route in ("/\udcff", "/" * 513, "/\0", 7, []))]
)
@pytest.mark.parametrize("gateway", ["asgi", "wsgi"])
def test_a_function_without_a_usable_route_breaks_no_request(
    registry: MetricRegistry, gateway: str, route: Any, caplog: pytest.LogCaptureFixture, monkeypatch: Any
) -> None:
    """The request counts as `other`, and the reason is logged at most once a minute."""
    monkeypatch.setattr(request_metrics._log, "filters", [RateLimitFilter()])
    for _ in range(3):
        if gateway == "asgi":
            assert request(AsgiMiddleware(answer, registry=registry, route=route), "/x") == (200, b"x")
        else:
            client = Client(WsgiMiddleware(answer_wsgi, registry=registry, route=route))
            with client.get("/x") as response:
                assert (response.status_code, response.get_data()) == (200, b"x")
    assert_count(registry, REQUESTS, 3, tags=tags("other", "GET", "2xx"))
    assert active(registry) == 0
    assert len(caplog.records) == 1
    assert (route is no_route) == ("no such key" in caplog.text)


def test_metrics_that_cannot_exist_break_no_request(
    registry: MetricRegistry, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example if the application has a metric of that name and another type. The exception is the application's."""
    monkeypatch.setattr(request_metrics._log, "filters", [RateLimitFilter()])
    registry.gauge(DURATION)

    async def fail(*_: Any) -> None:
        raise RuntimeError("of the application")

    assert request(AsgiMiddleware(answer, registry=registry), "/x") == (200, b"x")
    with pytest.raises(RuntimeError, match="of the application"):
        asyncio.run(AsgiMiddleware(fail, registry=registry)({"type": "http", "method": "GET"}, None, None))  # type: ignore[arg-type]
    assert active(registry) == 0
    assert caplog.text.count("a request can't be counted") == 1
