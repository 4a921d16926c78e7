"""What the page lets through before and after the login, and how fast passwords can be tried."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest

from tallystream.errors import ConfigError
from tallystream_dashboards.page.server.gate import HEALTH, LASTS_S, MAX_BODY, Gate
from tallystream_dashboards.page.server.password import ENV, MAX_ADDRESSES, Attempts, from_environment

if TYPE_CHECKING:
    from pathlib import Path

Message = Any


class Server:
    """A gate before an application that says which paths reached it; its clocks stand until they are moved."""

    def __init__(self, password: str = "open sesame") -> None:
        self.now, self.slept = 1_700_000_000.0, 0.0
        self.reached: list[str] = []
        attempts = Attempts(clock=lambda: self.now)
        self.gate = Gate(self.app, password=password, attempts=attempts, clock=lambda: self.now, sleep=self.sleep)

    async def sleep(self, seconds: float) -> None:
        """Pass no time."""
        self.slept += seconds

    async def app(self, scope: Message, _receive: Message, send: Message) -> None:
        """Answer whatever the gate lets through."""
        self.reached.append(scope["path"])
        await send({"type": "http.response.start", "status": 204, "headers": []})

    def ask(
        self,
        method: str,
        path: str = "/",
        *,
        body: bytes = b"",
        cookie: str = "",
        address: str = "10.0.0.1",
        **scope: str,
    ) -> tuple[int, dict[str, str], str]:
        """Return status, headers and body of one request; a websocket that is closed has status 403."""
        said: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            said.append(message)

        asked = {
            "type": "http",
            "scheme": "http",
            "method": method,
            "path": path,
            "query_string": b"group=a",
            "headers": [(b"cookie", cookie.encode())],
            "client": (address, 1),
            "server": ("page", 80),
        }
        asyncio.run(self.gate(asked | scope, receive, send))
        if said[0]["type"] == "websocket.close":
            return 403, {}, ""
        headers = {name.decode(): value.decode() for name, value in said[0]["headers"]}
        return said[0]["status"], headers, b"".join(one.get("body", b"") for one in said[1:]).decode()

    def log_in(self, password: str, **options: str) -> tuple[int, dict[str, str], str]:
        """Send the form."""
        return self.ask("POST", body=urlencode({"password": password}).encode(), **options)


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE", "OPTIONS", "PATCH"])
@pytest.mark.parametrize("password", ["", "open sesame"])
def test_nothing_is_ever_taken_in(method: str, password: str) -> None:
    """Streamlit's upload route and every other one refuse all methods but GET and HEAD, password or not."""
    server = Server(password)
    status, headers, _ = server.ask(method, "/_stcore/upload_file/session/file")
    assert (status, headers["allow"], server.reached) == (405, "GET, HEAD", [])


def test_without_a_password_everything_is_read() -> None:
    """A page without a password answers at once."""
    server = Server("")
    assert server.ask("GET")[0] == 204
    assert server.ask("GET", "/_stcore/stream", type="websocket")[0] == 204


def test_before_the_login_only_the_health_check_is_answered() -> None:
    """The page asks for the password; neither the websocket nor any other route reaches Streamlit."""
    server = Server()
    status, headers, body = server.ask("GET")
    assert (status, 'type="password"' in body, headers["cache-control"]) == (200, True, "no-store")
    assert server.ask("GET", "/_stcore/stream", type="websocket")[0] == 403
    assert [server.ask("GET", path)[0] for path in ("/_stcore/metrics", "/media/x", "/static/x.js", "//")] == [401] * 4
    assert server.reached == []
    assert (server.ask("GET", HEALTH)[0], server.reached) == (204, [HEALTH])


def test_the_right_password_lets_in_to_where_the_link_leads() -> None:
    """The answer leads back to the address asked for, with a cookie that scripts can't read and that expires."""
    server = Server()
    status, headers, _ = server.log_in("open sesame")
    assert (status, headers["location"], server.slept) == (303, "/?group=a", 0)
    cookie, _, flags = headers["set-cookie"].partition("; ")
    assert flags == f"Max-Age={LASTS_S}; Path=/; HttpOnly; SameSite=Lax"
    assert server.ask("GET", cookie=f"other=1; {cookie}")[0] == 204
    assert server.ask("GET", "/_stcore/stream", type="websocket", cookie=cookie)[0] == 204
    assert server.log_in("open sesame", cookie=cookie)[0] == 303, "the form of a second tab"
    server.now += 10
    assert server.log_in("open sesame", scheme="https")[1]["set-cookie"].endswith("; Secure")
    server.now += LASTS_S + 1
    assert 'type="password"' in server.ask("GET", cookie=cookie)[2]


