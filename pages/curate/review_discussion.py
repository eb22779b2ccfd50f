"""Parts of the Review page for discussion: pairs on which people differ, comments on pairs, and the guideline with its
versions."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from cimemories.desk.disputes import DisputesDesk, how, when
from cimemories.review.adjudication import Cause, Disputed, Disputes, disputes
from cimemories.review.status import (
    PairComment,
    guidelines,
    pair_comments,
    reopen_comment,
    resolve_comment,
    save_guideline,
)
from cimemories.store import reviews
from cimemories.store.datasets import DatasetRow
from cimemories.store.decisions import Decision
from cimemories.store.engine import Store, StoreError
from cimemories.store.labellings import LabellingRow
from cimemories.store.reviews import LONGEST_REASON, Guideline
from cimemories.text import count, display_name
from cimemories.ui import annotator, once, page, safe, tables, url
from cimemories.ui import desk as desk_ui
from cimemories.ui.safe import Html, tag
from pages.curate import review_queue
from pages.curate.pair_panel import DECIDING

# ---- disputes


HIDDEN = "review.adjudication.hidden"
KEY = "adjudication"
CAUSES = tuple((str(number), str(cause)) for number, cause in enumerate(Cause, start=1))
Names = Mapping[str, str]


def draw_disputes(store: Store, dataset: DatasetRow, labelling: LabellingRow | None, filters_box: Any) -> str:
    """Draw the part; returns the page's takeaway. filters_box: the place of rarely used controls."""
    disputed = disputes(store, dataset.id)
    if not disputed.shared and not disputed.settled:
        page.empty(
            "Nothing to adjudicate yet",
            "Pairs that two or more people decide differently appear here. Give pairs to several people under Overlap.",
            lambda: url.page_link(
                "review", "Set an overlap", icon=":material/group:", dataset=dataset.id, tab="overlap"
            ),
        )
        return "No pair has been decided by two or more people yet."
    if annotator.begin():
        hidden = filters_box.toggle(
            "Hide names",
            value=True,
            key=HIDDEN,
            help="Each person is a letter, the same on all pairs of the dataset. Their names are then not on the page.",
        )
        _adjudicate(store, dataset, labelling, disputed, hidden)
    # The number of settled ones is on the bar alone: it changes with every key, this heading only with the page.
    return f"People differ on {count(disputed.differing)} of {count(disputed.shared)} pairs that two or more decided."


def _adjudicate(
    store: Store, dataset: DatasetRow, labelling: LabellingRow | None, disputed: Disputes, hidden: bool
) -> None:
    """Draw the disputes one after the other, on the card of the queue, and the settled ones."""
    desk = DisputesDesk(store, dataset, labelling, annotator.name(), hidden)
    if store.read_only:
        page.notice("This workspace is read-only, so nothing can be settled here. Copy it to a writable folder.")
    else:
        desk_ui.draw(
            desk,
            desk.name,
            key=KEY,
            keys=DECIDING,
            causes=CAUSES,
            actions="rszkjcb?",
            complete=True,
            context=f"{dataset.name}{' (simulated)' if dataset.simulated else ''}, in dispute: choose a label, and why "
            "people differed",
            empty="No pair is in dispute: people agree wherever two or more have decided, or it has been settled.",
            hiding="Votes, consensus and past leaks show after your answer.",
        )
        safe.inline("This adds a decision, which sets the label. Each person's own decision stays.", muted=True)
        review_queue.draw_guideline(store)
    page.fold(
        "Adjudicated pairs",
        ":material/gavel:",
        "review.box.adjudicated",
        partial(_settled, dataset, labelling, disputed, desk.names),
    )


def _rows(items: Sequence[Disputed]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "statement": item.statement,
                "recipient": item.recipient,
                "task": item.task,
                "domain": display_name(item.domain),
                "people": len(item.decisions),
                "labels": ", ".join(f"{n} {safe.GLYPHS[label]}" for label, n in item.labels.most_common()),
            }
            for item in items
        ],
        index=[f"{item.attribute}-{item.context}" for item in items],
    )


