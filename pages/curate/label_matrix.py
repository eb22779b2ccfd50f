"""Parts of the Labels page: which pairs are shown, the labelling's worker, the matrix of a profile and its counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from cimemories.curation import labelling
from cimemories.curation.spec import LabellingSpec
from cimemories.flows import catalogue
from cimemories.flows.labels import TOO_FEW_NAME
from cimemories.labels.matrix import Differs, Group, Matrix, MatrixView, view
from cimemories.model import Label, Profile, WorkStatus
from cimemories.seeds.packs import DEFAULTS, pack_files, persona_pack
from cimemories.seeds.reading import SeedError
from cimemories.store import labellings, work
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store
from cimemories.store.labellings import LabellingRow
from cimemories.text import count, display_name, exact_percent, sentence
from cimemories.ui import matrix, once, page, safe, tables, url
from cimemories.ui.annotator import Draft
from cimemories.ui.matrix import Deciding
from pages.curate.work import (
    BY_MODEL,
    WAYS,
    draw_failures,
    draw_form,
    draw_resume,
    draw_running,
    worker_button,
    worker_log,
)

# ---- dataset and labelling


def labelling_title(row: LabellingRow) -> str:
    """Return a labelling as an option: model, status, votes, personas other than Westin's, and whether it is
    simulated."""
    simulated = ", simulated" if row.simulated else ""
    if row.imported:
        return f"{row.model}: imported, without votes{simulated}"
    pack = "" if row.pack == DEFAULTS["personas"] else f", personas {row.pack}"
    # Active work moves on while the list stays as it was drawn; `watch` shows its progress below.
    status = "in progress" if row.status in work.ACTIVE else row.status
    return f"{row.model}: {status}, {count(row.draws, 'vote')} per persona{pack}{simulated}"


def draw_scope(
    store: Store,
    rows: Sequence[DatasetRow],
    prefix: str,
    left: DeltaGenerator,
    right: DeltaGenerator,
    title: Callable[[LabellingRow], str] = labelling_title,
    *,
    voted: bool = False,
    above: DeltaGenerator | None = None,
) -> tuple[DatasetRow, LabellingRow | None]:
    """Draw the scope bar's selectboxes and return the chosen dataset and labelling. voted: offer only labellings with a
    vote. above: where notices go if the bar is inside a closed popover."""
    by_id = {row.id: row for row in rows}
    with left:
        chosen = page.select(
            "Dataset", list(by_id), lambda i: by_id[i].name, f"{prefix}.dataset", "dataset", above=above
        )
    dataset = by_id[chosen] if chosen is not None else rows[0]
    labelled = catalogue.labellings_of(store, dataset.id, voted=voted)
    with right:
        labelling = page.select(
            "Labelling", list(labelled), lambda i: title(labelled[i]), f"{prefix}.labelling", "labelling", above=above
        )
    return dataset, labelled.get(labelling or "")


# ---- filters, bound to the URL


UNLABELLED = "unlabelled"
NO_SPHERE = "none"
KINDS = (*map(str, Label), TOO_FEW_NAME, UNLABELLED)
DIFFERS = {
    Differs.DISSENT: "any persona dissents",
    Differs.DECIDED: "decided by a person",
    Differs.CHANGED: "decision differs from consensus",
}


@dataclass(frozen=True)
class Filters:
    """The filters of the matrix; None and () mean all. sphere '' means the contexts without one."""

    domain: str | None
    event: str | None
    sphere: str | None
    kinds: tuple[str, ...]
    differs: Differs | None

    @property
    def labels(self) -> tuple[str | None, ...]:
        return tuple(None if kind == UNLABELLED else kind for kind in self.kinds)

    @property
    def any(self) -> bool:
        return any((self.domain, self.event, self.sphere is not None, self.kinds, self.differs))


def word(kind: str | None) -> str:
    return UNLABELLED if kind is None else str(kind)


def draw_filters(profile: Profile, counts: Mapping[str, int], *, spheres: bool) -> Filters:
    """Draw the filters and return them. counts: pairs by kind, shown on the pills. spheres: offer a filter by sphere.
    The lists are in a popover, since the browser takes longer to draw them than the matrix."""
    left, right = st.columns([7, 4], vertical_alignment="bottom")
    with left:
        linked = (url.get("label") or "").split(",")
        shown = {kind: f"{kind} ({count(counts.get(kind, 0))})" for kind in KINDS if counts.get(kind) or kind in linked}
        kinds = page.several("Current label", shown, "labels.kinds", "label", between=",", pills=True)
    above = st.container()
    sphere = None
    chosen = [display_name(name) for param in ("domain", "event") if (name := url.get(param))]
    if spheres and (name := url.get("sphere")):
        chosen.append(_sphere(name))
    if (name := url.get("differs")) in set(Differs):
        chosen.append(DIFFERS[Differs(name)])
    with (
        right,
        st.popover(
            safe.plain_label(", ".join(chosen) or "All domains, events and spheres", 60),
            icon=":material/filter_alt:",
            key="labels.filter",
            width="stretch",
        ),
    ):
        domain = choice(
            "Domain", "domain", sorted({a.domain for a in profile.attributes}), display_name, "all domains", above=above
        )
        events = list(dict.fromkeys(a.event for a in profile.attributes))
        event = choice("Event", "event", events, display_name, "all events", above=above)
        if spheres:
            names = list(dict.fromkeys(c.sphere or NO_SPHERE for c in profile.contexts))
            sphere = choice("Sphere", "sphere", names, _sphere, "all spheres", above=above)
        differs = choice(
            "Disagreement", "differs", list(map(str, Differs)), lambda d: DIFFERS[Differs(d)], "all pairs", above=above
        )
    return Filters(
        domain, event, "" if sphere == NO_SPHERE else sphere, tuple(kinds), Differs(differs) if differs else None
    )


def clear() -> None:
    """Show all pairs again."""
    url.put(domain=None, event=None, sphere=None, label=None, differs=None)


def _sphere(name: str) -> str:
    return "without a sphere" if name == NO_SPHERE else display_name(name)


def choice(
    label: str,
    param: str,
    options: Sequence[str],
    title: Callable[[str], str],
    everything: str | None,
    *,
    above: Any = None,
) -> str | None:
    """Draw a selectbox bound to a URL parameter and return its value; None: all. everything: the title of a first
    option that means all; if it is None, the first of `options` is the default. An unknown option in a link is dropped,
    with a notice in the container `above` (None: at the list). title: returns the title of an option. label: a
    literal."""
    texts = ({"": everything} if everything else {}) | {option: title(option) for option in options}
    missing = f"{label} '{{}}' is not here: all are shown."
    key, default = f"filters.{param}", "" if everything else options[0]
    picked = page.choice(label, texts, key, param, default=default, boxed=True, missing=missing, above=above)
    return picked or None


# ---- labelling work: started, watched, stopped and resumed; shared with generations on the Profiles page


SIMULATED_MODEL = "sim-labeler"
RESUMABLE = (WorkStatus.INTERRUPTED, WorkStatus.CANCELLED, WorkStatus.FAILED)


def _attempted(row: LabellingRow) -> int:
    """Return the number of ballots that no call is owed for, usable or not."""
    return row.expected - row.ballots.get(labellings.OWED, 0)


def is_voting(row: LabellingRow | None) -> bool:
    """Return whether a worker is still collecting votes."""
    return row is not None and row.status in work.ACTIVE


def watch(store: Store, row: LabellingRow | None, profile: int | None) -> None:
    """Draw the progress of the labelling; nothing if it is finished and complete. profile: the one in view."""
    if row is None:
        return
    if is_voting(row):
        voted_before = _voted(store, row, profile)

        # Only the fragment runs each second. It reruns the page once the work has ended, when the first votes on the
        # profile arrive, and when their number has doubled: the page counts all votes of the labelling each time.
        def live() -> None:
            now = catalogue.labellings_of(store, row.dataset).get(row.id)
            voted = _voted(store, row, profile)
            if (
                now is None
                or not is_voting(now)
                or voted[0] >= max(1, min(2 * voted_before[0], voted_before[1])) > voted_before[0]
            ):
                st.rerun()
            else:
                _running(store, now, voted)

        st.fragment(live, run_every="1s")()
        return
    if row.status in RESUMABLE:
        _stopped(store, row)
    elif _attempted(row) > row.ballots.get(labellings.OK, 0):
        _failures(store, row.id)
        if row.ballots.get("failed"):
            worker_button(store, row.id, "Retry failed ballots", key=f"retry.{row.id}", icon=":material/resume:")


def _voted(store: Store, row: LabellingRow, profile: int | None) -> tuple[int, int]:
    """Return the profile's usable and planned ballots; 0 of 0 without a profile."""
    return (0, 0) if profile is None else catalogue.ballots_of(store, row.id, profile)


