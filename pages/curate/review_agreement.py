"""Part of the Review page: how far people agree with each other and with the consensus, and what their decisions do."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from cimemories.analysis.pair_groups import GroupBy
from cimemories.analysis.people_agreement import (
    PeopleAgreement,
    people_agreement,
)
from cimemories.store import slices
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store
from cimemories.store.labellings import LabellingRow
from cimemories.ui import page, safe, tables, url
from cimemories.ui.safe import Html, tag
from pages.curate import (
    review_agreement_confusion,
    review_agreement_effect,
    review_agreement_models,
    review_agreement_slices,
)
from pages.curate.label_filters import choice
from pages.curate.review_agreement_figures import (
    EVERYONE,
    cell,
    comparison_columns,
    count_cell,
    count_head,
    download,
    flat,
    grid,
    head,
    said,
    shown,
)

BY = {GroupBy.DOMAIN: "domain", GroupBy.SPHERE: "sphere"}


def draw(store: Store, dataset: DatasetRow, labelling: LabellingRow | None) -> str:
    """Draws the part; returns the page's takeaway."""
    slice_id, blind_only = _scope(store, dataset)
    labelling_id = labelling.id if labelling else None
    found = people_agreement(store, dataset.id, labelling_id, blind_only=blind_only, slice_id=slice_id)
    if not found.answered:
        _nothing(found, dataset)
    else:
        _notes(found)
        _among(found, dataset, labelling)
        if labelling is None:
            page.notice("There is no labelling yet, so there is no consensus to compare people with.")
        else:
            _against(store, found, dataset, labelling)
        _groups(found, dataset, labelling)
    if labelling is not None:
        review_agreement_models.draw(store, labelling)
    review_agreement_slices.draw(store, dataset, labelling)
    review_agreement_effect.draw(store, dataset, labelling)
    return _takeaway(found)


def _scope(store: Store, dataset: DatasetRow) -> tuple[int | None, bool]:
    """Which answers count: of one slice or all, and the blind ones alone or all; as the URL says."""
    with store.read() as connection:
        drawn = {str(row.id): row for row in slices.all_rows(connection, dataset.id, slices.LABELS)}
    left, right, _ = st.columns([3, 3, 6], vertical_alignment="bottom")
    with left:
        chosen = choice(
            "Pairs", "slice", list(drawn), lambda i: f"slice {drawn[i].name} ({drawn[i].items})", "all decided pairs"
        )
    with right:
        answers = choice("Answers", "answers", ["blind"], lambda _: "given blind alone", "all answers")
    return (None if chosen is None else int(chosen)), answers == "blind"


def _nothing(found: PeopleAgreement, dataset: DatasetRow) -> None:
    where = f"in the slice '{found.sampled.row.name}'" if found.sampled else "of this dataset"
    how = "blind, without sight of the votes, " if found.blind_only else ""
    page.empty(
        "Nobody has answered here yet",
        f"No pair {where} has been decided {how}by a person for themselves. Agreement needs the answers of people; "
        "where two or more answer the same pairs, it says how far they agree with each other.",
        lambda: url.page_link(
            "review",
            "Open the queue",
            icon=":material/keyboard:",
            dataset=dataset.id,
            slice=found.sampled.row.id if found.sampled else None,
            blind=1 if found.blind_only else None,
        ),
    )


def _notes(found: PeopleAgreement) -> None:
    parts = [f"{tables.count(found.answered)} pairs answered"]
    if found.adjudicated:
        parts.append(
            f"{tables.count(found.adjudicated)} pairs were adjudicated with the others' answers in sight: that is "
            "nobody's own answer and not counted here"
        )
    if found.rule is not None:
        parts.append(f"the consensus is by {found.rule.name}")
    safe.inline(f"{'; '.join(parts)}. Intervals are 95 %, by 2,000 resamples of the pairs.", muted=True)
    if found.sampled is None:
        return
    drawn = found.sampled
    safe.inline(
        f"Slice '{drawn.row.name}': {tables.count(drawn.answered)} of {tables.count(drawn.row.items)} drawn pairs are "
        "answered. Every pair counts for as many pairs of its stratum as it stands for (Horvitz-Thompson weights), so "
        f"that shares, kappa and AC1 against the consensus speak for {tables.count(drawn.reached)} of the "
        f"{tables.count(drawn.population)} pairs that it was drawn from. Alpha among people is not weighted."
    )
    if drawn.covered < drawn.strata:
        page.notice(
            f"{tables.count(drawn.strata - drawn.covered)} of {tables.count(drawn.strata)} strata have no answer yet: "
            "what they hold is in no figure."
        )