def _pair(dataset: DatasetRow, labelling: LabellingRow | None, item: Disputed) -> None:
    safe.heading(item.statement, data=True)
    about = (
        ("Attribute", f"{item.key} of {item.user}"),
        ("Recipient", safe.data(item.recipient)),
        ("Task", safe.data(item.task)),
    )
    safe.show(safe.facts(about))
    url.page_link(
        "labels",
        "Show on the Labels page (names are visible there)",
        icon=":material/label:",
        dataset=dataset.id,
        labelling=labelling.id if labelling else None,
        profile=item.profile,
        context=item.context,
        attribute=item.attribute,
    )


def _history(made: Sequence[Decision], names: Names) -> None:
    rows = [
        (
            # Never the name itself instead of a missing letter: names may be hidden.
            tag("b", names.get(d.annotator, "?")),
            safe.label_chip(d.label) if d.label else "taken back",
            when(d),
            how(d),
            d.reason,
        )
        for d in made
    ]
    body = [tag("tr", *(tag("td", cell) for cell in row)) for row in rows]
    safe.show(safe.wide(safe.grid(("Who", "Label", "When", "How", "Reason"), body, texts=range(5)), "Decisions"))


def _settled(dataset: DatasetRow, labelling: LabellingRow | None, disputed: Disputes, names: Names) -> None:
    if not disputed.settled:
        safe.inline("No pair has been adjudicated yet.", muted=True)
        return
    causes = ", ".join(f"{cause} {count}" for cause, count in disputed.causes.items())
    if causes:
        safe.inline(f"Why people differed: {causes}.")
    endings = [item.adjudication for item in disputed.settled]
    frame = _rows(disputed.settled).assign(
        label=[safe.glyphed(d.label) if d else "" for d in endings],
        cause=[(d.cause or "") if d else "" for d in endings],
        reason=[d.reason if d else "" for d in endings],
        by=[names.get(d.annotator, "?") if d else "" for d in endings],
        when=[d.created[:16].replace("T", " ") if d else "" for d in endings],
    )
    at = tables.table(
        frame,
        key=f"review.adjudicated.{dataset.id}",
        columns={
            "statement": ("wide", "Statement"),
            "recipient": ("text", "Recipient"),
            "labels": ("text", "Decided"),
            "label": ("text", "Settled as"),
            "cause": ("text", "Cause"),
            "reason": ("wide", "Reason"),
            "by": ("text", "By"),
            "when": ("text", "When"),
        },
        on_select="row",
        alt="Adjudicated pairs, the newest first",
    )
    tables.csv_button(
        frame.assign(dataset=dataset.name, simulated="simulated" if dataset.simulated else ""),
        f"adjudicated-{dataset.id}.csv",
        key="review.adjudicated.csv",
    )
    if at is None or at >= len(disputed.settled):
        safe.inline("Select a row to see all decisions on the pair.", muted=True)
        return
    item = disputed.settled[at]
    _pair(dataset, labelling, item)
    _history(item.history, names)


# ---- comments, guideline


OPEN, ALL = "open", "all"
MOST_DIFF_LINES = 400
CHOSEN = "review.comments.chosen"
_OPENED, _ELSEWHERE = "review.comments.opened", "review.comments.elsewhere"
_SAVED, _BASE, _DRAFT = "review.guideline.saved", "review.guideline.base", "review.guideline"


def draw_guideline(store: Store) -> str:
    """Draw the current guideline, the form for a new version, and every version with its changes; returns the
    takeaway."""
    versions = guidelines(store)
    now = versions[-1]
    for notice in page.kept_notices(_SAVED):
        page.notice(notice)
    safe.inline(_version(now), muted=True)
    page.fold("Write the next version", ":material/edit:", "review.box.guideline", lambda: _guideline_form(store, now))
    page.fold(
        f"Versions ({len(versions)})",
        ":material/history:",
        "review.box.versions",
        lambda: _versions(store, versions),
    )
    safe.show(safe.document(now.text))
    return "The rules annotators follow. Every decision records the version it was made by."