def _running(store: Store, row: LabellingRow, voted: tuple[int, int]) -> None:
    """Draw the progress of a running labelling. voted: usable and planned ballots of the profile in view."""
    done, (usable, planned) = _attempted(row), voted
    ballots = f"{count(done)} of {count(row.expected, 'ballot')}"
    if row.status == WorkStatus.QUEUED:
        text = f"Waiting for the worker to start: {ballots}."
    elif row.status == WorkStatus.CANCELLING:
        text = f"Cancelling: {ballots}; votes so far are kept."
    else:
        pace = once.pace(f"pace.{row.id}", done, row.expected, "ballots") or "measuring the pace"
        text = f"The personas are voting: {ballots}, {pace}."
    if not planned:
        of_profile = "None of them is of this profile."
    elif not usable:
        of_profile = f"The {count(planned, 'ballot')} of this profile will show here as they arrive."
    else:
        of_profile = f"Of this profile: {count(usable)} of {count(planned)}."
    # The error of running work says what slows it down.
    draw_running(store, row.id, row.status, done, row.expected, f"{text} {of_profile}", row.error)
    _failures(store, row.id)


def _stopped(store: Store, row: LabellingRow) -> None:
    left, right = st.columns([5, 1], vertical_alignment="center")
    with left:
        missing = row.expected - row.ballots.get(labellings.OK, 0)
        page.error(
            f"This labelling is {row.status}: {count(missing)} of {count(row.expected, 'ballot')} missing.",
            sentence(row.error),
            "Votes so far are kept. Resume to ask for the rest.",
        )
        _failures(store, row.id)
        worker_log(store, row.id)
    with right:
        draw_resume(store, row.id, width="stretch")


