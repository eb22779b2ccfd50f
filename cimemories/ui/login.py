"""The login of an organisation, if the app's secrets set one up (st.login): its buttons, the logged-in user, the
actions that their role allows, and the return to the page on which the login began. Roles are held by the record
(store/team/people.py) and checked there; this module disables what would be refused, and says who may."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit
from uuid import uuid4

import streamlit as st
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit.auth_util import get_cookie_with_chunks, get_secrets_auth_section
from streamlit.runtime.scriptrunner import get_script_run_ctx
from streamlit.web.server.server_util import AUTH_COOKIE_NAME, get_cookie_secret
from streamlit.web.server.starlette.starlette_app_utils import decode_signed_value

from cimemories.access import roles
from cimemories.access.guard import LOGOUT
from cimemories.access.roles import Actor, Role
from cimemories.ui import safe, url

LOGIN, CALLBACK = "/auth/login", "/oauth2callback"
CHANGED = "cimemories_login"  # the cookie that changes at each login and log-out, read by assets/shell.js
RETURN = "cimemories_return"  # the cookie with the page that a login began on
RETURN_SECONDS, LONGEST_RETURN = 15 * 60, 2000
_HELD = "login.held"  # the actor of this session, and the admins


def configured() -> bool:
    """Return whether a login is set up: .streamlit/secrets.toml has a section [auth]."""
    return bool(get_secrets_auth_section())


def logged_in(headers: Headers) -> bool:
    """Return whether a request carries the signed cookie of a logged-in account, read as Streamlit's WebSocket does.

    The guard asks this before any page runs, when there is no `st.user` yet."""
    cookies = cookie_parser("; ".join(headers.getlist("cookie")))
    secret = get_cookie_secret()

    def signed(name: str) -> bytes | None:
        value = cookies.get(name)
        return None if value is None else decode_signed_value(secret, name, value.encode("latin-1", "replace"))

    # Without a secret any client could sign: then no user counts as logged in.
    if not secret:
        return False
    try:
        # Streamlit splits a cookie that is larger than a browser keeps into several.
        account = json.loads(get_cookie_with_chunks(signed, AUTH_COOKIE_NAME) or b"{}")
    except ValueError:
        return False
    # A cookie that was issued for another origin does not count, as in Streamlit.
    return bool(account.get("is_logged_in")) and account.get("origin") == headers.get("origin")


def browser(cookie: str) -> str:
    """Return an identifier of a browser's login, from its Cookie header; '' without a login set up."""
    if not configured():
        return ""
    # Streamlit splits a cookie that is larger than a browser keeps into several.
    parts = sorted(item for item in cookie_parser(cookie).items() if item[0].startswith(AUTH_COOKIE_NAME))
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def ask() -> None:
    """Draw the button that starts a login."""
    st.button("Log in", on_click=st.login, icon=":material/login:", type="primary")


def claims() -> Mapping[str, Any] | None:
    """Return the provider's claims on the logged-in account; None without one."""
    return dict(st.user) if getattr(st.user, "is_logged_in", False) else None


def settings() -> Mapping[str, Any]:
    """Return the section [people] of the app's secrets: default_role, role_claim, roles. Empty if there is none."""
    try:
        return dict(st.secrets.get("people", {}))
    except FileNotFoundError:
        return {}


def hold(actor: Actor, admins: Sequence[str]) -> None:
    """Keep the user of this session, as the record has them now: for callbacks and fragments, which run before the app
    asks again."""
    st.session_state[_HELD] = (actor, tuple(admins))


def actor() -> Actor:
    """Return the user of this thread: the account of its session, once the record has been asked for it. Without a
    login it is the name that was given. With a login, a thread without a session has no role (see roles.acting)."""
    if get_script_run_ctx(suppress_warning=True) is None:
        return Actor("", "", Role.NONE) if configured() else Actor(roles.user_name())
    state = getattr(st.user, "is_logged_in", None)  # without a login set up, st.user has no such attribute
    if state is None:
        return Actor(str(st.session_state.get("annotator") or roles.user_name()))
    held: tuple[Actor, tuple[str, ...]] | None = st.session_state.get(_HELD)
    return held[0] if state and held else Actor("", "", Role.NONE)


