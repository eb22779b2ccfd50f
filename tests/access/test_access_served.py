"""Who reaches the app as it is served: other origins, other users of the machine, other names, people without a login.

One process of each kind; the requests are real ones, of another user where the tests run as root.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
import serving
from forked import Forked
from playwright.sync_api import Browser, expect
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.web.server.starlette import starlette_app_utils
from typer.testing import CliRunner
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from cimemories.access import peers, tokens
from cimemories.access.guard import MODE, Gate, Mode, Site
from cimemories.cli import cli
from cimemories.ui.server import announcement

NOBODY = 65534
SECRET = "a secret of this test alone, long enough"
REQUEST = """
import encodings.idna, http.client, json, os, sys, urllib.parse
user, address, headers = int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
os.setuid(user)
at = urllib.parse.urlsplit(address)
connection = http.client.HTTPConnection("127.0.0.1", at.port, timeout=30)
connection.request("GET", at.path + ("?" + at.query if at.query else ""), headers={"Host": at.netloc, **headers})
answer = connection.getresponse()
print(answer.status, answer.read().decode()[:2000])
"""

pytestmark = pytest.mark.skipif(not peers.can_tell(), reason="this system does not list the owners of connections")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask as another user")


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("access") / "workspace"


@pytest.fixture(scope="module")
def server(workspace: Path) -> Iterator[tuple[str, Forked]]:
    """The app as it starts by default."""
    with serving.running_app(workspace, "--no-demo") as started:
        yield started


def get(
    address: str, headers: dict[str, str] | None = None, *, method: str = "GET", body: bytes | None = None
) -> http.client.HTTPResponse:
    at = urlsplit(address)
    connection = http.client.HTTPConnection("127.0.0.1", at.port, timeout=30)
    connection.request(method, at.path or "/", body, {"Host": at.netloc, **(headers or {})})
    return connection.getresponse()


def request_as(user: int, address: str, headers: dict[str, str] | None = None) -> tuple[int, str]:
    """Status and text of a request that a process of another user sends."""
    command = [sys.executable, "-c", REQUEST, str(user), address, json.dumps(headers or {})]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    status, _, text = done.stdout.partition(" ")
    return int(status), text


def stream(address: str, origin: str | None, **headers: str) -> ClientConnection:
    at = urlsplit(address)
    return connect(
        f"ws://{at.netloc}/_stcore/stream",
        origin=origin,  # type: ignore[arg-type]
        subprotocols=[Subprotocol("streamlit")],
        additional_headers=headers,
    )


def status_of_stream(address: str, origin: str | None, **headers: str) -> int:
    try:
        with stream(address, origin, **headers):
            return 101
    except InvalidStatus as refused:
        return refused.response.status_code


def test_the_same_user_needs_no_token(app: str) -> None:
    answer = get(app)
    assert answer.status == 200
    assert b"<title>Streamlit</title>" in answer.read()
    assert status_of_stream(app, app) == 101


def test_other_machines_do_not_reach_it(server: tuple[str, Forked]) -> None:
    process = psutil.Process(server[1].pid)
    listening = {
        connection.laddr.ip
        for each in [process, *process.children(recursive=True)]
        for connection in each.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening
    assert listening <= {"127.0.0.1", "::1"}


def test_a_page_of_another_port_reads_nothing(app: str) -> None:
    port = urlsplit(app).port
    for origin in (f"http://localhost:{int(port or 0) + 1}", f"http://127.0.0.1:{port}", "http://evil.example", "null"):
        assert status_of_stream(app, origin) == 403, origin
        assert get(f"{app}/_stcore/upload_file/a/b", {"Origin": origin}, method="PUT", body=b"x").status == 403
        assert get(f"{app}/_stcore/upload_file/a/b", {"Origin": origin}, method="DELETE").status == 403
    assert status_of_stream(app, None) == 403


def test_a_name_that_was_pointed_at_this_machine_reads_nothing(app: str) -> None:
    host = f"rebound.example:{urlsplit(app).port}"
    for path in ("/", "/leaks", "/_stcore/health", "/_stcore/host-config", "/media/x", "/static/js/x.js"):
        assert get(f"{app}{path}", {"Host": host}).status == 403, path
    assert status_of_stream(app, f"http://{host}") == 403


def test_figures_of_the_process_are_closed_and_pages_cannot_be_framed(app: str) -> None:
    assert get(f"{app}/_stcore/metrics").status == 404
    for path in ("/", "/leaks", "/_stcore/host-config"):
        policy = get(f"{app}{path}").getheader("content-security-policy") or ""
        assert "frame-ancestors 'self'" in policy
        scripts = next(part for part in policy.split("; ") if part.startswith("script-src"))
        assert "unsafe" not in scripts
        assert "http:" not in policy and "https:" not in policy and "*" not in policy


@as_root
def test_another_user_of_this_machine_reads_nothing(app: str, workspace: Path) -> None:
    token = tokens.load(workspace)
    for path in ("/", "/leaks", "/_stcore/host-config", "/media/x", f"/?token={token}"):
        status, text = request_as(NOBODY, f"{app}{path}")
        assert (status, "belongs to another user" in text) == (403, True), path
    own_port = "127.0.0.1:1"
    status, text = request_as(NOBODY, app, {"X-Forwarded-For": own_port})
    assert (status, "Enter the token" in text) == (403, True)
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Origin": app, "Sec-WebSocket-Version": "13"}
    status, _ = request_as(
        NOBODY, f"{app}/_stcore/stream", {**upgrade, "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="}
    )
    assert status == 403


@as_root
def test_streamlit_run_is_as_closed(tmp_path: Path) -> None:
    address = f"http://localhost:{serving.free_port()}"
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(urlsplit(address).port)]
    environment, log = {**os.environ, "CIMEMORIES_WORKSPACE": str(tmp_path / "workspace")}, tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=serving.ROOT, env=environment, stdout=output, stderr=output)
    try:
        serving.wait(f"{address}/_stcore/health", process, log)
        assert get(address).status == 200
        assert request_as(NOBODY, address)[0] == 403
        assert get(f"{address}/_stcore/metrics").status == 404
        assert status_of_stream(address, "http://localhost:1") == 403
        assert status_of_stream(address, address) == 101
    finally:
        process.terminate()
        process.wait(timeout=60)


def cookie_of(address: str, token: str) -> str:
    answer = get(address, {"Host": urlsplit(address).netloc})
    assert answer.status == 403
    at = urlsplit(address)
    connection = http.client.HTTPConnection("127.0.0.1", at.port, timeout=30)
    connection.request("GET", f"/?token={token}", headers={"Host": at.netloc})
    return (connection.getresponse().getheader("set-cookie") or "").split(";")[0]


def printed(workspace: Path) -> str:
    """The address with the token that the app has written when it started."""
    (log,) = workspace.parent.glob("app-*.log")
    return next(word for word in log.read_text().split() if "token=" in word)


def test_with_a_token_everybody_shows_it_and_bookmarks_survive_a_restart(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    with serving.running_app(workspace, "--no-demo", "--token") as (address, _):
        token = tokens.load(workspace)
        assert printed(workspace) == f"{address}/?token={token}"
        cookie = cookie_of(address, token)
        assert get(address, {"Cookie": cookie}).status == 200
        assert status_of_stream(address, address, Cookie=cookie) == 101
        assert status_of_stream(address, address) == 403
        if os.geteuid() == 0:
            assert request_as(NOBODY, address, {"Cookie": cookie})[0] == 200
    with serving.running_app(workspace, "--no-demo", "--token", port=urlsplit(address).port) as (address, _):
        assert get(address, {"Cookie": cookie}).status == 200
        assert cookie_of(address, token) == cookie


@pytest.mark.browser
def test_in_a_browser_the_token_is_typed_once_or_comes_with_the_printed_address(
    tmp_path: Path, browser: Browser
) -> None:
    workspace = tmp_path / "workspace"
    with serving.running_app(workspace, "--no-demo", "--token") as (address, _):
        page = serving.open_page(browser, address, drawn="form")
        expect(page.get_by_role("heading")).to_have_text("Enter the token of this app")
        page.get_by_label("Token").fill(tokens.load(workspace))
        page.get_by_role("button", name="Open").click()
        expect(page.locator(".ci-head h2")).to_be_visible()
        serving.leave(page)
        page = serving.open_page(browser, printed(workspace))
        expect(page).to_have_url(f"{address}/")
        (cookie,) = (each for each in page.context.cookies() if each["name"].startswith("cimemories-token"))
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        page.goto(f"{address}/runs")
        expect(page.locator(".ci-head h2")).to_have_text("Runs")
        serving.leave(page)


@pytest.mark.parametrize(("flags", "mode"), [([], Mode.AUTO), (["--token"], Mode.TOKEN), (["--no-token"], Mode.ANYONE)])
def test_the_commands_flags_choose_the_mode(monkeypatch: pytest.MonkeyPatch, flags: list[str], mode: Mode) -> None:
    chosen: dict[str, object] = {}
    monkeypatch.setattr("cimemories.serving.serve_app", lambda *_, **options: chosen.update(options))
    assert CliRunner().invoke(cli, ["app", *flags]).exit_code == 0
    assert chosen["mode"] is mode
    assert Mode.chosen({MODE: mode.value}) is mode


def test_an_address_and_names_are_streamlits_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr("os.execvpe", lambda _program, command, _environment: started.append(command))
    here, port = Path.cwd(), serving.free_port()
    for options in ([], ["--address", "0.0.0.0", "--allow-host", "review.example"]):
        done = CliRunner().invoke(cli, ["app", "--no-demo", "--port", str(port), "-w", str(tmp_path / "w"), *options])
        assert done.exit_code == 0, done.output
    ours = ["--server.port", str(port)]
    names = [("--server.allowedHosts", name) for name in ("localhost", "127.0.0.1", "review.example")]
    options = ["--server.address", "0.0.0.0", *(word for pair in names for word in pair)]
    assert [command[command.index("--server.port") :] for command in started] == [ours, ours + options]
    assert Path.cwd() == here


def test_no_token_says_what_it_means(tmp_path: Path) -> None:
    site = Site(lambda _: True, lambda: False, lambda _: False)
    text = announcement(Gate(tmp_path, Mode.ANYONE), site, 8501)
    assert "all who can reach port 8501" in text
    assert "can read and change everything" in text
    assert "token=" not in announcement(Gate(tmp_path, Mode.AUTO), site, 8501)


def test_with_a_login_an_upload_needs_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger gets a session, for the page that asks to log in; it takes no files."""
    secrets = tmp_path / "secrets.toml"
    auth = {
        "redirect_uri": "http://localhost/oauth2callback",
        "cookie_secret": SECRET,
        "client_id": "studio",
        "client_secret": "x",
        "server_metadata_url": "http://localhost:9/.well-known/openid-configuration",
    }
    secrets.write_text("[auth]\n" + "".join(f'{name} = "{value}"\n' for name, value in auth.items()))
    monkeypatch.setenv("STREAMLIT_SECRETS_FILES", str(secrets))
    with serving.running_app(tmp_path / "workspace", "--no-demo") as (address, _):
        if os.geteuid() == 0:
            assert request_as(NOBODY, address)[0] == 200  # the login replaces the question whose connection it is
        xsrf = (get(f"{address}/_stcore/health").getheader("set-cookie") or "").split(";")[0]
        with stream(address, address, Cookie=xsrf) as connection:
            connection.send(BackMsg(rerun_script={"query_string": ""}).SerializeToString())
            session = new_session(connection)
            account = json.dumps({"is_logged_in": True, "origin": address, "name": "Ada"})
            signed = starlette_app_utils.create_signed_value(SECRET, "_streamlit_user", account).decode()
            stranger = upload(address, session, xsrf, "")
            assert (stranger.status, stranger.read()) == (
                401,
                b"Log in first. Uploads and decisions need a login.\n",
            )
            assert upload(address, session, xsrf, f"; _streamlit_user={signed[:-2]}xx").status == 401
            assert upload(address, session, xsrf, f"; _streamlit_user={signed}").status == 204


def new_session(connection: ClientConnection) -> str:
    while True:
        message = ForwardMsg()
        message.ParseFromString(bytes(connection.recv(timeout=30)))  # type: ignore[arg-type]
        if message.WhichOneof("type") == "new_session":
            return message.new_session.initialize.session_id


def upload(address: str, session: str, xsrf: str, cookies: str) -> http.client.HTTPResponse:
    body = b'--b\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\nsecret\r\n--b--\r\n'
    headers = {
        "Origin": address,
        "Cookie": xsrf + cookies,
        "X-Xsrftoken": xsrf.partition("=")[2],
        "Content-Type": "multipart/form-data; boundary=b",
    }
    return get(f"{address}/_stcore/upload_file/{session}/file", headers, method="PUT", body=body)