def _failures(store: Store, labelling_id: str) -> None:
    draw_failures("Missing ballots", catalogue.labelling_failures(store, labelling_id)[:5])


def start(store: Store, dataset: DatasetRow, row: LabellingRow | None) -> None:
    """Draw the form for a new labelling, folded if there is one already."""
    page.fold(
        "Start a labelling",
        ":material/how_to_vote:",
        "labels.box.start",
        lambda: _form(store, dataset),
        expanded=row is None,
    )


def _form(store: Store, dataset: DatasetRow) -> None:
    draft = Draft("start")
    left, right = st.columns([5, 3])
    with left:
        how = st.segmented_control("Who votes", WAYS, key=draft.key("how", BY_MODEL, WAYS), required=True)
    with right:
        names = list(dict.fromkeys(file.name for file in pack_files("personas", store.workspace)))
        help = "A pack of personas. You can add your own to the workspace."
        personas = draft.select("Personas", "personas", names, help=help)
        with page.Reporting("This pack cannot be used.", SeedError):
            pack = persona_pack(personas, store.workspace)
            safe.inline("; ".join(f"{p.name} {exact_percent(p.prior)}" for p in pack.personas), muted=True)
    draw_form(
        store,
        draft,
        LabellingSpec,
        str(how),
        fields=("draws", "profiles", "contexts", "temperature", "max_tokens", "timeout"),
        given={"dataset": dataset.name, "personas": personas},
        needed={},
        simulated=(SIMULATED_MODEL,),
        estimate=partial(labelling.estimate, store),
        plan=partial(labelling.plan, store),
        started=lambda new: url.put(labelling=new),
        label="Start",
    )


# ---- the matrix and its counts


MATRIX = "labels.matrix"
PIXELS_ABOVE, PIXELS_OF_MATCHES = 376, 46  # of the page around the matrix, and of the line on matches
COUNTS: dict[str, tables.Column] = {"necessary": "count", "inappropriate": "count", "ambiguous": "count"}