def test_no_other_cookie_lets_in() -> None:
    """A cookie of another page, one with a later end, and nonsense are worth nothing."""
    server = Server()
    cookie = server.log_in("open sesame")[1]["set-cookie"].partition(";")[0]
    name, _, value = cookie.partition("=")
    until, _, sign = value.partition(".")
    for other in (f"{name}={int(until) + 1}.{sign}", f"{name}={until}.", f"{name}=é.{sign}", f"{name}={'9' * 5000}.x"):
        assert "password" in server.ask("GET", cookie=other)[2]
    assert "password" in Server("another").ask("GET", cookie=cookie)[2]


def test_a_login_holds_at_every_replica_with_the_same_password() -> None:
    """A balancer may send each request to another replica, and a page may restart: the cookie holds all the same."""
    cookie = Server().log_in("open sesame")[1]["set-cookie"].partition(";")[0]
    assert Server().ask("GET", cookie=cookie)[0] == 204
    assert Server().ask("GET", "/_stcore/stream", type="websocket", cookie=cookie)[0] == 204


def test_a_wrong_password_is_refused() -> None:
    """Another password, an empty one, none at all and one that is too long: the form again, and no cookie."""
    server = Server()
    for number, body in enumerate((b"password=wrong", b"password=", b"", b"\xff\x00", b"password=" + b"x" * MAX_BODY)):
        status, headers, said = server.ask("POST", body=body, address=f"10.0.1.{number}")
        assert (status, "That is not the password." in said, "set-cookie" in headers) == (401, True, False)


def test_guessing_is_slow_for_one_address_and_for_no_other() -> None:
    """Of 200 guesses at once six are checked, a second apart; the right user, elsewhere, does not wait at all."""
    server = Server()
    answers = [server.log_in(f"guess {number}")[0] for number in range(200)]
    assert (answers.count(401), answers.count(429), server.slept) == (6, 194, 15)
    assert server.log_in("open sesame")[0] == 429, "an unchecked password says nothing"
    server.slept = 0
    assert (server.log_in("open sesame", address="10.0.0.2")[0], server.slept) == (303, 0)
    server.now += 10
    assert (server.log_in("open sesame")[0], server.slept) == (303, 0)


def test_wrong_passwords_are_logged_without_them(caplog: pytest.LogCaptureFixture) -> None:
    """The first is logged at once with its address, the others once a minute with their number."""
    caplog.set_level(logging.DEBUG, logger="tallystream")
    server = Server()
    for number in range(100):
        server.log_in("hunter2", address=f"10.0.2.{number}")
    assert caplog.messages == ["a wrong password given to the page, the last from 10.0.2.0"]
    server.now += 60
    server.log_in("hunter2", address="2001:db8::1:2:3:4")
    server.log_in("open sesame")
    assert caplog.messages[1:] == ["100 wrong passwords given to the page, the last from 2001:db8::/64"]
    assert not [text for text in caplog.text.split() if "hunter2" in text or "sesame" in text]


def test_addresses_of_one_network_are_one_and_their_number_is_bounded() -> None:
    """A host has 2**64 addresses of IPv6: they count as one. Of many addresses not all are remembered."""
    attempts = Attempts(clock=lambda: 0.0)
    assert [attempts.wait_s(f"2001:db8::{number}") for number in range(3)] == [0, 1, 2]
    for number in range(MAX_ADDRESSES + 10):
        assert attempts.wait_s(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}") == 0
    assert attempts.wait_s("2001:db8::9") == 0
    assert attempts.wait_s("10.0.39.16") == 1


def test_a_form_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that sends no body is answered, and the request ends."""
    monkeypatch.setattr("tallystream_dashboards.page.server.gate.BODY_S", 0.0)
    said: list[Message] = []

    async def receive() -> Message:
        await asyncio.Event().wait()

    async def send(message: Message) -> None:
        said.append(message)

    scope = {"type": "http", "method": "POST", "path": "/", "headers": [], "query_string": b"", "scheme": "http"}
    asyncio.run(Server().gate(scope, receive, send))
    assert said[0]["status"] == 408


def test_a_password_file_that_is_no_text_is_one_sentence(tmp_path: Path) -> None:
    """Like one that is empty or not there: the variable and the remedy, and nothing of what is in it."""
    path = tmp_path / "password"
    for content, remedy in ((b"\xff\xfesecret", "UTF-8"), (b" \n", "it is empty"), (None, "it can't be read")):
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ConfigError, match=remedy) as refused:
            from_environment({f"{ENV}_FILE": str(path)})
        assert str(refused.value).startswith("TALLYSTREAM_PAGE_PASSWORD_FILE: ")
        assert "secret" not in str(refused.value)
