"""Which requests the page allows before and after the login, and the rate limit of passwords."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tallystream.errors import ConfigError
from tallystream_aggregator.http_server import HOSTS_ENV as HOSTS
from tallystream_aggregator.http_server import AllowedHosts
from tallystream_dashboards.page.server.access import COOKIE_MAX_AGE_S, HEALTH, MAX_BODY, AccessMiddleware
from tallystream_dashboards.page.server.password import ENV, MAX_ADDRESSES, Attempts, from_environment

Message = Any


class Server:
    """The middleware before an application that records the paths that reach it, with manual clocks."""

    def __init__(self, password: str = "open sesame", hosts: AllowedHosts | None = None) -> None:
        self.now, self.slept = 1_700_000_000.0, 0.0
        self.reached: list[str] = []
        attempts = Attempts(clock=lambda: self.now)
        self.middleware = AccessMiddleware(
            self.app,
            password=password,
            hosts=hosts or AllowedHosts("127.0.0.1", has_password=bool(password), env={}),
            attempts=attempts,
            clock=lambda: self.now,
            sleep=self.sleep,
        )

    async def sleep(self, seconds: float) -> None:
        """Add up the seconds without sleeping."""
        self.slept += seconds

    async def app(self, scope: Message, _receive: Message, send: Message) -> None:
        """Answer each request that reaches the application."""
        self.reached.append(scope["path"])
        await send({"type": "http.response.start", "status": 204, "headers": []})

    def ask(
        self,
        method: str,
        path: str = "/",
        *,
        body: bytes = b"",
        cookie: str = "",
        host: str = "127.0.0.1:8501",
        address: str = "10.0.0.1",
        **scope: str,
    ) -> tuple[int, dict[str, str], str]:
        """Return status, headers and body of one request; a websocket that is closed has status 403."""
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        request = {
            "type": "http",
            "scheme": "http",
            "method": method,
            "path": path,
            "query_string": b"group=a%2Fb&x=\r\n\x80",
            "headers": [(b"host", host.encode()), (b"cookie", cookie.encode())],
            "client": (address, 1),
            "server": ("page", 80),
        }
        asyncio.run(self.middleware(request | scope, receive, send))
        if sent[0]["type"] == "websocket.close":
            return 403, {}, ""
        headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], headers, b"".join(one.get("body", b"") for one in sent[1:]).decode()

    def log_in(self, password: str, **options: str) -> tuple[int, dict[str, str], str]:
        """Send the login form."""
        return self.ask("POST", body=urlencode({"password": password}).encode(), **options)


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE", "OPTIONS", "PATCH"])
@pytest.mark.parametrize("password", ["", "open sesame"])
def test_other_methods_are_refused(method: str, password: str) -> None:
    """With and without a password, only GET and HEAD are allowed, also for Streamlit's upload route."""
    server = Server(password)
    status, headers, _ = server.ask(method, "/_stcore/upload_file/session/file")
    assert (status, headers["allow"], server.reached) == (405, "GET, HEAD", [])


def test_before_the_login_only_the_health_check_is_served() -> None:
    """Before the login there is the login form. Neither the WebSocket nor any other route reaches Streamlit."""
    server = Server()
    status, headers, body = server.ask("GET")
    assert (status, 'type="password"' in body, headers["cache-control"]) == (200, True, "no-store")
    assert server.ask("GET", "/_stcore/stream", type="websocket")[0] == 403
    assert [server.ask("GET", path)[0] for path in ("/_stcore/metrics", "/media/x", "/static/x.js", "//")] == [401] * 4
    assert server.reached == []
    assert (server.ask("GET", HEALTH)[0], server.reached) == (204, [HEALTH])


def test_the_right_password_leads_to_the_link() -> None:
    """The response redirects to the requested page, with a cookie that scripts can't read and that expires.

    It is valid on every replica with the same password. What no query may have is encoded: a line break would end the
    header.
    """
    server = Server()
    status, headers, _ = server.log_in("open sesame")
    assert (status, headers["location"], server.slept) == (303, "/?group=a%2Fb&x=%0D%0A%80", 0)
    cookie, _, flags = headers["set-cookie"].partition("; ")
    assert flags == f"Max-Age={COOKIE_MAX_AGE_S}; Path=/; HttpOnly; SameSite=Lax"
    assert server.ask("GET", cookie=f"other=1; {cookie}")[0] == 204
    for replica in (server, Server()):
        assert replica.ask("GET", "/_stcore/stream", type="websocket", cookie=cookie)[0] == 204
    assert server.log_in("open sesame", cookie=cookie)[0] == 303, "the form of a second tab"
    server.now += 10
    assert server.log_in("open sesame", scheme="https")[1]["set-cookie"].endswith("; Secure")
    server.now += COOKIE_MAX_AGE_S + 1
    assert 'type="password"' in server.ask("GET", cookie=cookie)[2]


def test_other_cookies_are_refused() -> None:
    """A cookie of another page, one with a later expiry, and an invalid one are refused."""
    server = Server()
    cookie = server.log_in("open sesame")[1]["set-cookie"].partition(";")[0]
    name, _, value = cookie.partition("=")
    until, _, sign = value.partition(".")
    for other in (f"{name}={int(until) + 1}.{sign}", f"{name}={until}.", f"{name}=é.{sign}", f"{name}={'9' * 5000}.x"):
        assert "password" in server.ask("GET", cookie=other)[2]
    assert "password" in Server("another").ask("GET", cookie=cookie)[2]