def _version(item: Guideline) -> str:
    """Return 'Version 2, by Ada, 2026-01-31 10:00'."""
    when = item.created[:16].replace("T", " ") if item.created else "as shipped"
    return f"Version {item.version}, by {item.annotator}, {when}"


def _guideline_form(store: Store, now: Guideline) -> None:
    draft = annotator.Draft(_DRAFT)
    # The edited version: if another one is saved meanwhile, the typed text stays.
    base: Guideline = st.session_state.setdefault(_BASE, now)
    key = draft.key("text", base.text)
    if base != now and st.session_state[key] == base.text:
        base = st.session_state[_BASE] = now
        st.session_state[key] = now.text
    # A callback: a click on another tab ends the run that has the typed text, and the next draws no form.
    keep = url.durable(draft.keep)
    text = st.text_area("Guideline", height=420, max_chars=reviews.LONGEST_GUIDELINE, key=key, on_change=keep)
    draft.keep()
    signs = [line[:1] for line in _changes(base.text, text)]
    added, removed = signs.count("+"), signs.count("-")
    if not added and not removed:
        safe.inline("Change the text, and press Ctrl + Enter to see the changes before you save them.", muted=True)
        return
    safe.inline(f"{count(added, 'line')} added, {count(removed)} removed.", strong=True)
    safe.show(_diff(base.text, text))
    who = annotator.required()
    reason = st.text_input("Reason", key=draft.key("reason", ""), max_chars=LONGEST_REASON, on_change=keep).strip()
    draft.keep()
    label = safe.plain_label(f"Save as version {base.version + 1}")
    ready = bool(who and reason)
    _save_button(
        store, label, text, who, base, reason,
        f"Version {base.version + 1} stands. Decisions keep the version they were made by.",
        key="review.guideline.save", icon=":material/save:", disabled=not ready, type="primary",
    )  # fmt: skip
    if who and not reason:
        safe.inline("Needs a reason.", muted=True)


def _save_button(
    store: Store, label: str, text: str, who: str, after: Guideline, reason: str, notice: str, **options: Any
) -> None:
    """Draw a button that saves a version, once. options: of `once.button`."""

    def then(_: Guideline) -> None:
        annotator.Draft(_DRAFT).clear()
        st.session_state.pop(_BASE, None)
        page.keep_notices(_SAVED, notice)

    with page.Reporting("Nothing was saved.", StoreError):
        # `after` is the edited version: one saved meanwhile is not overwritten.
        once.button(label, lambda: save_guideline(store, text, who, after, reason), then, **options)


def _versions(store: Store, versions: Sequence[Guideline]) -> None:
    now, who = versions[-1], annotator.required() if len(versions) > 1 else ""
    for earlier, item in reversed(list(zip([None, *versions[:-1]], versions, strict=True))):
        safe.inline(_version(item), strong=True)
        if item.reason:
            safe.inline(item.reason)
        first = "" if earlier else f"First version, {count(len(item.text.splitlines()), 'line')}. "
        safe.inline(f"{first}Hash {item.hash}.", muted=True)
        if item is not now:
            _save_button(
                store, safe.plain_label(f"Use version {item.version} again"), item.text, who, now,
                f"Back to version {item.version}.",
                f"Version {now.version + 1} stands, with the text of {item.version}.",
                key=f"review.guideline.again.{item.version}", icon=":material/undo:", disabled=not who,
            )  # fmt: skip
        if earlier is not None:
            safe.show(_diff(earlier.text, item.text))
    names = ("version", "created", "annotator", "reason", "hash", "text")
    frame = pd.DataFrame([{name: getattr(item, name) for name in names} for item in versions])
    tables.csv_button(frame, "guideline.csv", key="review.guideline.csv")


def _changes(old: str, new: str) -> list[str]:
    """Return the lines of a unified diff with one line of context, without its header."""
    return list(difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=1))[2:]


