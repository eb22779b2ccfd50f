"""Part of the Labels page: the matrix of a profile, and its counts as tables."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from cimemories.analysis.matrix import Matrix, MatrixView, view
from cimemories.model import Label
from cimemories.ui import matrix as drawing
from cimemories.ui import page, safe, tables, url
from pages.curate.label_filters import Filters
from pages.curate.profile_view import words

PIXELS_ABOVE, PIXELS_OF_MATCHES = 376, 46  # of the page around the matrix, and of the line on what matches
COUNTS = {"necessary": "count", "inappropriate": "count", "ambiguous": "count"}


def draw(found: Matrix, seen: MatrixView, filters: Filters) -> tuple[int, int] | None:
    """The matrix; returns the (attribute, context) that its cursor is on, None where no cell is left."""
    if not seen.rows or not seen.columns:
        page.notice("No attribute or context is left by these filters. Clear them to see all.")
        return None
    shown = _drawing(found, seen, PIXELS_ABOVE + (PIXELS_OF_MATCHES if filters.any else 0))
    attributes, contexts = [row.id for row in shown.rows], [column.id for column in shown.columns]
    asked = url.get_int("attribute"), url.get_int("context") or _number(url.remembered("context"))
    if asked[0] is not None and asked[0] not in found.record.attribute_ids:
        page.notice(f"Attribute {asked[0]} of the link is none of this profile's. Choose a cell.")
        url.put(attribute=None)
    cursor = (
        asked[0] if asked[0] in attributes else attributes[0],
        asked[1] if asked[1] in contexts else contexts[0],
    )
    moved = drawing.matrix(shown, key="labels.matrix", cursor=cursor)
    if moved and moved.attribute in attributes and moved.context in contexts:
        url.put(attribute=moved.attribute, context=moved.context)
        return moved.attribute, moved.context
    return cursor


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


def _drawing(found: Matrix, seen: MatrixView, above: int) -> drawing.Drawing:
    profile = found.record.profile
    by_attribute, by_context = found.attribute_counts.tolist(), found.context_counts.tolist()
    retained = found.retained.tolist()
    return drawing.Drawing(
        title=f"Labels of {profile.name}, attributes by contexts. The arrow keys move from pair to pair.",
        rows=[
            drawing.Row(
                found.record.attribute_ids[i],
                profile.attributes[i].key,
                safe.clip(profile.attributes[i].statement, safe.FOLD),
                tuple(by_attribute[i]),
            )
            for i in seen.rows
        ],
        columns=[
            drawing.Column(
                found.record.context_ids[j],
                profile.contexts[j].recipient,
                profile.contexts[j].task,
                tuple(by_context[j]),
                retained[j],
            )
            for j in seen.columns
        ],
        blocks=[drawing.Span(words(b.name), words(b.note), b.start, b.end, b.counts) for b in seen.blocks],
        spheres=[drawing.Span(words(s.name), "", s.start, s.end, s.counts) for s in seen.spheres],
        cells=seen.cells,
        consensus=seen.consensus,
        decided=seen.decided,
        asked=seen.asked,
        above=above,
    )


def said(seen: MatrixView, found: Matrix, filters: Filters) -> str:
    """What the filters leave, in words."""
    total = found.effective.size
    hidden = len(found.record.attribute_ids) - len(seen.rows), len(found.record.context_ids) - len(seen.columns)
    parts = [f"{tables.count(seen.matching)} of {tables.count(total)} pairs match"]
    if any(hidden):
        parts.append(f"{hidden[0]} attributes and {hidden[1]} contexts are left out")
    if filters.kinds or filters.differs:
        parts.append("the others are dimmed; n and p go to the next and the previous match")
    return "; ".join(parts) + "."


def takeaway(found: Matrix) -> str:
    """The matrix in one sentence."""
    totals = found.totals
    kept, contexts = int(found.retained.sum()), len(found.record.context_ids)
    parts = [f"{tables.count(totals[kind])} {kind}" for kind in Label]
    if totals[None]:
        parts.append(f"{tables.count(totals[None])} not labelled")
    decided = int(found.decided.sum())
    people = f"; {tables.count(decided)} decided by people" if decided else ""
    return (
        f"{safe.option(found.record.profile.name, 60)}: {', '.join(parts)} of {tables.count(found.effective.size)} "
        f"pairs; {kept} of {contexts} contexts retained{people}."
    )


def counts(found: Matrix) -> None:
    """The counts of every context and attribute, and the whole matrix to take along."""
    profile = found.record.profile
    retained = found.retained.tolist()
    contexts = pd.DataFrame(found.context_counts.tolist(), columns=list(COUNTS))
    contexts.insert(0, "recipient", [c.recipient for c in profile.contexts])
    contexts.insert(1, "task", [c.task for c in profile.contexts])
    contexts.insert(2, "sphere", [words(c.sphere or "") for c in profile.contexts])
    contexts["retained"] = ["retained" if kept else "discarded" for kept in retained]
    attributes = pd.DataFrame(found.attribute_counts.tolist(), columns=list(COUNTS))
    attributes.insert(0, "attribute", [a.key for a in profile.attributes])
    attributes.insert(1, "statement", [a.statement for a in profile.attributes])
    attributes.insert(2, "domain", [words(a.domain) for a in profile.attributes])
    attributes.insert(3, "event", [words(a.event) for a in profile.attributes])
    left, right = st.columns(2, gap="large")
    with left:
        dropped = len(retained) - sum(retained)
        safe.heading(f"{len(retained)} contexts, {dropped} of them discarded")
        safe.inline("A context is retained where an attribute is necessary and another inappropriate.", muted=True)
        tables.table(
            contexts,
            key="labels.counts.contexts",
            columns={
                "retained": "text",
                "recipient": "text",
                **dict.fromkeys(COUNTS, "count"),
                "task": "wide",
                "sphere": "text",
            },
            height=560,
            alt="Contexts of the profile with how many attributes are necessary, inappropriate and ambiguous there",
        )
        tables.csv_button(contexts, "contexts.csv", key="labels.csv.contexts")
    with right:
        safe.heading(f"{len(attributes)} attributes")
        safe.inline("In how many contexts each is necessary, inappropriate and ambiguous.", muted=True)
        tables.table(
            attributes,
            key="labels.counts.attributes",
            columns={
                "attribute": "text",
                **dict.fromkeys(COUNTS, "count"),
                "domain": "text",
                "event": "text",
                "statement": "wide",
            },
            height=560,
            alt="Attributes of the profile with in how many contexts each is necessary, inappropriate and ambiguous",
        )
        tables.csv_button(attributes, "attributes.csv", key="labels.csv.attributes")
    tables.csv_button(_pairs(found), "pairs.csv", label="Download all pairs as CSV", key="labels.csv.pairs")


def _pairs(found: Matrix) -> pd.DataFrame:
    """Every pair with its labels, one row each."""
    everything = view(found)
    profile = found.record.profile
    names = {"N": str(Label.NECESSARY), "X": str(Label.INAPPROPRIATE), "?": str(Label.AMBIGUOUS), "-": ""}
    cells = zip(everything.cells, everything.consensus, everything.decided, strict=True)
    pairs = [(profile.attributes[i], profile.contexts[j]) for i in everything.rows for j in everything.columns]
    return pd.DataFrame(
        [
            (a.key, a.domain, a.event, c.recipient, c.task, names[label], names[consensus], decided == "1")
            for (a, c), (label, consensus, decided) in zip(pairs, cells, strict=True)
        ],
        columns=["attribute", "domain", "event", "recipient", "task", "label", "consensus", "decided"],
    )
