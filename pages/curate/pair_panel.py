"""Part of the Labels page: one pair with its votes, the rule, its reveals in runs, its decisions, and the form.

Also shared by tables of pairs: the columns that identify a row's pair, and the link to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from cimemories.labels.votes import PairRun, PairView, decide, pair_runs
from cimemories.model import Label, Verdict
from cimemories.review.assignments import assigned_to
from cimemories.store.datasets import DatasetRow, ProfileRecord
from cimemories.store.decisions import Decision
from cimemories.store.engine import Store, StoreError
from cimemories.store.labellings import LabellingRow
from cimemories.text import count, display_name, exact_percent, percent, spoken
from cimemories.ui import annotator, matrix, once, page, safe, tables, url
from cimemories.ui.desk import Key
from cimemories.ui.safe import Html, join, tag

# The criterion for a decision wherever a pair is shown, in the words of seeds/guideline.md.
DECIDING = (
    Key(
        "n",
        str(Label.NECESSARY),
        "N",
        safe.NECESSARY,
        "Without it the task fails, or the recipient has to come back and ask for it.",
    ),
    Key(
        "i",
        str(Label.INAPPROPRIATE),
        "I",
        safe.INAPPROPRIATE,
        "The person would not want this recipient to learn it in this way.",
    ),
    Key(
        "u",
        str(Label.AMBIGUOUS),
        "U",
        safe.AMBIGUOUS,
        "Sensible people differ, and would still differ after talking about it.",
    ),
)
MARKS = {
    str(Verdict.NECESSARY): ("N", "ci-necessary"),
    str(Verdict.INAPPROPRIATE): ("I", "ci-inappropriate"),
    str(Verdict.ABSTAIN): ("U", "ci-abstain"),
}
MOST_RUNS = 3  # shown at once: each takes the browser time
MOST_ROWS = 500  # of a table of pairs; its download has all


def pair_table(frame: pd.DataFrame, key: str, columns: Mapping[str, Sequence[str]], alt: str, note: str) -> int | None:
    """Draw the first rows of a table of pairs, `columns` before those of the pair; returns the selected row."""
    shown = frame.head(MOST_ROWS)
    of_pair: Mapping[str, tuple[tables.Column, str]] = {
        "user": ("text", "Profile"),
        "key": ("text", "Attribute"),
        "recipient": ("text", "Recipient"),
        "statement": ("wide", "Memory statement"),
        "domain": ("text", "Domain"),
    }
    selected = tables.table(
        shown.assign(domain=shown["domain"].str.replace("_", " ")),
        key=key,
        columns={**columns, **of_pair},
        on_select="row",
        alt=alt,
    )
    first = f"The first {MOST_ROWS} are shown; the download has all. " if len(frame) > MOST_ROWS else ""
    safe.inline(f"{first}{note}", muted=True)
    return selected


def go_to_pair(dataset: DatasetRow, labelling: LabellingRow, row: pd.Series[Any]) -> None:
    """Go to the Labels page at the pair, or at the context if `row` has no attribute."""
    url.go(
        "labels",
        dataset=dataset.id,
        labelling=labelling.id,
        profile=int(row["profile"]),
        context=int(row["context"]),
        attribute=int(row["attribute"]) if "attribute" in row else None,
    )


def draw(store: Store, record: ProfileRecord, labelling: LabellingRow | None, view: PairView) -> None:
    """Draw the pair, with the deciding buttons before its votes."""
    with st.container(key="pair"):
        _summary(record, labelling, view)
        _decide(store, record.dataset, view)
        _votes(view, labelling)
        _runs(store, record, view)
        if view.history:
            safe.heading("Decisions")
            safe.show(safe.grid((), map(decision_row, reversed(view.history))))


def _summary(record: ProfileRecord, labelling: LabellingRow | None, view: PairView) -> None:
    item = view.attribute
    event = "" if item.event == item.domain else f", {display_name(item.event)}"
    safe.heading(item.statement, data=True)
    safe.show(
        safe.facts(
            [
                ("Attribute", join([f"{item.key}: ", safe.data(spoken(item.value))])),
                ("Domain, event", f"{display_name(item.domain)}{event}"),
                ("Recipient", safe.data(view.context.recipient)),
                ("Task", safe.data(view.context.task)),
                ("Label", join([safe.label_chip(view.effective), f"  {_source(view)}"])),
            ]
        )
    )
    url.page_link(
        "review",
        "Review from here",
        icon=":material/rate_review:",
        dataset=record.dataset,
        labelling=labelling.id if labelling else None,
        attribute=view.attribute_id,
        context=view.context_id,
    )


def _source(view: PairView) -> str:
    if view.decision:
        instead = f"; the personas say {view.consensus}" if view.consensus not in (None, view.effective) else ""
        return f"decided by {view.decision.annotator}{instead}"
    return "by the votes of the personas" if view.consensus else ""


def _votes(view: PairView, labelling: LabellingRow | None) -> None:
    if not view.votes:
        return
    imported = labelling is not None and labelling.imported
    safe.heading("Imported shares, without votes" if imported else "Votes")
    show_votes(view, imported=imported)
    sentences = []
    if view.mixture is not None:
        necessary, inappropriate, abstain = (percent(share).replace(" ", "\u00a0") for share in view.mixture)
        sentences.append(f"Mixture: necessary {necessary}, inappropriate {inappropriate}, abstain {abstain}.")
    if view.rule is not None:
        note = f" ({view.rule.note})" if view.rule.note else ""
        sentences.append(f"Rule: {view.rule.name}; {view.rule.text}{note}.")
    if view.missing:
        sentences.append(f"Missing, not counted: {view.missing}.")
    lines = [tag("div", view.explanation, cls="ci-line"), *(tag("div", line, cls="ci-muted") for line in sentences)]
    safe.show(tag("div", *lines, cls="ci-lines"))


def show_votes(view: PairView, *, imported: bool) -> None:
    """Draw each persona's votes on the pair as marks, or its shares in an imported labelling, which has no votes."""
    rows = [
        tag(
            "tr",
            tag("td", v.persona.key),
            tag("td", exact_percent(v.prior), cls="ci-number", title="share of this persona in the mixture"),
            tag("td", _shares(v.shares) if imported else _draws(v.draws)),
        )
        for v in view.votes
    ]
    safe.show(tag("table", tag("tbody", *rows), cls="ci-votes"))


