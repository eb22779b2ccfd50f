"""Part of the Review page: what annotators go by, its versions, and the form that writes the next one."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import streamlit as st

from cimemories.store import guidelines
from cimemories.store.engine import Store, StoreError
from cimemories.store.guidelines import Guideline
from cimemories.ui import annotator, page, safe
from cimemories.ui.safe import Html, join, tag

MOST_DIFF_LINES = 400


def draw(store: Store) -> None:
    """The current guideline, the form for a new version, and every version with what it changed."""
    with store.read() as connection:
        versions = guidelines.all_versions(connection)
    now = versions[-1]
    safe.inline(said(now), muted=True)
    safe.show(safe.document(now.text))
    page.fold("Write the next version", ":material/edit:", "review.box.guideline", lambda: _form(store, now))
    page.fold(f"Versions ({len(versions)})", ":material/history:", "review.box.versions", lambda: _versions(versions))


def said(item: Guideline) -> str:
    """'Version 2, by Ada, 2026-01-31 10:00'."""
    when = item.created[:16].replace("T", " ") if item.created else "as shipped"
    return f"Version {item.version}, by {item.annotator}, {when}"


def _form(store: Store, now: Guideline) -> None:
    key = f"review.guideline.{now.version}"
    who = annotator.ask()
    with st.form(key, enter_to_submit=False, border=False):
        text = st.text_area("Guideline", value=now.text, height=420, max_chars=guidelines.LONGEST, key=f"{key}.text")
        saved = st.form_submit_button("Save as a new version", type="primary", icon=":material/save:")
    safe.inline("Earlier versions stay, and decisions go on naming the one that they were made by.", muted=True)
    if not saved:
        return
    if not who:
        page.error("Nothing was saved.", "A version needs the name of who wrote it.", "Give yours and save again.")
        return
    try:
        with store.write() as connection:
            newest = guidelines.current(connection)
            if newest.version != now.version:
                raise StoreError(
                    f"{newest.annotator} has saved version {newest.version} since you opened this one. Copy your text, "
                    "reload the page and bring both together."
                )
            after = guidelines.save(connection, text, who)
    except StoreError as problem:
        page.error("Nothing was saved.", str(problem))
        return
    if after.version == now.version:
        page.notice("The text is the same, so there is no new version.")
        return
    st.rerun()


def _versions(versions: Sequence[Guideline]) -> None:
    before: list[Guideline | None] = [None, *versions[:-1]]
    for item, earlier in reversed(list(zip(versions, before, strict=True))):
        safe.inline(said(item), strong=True)
        if earlier is None:
            safe.inline(f"The first: {len(item.text.splitlines())} lines. Its hash is {item.hash}.", muted=True)
            continue
        safe.inline(f"Its hash is {item.hash}.", muted=True)
        safe.show(_diff(earlier.text, item.text))


def _diff(old: str, new: str) -> Html:
    """Lines taken out and put in, each named so, with one line around them."""
    found = list(difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=1))[2:]
    rows = []
    for line in found[:MOST_DIFF_LINES]:
        sign, text = line[:1], line[1:]
        if sign == "@":
            rows.append(tag("tr", tag("td", "…", cls="ci-muted"), tag("td", "")))
            continue
        word = {"+": "added", "-": "removed"}.get(sign, "")
        shown = tag("b", text) if sign == "+" else tag("span", text, cls="ci-muted" if sign == "-" else "")
        rows.append(tag("tr", tag("td", word), tag("td", shown)))
    if len(found) > MOST_DIFF_LINES:
        rows.append(tag("tr", tag("td", "…"), tag("td", f"{len(found) - MOST_DIFF_LINES:,} more lines")))
    return join([tag("table", tag("tbody", *rows), cls="ci-grid")])
