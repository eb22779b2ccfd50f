"""A form over several steps: what was filled in stays, also while its fields are not drawn.

Streamlit forgets a widget that a script run did not draw. A draft keeps the values under a name of its own and gives
them back to the widgets that come again:

    draft = Draft("new_run")
    st.text_input("Model", key=draft.key("model", ""))
    draft.keep()                       # at the end of each step, before any rerun
    draft.get("model")
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st


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
