"""Part of the Compare page: the chosen runs as one file that can be read, printed and cited without the app."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from datetime import UTC, datetime

import streamlit as st

from cimemories.report.collect import collect
from cimemories.report.document import Report
from cimemories.report.render import as_html, as_markdown
from cimemories.store.engine import StoreError
from cimemories.ui import page, safe
from pages.explore.compare_scope import Compared, SetTakeaway

HTML, MARKDOWN = "HTML", "Markdown"
FORMS = {HTML: "One HTML file", MARKDOWN: "Markdown with figures (zip)"}
_READY = "compare.report.ready"


@dataclass(frozen=True)
class _Ready:
    """A report that was made, as long as what it says is what would be said now. asked: everything that it rests on."""

    asked: tuple[object, ...]
    name: str
    mime: str
    content: bytes
    simulated: str


def draw(compared: Compared, set_takeaway: SetTakeaway) -> None:
    """What the report is to be, and the report."""
    run_names = compared.run_names
    several = len(compared.scopes) > 1
    about = f"these {len(compared.scopes)} runs" if several else run_names[compared.scopes[0].run.id]
    set_takeaway(f"A report on {about}, as one file.")
    safe.inline(
        "One file with the headline numbers and their intervals, figures and tables, a few leaks, what the labels, "
        "judges and coverage are, the manifest, the commands that repeat it, the dataset card, and paragraphs for a "
        "methods section. The file needs no network and holds no script.",
    )
    ids = [asked.run.id for asked in compared.scopes]
    form_column, first_column = st.columns(2)
    with first_column:
        first = ids[0]
        if several:
            first = str(page.select("Reference run", ids, run_names.__getitem__, "compare.against", "against"))
    with form_column:
        form = st.segmented_control(
            "Form", list(FORMS), format_func=FORMS.__getitem__, default=HTML, key="compare.report.form", required=True
        )
    texts = st.toggle(
        "With texts of messages and memories",
        value=True,
        key="compare.report.texts",
        help="Without: no example is quoted and no user named; all numbers stay",
    )
    if compared.n is not None:
        safe.inline("The report gives violation at every n, whatever is chosen above.", muted=True)
    scopes = sorted(compared.scopes, key=lambda asked: asked.run.id != first)
    stamps = tuple((asked.version, asked.run.status, asked.run.name) for asked in scopes)
    asked = (stamps, str(compared.rule), form, texts)
    if st.button("Make the report", type="primary", icon=":material/summarize:", key="compare.report.make"):
        _make(compared, asked, [item.run.id for item in scopes], str(form), with_texts=texts)
    _offer(asked)


def _make(compared: Compared, asked: tuple[object, ...], ids: list[str], form: str, *, with_texts: bool) -> None:
    st.session_state.pop(_READY, None)
    told = st.progress(0.0, text="Reading the record")
    scopes = [compared.scope_of(run_id) for run_id in ids]
    try:
        found = collect(
            compared.flows,
            scopes,
            compared.rule,
            made=datetime.now(UTC),
            texts=with_texts,
            progress=lambda share, part: told.progress(share, text=f"Making the report: {part}"),
        )
    except StoreError as problem:
        page.error("The report was not made.", str(problem))
        return
    finally:
        told.empty()
    st.session_state[_READY] = _written(found, asked, ids, form)


def _written(found: Report, asked: tuple[object, ...], ids: list[str], form: str) -> _Ready:
    stem = f"{'simulated-' if found.simulated else ''}report-{ids[0] if len(ids) == 1 else f'{len(ids)}-runs'}"
    if form == HTML:
        return _Ready(asked, f"{stem}.html", "text/html", as_html(found).encode(), found.simulated)
    text, pictures = as_markdown(found, f"{stem}-figures")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{stem}.md", text)
        for name, drawn in pictures.items():
            archive.writestr(f"{stem}-figures/{name}", drawn)
    return _Ready(asked, f"{stem}.zip", "application/zip", packed.getvalue(), found.simulated)


def _offer(asked: tuple[object, ...]) -> None:
    """The report, if one was made and nothing that it rests on has moved."""
    ready = st.session_state.get(_READY)
    if not isinstance(ready, _Ready):
        return
    if ready.asked != asked:
        safe.inline("What is chosen, or the record, has changed since a report was made: make it again.", muted=True)
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        st.download_button(
            "Download",
            data=ready.content,
            file_name=ready.name,
            mime=ready.mime,
            icon=":material/download:",
            key="compare.report.download",
            on_click="ignore",
        )
        safe.inline(f"{ready.name}, {len(ready.content) / 1e6:,.2f} MB")
        if ready.simulated:
            page.badge_simulated()
    if ready.simulated:
        safe.inline(ready.simulated, muted=True)