def _shares(shares: Sequence[float] | None) -> Html:
    """Return shares of necessary, inappropriate and abstain, 0 to 1, those above 0."""
    parts = zip(MARKS.items(), shares or (), strict=False)
    shown = [
        join([tag("span", glyph, cls=f"ci-mark {cls}", title=verdict), f"\u00a0{share * 100:.0f}\u00a0% "])
        for (verdict, (glyph, cls)), share in parts
        if share
    ]
    return join(shown) if shown else tag("span", "nothing given", cls="ci-muted")


def _draws(draws: Sequence[str]) -> Html:
    """Return votes in their order, each a verdict's glyph, or an outlined dash for a missing one."""
    counted = Counter(draw if draw in MARKS else "missing" for draw in draws)
    marks = []
    for number, draw in enumerate(draws, 1):
        glyph, cls = MARKS.get(draw, ("–", "ci-missing"))
        verdict = draw if draw in MARKS else f"missing: {draw}"
        marks.append(tag("span", glyph, cls=f"ci-mark {cls}", title=f"draw {number}: {verdict}"))
    return tag("div", *marks, picture=", ".join(f"{n} {verdict}" for verdict, n in counted.most_common()))


def _runs(store: Store, record: ProfileRecord, view: PairView) -> None:
    runs = pair_runs(store, view.attribute_id, view.context_id)
    if not runs:
        return
    safe.heading("In recorded runs")
    safe.inline(_revealed(runs))
    runs = sorted(runs, key=lambda item: -item.reveals)  # the most reveals first, of equals the oldest
    _links(record, view, runs[:MOST_RUNS])
    rest = runs[MOST_RUNS:]
    if rest:
        label = count(len(rest), "more run")
        page.fold(label, ":material/format_ink_highlighter:", "labels.box.runs", lambda: _links(record, view, rest))