def draw(
    labels: Matrix, layout: MatrixView, filters: Filters, deciding: Deciding, *, voting: bool
) -> tuple[int, int] | None:
    """Draw the matrix and return the (attribute, context) under its cursor, None if no cell matches. voting: votes
    still arrive, so no context is discarded yet."""
    if not layout.rows or not layout.columns:
        page.notice("No attribute or context matches these filters. Clear them to see all.")
        return None
    above = PIXELS_ABOVE + (PIXELS_OF_MATCHES if filters.any else 0)
    shown = _drawing(labels, layout, above, voting=voting)
    attributes: list[int] = [row["id"] for row in shown["rows"]]
    contexts: list[int] = [column["id"] for column in shown["columns"]]
    attribute, last = url.get_int("attribute"), url.remembered("context") or ""
    context = url.get_int("context") or (int(last) if last.isdigit() else None)
    if attribute is not None and attribute not in labels.record.attribute_ids:
        page.notice(f"Attribute {attribute} of the link is not one of this profile's. Choose a cell.")
        url.replace(attribute=None)
    cursor = (
        attribute if attribute is not None and attribute in attributes else attributes[0],
        context if context is not None and context in contexts else contexts[0],
    )
    moved = matrix.matrix(shown, key=MATRIX, cursor=cursor, deciding=deciding)
    # The browser may report a pair that the filters have hidden since.
    if moved and moved[0] in attributes and moved[1] in contexts:
        url.replace(attribute=moved[0], context=moved[1])
        return moved
    return cursor


def _drawing(labels: Matrix, layout: MatrixView, above: int, *, voting: bool) -> dict[str, Any]:
    record, profile = labels.record, labels.record.profile
    by_attribute, by_context = labels.attribute_counts.tolist(), labels.context_counts.tolist()
    discarded = (labels.discarded & (not voting)).tolist()

    def heading(span: Group) -> dict[str, Any]:
        return {**vars(span), "name": display_name(span.name), "note": display_name(span.note)}

    return {
        "title": f"Labels of {profile.name}, attributes by contexts. The arrow keys move from pair to pair.",
        "rows": [
            {
                "id": record.attribute_ids[i],
                "key": profile.attributes[i].key,
                "statement": safe.clip(profile.attributes[i].statement, safe.FOLD),
                "counts": by_attribute[i],
            }
            for i in layout.rows
        ],
        "columns": [
            {
                "id": record.context_ids[j],
                "recipient": profile.contexts[j].recipient,
                "task": profile.contexts[j].task,
                "counts": by_context[j],
                "retained": bool(labels.retained[j]),
                "discarded": discarded[j],
            }
            for j in layout.columns
        ],
        "blocks": [heading(block) for block in layout.blocks],
        "spheres": [heading(sphere) for sphere in layout.spheres],
        "cells": layout.cells,
        "consensus": layout.consensus,
        "decided": layout.decided,
        "matched": layout.matches,
        "above": above,
    }


def filter_summary(layout: MatrixView, labels: Matrix, filters: Filters) -> str:
    """Describe in a sentence what the filters leave."""
    total = labels.effective.size
    hidden = len(labels.record.attribute_ids) - len(layout.rows), len(labels.record.context_ids) - len(layout.columns)
    parts = [f"{count(layout.matching)} of {count(total, 'pair')} match"]
    if any(hidden):
        parts.append(f"hidden: {count(hidden[0], 'attribute')} and {count(hidden[1], 'context')}")
    if filters.kinds or filters.differs:
        parts.append("the others are dimmed; press j for the next match, k for the previous one")
    return "; ".join(parts) + "."


