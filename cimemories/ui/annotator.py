"""The annotator's name, and drafts of forms.

The name is that of the account if people log in, else one that the user gives once: the browser remembers it
(assets/remember.js writes the cookie), and the header of every page shows it.

A draft keeps a form over several steps. Streamlit forgets the value of a widget that a script run did not draw; a draft
keeps it under a name of its own and gives it back to the widget when that is drawn again:

    draft = Draft("new_run")
    draft.text("Model", "model")
    draft.keep()                       # at the end of each step, before any rerun
    draft.get("model")
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

import streamlit as st
from streamlit.proto.WidgetStates_pb2 import WidgetStates
from streamlit.runtime.state import SessionState

from cimemories.access.roles import MAY, Role
from cimemories.text import has_control
from cimemories.ui import component, login, safe, url
from cimemories.ui.streamlit_patches import sent_values

# ---- drafts


_FIELDS = "drafts.fields"  # the fields of all drafts of the session, by the key of their widget


@dataclass
class _Field:
    """The place of a widget's value in a draft, and the last value that the browser sent."""

    values: dict[str, Any]
    name: str
    sent: bytes = b""


def keep_sent(state: SessionState, message: WidgetStates) -> None:
    """Keep the changes of a browser's message to the fields of drafts, whether or not a run ever reads them."""
    if _FIELDS not in state:
        return
    for key, sent, value in sent_values(state, message):
        field = state[_FIELDS].get(key)
        # An unchanged value was not typed; the draft may have been cleared since, or its field been filled.
        if field is not None and sent != field.sent:
            field.values[field.name], field.sent = value(), sent


class Draft:
    """The values of one form by field. Every script run declares its fields again: by `key`, or by drawing them."""

    def __init__(self, name: str) -> None:
        self.name = name
        # Under keys of no widget, so that Streamlit keeps them when none of the form's widgets is drawn.
        self._values: dict[str, Any] = st.session_state.setdefault(f"{name}.draft", {})
        self._fields: dict[str, _Field] = st.session_state.setdefault(_FIELDS, {})
        self._drawn: list[str] = []

    def key(self, field: str, default: object, options: Sequence[object] | None = None) -> str:
        """Return the key for the widget of a field, which starts with the value chosen before, else with `default`.

        options: the current choices; a value that is not among them is replaced by the default."""
        key = f"{self.name}.{field}"
        if key not in st.session_state:
            # Set before the widget is drawn, in place of its `value`: Streamlit takes one of the two, and warns of
            # both.
            st.session_state[key] = self._values.get(field, default)
        # Options change (a dataset may be deleted), and a value that is no longer among them cannot be shown.
        if options is not None and st.session_state[key] not in options:
            st.session_state[key] = default
        self._drawn.append(field)
        self._fields.setdefault(key, _Field(self._values, field))
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
        """Draw a selectbox of options, with texts for them if given. default: None for the first. `label` and `help`
        must be literals, here and below."""
        texts = options if isinstance(options, Mapping) else {}
        return st.selectbox(
            label,
            list(options),
            format_func=lambda item: safe.option(texts.get(item, item)),
            key=self.key(field, next(iter(options)) if default is None else default, list(options)),
            help=help,
        )

    def integer(self, label: str, field: str, default: int, least: int, most: int, *, step: int = 1, help: str) -> int:
        """Draw a field for a required whole number. Its bounds may have changed since it was chosen."""
        key = self.key(field, default)
        chosen = st.session_state[key]
        url.set_field(key, default if chosen is None else max(least, min(most, int(chosen))))
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
        """Draw a field for a number that may be left empty: a whole one if `least` is whole."""
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
        """Return the value of a field: of its widget in this run, else the kept one."""
        if field in self._drawn:
            return st.session_state.get(f"{self.name}.{field}", default)
        return self._values.get(field, default)

    def put(self, field: str, value: object) -> None:
        """Set a field from outside its widget, which must not have been drawn yet in this run: Streamlit raises if the
        state of a widget is changed after it was drawn."""
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


_remember = component("remember")
KEY = "annotator"
COOKIE = "cimemories_name"
LONGEST = 80
# Ann and Anna are alike, Maria and Marie are not: a warning costs a click, a person counted twice an agreement.
ALIKE = 0.85
_PEOPLE, _TWIN, _CHANGED, _GIVEN = f"{KEY}.people", f"{KEY}.twin", f"{KEY}.changed", f"{KEY}.given"


def account() -> str:
    """Return the name of the logged-in account; '' without one."""
    # Without a login set up, st.user has no such attribute.
    return login.actor().name if getattr(st.user, "is_logged_in", False) else ""


def runs_the_app() -> bool:
    """Return whether the user may start and stop programs on the app's machine: operators, and without a login all
    users."""
    return login.refusal(Role.OPERATOR) is None


def name() -> str:
    """Return the annotator's name: of the account, else as given in this session, else as the browser remembers it; ''
    until it is given."""
    if account_name := account():
        return account_name
    if KEY not in st.session_state:
        st.session_state[KEY] = _clean(unquote(st.context.cookies.get(COOKIE, "")))
    return str(st.session_state[KEY])