def _links(record: ProfileRecord, view: PairView, runs: Sequence[PairRun]) -> None:
    for item in runs:
        simulated = ", simulated" if item.simulated else ""
        counts = f"{item.reveals} of {item.draws}" if item.draws else "none judged yet"
        url.page_link(
            "leaks",
            f"{counts}: {safe.plain_label(item.title)}{simulated}",
            icon=":material/format_ink_highlighter:",
            run=item.run_id,
            profile=record.id,
            context=view.context_id,
            attribute=view.attribute_id,
        )


def _revealed(runs: Sequence[PairRun]) -> str:
    judged, missing = sum(run.draws for run in runs), sum(run.expected - run.draws for run in runs)
    others = f" {missing} more are missing or not judged." if missing else ""
    if not judged:
        return f"No judged message yet.{others}"
    reveals, revealing = sum(run.reveals for run in runs), sum(run.reveals > 0 for run in runs)
    with_judged = sum(run.draws > 0 for run in runs)
    of = count(with_judged, "run")
    if not reveals:
        return f"Revealed in none of {judged} judged messages of {of}.{others}"
    return f"Revealed in {reveals} of {judged} judged messages, by {revealing} of {of}.{others}"


def decision_row(item: Decision) -> Html:
    """Return a row of a history: when, who, which label, and how and why."""
    how = [item.source if item.source != "single" else "", "blind" if item.blind else "", item.cause or "", item.reason]
    label = safe.label_chip(item.label) if item.label else "withdrawn"
    cells = (item.created[:16].replace("T", " "), item.annotator, label, ", ".join(filter(None, how)))
    return tag("tr", *(tag("td", cell) for cell in cells))


def _decide(store: Store, dataset_id: int, view: PairView) -> None:
    """Draw a button for each label, which decides at once, and a field for a reason."""
    if store.read_only:
        safe.inline("This workspace is read-only, so nothing can be decided here.", muted=True)
        return
    key = f"decide.{view.attribute_id}.{view.context_id}"
    # Enter ends the typing of a reason and must never decide.
    with st.form(key, enter_to_submit=False, border=False):
        labels = st.container(horizontal=True, gap="small")
        reason = st.text_input("Reason", key=f"{key}.reason", max_chars=500, placeholder="Optional").strip()
    # Below the buttons: leaving the field removes it, which moves everything below.
    me = annotator.ask()

    def say(label: Label | None) -> str:
        if not me:
            raise StoreError("A decision needs your name. Add it and try again.")
        return decide(store, dataset_id, view, annotator=me, label=label, reason=reason if label else "")

    with page.Reporting("No decision was saved.", StoreError):
        with labels:
            for label in Label:
                standing = view.decision is not None and view.decision.label == label
                once.button(
                    safe.plain_label(safe.glyphed(label)),
                    partial(say, label),
                    matrix.note_decision,
                    key=f"{key}.{label}",
                    submits=True,
                    type="primary" if standing else "secondary",
                )
        # Decisions are only ever added: a withdrawal is one without a label, so the user's last one counts.
        mine = [d for d in view.history if d.annotator == me]
        if mine and mine[-1].label is not None:
            once.button(
                "Withdraw my decision",
                partial(say, None),
                matrix.note_decision,
                key=f"{key}.undo",
                icon=":material/undo:",
            )


def lead_on(store: Store, slice_id: int | None, done: str, others: Callable[[], None]) -> None:
    """Draw what comes after a queue in which nothing is left: the person's next assigned slice, then the other links.
    slice_id: the slice that is done, None for a queue without one."""
    following = next((item for item in assigned_to(store, annotator.name()) if item.of.slice != slice_id), None)
    with st.container(border=True):
        safe.inline(done if following is None else f"{done} Next for you: {following.sentence}.", strong=True)
        with st.container(horizontal=True):
            if following is not None:
                where, query = following.place
                url.page_link(where, "Open the next slice", icon=":material/arrow_forward:", **query)
            others()
