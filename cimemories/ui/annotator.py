"""Who uses the app, and what they have typed so far: the annotator's name, and drafts of forms.

The name is that of the account where people log in, else one that a person gives once a session.

A draft keeps a form over several steps. Streamlit forgets the value of a widget that a script run did not draw; a draft
keeps it under a name of its own and gives it back to the widget when that comes again:

    draft = Draft("new_run")
    draft.text("Model", "model")
    draft.keep()                       # at the end of each step, before any rerun
    draft.get("model")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from cimemories.text import has_control
from cimemories.ui import safe

# ---- drafts


class Draft:
    """The values of one form by field. Every script run declares its fields anew: by `key`, or by drawing them."""

    def __init__(self, name: str) -> None:
        self.name = name
        # Under a key of no widget, so that Streamlit keeps it when none of the form's widgets is drawn.
        self._values: dict[str, Any] = st.session_state.setdefault(f"{name}.draft", {})
        self._drawn: list[str] = []

    def key(self, field: str, default: object, options: Sequence[object] | None = None) -> str:
        """The key for the widget of a field, which starts with the value chosen before, else with `default`.

        options: what can be chosen now; a value that is not among them gives way to the default.
        """
        key = f"{self.name}.{field}"
        if key not in st.session_state:
            # Set before the widget is drawn, in place of its `value`: Streamlit takes one of the two, and warns of
            # both.
            st.session_state[key] = self._values.get(field, default)
        # Options change (a dataset is deleted, say), and a value that is no longer among them cannot be shown.
        if options is not None and st.session_state[key] not in options:
            st.session_state[key] = default
        self._drawn.append(field)
        return key

    def select(
        self,
        label: str,
        field: str,
        options: Mapping[str, str] | Sequence[str],
        default: str | None = None,
        *,
        help: str | None = None,
    ) -> str:
        """Draw a selectbox of options, with the texts to show them by where these are given. default: None for the
        first. `label` and `help` must be literals, here and below."""
        texts = options if isinstance(options, Mapping) else {}
        return st.selectbox(
            label,
            list(options),
            format_func=lambda item: safe.option(texts.get(item, item)),
            key=self.key(field, next(iter(options)) if default is None else default, list(options)),
            help=help,
        )

    def integer(self, label: str, field: str, default: int, least: int, most: int, *, step: int = 1, help: str) -> int:
        """Draw a field for a whole number that must be given. Its bounds may have changed since it was chosen."""
        key = self.key(field, default)
        chosen = st.session_state[key]
        st.session_state[key] = default if chosen is None else max(least, min(most, int(chosen)))
        return st.number_input(safe.plain_label(label), least, most, step=step, key=key, help=help)

    def optional(
        self,
        label: str,
        field: str,
        default: float | None,
        least: float,
        most: float | None = None,
        *,
        placeholder: str,
        help: str,
        step: float | None = None,
        format: str | None = None,
    ) -> float | None:
        """Draw a field for a number that may be left empty: a whole one where `least` is whole."""
        key = self.key(field, default)
        return st.number_input(
            safe.plain_label(label), least, most, None, step, format, key, help, placeholder=placeholder
        )

    def text(self, label: str, field: str, default: str = "", *, placeholder: str = "", help: str | None = None) -> str:
        """Draw a field for a text."""
        key = self.key(field, default)
        return st.text_input(safe.plain_label(label), key=key, placeholder=placeholder, help=help)

    def toggle(self, label: str, field: str, *, help: str) -> bool:
        """Draw a switch, off at first."""
        return st.toggle(safe.plain_label(label), key=self.key(field, default=False), help=help)

    def get(self, field: str, default: Any = None) -> Any:
        """The value of a field: of its widget in this run, else the kept one."""
        if field in self._drawn:
            return st.session_state.get(f"{self.name}.{field}", default)
        return self._values.get(field, default)

    def put(self, field: str, value: object) -> None:
        """Set a field from outside its widget, which must not have been drawn yet in this run: Streamlit raises where
        the state of a widget is changed after it was drawn."""
        self._values[field] = value
        st.session_state.pop(f"{self.name}.{field}", None)

    def keep(self) -> None:
        """Keep the values of this run's widgets."""
        for field in self._drawn:
            self._values[field] = st.session_state.get(f"{self.name}.{field}")

    def clear(self) -> None:
        """Forget everything."""
        for field in list(self._values):
            st.session_state.pop(f"{self.name}.{field}", None)
        self._values.clear()


# ---- the annotator's name


KEY = "annotator"
LONGEST = 80


def account() -> str:
    """The name of the account that is logged in; empty where there is none."""
    # Where no login is set up, st.user has no such attribute at all.
    if not getattr(st.user, "is_logged_in", False):
        return ""
    return _clean(str(st.user.get("name") or st.user.get("email") or ""))


def runs_the_app() -> bool:
    """Whether the person in front of the app is the one who started it: yes where no login is set up, unknown where
    one is. What reaches beyond the record (starting and stopping programs) is offered to that person alone."""
    return not hasattr(st.user, "is_logged_in")


def name() -> str:
    """The annotator's name; empty until it is given."""
    return account() or str(st.session_state.get(KEY, ""))


def set_name(text: str) -> str:
    """Use a name for the rest of the session; returns it, spaces in order. Where people log in the account stays."""
    if not account():
        st.session_state[KEY] = _clean(text)
    return name()


def ask() -> str:
    """A field for the name, none where people log in; returns the name, empty while it is missing."""
    if account():
        return account()
    text = st.text_input(
        "Your name",
        value=name(),
        key=f"{KEY}.field",
        max_chars=LONGEST,
        placeholder="Ada",
        help="Recorded with every decision you make. You are asked only once.",
    )
    return set_name(text)


def _clean(text: str) -> str:
    """A name as the record takes it: an account's may hold anything."""
    # Spaces twice: taking out a control character can leave two in a row.
    return " ".join("".join(c for c in " ".join(text.split()) if not has_control(c)).split())[:LONGEST]