def _diff(old: str, new: str) -> Html:
    """Draw lines added and removed, with one line of context."""
    changes = _changes(old, new)
    rows = []
    for line in changes[:MOST_DIFF_LINES]:
        sign, text = line[:1], line[1:]
        if sign == "@":
            rows.append(tag("tr", tag("td", "…", cls="ci-muted"), tag("td", "")))
            continue
        change = {"+": "added", "-": "removed"}.get(sign, "")
        shown = tag("b", text) if sign == "+" else tag("span", text, cls="ci-muted" if sign == "-" else "")
        rows.append(tag("tr", tag("td", change), tag("td", shown)))
    if len(changes) > MOST_DIFF_LINES:
        rows.append(tag("tr", tag("td", "…"), tag("td", f"{len(changes) - MOST_DIFF_LINES:,} more lines")))
    return safe.wide(safe.grid((), rows), "Changes")


def draw_comments(
    store: Store, dataset: DatasetRow, labelling: LabellingRow | None, filters_box: DeltaGenerator
) -> str:
    """Draw the part; returns the page's takeaway. filters_box: the place of rarely used controls."""
    every = pair_comments(store, dataset.id)
    if not every:
        page.empty(
            "No comments yet",
            "A comment holds what a label cannot: a question, a gap in the guideline. Press c in the queue.",
            lambda: url.page_link("review", "Open the queue", icon=":material/keyboard:", dataset=dataset.id),
        )
        return "No comments on pairs yet."
    left = sum(item.comment.open for item in every)
    shown = _filtered(dataset, every, filters_box)
    _tell_resolved(every, shown)
    if not shown:
        page.empty("No comment matches", "Show all comments, or change the search.")
    else:
        _comments_table(store, dataset, labelling, shown)
    pairs = len({(item.comment.attribute, item.comment.context) for item in every})
    return f"{count(left)} of {count(len(every), 'comment')} on {count(pairs, 'pair')} open."


def _tell_resolved(every: list[PairComment], shown: list[PairComment]) -> None:
    """Tell the user that another person has resolved the open comment: their click on Resolve did nothing."""
    item = next((item for item in every if item.comment.id == st.session_state.get(_OPENED)), None)
    if item is not None and not item.comment.open and item not in shown:
        st.session_state.pop(_OPENED)
        note = item.comment
        if note.resolved_by != annotator.name():
            why = f": {note.resolution}" if note.resolution else "."
            page.keep_notices(_ELSEWHERE, f"{note.resolved_by} has resolved the comment that you had open{why}")
    for notice in page.kept_notices(_ELSEWHERE):
        page.notice(notice)


def _filtered(dataset: DatasetRow, every: list[PairComment], filters_box: DeltaGenerator) -> list[PairComment]:
    key = "review.comments.search"
    with filters_box:
        names = sorted({item.comment.annotator for item in every})
        people = {"": "all people"} | {name: name for name in names}
        who = page.choice("By", people, "review.comments.who", "person", default="", boxed=True)
        url.set_field(key, url.get("search") or "")
        text = st.text_input(
            "Search",
            key=key,
            placeholder="comments and statements",
            on_change=url.durable(lambda: url.put(search=st.session_state[key].strip() or None)),
        )
    states = {state: state.capitalize() for state in (OPEN, ALL)}
    shown = page.choice("Comments", states, "review.comments.state", "show", default=OPEN, visible=False)
    words = text.casefold().split()
    matching = [
        item
        for item in every
        if (shown == ALL or item.comment.open)
        and who in ("", item.comment.annotator)
        and all(word in item.searched for word in words)
    ]
    parts = [
        f"{dataset.name} (simulated)" if dataset.simulated else dataset.name,
        f"{shown} comments" if shown == OPEN else "open and resolved comments",
        f"by {who}" if who else "",
        f"with '{text}'" if words else "",
    ]
    safe.inline(f"{', '.join(filter(None, parts))}: {count(len(matching))}", muted=True)
    return matching


