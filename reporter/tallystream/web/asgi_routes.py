"""The route of an ASGI request: the template that FastAPI or Starlette has matched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


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