def similar_name(text: str, people: Iterable[str]) -> str | None:
    """Return the person whose name is probably meant: the same but for case, accents and punctuation, or nearly so.
    None for an exact name, and for a name unlike all others."""
    people = list(people)
    if not text or text in people:
        return None
    by_letters = {_letters(person): person for person in reversed(people)}
    close = get_close_matches(_letters(text), by_letters, 1, ALIKE)
    return by_letters[close[0]] if close else None


def _letters(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text).casefold()
    return "".join(c for c in plain if c.isalnum()) or plain


def ask(key: str = KEY, *, first: bool = False) -> str:
    """Return the name; if it is missing, draw a field for it and return ''. It cannot stand inside a form. first:
    nothing can be done without a name, so the field gets the focus and the people known here are offered; elsewhere
    blind work may have to hide names."""
    if not (given := name()):
        with st.container(key="name" if first else None):
            _field(key, offered=first)
    return given


def begin() -> bool:
    """Ask for the name if nothing can be done without it; return whether it is given."""
    if ask(first=True):
        return True
    # Leaving the field submits the name already; the user leaves it by this button.
    st.button("Begin", type="primary", icon=":material/play_arrow:", key=f"{KEY}.begin")
    return False


def required() -> str:
    """Return the name to record with an action; if it is missing, say where to give it, and the action is disabled."""
    if not (given := name()):
        safe.inline("Needs your name: enter it at the top of the page.", muted=True)
    return given


def header(people: Callable[[], Sequence[str]]) -> None:
    """Draw the annotator's name at the top of the page, and the way to change it. people: those who have worked in this
    workspace, offered as names."""
    st.session_state[_PEOPLE] = people
    name()
    st.session_state.pop(_CHANGED, None)  # this run shows the new name already
    # Before the name is visible: a user who sees it and reloads is still the same person.
    with st.container(key="remember"):
        data = {"cookie": COOKIE, "name": name(), "given": st.session_state.get(_GIVEN)}
        _remember(key=f"{KEY}.remember", data=data)
    with st.container(key="who"):
        _who()


@st.fragment  # opening it does not run the rest of the page
def _who() -> None:
    me = name()
    if st.session_state.pop(_CHANGED, False):
        st.rerun()
    account_name = account()
    label = account_name or (f"{safe.option(me, 24)} · not you?" if me else "Who are you?")
    box = st.popover(
        safe.plain_label(label, 40), icon=":material/person:", type="tertiary", key="who.box", on_change="rerun"
    )
    if not box.open:
        return
    with box:
        if account_name:
            safe.inline(
                f"You are logged in as {account_name}. What you decide is recorded under this name.", muted=True
            )
            role = login.actor().role
            safe.inline(f"Your role is {role}: you can {MAY[role]}.", muted=True)
            return
        if me:
            safe.inline(f"What you decide is recorded as by {me}.", muted=True)
        _field("who", offered=True)


def _field(key: str, *, offered: bool) -> None:
    field, chosen = f"{key}.field", f"{key}.known"
    st.text_input(
        "Your name",
        key=field,
        max_chars=LONGEST,
        placeholder="Ada",
        width=360,
        # If a click follows at once, Streamlit ends the callback.
        on_change=url.durable(lambda: _given(str(st.session_state.get(field) or ""))),
    )
    safe.inline("Recorded with every decision you make. This browser remembers it.", muted=True)
    if twin := st.session_state.get(_TWIN):
        typed, person = twin
        safe.inline(f"{person} has worked here before. Under another spelling you would count as a second person.")
        use = url.durable(set_name)
        st.button(safe.plain_label(f"I am {person}"), f"{key}.same", type="primary", on_click=use, args=(person,))
        st.button(safe.plain_label(f"{typed} is someone else"), f"{key}.new", on_click=use, args=(typed,))
    elif offered and (people := [person for person in _people() if person != name()]):
        st.selectbox(
            "Or one of those who have worked here",
            people,
            index=None,
            format_func=safe.option,
            key=chosen,
            width=360,
            placeholder="Choose your name",
            on_change=url.durable(lambda: set_name(st.session_state.get(chosen))),
        )


def _people() -> Sequence[str]:
    people: Callable[[], Sequence[str]] = st.session_state.get(_PEOPLE, tuple)
    return people()


def _given(text: str) -> None:
    typed = _clean(text)
    twin = similar_name(typed, _people())
    if twin:
        st.session_state[_TWIN] = (typed, twin)
    elif typed:
        set_name(typed)


def set_name(text: str | None) -> None:
    """Use a name from now on, with its white space normalised. With a login the account stays, and '' changes
    nothing."""
    st.session_state.pop(_TWIN, None)
    if text and not account():
        st.session_state[KEY] = _clean(text)
        st.session_state[_GIVEN] = uuid4().hex
        st.session_state[_CHANGED] = True
        st.session_state["who.box"] = False


def _clean(text: str) -> str:
    """Return a name that the record accepts: an account's may hold any characters."""
    # Spaces twice: taking out a control character can leave two in a row.
    return " ".join("".join(c for c in " ".join(text.split()) if not has_control(c)).split())[:LONGEST]
