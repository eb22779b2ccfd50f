"""Who is at work: the account behind a login where there is one, else a name that a person gives once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from cimemories.text import has_control

# ---- draft
#
# A form over several steps: what was filled in stays, also while its fields are not drawn.
#
# Streamlit forgets a widget that a script run did not draw. A draft keeps the values under a name of its own and gives
# them back to the widgets that come again:
#
#     draft = Draft("new_run")
#     st.text_input("Model", key=draft.key("model", ""))
#     draft.keep()                       # at the end of each step, before any rerun
#     draft.get("model")


class Draft:
    """The values of one form by field. Fields are asked for anew in every script run."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._values: dict[str, Any] = st.session_state.setdefault(f"{name}.draft", {})
        self._drawn: list[str] = []

    def key(self, field: str, default: object, options: Sequence[object] | None = None) -> str:
        """The key for the widget of a field, which begins with what was chosen before, else with `default`.

        options: what can be chosen now; a value that is not among them gives way to the default.
        """
        key = f"{self.name}.{field}"
        if key not in st.session_state:
            st.session_state[key] = self._values.get(field, default)
        if options is not None and st.session_state[key] not in options:
            st.session_state[key] = default
        self._drawn.append(field)
        return key

    def number(self, field: str, default: int, least: int, most: int) -> str:
        """The same for a number that has bounds, which may have moved since it was chosen."""
        key = self.key(field, default)
        held = st.session_state[key]
        st.session_state[key] = default if held is None else max(least, min(most, int(held)))
        return key

    def get(self, field: str, default: Any = None) -> Any:
        """What a field holds now: as drawn in this run, else as it was kept."""
        if field in self._drawn:
            return st.session_state.get(f"{self.name}.{field}", default)
        return self._values.get(field, default)

    def put(self, field: str, value: object) -> None:
        """Set a field from outside its widget, which must not be drawn yet in this run."""
        self._values[field] = value
        st.session_state.pop(f"{self.name}.{field}", None)

    def keep(self) -> None:
        """Keep what this run's widgets hold."""
        for field in self._drawn:
            self._values[field] = st.session_state.get(f"{self.name}.{field}")

    def clear(self) -> None:
        """Forget everything."""
        for field in list(self._values):
            st.session_state.pop(f"{self.name}.{field}", None)
        self._values.clear()


# ---- annotator


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
