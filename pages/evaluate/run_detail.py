"""The chosen run: what it is, how far it has come, what is missing and why, and what can be done with it."""

from __future__ import annotations

import streamlit as st

from cimemories import launch
from cimemories.analysis.families import labeller_warning
from cimemories.analysis.progress import ACTIVE, RunProgress, run_progress
from cimemories.analysis.run_table import memory_words
from cimemories.analysis.warnings import run_warnings
from cimemories.model import ResponseStatus
from cimemories.store import provenance
from cimemories.store.engine import Store, StoreError
from cimemories.store.imported_runs import IMPORTED
from cimemories.store.runs import RunRow
from cimemories.texts import visible_in
from cimemories.ui import page, safe, tables
from pages.evaluate import run_actions, run_controls, run_stages
from pages.start import database_lost

LOOK = "1s"
STATUS_WORDS = {
    ResponseStatus.OK: "ok: a message to judge",
    ResponseStatus.REFUSED: "refused by the server",
    ResponseStatus.TRUNCATED: "cut at the token limit",
    ResponseStatus.EMPTY: "no text came back",
    ResponseStatus.UNPARSED: "the gate's answer could not be read, so no message was asked for",
    ResponseStatus.FAILED: "the call failed after its retries",
    ResponseStatus.OWED: "not asked for yet",
}


def draw(store: Store, row: RunRow) -> None:
    """Everything about one run, live while it goes."""
    safe.show(safe.tag("h3", row.name, " ", page.SIMULATED if row.simulated else "", cls="ci-heading"))
    safe.inline(_what_it_is(row), muted=True)
    if row.endpoint == IMPORTED:
        page.notice(_imported(row))
    _warnings(store, row)
    live = row.status in ACTIVE
    database_lost.fragment(_live, run_every=LOOK if live else None)(store, row, live)
    run_actions.draw(store, row)
    page.fold(
        "Manifest: what exactly was run",
        ":material/receipt_long:",
        "runs.box.manifest",
        lambda: st.json(visible_in(row.manifest)),
    )


def _what_it_is(row: RunRow) -> str:
    place = {IMPORTED: "from a file", "simulator": "in the simulator"}.get(row.endpoint, f"at {row.endpoint}")
    parts = [f"{row.model} {place}", f"prompt {row.prompt_level}", f"memory {memory_words(row)}"]
    mitigation = row.manifest.get("mitigation")
    kind = mitigation.get("kind") if isinstance(mitigation, dict) else None
    parts += [f"mitigation {kind}"] if kind and kind != "none" else []
    parts += [f"{row.samples} sample{'s' if row.samples != 1 else ''} a context", row.id]
    return " · ".join(parts)


def _sources(store: Store, row: RunRow) -> safe.Html:
    """Who gave the answers that the run has so far."""
    with store.read() as connection:
        sources = provenance.origins(connection, [row.id])[row.id]
    fresh = "Drawn anew: no answer of other work serves it." if row.manifest.get("fresh") else ""
    several = len({source.model for source in sources}) > 1
    lines = [source.words() + (f", by {source.model}" if several else "") + "." for source in sources]
    return safe.tag("div", *(safe.tag("div", line, cls="ci-muted") for line in [fresh, *lines] if line))


def _imported(row: RunRow) -> str:
    origin = row.manifest.get("imported")
    file = origin.get("file") if isinstance(origin, dict) else None
    named = f" ({file})" if file else ""
    return (
        f"This run was imported from a file{named}: its messages were written elsewhere, so what is missing cannot be "
        "asked for and it cannot be resumed or repeated. Further judges can read its messages here."
    )


def _warnings(store: Store, row: RunRow) -> None:
    """What speaks against its numbers; while it goes, that not all is judged yet is no news."""
    try:
        found = [*run_warnings(store, row.id)] if row.status not in ACTIVE else []
        kin = labeller_warning(store, row.id)
    except StoreError as problem:
        page.error(str(problem))
        return
    said = [f"{text[:1].upper()}{text[1:]}." for text in (*found, *([kin] if kin else []))]
    if said:
        safe.show(safe.tag("div", *(safe.tag("div", text, cls="ci-line") for text in said), cls="ci-notice"))


def _live(store: Store, row: RunRow, was_active: bool) -> None:
    try:
        now = run_progress(store, row.id)
    except StoreError as problem:
        page.error(str(problem))
        return
    if was_active and not now.active:
        st.rerun()
    run_stages.draw(row, now)
    run_controls.draw(store, row, now)
    safe.show(_sources(store, row))
    if now.error:
        page.error(f"{now.status}:", now.error)
    left, right = st.columns([5, 8], gap="medium")
    with left:
        safe.show(_statuses(now))
    with right:
        safe.show(run_stages.calls_table(now))
    if now.active:
        run_stages.server_figures(row)
    log = launch.log_tail(store, row.id)
    if log:
        page.fold(
            "Log of the worker",
            ":material/notes:",
            "runs.box.log",
            lambda: st.code(log, language=None, wrap_lines=True),
        )


def _statuses(now: RunProgress) -> safe.Html:
    """Every planned response by what came of it, then the failures behind what is missing."""
    whole = now.expected
    rows = [
        _counted(str(status), count, whole, words)
        for status, words in STATUS_WORDS.items()
        if (count := now.responses.get(status, 0)) or status == ResponseStatus.OK
    ]
    if now.unjudged:
        rows.append(_counted("unjudged", now.unjudged, whole, "answered, and not read by every judge"))
    heads = safe.tag("tr", safe.tag("th", "Responses"), safe.tag("th", "", cls="ci-number"), safe.tag("th", ""))
    causes = [
        safe.tag("div", f"{count:,} {stage}{'s' if count != 1 else ''} missing: {status} ({cause})", cls="ci-muted")
        for stage, status, cause, count in now.failures[:8]
    ]
    if len(now.failures) > len(causes):
        more = sum(count for *_, count in now.failures[8:])
        causes.append(safe.tag("div", f"{more:,} more of {len(now.failures) - 8} other causes", cls="ci-muted"))
    causes += [
        safe.tag("div", f"{cause}, for example: {text}", cls="ci-muted") for cause, text in sorted(now.errors.items())
    ]
    return safe.join([safe.tag("table", heads, *rows, cls="ci-grid"), *causes])


def _counted(name: str, count: int, whole: int, words: str) -> safe.Html:
    share = tables.percent(count / whole) if whole else ""
    return safe.tag(
        "tr",
        safe.tag("td", name, title=words),
        safe.tag("td", tables.count(count), cls="ci-number"),
        safe.tag("td", safe.tag("span", f"{share} {words}", cls="ci-muted")),
    )
