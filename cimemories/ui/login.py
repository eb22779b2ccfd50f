"""The login of an organisation, where the app's secrets set one up (st.login): its buttons, who is logged in, and what
their role lets them do. Roles are held by the record (store/team/people.py) and checked there; what is here disables
what would be refused, and says who may."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st
from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from streamlit.auth_util import get_cookie_with_chunks, get_secrets_auth_section
from streamlit.runtime.scriptrunner import get_script_run_ctx
from streamlit.web.server.server_util import AUTH_COOKIE_NAME, get_cookie_secret
from streamlit.web.server.starlette.starlette_app_utils import decode_signed_value

from cimemories.access import roles
from cimemories.access.roles import Actor, Role
from cimemories.ui import safe

_HELD = "login.held"  # the actor of this session, and who the admins are


def configured() -> bool:
    """Whether a login is set up: .streamlit/secrets.toml has a section [auth]."""
    return bool(get_secrets_auth_section())


def logged_in(headers: Headers) -> bool:
    """Whether a request carries the signed cookie of somebody who is logged in, read as Streamlit's WebSocket does.

    The guard asks this before any page runs, when there is no `st.user` yet.
    """
    cookies = cookie_parser("; ".join(headers.getlist("cookie")))
    secret = get_cookie_secret()

    def signed(name: str) -> bytes | None:
        value = cookies.get(name)
        return None if value is None else decode_signed_value(secret, name, value.encode("latin-1", "replace"))

    # Without a secret anybody could sign: then nobody counts as logged in.
    if not secret:
        return False
    try:
        # Streamlit splits a cookie that is larger than a browser keeps into several.
        account = json.loads(get_cookie_with_chunks(signed, AUTH_COOKIE_NAME) or b"{}")
    except ValueError:
        return False
    # A cookie that was issued for another origin does not count, as in Streamlit.
    return bool(account.get("is_logged_in")) and account.get("origin") == headers.get("origin")


def ask() -> None:
    """The button that starts a login."""
    st.button("Log in", on_click=st.login, icon=":material/login:", type="primary")


def claims() -> Mapping[str, Any] | None:
    """What the provider says of the account that is logged in; None where nobody is."""
    return dict(st.user) if getattr(st.user, "is_logged_in", False) else None


def settings() -> Mapping[str, Any]:
    """The section [people] of the app's secrets: default_role, role_claim, roles. Empty where there is none."""
    try:
        return dict(st.secrets.get("people", {}))
    except FileNotFoundError:
        return {}


def hold(actor: Actor, admins: Sequence[str]) -> None:
    """Keep who this session is, as the record has it now: for callbacks and fragments, which run before the app asks
    anew."""
    st.session_state[_HELD] = (actor, tuple(admins))


def actor() -> Actor:
    """Who is at it in this thread: the account of its session, once the record has been asked for it. Without a login
    whoever gave a name. Where people log in, a thread without a session is nobody (see roles.acting)."""
    if get_script_run_ctx(suppress_warning=True) is None:
        return Actor("", "", Role.NONE) if configured() else Actor(roles.user_name())
    state = getattr(st.user, "is_logged_in", None)  # where no login is set up, st.user has no such attribute
    if state is None:
        return Actor(str(st.session_state.get("annotator") or roles.user_name()))
    held: tuple[Actor, tuple[str, ...]] | None = st.session_state.get(_HELD)
    return held[0] if state and held else Actor("", "", Role.NONE)


def refusal(least: Role) -> str | None:
    """Why the person in front of the app may not do what takes this role, and whom to ask; None where they may."""
    who = actor()
    if who.account is None or who.role.covers(least):
        return None
    text = roles.refusal(who.role, least, st.session_state.get(_HELD, (None, ()))[1])
    return f"{text[:1].upper()}{text[1:]}"


def may(least: Role) -> bool:
    """Whether the person may do what takes this role; where not, says so in the place of it."""
    if text := refusal(least):
        safe.show(safe.tag("div", text, cls="ci-notice"))
    return text is None


def offer_logout() -> None:
    """The button that logs out, in the sidebar of every page where somebody is logged in."""
    if getattr(st.user, "is_logged_in", False):
        st.sidebar.button("Log out", on_click=st.logout, icon=":material/logout:", type="tertiary")