def _comments_table(
    store: Store, dataset: DatasetRow, labelling: LabellingRow | None, shown: list[PairComment]
) -> None:
    ids = [item.comment.id for item in shown]
    frame = pd.DataFrame(
        [
            {
                "state": "open" if item.comment.open else "resolved",
                "created": item.comment.created[:16].replace("T", " "),
                "annotator": item.comment.annotator,
                "text": item.comment.text,
                "profile": item.user,
                "attribute": item.key,
                "recipient": item.recipient,
                "task": item.task,
                "resolved_by": item.comment.resolved_by or "",
                "resolution": item.comment.resolution,
            }
            for item in shown
        ],
        index=ids,
    )
    before = st.session_state.get(CHOSEN)
    resolved: dict[str, tables.Column | tuple[tables.Column, str]] = {
        "state": ("small", "State"),
        "resolution": ("text", "Resolved because"),
    }
    at = tables.table(
        frame,
        key=f"review.comments.{dataset.id}",
        columns={
            "text": ("wide", "Comment"),
            "annotator": ("text", "By"),
            "created": ("text", "When"),
            "attribute": ("text", "Attribute"),
            "recipient": ("text", "Recipient"),
            **(resolved if any(not item.comment.open for item in shown) else {}),
        },
        on_select="row",
        selected=ids.index(before) if before in ids else None,
        alt="Comments on pairs, the open ones first",
    )
    tables.csv_button(
        frame.assign(dataset=dataset.name, simulated="simulated" if dataset.simulated else ""),
        f"comments-{dataset.id}.csv",
        key="review.comments.csv",
    )
    if at is None or at >= len(shown):
        safe.inline("Select a row to read it in full, see its pair, or resolve it.", muted=True)
        return
    st.session_state[CHOSEN] = ids[at]
    st.session_state[_OPENED] = ids[at] if shown[at].comment.open else None
    _one(store, dataset, labelling, shown[at])


def _one(store: Store, dataset: DatasetRow, labelling: LabellingRow | None, item: PairComment) -> None:
    note = item.comment
    with st.container(border=True, key="review.comment"):
        safe.message(note.text)
        facts: list[tuple[str, safe.Html | str]] = [
            ("By", f"{note.annotator}, {note.created[:16].replace('T', ' ')}"),
            ("Statement", safe.data(item.statement)),
            ("Attribute", f"{item.key} of {item.user}"),
            ("Recipient", safe.data(item.recipient)),
            ("Task", safe.data(item.task)),
        ]
        if not note.open:
            facts.append(("Resolved", f"by {note.resolved_by}" + (f": {note.resolution}" if note.resolution else "")))
        safe.show(safe.facts(facts))
        with st.container(horizontal=True):
            url.page_link(
                "labels",
                "Show the pair",
                icon=":material/label:",
                dataset=dataset.id,
                labelling=labelling.id if labelling else None,
                profile=item.profile,
                context=note.context,
                attribute=note.attribute,
            )
            url.page_link(
                "review",
                "Decide it in the queue",
                icon=":material/keyboard:",
                dataset=dataset.id,
                context=note.context,
                attribute=note.attribute,
            )
        who = annotator.required()
        if note.open:
            _resolve(store, dataset, item, who)
        else:
            with page.Reporting("Nothing was reopened.", StoreError):
                once.button(
                    "Reopen",
                    lambda: reopen_comment(store, dataset.id, who, note),
                    key=f"review.comment.reopen.{note.id}",
                    icon=":material/undo:",
                    disabled=not who,
                )


def _resolve(store: Store, dataset: DatasetRow, item: PairComment, who: str) -> None:
    key = f"review.comment.{item.comment.id}"
    with st.form(key, enter_to_submit=True, border=False):
        why = st.text_input("Why is it resolved?", key=f"{key}.why", max_chars=LONGEST_REASON).strip()
        button = st.container()

    def resolve() -> None:
        if not why:
            raise StoreError("The reason is missing. Enter one and try again.")
        resolve_comment(store, dataset.id, who, item.comment.id, why)

    with page.Reporting("Nothing was resolved.", StoreError), button:
        once.button(
            "Resolve",
            resolve,
            key=f"{key}.resolve",
            submits=True,
            type="primary",
            icon=":material/check:",
            disabled=not who,
        )
