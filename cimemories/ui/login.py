"""The login of an organisation, where the app's secrets set one up (st.login): its buttons, and who is logged in."""

from __future__ import annotations

import json

import streamlit as st
from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from streamlit.auth_util import get_cookie_with_chunks, get_secrets_auth_section
from streamlit.web.server.server_util import AUTH_COOKIE_NAME, get_cookie_secret
from streamlit.web.server.starlette.starlette_app_utils import decode_signed_value


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


def offer_logout() -> None:
    """The button that logs out, in the sidebar of every page where somebody is logged in."""
    if getattr(st.user, "is_logged_in", False):
        st.sidebar.button("Log out", on_click=st.logout, icon=":material/logout:", type="tertiary")
