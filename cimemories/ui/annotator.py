"""Who is at work: the account behind a login where there is one, else a name that a person gives once."""

from __future__ import annotations

import streamlit as st

from cimemories.texts import has_control

KEY = "annotator"
LONGEST = 80


def account() -> str:
    """The name of the account that is logged in, empty where no login is set up or nobody is."""
    if not getattr(st.user, "is_logged_in", False):
        return ""
    return _clean(str(st.user.get("name") or st.user.get("email") or ""))


def runs_the_app() -> bool:
    """Whether the person at the app is the one who started it: so where no login is set up, and not known where one
    is. What reaches beyond the record (starting and stopping programs) is offered to that person alone."""
    return not hasattr(st.user, "is_logged_in")


def name() -> str:
    """The annotator's name, empty where nobody has said it yet."""
    return account() or str(st.session_state.get(KEY, ""))


def remember(said: str) -> str:
    """Take a name for the rest of the session; returns it, spaces in order. Behind a login the account stays."""
    if not account():
        st.session_state[KEY] = _clean(said)
    return name()


def ask() -> str:
    """A field for the name, none behind a login; returns the name, empty while it is missing."""
    if account():
        return account()
    given = st.text_input(
        "Your name",
        value=name(),
        key=f"{KEY}.field",
        max_chars=LONGEST,
        placeholder="Ada",
        help="Stands with every decision that you make. It is asked once.",
    )
    return remember(given)


def _clean(said: str) -> str:
    """A name as the record takes it: an account's may hold anything."""
    return " ".join("".join(c for c in " ".join(said.split()) if not has_control(c)).split())[:LONGEST]
