"""Settings as fields of a form, by group, drawn by their type and `Setting` (cimemories/settings.py)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import ceil
from typing import Any

import streamlit as st

from cimemories.settings import Described, Settings
from cimemories.ui import safe
from cimemories.ui.annotator import Draft

Drawn = Callable[[], object]


def draw_group(
    draft: Draft,
    model: type[Settings],
    group: str,
    *,
    given: Callable[[], Mapping[str, Any]],
    own: Mapping[str, Drawn] | None = None,
    fixed: Mapping[str, str] | None = None,
) -> None:
    """Draw the settings of a group in their order. given: returns the entries so far, for settings that depend on
    others. own: functions that draw a setting with its own field. fixed: settings that cannot be changed now, with
    their values."""
    for name, item in model.described().items():
        if item.setting.group != group or not item.applies(given()):
            continue
        if fixed and name in fixed:
            draw_fixed(draft, item, fixed[name])
        elif own and name in own:
            own[name]()
        else:
            draw_field(draft, item)


def draw_fixed(draft: Draft, item: Described, value: str, field: str = "") -> None:
    """Draw a setting that the paper's own settings fix, with its value there."""
    key = f"{draft.name}.reference.{field or item.name}"
    help = "Set by the paper's own settings"
    st.text_input(safe.plain_label(item.setting.title), value, key=key, disabled=True, help=help)


def draw_field(draft: Draft, item: Described, field: str = "") -> None:
    """Draw a setting. field: its name in the draft, if that is not the setting's."""
    setting, name, title, help = item.setting, field or item.name, item.setting.title, item.setting.help
    if item.choices or setting.labels:
        options = {choice: setting.labels.get(choice, choice) for choice in item.choices or setting.labels}
        draft.select(safe.plain_label(title), name, options, item.default, help=help)
    elif item.plain is bool:
        st.toggle(safe.plain_label(title), key=draft.key(name, item.default), help=help)
    elif item.plain not in (int, float):
        default = "" if item.info.is_required() else str(item.default or "")
        draft.text(title, name, default, placeholder=setting.placeholder, help=help)
    elif item.optional:
        number = item.plain  # Streamlit accepts only whole numbers in a field of them
        least, most = item.least or 0, item.most
        bounds = number(least), most if most is None else number(most)
        step = None if setting.step is None else number(setting.step)
        help += f" Leave empty for {setting.placeholder}."
        draft.optional(title, name, item.default, *bounds, step=step, placeholder=setting.placeholder, help=help)
    else:
        most, step = int(item.most or 2**31 - 1), int(setting.step or 1)
        draft.integer(title, name, int(item.default), ceil(item.least or 0), most, step=step, help=help)


def draw_several(
    draft: Draft, item: Described, title: str, field: str, options: Sequence[str], *, new: bool = False
) -> list[str]:
    """Draw a setting with several values, as in a sweep. new: values that are no option may be typed."""
    return st.multiselect(
        safe.plain_label(title),
        list(dict.fromkeys([*options, *(draft.get(field) or [])])),
        format_func=lambda choice: safe.option(item.setting.labels.get(choice, choice)),
        key=draft.key(field, [item.default or "none"]),
        accept_new_options=new,
        help=item.setting.help,
    )


def draw_row(draft: Draft, model: type[Settings], names: Sequence[str]) -> None:
    """Draw settings beside each other."""
    for column, name in zip(st.columns(len(names), vertical_alignment="bottom"), names, strict=True):
        with column:
            draw_field(draft, model.described()[name])


def values(draft: Draft, model: type[Settings], names: Collection[str]) -> dict[str, Any]:
    """Return the entered settings. One that the form does not ask for, given the values of the others, has its
    default."""
    described = model.described()
    return {name: draft.get(name, described[name].default) for name in names}
