"""The guard in front of the app, without a server: origins, hosts, tokens, and whose connection it is."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from starlette.datastructures import Headers
from streamlit.web.server.starlette import starlette_app_utils

from cimemories.access import peers, readonly, tokens
from cimemories.access.guard import Gate, Guard, Mode, Site, cookie_name, same_origin
from cimemories.ui import login

PORT = 8501
NOBODY = 65534
OWN_PAGE = [("sec-fetch-site", "same-origin")]
TYPED = [("sec-fetch-site", "none"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")]
LINKED = [("sec-fetch-site", "cross-site"), *TYPED[1:]]
HTML = [("accept", "text/html")]
UPLOAD = "/_stcore/upload_file/session/file"


class Sent:
    """What a request got: the status, the headers, the text, and whether the app was asked."""

    def __init__(self, messages: list[dict[str, Any]], served: bool, read: bool) -> None:
        start = next((m for m in messages if m["type"] == "http.response.start"), {"status": 403, "headers": []})
        self.status: int = start["status"]
        self.headers = Headers(raw=list(start["headers"]))
        self.text = b"".join(m.get("body", b"") for m in messages).decode()
        self.served, self.read = served, read


async def send(
    gate: Gate,
    path: str = "/",
    headers: Sequence[tuple[str, str]] = (),
    *,
    method: str = "GET",
    kind: str = "http",
    host: str = f"localhost:{PORT}",
    client: tuple[str, int] = ("127.0.0.1", 50_000),
    login_on: bool = False,
    account: bool = False,
) -> Sent:
    messages: list[dict[str, Any]] = []
    happened = {"served": False, "read": False}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        happened["served"] = True
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def receive() -> dict[str, Any]:
        happened["read"] = True
        return {"type": "http.request", "body": b"secret"}

    async def collect(message: Any) -> None:
        messages.append(message)

    path, _, query = path.partition("?")
    scope = {
        "type": kind,
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(k.encode(), v.encode()) for k, v in [("host", host), *headers]],
        "client": client,
        "server": ("127.0.0.1", PORT),
    }
    site = Site(lambda host: host in (f"localhost:{PORT}", "proxy.example"), lambda: login_on, lambda _: account)
    await Guard(app, gate, site)(scope, receive, collect)
    return Sent(messages, **happened)


@pytest.fixture
def anyone(tmp_path: Path) -> Gate:
    return Gate(tmp_path, Mode.ANYONE)


@pytest.fixture
def asking(tmp_path: Path) -> Gate:
    return Gate(tmp_path, Mode.TOKEN)


@pytest.fixture
def auto(tmp_path: Path) -> Gate:
    return Gate(tmp_path, Mode.AUTO)


def kernel_says(monkeypatch: pytest.MonkeyPatch, user: int | None) -> None:
    monkeypatch.setattr(peers, "owner", lambda client, server: user)


@pytest.mark.parametrize(
    ("origin", "host", "same"),
    [
        ("http://localhost:8501", "localhost:8501", True),
        ("https://review.example.org", "review.example.org", True),
        ("https://review.example.org", "review.example.org:443", True),
        ("http://[::1]:8501", "[::1]:8501", True),
        ("http://localhost:9000", "localhost:8501", False),  # any other program of this machine
        ("http://localhost", "localhost:8501", False),
        ("http://127.0.0.1:8501", "localhost:8501", False),
        ("https://localhost:8501", "localhost", False),
        ("http://localhost:8501@evil.example", "localhost:8501", False),
        ("http://evil.example/localhost:8501", "localhost:8501", False),
        ("null", "localhost:8501", False),
        ("", "localhost:8501", False),
        ("http://localhost:notaport", "localhost:notaport", False),
        ("file://localhost:8501", "localhost:8501", False),
    ],
)
def test_an_origin_is_ours_only_with_the_hosts_port(origin: str, host: str, same: bool) -> None:
    assert same_origin([origin], [host]) is same


def test_an_origin_must_be_there_once() -> None:
    assert not same_origin([], ["localhost:8501"])
    assert not same_origin(["http://localhost:8501", "http://evil.example"], ["localhost:8501"])


@pytest.mark.parametrize(
    ("kind", "method"), [("websocket", "GET"), ("http", "PUT"), ("http", "DELETE"), ("http", "POST"), ("http", "PATCH")]
)
async def test_what_changes_something_needs_our_own_origin(anyone: Gate, kind: str, method: str) -> None:
    path = "/_stcore/stream" if kind == "websocket" else UPLOAD
    for origin, served in [
        ("http://localhost:8501", True),
        ("http://localhost:9000", False),
        ("http://127.0.0.1:8501", False),
        (None, False),
    ]:
        headers = [("origin", origin)] if origin else []
        assert (await send(anyone, path, headers, kind=kind, method=method)).served is served, origin


async def test_pages_of_other_origins_may_link_and_nothing_else(anyone: Gate) -> None:
    assert (await send(anyone, "/leaks", LINKED)).served
    assert (await send(anyone, "/oauth2callback", LINKED)).served
    for site in ("cross-site", "same-site"):  # another port of this machine is the "same site"
        for mode, dest in [("no-cors", "script"), ("cors", "empty"), ("navigate", "iframe"), ("no-cors", "image")]:
            fetched = [("sec-fetch-site", site), ("sec-fetch-mode", mode), ("sec-fetch-dest", dest)]
            assert not (await send(anyone, "/media/a.csv", fetched)).served
            assert not (await send(anyone, UPLOAD, fetched, method="OPTIONS")).served
    assert not (await send(anyone, "/auth/logout", LINKED)).served
    assert (await send(anyone, "/auth/logout", OWN_PAGE)).served


@pytest.mark.parametrize("path", ["/", "/static/js/index.js", "/_stcore/health", "/media/x", "/leaks", "/component/x"])
async def test_every_route_asks_whether_the_host_is_ours(anyone: Gate, path: str) -> None:
    assert (await send(anyone, path)).served
    refused = await send(anyone, path, host="rebound.example:8501")
    assert (refused.status, refused.served) == (403, False)


@pytest.mark.parametrize(
    "path",
    [
        "/_stcore/metrics",
        "/_stcore/metrics/",
        "/_stcore/script-health-check",
        "/_stcore/agent/interact",
        "/_stcore/new",
    ],
)
async def test_figures_and_interfaces_that_the_app_does_not_need_are_closed(anyone: Gate, path: str) -> None:
    assert (await send(anyone, path)).status == 404


async def test_only_a_read_only_app_that_is_open_to_all_can_be_framed_by_other_pages(
    anyone: Gate, auto: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    framed = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe")]
    script = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors"), ("sec-fetch-dest", "script")]
    kernel_says(monkeypatch, os.geteuid())
    for read_only, gate, login_on, can in [
        ("1", anyone, False, True),
        ("1", anyone, True, False),
        ("1", auto, False, False),
        ("", anyone, False, False),
    ]:
        monkeypatch.setenv(readonly.READ_ONLY, read_only)
        assert (await send(gate, "/leaks", framed, login_on=login_on)).served is can
        shown = (await send(gate, "/leaks", login_on=login_on)).headers
        assert ("frame-ancestors *" in shown["content-security-policy"]) is can
        assert ("x-frame-options" in shown) is not can
        assert not (await send(gate, "/leaks", script, login_on=login_on)).served
        assert not (await send(gate, "/auth/logout", framed, login_on=login_on)).served


async def test_everything_that_is_sent_has_the_headers(anyone: Gate) -> None:
    for sent in (await send(anyone), await send(anyone, host="evil.example")):
        assert "frame-ancestors 'self'" in sent.headers["content-security-policy"]
        assert "default-src" in sent.headers["content-security-policy"]
        assert sent.headers["x-content-type-options"] == "nosniff"
        assert sent.headers["cross-origin-resource-policy"] == "same-origin"


class TestWhoComesIn:
    async def test_the_user_of_the_app_and_root_without_a_token(
        self, auto: Gate, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for user in (os.geteuid(), 0):
            kernel_says(monkeypatch, user)
            assert (await send(auto)).served
            assert (await send(auto, "/_stcore/stream", [("origin", "http://localhost:8501")], kind="websocket")).served

    @pytest.mark.parametrize("path", ["/", "/_stcore/stream", "/media/x", "/_stcore/host-config", "/component/x"])
    async def test_no_other_user_not_even_with_the_token(
        self, auto: Gate, monkeypatch: pytest.MonkeyPatch, path: str
    ) -> None:
        kernel_says(monkeypatch, NOBODY)
        cookie = ("cookie", f"{cookie_name(PORT)}={tokens.cookie_value(auto.token, PORT)}")
        assert not (await send(auto, path)).served
        assert not (await send(auto, f"{path}?token={auto.token}", [cookie])).served

    async def test_a_token_where_the_kernel_cannot_tell(self, auto: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
        kernel_says(monkeypatch, None)
        refused = await send(auto, "/", HTML)
        assert refused.status == 403
        assert 'name="token"' in refused.text
        assert auto.token not in refused.text
        assert str(auto.workspace) not in refused.text

    async def test_a_token_behind_a_proxy_whoever_runs_it(self, auto: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
        kernel_says(monkeypatch, os.geteuid())
        names = ("X-Forwarded-For", "Forwarded", "Via", "X-Real-IP", "X-Forwarded-Host", "X-Forwarded-Proto")
        for name in (*names, "X-Forwarded-User", "CF-Connecting-IP"):
            assert not (await send(auto, "/", [(name.lower(), "127.0.0.1:50000")])).served
        assert not (await send(auto, "/", host="proxy.example")).served

    async def test_the_token_becomes_a_cookie_and_leaves_the_address(self, asking: Gate) -> None:
        sent = await send(asking, f"/leaks?run=run-1&token={asking.token}&n=2", TYPED + HTML)
        assert not sent.served
        assert asking.token not in sent.text
        assert 'url=/leaks?run=run-1&amp;n=2"' in sent.text
        cookie = sent.headers["set-cookie"]
        name, value = cookie.split(";")[0].split("=")
        assert (name, value != asking.token) == ("cimemories-token-8501", True)
        assert {"HttpOnly", "SameSite=strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
        assert (await send(asking, "/leaks", [("cookie", f"a=b; {name}={value}")])).served
        socket_headers = [("origin", "http://localhost:8501"), ("cookie", f"{name}={value}")]
        assert (await send(asking, "/_stcore/stream", socket_headers, kind="websocket")).served
        assert not (await send(asking, "/_stcore/stream", socket_headers[:1], kind="websocket")).served

    async def test_neither_a_wrong_token_nor_another_ports_cookie(self, asking: Gate) -> None:
        for text in ("", "x", asking.token[:-1], f"{asking.token}x", "tök"):
            assert not (await send(asking, f"/?token={text}")).served
        other = tokens.cookie_value(asking.token, PORT + 1)
        for value in (other, asking.token, "", "ö"):
            assert not (await send(asking, "/", [("cookie", f"{cookie_name(PORT)}={value}")])).served

    async def test_a_link_of_another_site_is_followed_once_more_from_our_own_page(self, asking: Gate) -> None:
        first = await send(asking, "/leaks?n=2", LINKED + HTML)  # the browser holds the strict cookie back
        assert (first.status, first.served) == (200, False)
        assert "url=/leaks?n=2" in first.text
        assert (await send(asking, "/leaks?n=2", OWN_PAGE + HTML)).status == 403

    async def test_going_on_never_leaves_the_app(self, asking: Gate) -> None:
        for path in ("//evil.example/", "/\\evil.example/", "/\\/evil.example"):
            sent = await send(asking, path, LINKED + HTML)
            assert "url=/evil.example" in sent.text
        sent = await send(asking, '/"><script>alert(1)</script>', LINKED + HTML)
        assert "<script>" not in sent.text

    async def test_files_that_are_the_same_everywhere_need_no_token(self, asking: Gate) -> None:
        for path in ("/static/js/index.js", "/_stcore/health"):
            assert (await send(asking, path)).served

    async def test_no_token_lets_everybody_in(self, anyone: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
        kernel_says(monkeypatch, NOBODY)
        assert (await send(anyone)).served

    async def test_a_login_replaces_the_token_and_uploads_need_one(
        self, asking: Gate, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        kernel_says(monkeypatch, NOBODY)
        own = [("origin", "http://localhost:8501")]
        assert (await send(asking, "/", login_on=True)).served
        for method in ("PUT", "DELETE"):
            refused = await send(asking, UPLOAD, own, method=method, login_on=True)
            assert (refused.status, refused.served, refused.read) == (401, False, False)
            assert (await send(asking, UPLOAD, own, method=method, login_on=True, account=True)).served


class TestOwner:
    """Real connections, and the kernel's real table."""

    @pytest.fixture(autouse=True)
    def linux(self) -> None:
        if not peers.can_tell():
            pytest.skip("this system does not list the owners of connections")

    @pytest.fixture(params=["127.0.0.1", "::1"])
    def listener(self, request: pytest.FixtureRequest) -> Iterator[socket.socket]:
        family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
        try:
            with socket.create_server((request.param, 0), family=family) as opened:
                opened.settimeout(30)
                yield opened
        except OSError:
            pytest.skip("no IPv6 here")

    def test_a_connection_of_our_own(self, listener: socket.socket) -> None:
        with socket.create_connection(listener.getsockname()[:2]) as client:
            accepted, address = listener.accept()
            with accepted:
                assert peers.owner(address[:2], accepted.getsockname()[:2]) == os.geteuid()
                client.shutdown(socket.SHUT_WR)  # half closed: no longer one that is sure to be theirs
                assert peers.owner(address[:2], accepted.getsockname()[:2]) is None

    def test_an_ipv6_socket_that_reaches_an_ipv4_address(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket(socket.AF_INET6) as client:
            client.connect(("::ffff:127.0.0.1", listener.getsockname()[1]))
            accepted, address = listener.accept()
            with accepted:
                assert peers.owner(address, accepted.getsockname()) == os.geteuid()

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
    def test_a_connection_of_another_user_and_one_that_they_closed(self, listener: socket.socket) -> None:
        script = (  # all is imported first: the other user may not read this Python
            f"import encodings.idna, os, socket, sys; os.setuid({NOBODY});"
            "s = socket.create_connection((sys.argv[1], int(sys.argv[2]))); sys.stdin.read()"
        )
        host, port = listener.getsockname()[:2]
        with subprocess.Popen([sys.executable, "-c", script, host, str(port)], stdin=subprocess.PIPE) as process:
            accepted, address = listener.accept()
            with accepted:
                here = accepted.getsockname()[:2]
                assert peers.owner(address[:2], here) == NOBODY
                assert process.stdin is not None
                process.stdin.close()
                process.wait(timeout=10)
                # The kernel now says 0 for whoever had opened it, and 0 would be root.
                assert peers.owner(address[:2], here) is None

    def test_what_is_no_loopback_connection_cannot_be_told(self) -> None:
        for client in (None, ("10.0.0.7", 50_000), ("unix", 0), ("127.0.0.1", 1)):
            assert peers.owner(client, ("127.0.0.1", 1)) is None

    def test_a_user_whom_a_container_does_not_map_cannot_be_told(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "self").mkdir()
        (tmp_path / "sys" / "kernel").mkdir(parents=True)
        (tmp_path / "sys" / "kernel" / "overflowuid").write_text("65534\n")
        monkeypatch.setattr(peers, "PROC", tmp_path)
        (tmp_path / "self" / "uid_map").write_text("         0       1000          1\n")
        assert (peers._user(0), peers._user(65534)) == (0, None)
        (tmp_path / "self" / "uid_map").write_text("         0          0 4294967295\n")
        assert peers._user(65534) == 65534


class TestTokens:
    def test_one_token_for_a_workspace_in_a_private_file(self, tmp_path: Path) -> None:
        umask = os.umask(0)
        try:
            token = tokens.load(tmp_path / "workspace")
        finally:
            os.umask(umask)
        assert tokens.load(tmp_path / "workspace") == token
        assert len(token) == tokens.LENGTH
        assert (tmp_path / "workspace" / tokens.FILE).stat().st_mode & 0o777 == 0o600
        assert os.listdir(tmp_path / "workspace") == [tokens.FILE]

    def test_a_token_that_came_with_a_workspace_is_replaced(self, tmp_path: Path) -> None:
        token = tokens.load(tmp_path)
        file = tmp_path / tokens.FILE
        copy = tmp_path / "copy"
        copy.write_bytes(file.read_bytes())
        copy.chmod(0o600)
        copy.replace(file)  # the same words in another file, as after unpacking
        assert tokens.load(tmp_path) != token

    @pytest.mark.parametrize("how", ["readable by others", "a link", "cut", "a pipe"])
    def test_a_file_that_is_no_private_token_is_replaced(self, tmp_path: Path, how: str) -> None:
        file = tmp_path / "workspace" / tokens.FILE
        token = tokens.load(file.parent)
        if how == "readable by others":
            file.chmod(0o644)
        elif how == "a link":
            file.rename(tmp_path / "elsewhere")
            file.symlink_to(tmp_path / "elsewhere")
        elif how == "cut":
            file.write_text("")
        else:
            file.unlink()
            os.mkfifo(file)
        replaced = tokens.load(file.parent)
        assert replaced != token
        assert file.is_file() and not file.is_symlink()
        assert tokens.load(file.parent) == replaced

    def test_a_workspace_that_cannot_keep_one_has_one_until_the_end(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        gate = Gate(tmp_path / "file")
        with pytest.raises(tokens.TokenError, match="access token cannot be stored"):
            tokens.load(gate.workspace)
        assert gate.token == gate.token
        assert len(gate.token) == tokens.LENGTH


def test_a_login_is_a_cookie_signed_for_this_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "get_cookie_secret", lambda: "long secret of the organization, 32")

    def headers(secret: str, body: str) -> Headers:
        value = starlette_app_utils.create_signed_value(secret, "_streamlit_user", body).decode()
        return Headers({"cookie": f"_streamlit_user={value}", "origin": "https://review.example"})

    ours = '{"is_logged_in": true, "origin": "https://review.example", "name": "Ada"}'
    assert login.logged_in(headers("long secret of the organization, 32", ours))
    assert not login.logged_in(headers("another secret that is long enough", ours))
    assert not login.logged_in(headers("long secret of the organization, 32", ours.replace("true", "false")))
    assert not login.logged_in(headers("long secret of the organization, 32", ours.replace("review", "other")))
    assert not login.logged_in(Headers({"cookie": "_streamlit_user=x", "origin": "https://review.example"}))
    assert not login.logged_in(Headers({}))
