"""The middleware in front of Streamlit, which refuses requests that the page does not need and checks the password."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qs, quote

from tallystream_dashboards.page.server.password import CONTENT_POLICY, MAX_WAIT_S, Attempts, login_page

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from tallystream_aggregator.http_server import AllowedHosts

    Message: TypeAlias = MutableMapping[str, Any]
    Receive: TypeAlias = Callable[[], Awaitable[Message]]
    Send: TypeAlias = Callable[[Message], Awaitable[None]]
    App: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]

HEALTH = "/_stcore/health"
POLICY_VIOLATION = 1008
"""The status code of a WebSocket that is refused (RFC 6455)."""
COOKIE_MAX_AGE_S = 30 * 86_400
"""How many seconds a browser stays logged in, unless the password changes."""
MAX_DIGITS = 12
"""The longest time in a cookie, in digits: parsing a very long number is slow."""
MAX_BODY = 4096
"""The maximum size of the login form in bytes."""
BODY_TIMEOUT_S = 10.0
"""The timeout for the login form, in seconds."""
QUERY = "!$%&'()*+,/:;=?@"
"""What a query may have beside letters, digits and `-._~` (RFC 3986, 3.4). A line break would end the header."""


class AccessMiddleware:
    """ASGI middleware that allows GET and HEAD only, and before the login only the health check and the login form.

    It refuses requests that name a host which is not allowed (`AllowedHosts`).

    The login itself is a POST. The page needs no other method, so Streamlit's upload route, which requires no login,
    can't be reached.

    Args:
        app: the application that is served after the login.
        password: the password; empty: no login.
        hosts: the hosts that requests may name.
        attempts: limits the rate of attempts of each address.
        clock: returns epoch seconds, for the expiry of cookies.
        sleep: delays an attempt.
    """

    def __init__(
        self,
        app: App,
        *,
        password: str,
        hosts: AllowedHosts,
        attempts: Attempts | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._app, self._clock, self._sleep, self._hosts = app, clock, sleep, hosts
        self._password = password.encode()
        self._attempts = attempts or Attempts()
        self._key = _key(self._password)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one request."""
        refusal = None if scope["type"] == "lifespan" else self._hosts.refusal(_header(scope, b"host", b""))
        if scope["type"] == "http" and refusal is not None:
            await _respond(send, HTTPStatus.MISDIRECTED_REQUEST, refusal)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)
        elif scope["type"] == "lifespan" or (refusal is None and self._is_logged_in(scope)):
            await self._app(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})

    async def _serve(self, scope: Message, receive: Receive, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        if method == "POST" and path == "/" and self._password:
            await self._log_in(scope, receive, send)
        elif method not in ("GET", "HEAD"):
            await _respond(send, HTTPStatus.METHOD_NOT_ALLOWED, "The page only reads: use GET.", allow="GET, HEAD")
        elif path == HEALTH or self._is_logged_in(scope):
            await self._app(scope, receive, send)
        elif path == "/":
            await _respond(send, HTTPStatus.OK, login_page())
        else:
            await _respond(send, HTTPStatus.UNAUTHORIZED, "Log in at / first.")

    def _is_logged_in(self, scope: Message) -> bool:
        if not self._password:
            return True
        cookies = dict(part.strip().partition("=")[::2] for part in _header(scope, b"cookie", b"; ").split(";"))
        until, _, _ = cookies.get(_cookie_name(scope), "").partition(".")
        if not until.isdecimal() or len(until) > MAX_DIGITS or int(until) < self._clock():
            return False
        return hmac.compare_digest(cookies[_cookie_name(scope)].encode(), self._signed(until).encode())

    def _signed(self, until: str) -> str:
        """Return the value of a cookie that is valid until `until`, in epoch seconds."""
        return f"{until}.{hmac.digest(self._key, until.encode(), 'sha256').hex()}"

    async def _log_in(self, scope: Message, receive: Receive, send: Send) -> None:
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                password = await _read_password(receive)
        except TimeoutError:
            await _respond(send, HTTPStatus.REQUEST_TIMEOUT, "The login form did not arrive in time.")
            return
        address = (scope.get("client") or ("", 0))[0]
        wait_s = self._attempts.wait_s(address)
        if wait_s is None:
            message = f"Too many attempts from your address: try again in {MAX_WAIT_S:g} s."
            await _respond(send, HTTPStatus.TOO_MANY_REQUESTS, login_page(message), retry_after=f"{MAX_WAIT_S:g}")
            return
        await self._sleep(wait_s)
        if not hmac.compare_digest(password, self._password):
            self._attempts.failed(address)
            await _respond(send, HTTPStatus.UNAUTHORIZED, login_page("That is not the password."))
            return
        # Redirect to the page itself, never to the path of the request: `//host` would be another server.
        query = quote(scope["query_string"], safe=QUERY)
        secure = "; Secure" if scope["scheme"] == "https" else ""
        cookie = f"{_cookie_name(scope)}={self._signed(str(round(self._clock()) + COOKIE_MAX_AGE_S))}"
        await _respond(
            send,
            HTTPStatus.SEE_OTHER,
            "",
            location=f"/?{query}" if query else "/",
            set_cookie=f"{cookie}; Max-Age={COOKIE_MAX_AGE_S}; Path=/; HttpOnly; SameSite=Lax{secure}",
        )


def _key(password: bytes) -> bytes:
    """Return the key that signs cookies. It is the same in every replica and after a restart; scrypt slows guessing."""
    return hashlib.scrypt(password, salt=b"tallystream page", n=2**14, r=8, p=1) if password else b""


def _header(scope: Message, name: bytes, separator: bytes) -> str:
    """Return the values of a header, with the separator between them; empty if there is none."""
    return separator.join(value for other, value in scope.get("headers", ()) if other == name).decode("latin-1")


def _cookie_name(scope: Message) -> str:
    # Browsers send a host's cookies to all of its ports, so each page of a host needs its own name.
    return f"tallystream_page_{(scope.get('server') or ('', 0))[1]}"


async def _read_password(receive: Receive) -> bytes:
    """Return the password in the login form; empty if there is none or the form is too long."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message["type"] == "http.request" and message.get("more_body", False) and len(body) <= MAX_BODY
    if len(body) > MAX_BODY:
        return b""
    return parse_qs(body.decode("latin-1")).get("password", [""])[0].encode()


async def _respond(send: Send, status: HTTPStatus, body: str, **headers: str) -> None:
    content = body.encode()
    kind = "text/html" if body.startswith("<") else "text/plain"
    defaults = {
        "content-type": f"{kind}; charset=utf-8",
        "content-length": str(len(content)),
        "cache-control": "no-store",
        "content-security-policy": CONTENT_POLICY,
        "referrer-policy": "same-origin",
    }
    merged = defaults | {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [(name.encode(), value.encode("latin-1")) for name, value in merged.items()]
    await send({"type": "http.response.start", "status": int(status), "headers": lines})
    await send({"type": "http.response.body", "body": content})