def _among(found: PeopleAgreement, dataset: DatasetRow, labelling: LabellingRow | None) -> None:
    safe.heading("People among themselves")
    among = found.among
    rows: list[tuple[str, Html | str]] = [("Krippendorff's alpha", shown(among.alpha))]
    if among.pairs:
        rows.append(("All say the same", f"{tables.percent(among.share)} of the pairs that two or more answered"))
    rows.append(("Pairs", f"{tables.count(among.pairs)} answered by two or more people ({among.people} people)"))
    safe.show(safe.facts(rows))
    if not among.pairs:
        safe.inline(
            "Give a share of the pairs to several people (Queue, overlap), or let several work on one slice.",
            muted=True,
        )


def _against(store: Store, found: PeopleAgreement, dataset: DatasetRow, labelling: LabellingRow) -> None:
    safe.heading("People against the consensus")
    heads = [tag("th", "Who"), count_head("Answered"), count_head("Compared", "pairs with a counted vote")]
    rows = []
    for item in found.against:
        name = tag("b", EVERYONE) if item.who is None else item.who
        figures = item.comparison
        rows.append(
            [
                tag("td", name),
                count_cell(item.answered),
                count_cell(figures.items),
                cell(figures.agreement, "agreement"),
                cell(figures.kappa, "kappa"),
                cell(figures.ac1, "ac1"),
            ]
        )
    safe.show(grid([*heads, head("agreement"), head("kappa"), head("ac1")], rows))
    st.caption(
        "All people together say what most of them say; where as many say one thing as another, what was said last."
    )
    frame = pd.DataFrame(
        [
            {"who": item.who or EVERYONE, "answered": item.answered, **comparison_columns(item.comparison)}
            for item in found.against
        ]
    )
    download(frame, "people-against-consensus", found, dataset, labelling)
    review_agreement_confusion.draw(store, found, dataset, labelling)


def _groups(found: PeopleAgreement, dataset: DatasetRow, labelling: LabellingRow | None) -> None:
    asked = url.get("by")
    by = GroupBy(asked) if asked in {str(item) for item in BY} else GroupBy.DOMAIN
    safe.heading(f"By {BY[by]}")
    key = "agreement.by"
    st.session_state[key] = str(by)
    st.segmented_control(
        "By",
        [str(item) for item in BY],
        key=key,
        required=True,
        width="content",
        label_visibility="collapsed",
        on_change=lambda: url.put(by=st.session_state[key]),
    )
    frame = found.by[by]
    names = ("alpha", "agreement", "kappa", "ac1") if labelling is not None else ("alpha",)
    heads = [
        tag("th", BY[by].capitalize()),
        count_head("Answered", "pairs that somebody answered"),
        count_head("By two or more", "pairs that alpha rests on"),
        *(head(name) for name in names),
    ]
    rows = [
        [
            tag("td", str(row["name"])),
            count_cell(row["answered"]),
            count_cell(row["shared"]),
            *(cell(row[name], name) for name in names),
        ]
        for row in frame.to_dict("records")
    ]
    safe.show(grid(heads, rows))
    st.caption("Alpha is among people; the other figures are of all people together against the consensus.")
    download(flat(frame.drop(columns="id")), f"people-by-{by}", found, dataset, labelling)


def _takeaway(found: PeopleAgreement) -> str:
    if not found.answered:
        return "No pair has been answered by a person yet, so there is no agreement to speak of."
    together = found.against[0].comparison
    people = len(found.against) - 1
    who = "One person has" if people == 1 else f"{people} people have"
    text = f"{who} answered {tables.count(found.answered)} pairs"
    if together.items:
        text += (
            f"; they give the label of the consensus to {said(together.agreement, share=True)} of "
            f"{tables.count(together.items)} (Gwet's AC1 {said(together.ac1)})"
        )
    if found.among.alpha.value is None:
        return f"{text}. Among themselves alpha is undefined: {found.among.alpha.why}."
    return f"{text}. Among themselves alpha is {said(found.among.alpha)} over {tables.count(found.among.pairs)} pairs."