def test_a_wrong_password_is_refused() -> None:
    """A wrong, an empty, a missing and a too long password get the login form and no cookie."""
    server = Server()
    for number, body in enumerate((b"password=wrong", b"password=", b"", b"\xff\x00", b"password=" + b"x" * MAX_BODY)):
        status, headers, page = server.ask("POST", body=body, address=f"10.0.1.{number}")
        assert (status, "That is not the password." in page, "set-cookie" in headers) == (401, True, False)


def test_attempts_are_limited_for_each_address() -> None:
    """Of 200 attempts at once six are checked, a second apart. Another address does not wait."""
    server = Server()
    answers = [server.log_in(f"guess {number}")[0] for number in range(200)]
    assert (answers.count(401), answers.count(429), server.slept) == (6, 194, 15)
    assert server.log_in("open sesame")[0] == 429, "the password is not checked"
    server.slept = 0
    assert (server.log_in("open sesame", address="10.0.0.2")[0], server.slept) == (303, 0)
    server.now += 10
    assert (server.log_in("open sesame")[0], server.slept) == (303, 0)


def test_wrong_passwords_are_logged_without_them(caplog: pytest.LogCaptureFixture) -> None:
    """The first is logged immediately with its address, the others once a minute with their number."""
    caplog.set_level(logging.DEBUG, logger="tallystream")
    server = Server()
    for number in range(100):
        server.log_in("hunter2", address=f"10.0.2.{number}")
    assert caplog.messages == ["the page refused a wrong password, the last from 10.0.2.0"]
    server.now += 60
    server.log_in("hunter2", address="2001:db8::1:2:3:4")
    server.log_in("open sesame")
    assert caplog.messages[1:] == ["the page refused 100 wrong passwords, the last from 2001:db8::/64"]
    assert not [text for text in caplog.text.split() if "hunter2" in text or "sesame" in text]


def test_an_ipv6_network_is_one_address() -> None:
    """The 2**64 IPv6 addresses of a host count as one. The number of remembered addresses is limited."""
    attempts = Attempts(clock=lambda: 0.0)
    assert [attempts.wait_s(f"2001:db8::{number}") for number in range(3)] == [0, 1, 2]
    for number in range(MAX_ADDRESSES + 10):
        assert attempts.wait_s(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}") == 0
    assert attempts.wait_s("2001:db8::9") == 0
    assert attempts.wait_s("10.0.39.16") == 1


def test_an_incomplete_form_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that sends no body gets a response."""
    monkeypatch.setattr("tallystream_dashboards.page.server.access.BODY_TIMEOUT_S", 0.0)
    sent: list[Message] = []

    async def receive() -> Message:
        await asyncio.Event().wait()

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/", "headers": [], "query_string": b"", "scheme": "http"}
    asyncio.run(Server().middleware(scope, receive, send))
    assert sent[0]["status"] == 408


def test_a_wrong_password_file_is_an_error(tmp_path: Path) -> None:
    """The error names the variable and what to do, and has nothing of the file's content."""
    path = tmp_path / "password"
    for content, remedy in ((b"\xff\xfehush", "UTF-8"), (b" \n", "it is empty"), (None, "it can't be read")):
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ConfigError, match=remedy) as error:
            from_environment({f"{ENV}_FILE": str(path)})
        assert str(error.value).startswith("TALLYSTREAM_PAGE_PASSWORD_FILE: ")
        assert "hush" not in str(error.value)


def test_a_web_page_cannot_read_a_page_without_a_password() -> None:
    """Its own name resolves to 127.0.0.1 (DNS rebinding). Neither requests nor WebSockets with it are served."""
    server = Server(password="")
    status, _, body = server.ask("GET", "/_stcore/metrics", host="evil.example:8501")
    assert (status, server.reached) == (421, [])
    assert (
        f"The host 'evil.example:8501' is not allowed: use localhost or an IP address, or name it in {HOSTS}." in body
    )
    assert server.ask("GET", "/_stcore/stream", host="evil.example:8501", type="websocket")[0] == 403
    assert server.reached == []
    for host in ("127.0.0.1:8501", "localhost:8501", "[::1]:8501", ""):
        assert server.ask("GET", "/_stcore/metrics", host=host)[0] == 204
        assert server.ask("GET", "/_stcore/stream", host=host, type="websocket")[0] == 204
    assert len(server.reached) == 8


def test_a_page_with_a_password_answers_to_the_names_of_a_proxy() -> None:
    """Another page has no cookie for it: it sees the login form only."""
    server = Server()
    assert server.ask("GET", "/_stcore/metrics", host="metrics.example.org")[0] == 401
    assert server.ask("GET", "/", host="metrics.example.org")[0] == 200
    named = Server(hosts=AllowedHosts("127.0.0.1", has_password=True, env={HOSTS: "metrics.example.org"}))
    assert named.ask("GET", "/", host="metrics.example.org")[0] == 200
    assert named.ask("GET", "/", host="evil.example")[0] == 421
