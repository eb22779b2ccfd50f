"""The ASGI middleware in front of every page and file of the app, which refuses requests that must not get through.

It asks four questions, in this order:

1. Is the host one of ours? (a page of another site may point a name of its own at this machine: DNS rebinding)
2. Does a browser send this for a page of another origin? Streamlit compares host names, so that a page of any other
   port of this machine could open its WebSocket; here the port counts.
3. Is it a route that the app needs? Streamlit's figures about the process and its interface for agents are closed.
4. Who is it? The person who runs the app and root get in: the kernel says whose connection it is. Where it cannot,
   the token is asked for. Where a login is set up, the login decides instead, and uploads need one.
"""

from __future__ import annotations

import html
import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cimemories.access import peers, readonly, tokens

MODE = "CIMEMORIES_ACCESS"  # the variable by which `cimemories app` hands the mode to the server
COOKIE_SECONDS = 30 * 24 * 3600
READING = ("GET", "HEAD", "OPTIONS")
# The only routes below _stcore/ that the app needs. Left out: metrics, the script's health check, the interface for
# agents, and anything that a later Streamlit adds.
STREAM, UPLOAD, HEALTH = "/_stcore/stream", "/_stcore/upload_file/", "/_stcore/health"
OPEN_CORE = (STREAM, UPLOAD, HEALTH, "/_stcore/host-config", "/_stcore/bidi-components/")
# Streamlit's own frontend, the same in every installation, and "ok".
PUBLIC = ("/static/", HEALTH)
FILES = ("/_stcore/", "/static/", "/media/", "/component/", "/app/static/")
DESK = "/desk/"  # where decisions are posted (cimemories/desk)
LOGOUT = "/auth/logout"
# Headers of a proxy: the connection is then the proxy's, and does not tell who sent the request.
FORWARDED = ("forwarded", "x-real-ip", "via", "x-client-ip", "true-client-ip", "cf-connecting-ip")
FORWARDED_START = "x-forwarded-"  # -for, -host, -proto, -port, -user ...: proxies are set up with any of them
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
PLAIN_POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'self'"
HEADERS = {
    "x-frame-options": "SAMEORIGIN",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Mode(StrEnum):
    """The rule for who needs the token."""

    AUTO = "auto"  # all but connections that the kernel shows to be of the person who runs the app, or of root
    TOKEN = "token"  # all
    ANYONE = "anyone"  # none: all who reach the port may do everything

    @classmethod
    def chosen(cls, environment: Mapping[str, str] = os.environ) -> Mode:
        """Return the mode that the environment names; AUTO if it names none, or an unknown one."""
        try:
            return cls(environment.get(MODE, ""))
        except ValueError:
            return cls.AUTO


@dataclass(frozen=True)
class Site:
    """The server behind the guard. The functions are called on every request."""

    host_allowed: Callable[[str | None], bool]  # of a Host header
    login_configured: Callable[[], bool]
    logged_in: Callable[[Headers], bool]
    inline_scripts: Iterable[str] = ()  # 'sha256-...' of the scripts in the page itself
    base: str = ""  # the path below which the app is served: "" or "/name"


@dataclass
class Gate:
    """The mode of access, and the token of the workspace."""

    workspace: Path
    mode: Mode = Mode.AUTO

    @cached_property
    def token(self) -> str:
        """Return the workspace's token, or one that lasts until the app stops if the workspace cannot hold it."""
        try:
            return tokens.load(self.workspace)
        except tokens.TokenError:
            return secrets.token_urlsafe(32)

    @property
    def asks_everybody(self) -> bool:
        """Return True if even the person who runs the app needs the token."""
        return self.mode is Mode.TOKEN or (self.mode is Mode.AUTO and not peers.can_tell())


@dataclass(frozen=True)
class Refusal:
    """A request that is not served. `title` and `text` are for people; `form` offers a field for the token."""

    status: HTTPStatus
    title: str
    text: str
    form: bool = False


FOREIGN_HOST = Refusal(
    HTTPStatus.FORBIDDEN,
    "This address is not allowed",
    "The app answers only to localhost, and to names that it was started with: cimemories app --allow-host NAME",
)
FOREIGN_PAGE = Refusal(
    HTTPStatus.FORBIDDEN,
    "This request came from another site",
    "The app serves only its own pages. Open it in its own tab.",
)
CLOSED = Refusal(HTTPStatus.NOT_FOUND, "Not found", "There is nothing at this address.")
OTHER_USER = Refusal(
    HTTPStatus.FORBIDDEN,
    "This app belongs to another user of this machine",
    "Only the user who started it can open it. If that is you under another account, or to let others in, start it "
    "with: cimemories app --token",
)
NO_TOKEN = Refusal(
    HTTPStatus.FORBIDDEN,
    "Enter the token of this app",
    f"Open the address that `cimemories app --token` prints, or enter the token here. It is also the first word of the "
    f"file {tokens.FILE} in the workspace.",
    form=True,
)
NO_UPLOADS = Refusal(HTTPStatus.FORBIDDEN, "This app is read-only", "It takes no files.")
NO_LOGIN = Refusal(HTTPStatus.UNAUTHORIZED, "Log in first", "Uploads and decisions need a login.")


class Guard:
    """The middleware. Passes requests on and adds security headers; what is refused gets a short page of its own."""

    def __init__(self, app: ASGIApp, gate: Gate, site: Site) -> None:
        self.app, self.gate, self.site = app, gate, site
        # A demo that is read-only and open to all may stand in any page, as in that of a Hugging Face Space:
        # clickjacking has nothing to click, and there is no login.
        self.framed = readonly.chosen() and gate.mode is Mode.ANYONE and not site.login_configured()
        policy = content_policy(site.inline_scripts, "*" if self.framed else "'self'")
        self.headers = {"content-security-policy": policy, **HEADERS}
        if self.framed:
            del self.headers["x-frame-options"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        answer = self._answer(scope, headers)
        if answer is None:
            await self.app(scope, receive, _with_headers(send, self.headers))
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": "refused"})  # before accept: HTTP 403
        else:
            await answer(scope, receive, _with_headers(send, {"content-security-policy": PLAIN_POLICY, **HEADERS}))

    def _answer(self, scope: Scope, headers: Headers) -> Response | None:
        """Return the answer to a request that does not pass, or None for one that the app serves."""
        path = scope["path"].removeprefix(self.site.base)
        refusal = self._refusal(scope, headers, path)
        if refusal is not None:
            return _page(refusal, headers)
        if path.startswith(PUBLIC):
            return None
        if self.site.login_configured():
            needs_login = path.startswith((UPLOAD, DESK)) and scope.get("method") != "OPTIONS"
            return _page(NO_LOGIN, headers) if needs_login and not self.site.logged_in(headers) else None
        return self._identify(scope, headers, path)

    def _refusal(self, scope: Scope, headers: Headers, path: str) -> Refusal | None:
        host = headers.get("host")
        if not self.site.host_allowed(host):
            return FOREIGN_HOST
        fetch_site = headers.get("sec-fetch-site", "none")  # browsers name the requesting site; other programs do not
        if scope["type"] == "websocket" or scope["method"] not in READING:
            if not same_origin(headers.getlist("origin"), headers.getlist("host")):
                return FOREIGN_PAGE
        elif fetch_site not in ("none", "same-origin"):
            opening = ("document", "iframe") if self.framed else ("document",)
            opened = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") in opening
            if not opened or path == LOGOUT:
                return FOREIGN_PAGE
        if path.startswith(UPLOAD) and readonly.chosen():
            return NO_UPLOADS
        if path.startswith("/_stcore") and not any(
            path.startswith(route) if route.endswith("/") else path == route for route in OPEN_CORE
        ):
            return CLOSED
        return None

    def _identify(self, scope: Scope, headers: Headers, path: str) -> Response | None:
        if self.gate.mode is Mode.ANYONE:
            return None
        server = scope.get("server") or ("", 0)
        recognized = False
        if self.gate.mode is Mode.AUTO and not _came_through_a_proxy(headers):
            user = peers.owner(scope.get("client"), server)
            if user not in (None, 0, os.geteuid()):
                return _page(OTHER_USER, headers)
            recognized = user is not None
        cookie, value = cookie_name(server[1]), tokens.cookie_value(self.gate.token, server[1])
        opens_page = scope["type"] == "http" and scope["method"] == "GET" and not path.startswith(FILES)
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        typed = [text for name, text in query if name == "token"]
        if opens_page and typed and tokens.matches(self.gate.token, typed[0]):
            answer = _go_on(scope["path"], urlencode([(name, text) for name, text in query if name != "token"]))
            answer.set_cookie(cookie, value, max_age=COOKIE_SECONDS, httponly=True, samesite="strict")
            return answer
        if recognized or tokens.matches(value, _cookie(headers, cookie)):
            return None
        if opens_page and headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            # After a click on another site's link a browser holds a strict cookie back; after one on ours it does not.
            return _go_on(scope["path"], scope["query_string"].decode("latin-1"))
        return _page(NO_TOKEN, headers)


def same_origin(origins: list[str], hosts: list[str]) -> bool:
    """Return True if a request with these Origin and Host headers comes from a page of the same host and port."""
    if len(origins) != 1 or len(hosts) != 1:
        return False
    try:
        origin, host = urlsplit(origins[0]), urlsplit(f"//{hosts[0]}")
        port = {"http": 80, "https": 443}[origin.scheme]
        same = (origin.hostname, origin.port or port) == (host.hostname, host.port or port)
    except (ValueError, KeyError):
        return False
    return same and bool(origin.hostname) and f"{origin.scheme}://{origin.netloc}" == origins[0]


def cookie_name(port: int) -> str:
    return f"cimemories-token-{port}"


def content_policy(inline_scripts: Iterable[str], frame_ancestors: str = "'self'") -> str:
    """Return the Content-Security-Policy: nothing from other sites. Streamlit needs styles in the page, scripts of
    components as blobs and the icons of its data grid as a font in a data: address; it works without everything
    else."""
    directives = {
        "default-src": "'self'",
        "script-src": " ".join(["'self'", "blob:", *(f"'{each}'" for each in inline_scripts)]),
        "style-src": "'self' 'unsafe-inline'",
        "img-src": "'self' data: blob:",
        "font-src": "'self' data:",
        "media-src": "'self'",
        "worker-src": "'none'",
        "connect-src": "'self'",
        "frame-src": "'none'",
        "object-src": "'none'",
        "base-uri": "'none'",
        "form-action": "'self'",
        "frame-ancestors": frame_ancestors,
    }
    return "; ".join(f"{name} {value}" for name, value in directives.items())


def _came_through_a_proxy(headers: Headers) -> bool:
    try:
        host = urlsplit(f"//{headers.get('host', '')}").hostname
    except ValueError:
        return True
    return host not in LOOPBACK_NAMES or any(name in FORWARDED or name.startswith(FORWARDED_START) for name in headers)


def _cookie(headers: Headers, name: str) -> str:
    try:
        jar = SimpleCookie("; ".join(headers.getlist("cookie")))
    except CookieError:
        return ""
    return jar[name].value if name in jar else ""


def _with_headers(send: Send, extra: Mapping[str, str]) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(extra)
        await send(message)

    return sending


def _go_on(path: str, query: str) -> Response:
    """Return a page that opens an address of the app again, as a navigation from the app itself. One slash: two would
    name another host."""
    address = "/" + quote(path.lstrip("/\\")) + (f"?{query}" if query else "")
    target = html.escape(address, quote=True)
    return HTMLResponse(
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>CIMemories Studio</title>'
        f'<meta http-equiv="refresh" content="0; url={target}"></head>'
        f'<body><a href="{target}">Continue</a></body></html>',
        headers={"cache-control": "no-store"},
    )


def _page(refusal: Refusal, headers: Headers) -> Response:
    stored = {"cache-control": "no-store"}
    if "text/html" not in headers.get("accept", ""):
        return PlainTextResponse(f"{refusal.title}. {refusal.text}\n", refusal.status, headers=stored)
    form = (
        '<form method="get"><input name="token" type="password" aria-label="Token" autocomplete="off" autofocus '
        'required> <button type="submit">Open</button></form>'
    )
    return HTMLResponse(
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>CIMemories Studio</title>'
        "<style>body{font:16px/1.5 system-ui,sans-serif;max-width:34em;margin:15vh auto;padding:0 1em}"
        "input,button{font:inherit;padding:.3em .6em}</style></head>"
        f"<body><h1>{html.escape(refusal.title)}</h1><p>{html.escape(refusal.text)}</p>"
        f"{form if refusal.form else ''}</body></html>",
        refusal.status,
        headers=stored,
    )
