"""Part of the Compare page: the chosen runs as one file that can be read, printed and cited without the app."""

from __future__ import annotations

import zipfile
from datetime import UTC, datetime

import streamlit as st

from cimemories.report.collect import collect
from cimemories.report.render import as_html, markdown_files
from cimemories.store.engine import StoreError
from cimemories.ui import exports, page, safe
from pages.explore.compare_scope import Compared, SetTakeaway

HTML, MARKDOWN = "HTML", "Markdown"
FORMS = {HTML: "One HTML file", MARKDOWN: "Markdown with figures (zip)"}
_READY = "compare.report.ready"


def draw(compared: Compared, set_takeaway: SetTakeaway) -> None:
    """Draw the options of a report, and the report once it is made."""
    run_names = compared.run_names
    several = len(compared.scopes) > 1
    about = f"these {len(compared.scopes)} runs" if several else run_names[compared.scopes[0].run.id]
    set_takeaway(f"A report on {about}, as one file.")
    safe.inline(
        "One file with an abstract, the headline numbers and their intervals, figures and tables, examples of leaks, "
        "labels, judges and coverage, the manifest, the commands that repeat it, the dataset card, and paragraphs for "
        "a methods section. It needs no network and contains no script.",
    )
    ids = [request.run.id for request in compared.scopes]
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
        help="Without them, no example is quoted and no user is named; all numbers stay.",
    )
    if compared.n is not None:
        safe.inline("The report has Violation@n for every n, whichever is selected above.", muted=True)
    # False sorts before True, and sorted() is stable: the reference first, then the others in their order.
    scopes = sorted(compared.scopes, key=lambda request: request.run.id != first)
    # Everything that can change the file: once any of it differs, the report made before is no longer offered.
    stamps = tuple((request.version, request.run.status, request.run.name) for request in scopes)
    request = (stamps, str(compared.rule), form, texts)
    if st.button("Make the report", type="primary", icon=":material/summarize:", key="show.compare.report.make"):
        _make(compared, request, [item.run.id for item in scopes], str(form), with_texts=texts)
    exports.offer(_READY, request)


def _make(compared: Compared, request: tuple[object, ...], ids: list[str], form: str, *, with_texts: bool) -> None:
    bar = st.progress(0.0, text="Reading the record")
    scopes = [compared.scope_of(run_id) for run_id in ids]
    try:
        report = collect(
            compared.flows,
            scopes,
            compared.rule,
            now=datetime.now(UTC),
            texts=with_texts,
            progress=lambda share, part: bar.progress(share, text=f"Making the report: {part}"),
        )
        stem = f"{'simulated-' if report.simulated else ''}report-{ids[0] if len(ids) == 1 else f'{len(ids)}-runs'}"
        path = exports.path_for(_READY, f"{stem}.html" if form == HTML else f"{stem}.zip")
        if form == HTML:
            path.write_text(as_html(report), encoding="utf-8")
        else:
            text, pictures = markdown_files(
                report, f"{stem}-figures", lambda share: bar.progress(share, text="Drawing the figures")
            )
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
                archive.writestr(f"{stem}.md", text)
                for name, picture in pictures.items():
                    archive.writestr(f"{stem}-figures/{name}", picture)
        notes = [report.simulated] if report.simulated else []
        exports.prepared(_READY, request, path, simulated=bool(report.simulated), notes=notes)
    except StoreError as problem:
        page.error("The report was not made.", str(problem))
    finally:
        bar.empty()