def refusal(least: Role) -> str | None:
    """Return why the user lacks this role, and whom to ask; None if they have it."""
    who = actor()
    if who.account is None or who.role.covers(least):
        return None
    text = roles.refusal(who.role, least, st.session_state.get(_HELD, (None, ()))[1])
    return f"{text[:1].upper()}{text[1:]}"


def may(least: Role) -> bool:
    """Return whether the user has this role; if not, draw the reason instead of the action."""
    if text := refusal(least):
        safe.show(safe.tag("div", text, cls="ci-notice"))
    return text is None


def offer_logout() -> None:
    """Draw the button that logs out, in the sidebar of every page of a logged-in user."""
    if getattr(st.user, "is_logged_in", False):
        st.sidebar.button("Log out", on_click=st.logout, icon=":material/logout:", type="tertiary")


# ---- back to the page that the login began on


def page_of(path: str, query: str, base: str = "") -> str:
    """Return the address of one of our pages, rebuilt from its name and the known parameters, so that it leads nowhere
    else; '' for any other page. base: the path below which the app is served."""
    name = path.removeprefix(base).removeprefix("/") if path.startswith(f"{base}/") else ""
    if name not in url.PAGES:
        return ""
    parameters = [(key, value) for key, value in parse_qsl(query) if key in url.PARAMETERS]
    address = f"{base}/{name}{'?' if parameters else ''}{urlencode(parameters)}"
    return address if len(address) <= LONGEST_RETURN else f"{base}/{name}"


def _split(address: str) -> SplitResult:
    """Return the parts of an address; empty ones if it is none."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")


class Returning:
    """ASGI middleware that returns a user who had to log in to the page of their link. Streamlit (1.67) sends all to
    Home. The browser names the page at the start of the login; a cookie keeps it until the provider sends the user
    back.

    After a login and a log-out it also sets a cookie that tells the browser's other tabs. Otherwise their sessions
    would go on, and another person could decide in the name of a user who has logged out."""

    def __init__(self, app: ASGIApp, base: str = "") -> None:
        self.app, self.base = app, base

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "").removeprefix(self.base) if scope["type"] == "http" else ""
        if path not in (LOGIN, CALLBACK, LOGOUT):
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer = MutableHeaders(raw=message["headers"])
                if path == LOGIN:
                    self._keep(headers, answer)
                else:
                    changed = Response()
                    changed.set_cookie(CHANGED, uuid4().hex, path=f"{self.base}/", samesite="lax")
                    answer.append("set-cookie", changed.headers["set-cookie"])
                if path == CALLBACK:
                    self._lead(headers, answer)
                message = {**message, "headers": answer.raw}
            await send(message)

        await self.app(scope, receive, sent)

    def _keep(self, headers: Headers, answer: MutableHeaders) -> None:
        """Keep the user's page; nothing of another site's address."""
        came = _split(headers.get("referer", ""))
        page = page_of(came.path, came.query, self.base) if came.netloc == headers.get("host") else ""
        cookie = Response()
        if page:
            cookie.set_cookie(
                RETURN, quote(page, safe=""), RETURN_SECONDS, path=f"{self.base}/", httponly=True, samesite="lax"
            )
        else:
            cookie.delete_cookie(RETURN, path=f"{self.base}/")  # of an earlier login
        answer.append("set-cookie", cookie.headers["set-cookie"])

    def _lead(self, headers: Headers, answer: MutableHeaders) -> None:
        """Redirect to the kept page instead of Home; a cookie may hold anything, so it is checked again."""
        cookie = _split(unquote(cookie_parser("; ".join(headers.getlist("cookie"))).get(RETURN, "")))
        page = page_of(cookie.path, cookie.query, self.base)
        if page and answer.get("location", "").rstrip("/") == self.base:
            answer["location"] = page
        gone = Response()
        gone.delete_cookie(RETURN, path=f"{self.base}/")
        answer.append("set-cookie", gone.headers["set-cookie"])