def takeaway(labels: Matrix, *, voting: bool = False) -> str:
    """Describe the matrix in one sentence. voting: votes still arrive."""
    totals = labels.totals
    name = safe.option(labels.record.profile.name, 60)
    if voting and totals[None] == labels.effective.size:
        return f"{name}: no vote on any of {count(labels.effective.size, 'pair')} yet. A labelling is in progress."
    retained, contexts = int(labels.retained.sum()), len(labels.record.context_ids)
    parts = [f"{count(totals[kind])} {kind}" for kind in Label]
    if totals[TOO_FEW_NAME]:
        parts.append(f"{count(totals[TOO_FEW_NAME])} with {TOO_FEW_NAME}")
    if totals[None]:
        parts.append(f"{count(totals[None])} not labelled")
    decided = int(labels.decided.sum())
    people = f"; {count(decided)} decided by people" if decided else ""
    so_far = ". So far: a labelling is in progress" if voting else ""
    usable = "" if retained == contexts else f"; {retained} of {contexts} contexts retained"
    pairs = f"{count(labels.effective.size, 'pair')} of a fact and a recipient"
    return f"{name}: {pairs}, {', '.join(parts)}{usable}{people}{so_far}."


def counts(labels: Matrix, labelling: LabellingRow | None, *, voting: bool) -> None:
    """Draw the counts of every context and attribute, and all pairs as a file. voting: votes still arrive, so no
    context is discarded yet."""
    profile = labels.record.profile
    marks = {
        "profile": profile.name,
        "labelling": labelling.id if labelling else "",
        "labels": "simulated" if labelling is not None and labelling.simulated else "",
    }
    discarded = (labels.discarded & (not voting)).tolist()
    states = [
        "retained" if retained else "discarded" if dropped else "open"
        for retained, dropped in zip(labels.retained.tolist(), discarded, strict=True)
    ]
    contexts = pd.DataFrame(
        [
            (c.recipient, c.task, display_name(c.sphere or ""), *numbers, state)
            for c, numbers, state in zip(profile.contexts, labels.context_counts.tolist(), states, strict=True)
        ],
        columns=["recipient", "task", "sphere", *COUNTS, "retained"],
    )
    attributes = pd.DataFrame(
        [
            (a.key, a.statement, display_name(a.domain), display_name(a.event), *numbers)
            for a, numbers in zip(profile.attributes, labels.attribute_counts.tolist(), strict=True)
        ],
        columns=["attribute", "statement", "domain", "event", *COUNTS],
    )
    left, right = st.columns(2, gap="large")
    with left:
        safe.heading(f"{count(len(states), 'context')}, {sum(discarded)} of them discarded")
        safe.inline("A context is retained if one attribute is necessary there and another inappropriate.", muted=True)
        tables.table(
            contexts,
            key="labels.counts.contexts",
            columns={"retained": "text", "recipient": "text", **COUNTS, "task": "wide", "sphere": "text"},
            height=560,
            alt="Contexts of the profile with how many attributes are necessary, inappropriate and ambiguous there",
        )
        tables.csv_button(contexts.assign(**marks), "contexts.csv", key="labels.csv.contexts")
    with right:
        safe.heading(count(len(attributes), "attribute"))
        safe.inline("The number of contexts in which each is necessary, inappropriate or ambiguous.", muted=True)
        tables.table(
            attributes,
            key="labels.counts.attributes",
            columns={"attribute": "text", **COUNTS, "domain": "text", "event": "text", "statement": "wide"},
            height=560,
            alt="Attributes of the profile with in how many contexts each is necessary, inappropriate and ambiguous",
        )
        tables.csv_button(attributes.assign(**marks), "attributes.csv", key="labels.csv.attributes")
    tables.csv_button(
        _pairs(labels).assign(**marks), "pairs.csv", label="Download all pairs as CSV", key="labels.csv.pairs"
    )


def _pairs(labels: Matrix) -> pd.DataFrame:
    """Return every pair with its labels, one row each."""
    everything = view(labels)
    profile = labels.record.profile
    names = {
        "N": str(Label.NECESSARY),
        "I": str(Label.INAPPROPRIATE),
        "U": str(Label.AMBIGUOUS),
        "~": TOO_FEW_NAME,
        "-": "",
    }
    cells = zip(everything.cells, everything.consensus, everything.decided, strict=True)
    pairs = [(profile.attributes[i], profile.contexts[j]) for i in everything.rows for j in everything.columns]
    return pd.DataFrame(
        [
            (a.key, a.domain, a.event, c.recipient, c.task, names[label], names[consensus], decided == "1")
            for (a, c), (label, consensus, decided) in zip(pairs, cells, strict=True)
        ],
        columns=["attribute", "domain", "event", "recipient", "task", "label", "consensus", "decided"],
    )
