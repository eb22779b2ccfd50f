"""Part of the Review page: how far people agree with each other and with the consensus, and the effect of their
decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from cimemories import extras
from cimemories.agreement.models import ORDER
from cimemories.agreement.people import Against, PeopleAgreement, answered, cell_pairs, people_agreement
from cimemories.answer import Table
from cimemories.answers.people import EVERYONE, effect_of, people, with_itself
from cimemories.flows.catalogue import all_runs
from cimemories.flows.flows import shared_flows
from cimemories.flows.labels import LABELS
from cimemories.flows.scope import Scope, resolve_scope
from cimemories.labels.votes import GroupBy
from cimemories.metrics import sentences
from cimemories.review.effect import DecisionEffect, decision_effect, moved_pairs
from cimemories.review.index import pair_index
from cimemories.review.sampling import (
    USUAL_SIZE,
    delete_slice,
    draw_slice,
    draw_usual_slice,
    expected_interval,
    label_slices,
    population,
    progress,
    slice_items,
)
from cimemories.store import audits
from cimemories.store.audits import SliceRow
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError
from cimemories.store.labellings import LabellingRow
from cimemories.store.runs import RunRow
from cimemories.text import count, percent, sentence
from cimemories.ui import annotator, answers, once, page, safe, tables, url
from cimemories.ui.safe import tag
from pages.curate.label_matrix import choice
from pages.curate.pair_panel import go_to_pair, pair_table

LABEL_NAMES = [str(LABELS[code]) for code in ORDER]
MOST_SEED = 2**31 - 1
_NOTICE = "agreement.notice"
_DRAWN = "agreement.drawn"  # the slice to be answered now


def draw(store: Store, dataset: DatasetRow, labelling: LabellingRow | None, filters_box: DeltaGenerator) -> str:
    """Draw the part, and return the page's takeaway. filters_box: the place of rarely used controls."""
    slices = label_slices(store, dataset.id)
    by_id = {str(row.id): f"{row.name} ({row.items})" for row in slices}
    with filters_box:
        chosen = choice("Audit slice", "slice", list(by_id), by_id.__getitem__, "none")
        blind_only = choice("Answers", "answers", ["blind"], lambda _: "blind only", "all answers") == "blind"
    result = people_agreement(
        store,
        dataset.id,
        labelling.id if labelling else None,
        blind_only=blind_only,
        slice_id=None if chosen is None else int(chosen),
    )
    parts = [
        f"{dataset.name} (simulated)" if dataset.simulated else dataset.name,
        f"slice {by_id[chosen]}" if chosen else "all decided pairs",
        "blind answers only" if blind_only else "",
        f"consensus by {result.rule.name}" if result.rule else "",
    ]
    safe.inline(", ".join(filter(None, parts)), muted=True)
    shown = people(result)
    about = {
        "dataset": dataset.name,
        "labelling": result.labelling_id,
        "rule": result.rule and result.rule.text,
        "answers": "blind" if blind_only else "all",
        "slice": result.sampled and result.sampled.row.name,
    }
    drawn = Drawn(store, dataset, labelling, result, about)
    if not result.answered:
        _nothing(result, dataset)
    if result.sampled is None:
        _no_sample(store, result, dataset, labelling)
    elif result.answered and result.sampled.covered < result.sampled.strata:
        missing, strata = result.sampled.strata - result.sampled.covered, count(result.sampled.strata)
        page.notice(f"{count(missing)} of {strata} strata have no answer yet; their pairs are left out.")
    if not result.answered:
        _slices(store, dataset, labelling, slices)
    else:
        drawn.draw(shown.among)
        if not result.among.pairs:
            safe.inline("Let several people answer one slice, or set an overlap (Set up, Overlap).", muted=True)
        if labelling is None:
            page.notice("Without a labelling there is no consensus to compare people with.")
        else:
            drawn.draw(shown.against)
            _confusion(drawn)
            for place in extras.panels("agreement").values():
                extras.load(place)(store, dataset.id, labelling.id)
        options = {str(item): str(item) for item in shown.by}
        by = page.choice("By", options, "agreement.by", "by", default=str(GroupBy.DOMAIN), visible=False)
        drawn.draw(shown.by[GroupBy(by)])
        safe.show(safe.lines(map(sentence, shown.notes)))
        _slices(store, dataset, labelling, slices)
    if labelling is not None:
        page.fold(
            "The model with itself: repeated votes and personas, apart from people",
            ":material/smart_toy:",
            "agreement.box.models",
            lambda: answers.show(
                with_itself(store, labelling), "agreement.models", {"labelling": labelling.id, "model": labelling.model}
            ),
        )
    runs = {row.id: row for row in reversed(all_runs(store)) if row.dataset == dataset.id}
    page.fold(
        "What the decisions do to a run",
        ":material/balance:",
        "agreement.box.effect",
        lambda: _effect(store, dataset, labelling, runs),
    )
    return shown.sentence


@dataclass(frozen=True)
class Drawn:
    """The answer that is drawn. about: provenance of its files."""

    store: Store
    dataset: DatasetRow
    labelling: LabellingRow | None
    result: PeopleAgreement
    about: Mapping[str, object]

    def draw(self, table: Table) -> None:
        """Draw a table under its caption, with its exports."""
        safe.heading(table.caption)
        tables.grid(table, table.caption)
        self.export(table)

    def export(self, table: Table) -> None:
        simulated = ("labels",) * bool(self.labelling and self.labelling.simulated)
        answers.export(table, f"agreement.{table.caption.lower().replace(' ', '-')}", self.about, simulated)


def _no_sample(store: Store, result: PeopleAgreement, dataset: DatasetRow, labelling: LabellingRow | None) -> None:
    """Explain the limits of figures without a random sample, and draw a button that samples."""
    together = result.against[0]
    if result.answered:
        text = (
            "The queue picks the most useful pairs, so these figures do not describe all pairs. Draw a random slice "
            "for that."
        )
        # Columns are the consensus: with one label, agreement beyond chance is 0 whatever people answer.
        labels = [LABEL_NAMES[n] for n, code in enumerate(ORDER) if together.counts[:, code].any()]
        if len(labels) == 1:
            text += (
                f" The consensus of all {count(together.comparison.items)} compared ones is {labels[0]}, so kappa is 0 "
                "or undefined whatever people answer."
            )
        page.notice(text)
    if labelling is None or store.read_only:
        return
    if (slice_id := st.session_state.pop(_DRAWN, None)) is not None:
        url.go("review", dataset=dataset.id, labelling=labelling.id, slice=slice_id, blind=1)
    size = min(USUAL_SIZE, len(pair_index(store, dataset.id, labelling.id)))
    me = annotator.required()
    with page.Reporting("No slice was drawn.", StoreError):
        once.button(
            safe.plain_label(f"Sample {count(size)} pairs at random and answer them"),
            lambda: draw_usual_slice(store, labelling.id, me),
            lambda new: st.session_state.update({_DRAWN: new}),
            type="primary",
            icon=":material/casino:",
            key="agreement.slice.usual",
            disabled=not me,
        )


def _nothing(result: PeopleAgreement, dataset: DatasetRow) -> None:
    where = f"in the slice '{result.sampled.row.name}'" if result.sampled else "of this dataset"
    how = " blind" if result.blind_only else ""
    page.empty(
        "No answers here yet",
        f"No pair {where} has been decided{how} by a person. Agreement compares the answers of people, with each other "
        "where two or more answer the same pair, and with the consensus.",
        lambda: url.page_link(
            "review",
            "Open the queue",
            icon=":material/keyboard:",
            dataset=dataset.id,
            slice=result.sampled.row.id if result.sampled else None,
            blind=1 if result.blind_only else None,
        ),
    )


def _confusion(drawn: Drawn) -> None:
    """Draw the confusion table of one person, or of all together, and the pairs behind the chosen cell."""
    result, store, dataset, labelling = drawn.result, drawn.store, drawn.dataset, drawn.labelling
    assert labelling is not None
    with st.columns([3, 9])[0]:
        who = choice("Whose labels", "who", [str(item.person) for item in result.against if item.person], str, EVERYONE)
    item = next(item for item in result.against if item.person == who)
    if not item.counts.sum():
        page.notice("None of these pairs has a counted vote, so there is nothing to compare.")
        return
    cells = {f"{LABEL_NAMES[i]}-{LABEL_NAMES[j]}": (ORDER[i], ORDER[j]) for i in range(3) for j in range(3)}
    named = url.get("cell") or ""
    texts = [safe.glyphed(LABELS[code]) for code in ORDER]
    safe.inline(f"Rows: {item.person or EVERYONE}. Columns: the consensus. Click a cell to see its pairs.", muted=True)
    with st.container(key="confusion"):
        _cells(item, texts, cells, named)
    chosen = cells.get(named)
    frame = pd.DataFrame([[item.counts[i, j] for j in ORDER] for i in ORDER], columns=LABEL_NAMES)
    frame.insert(0, "person \\ consensus", LABEL_NAMES)
    drawn.export(Table(frame.assign(who=who or EVERYONE), {}, "confusion"))
    if chosen is None:
        return
    slice_id = result.sampled.row.id if result.sampled else None
    data = answered(store, dataset.id, labelling.id, blind_only=result.blind_only, slice_id=slice_id)
    pairs = cell_pairs(store, dataset.id, data, item.person, *chosen)
    label, consensus = (str(LABELS[code]) for code in chosen)
    safe.heading(f"{count(len(pairs), 'pair')}: {label} by {item.person or EVERYONE}, {consensus} by the consensus")
    if pairs.empty:
        return
    selected = pair_table(
        pairs,
        f"agreement.pairs.{item.person}.{label}.{consensus}",
        {"people": ("text", "People")},
        "The pairs behind a cell of the confusion table",
        "Select a row to see its votes on the Labels page.",
    )
    drawn.export(Table(pairs, {}, "confusion pairs"))
    if selected is not None:
        go_to_pair(dataset, labelling, pairs.iloc[selected])


def _cells(item: Against, names: Sequence[str], cells: Mapping[str, tuple[int, int]], chosen: str) -> None:
    widths = [2, 2, 2, 2, 4]
    for column, name in zip(st.columns(widths)[1:4], names, strict=True):
        with column:
            safe.inline(name, strong=True)
    # Within a slice the table has weights, so that its shares are those of all pairs; counts are of answered pairs.
    weighted = item.comparison.table.sum()
    for i, name in enumerate(names):
        row = st.columns(widths, vertical_alignment="center")
        with row[0]:
            safe.inline(name, strong=True)
        for j, column in enumerate(row[1:4]):
            cell = f"{LABEL_NAMES[i]}-{LABEL_NAMES[j]}"
            number = int(item.counts[cells[cell]])
            column.button(
                safe.plain_label(f"{count(number)} ({percent(item.comparison.table[cells[cell]] / weighted)})"),
                key=f"agreement.cell.{cell}",
                type="primary" if chosen == cell else "secondary",
                disabled=number == 0,
                width="stretch",
                # cell=cell: the loop's last cell would be that of every button otherwise.
                on_click=url.durable(lambda cell=cell: url.put(cell=None if chosen == cell else cell)),
            )


def _slices(store: Store, dataset: DatasetRow, labelling: LabellingRow | None, slices: Sequence[SliceRow]) -> None:
    for notice in page.kept_notices(_NOTICE):
        page.notice(notice)
    if slices:
        safe.heading("Random slices")
        safe.inline("Each person who opens a slice answers all of it, blind, unless it is assigned.", muted=True)
        url.page_link("team", "Assign slices", icon=":material/assignment_ind:", tab="assignments", dataset=dataset.id)
    for row in slices:
        _slice(store, dataset, labelling, row)
    if labelling is None:
        page.notice("A slice is a sample of labelled pairs. Label the dataset first.")
        url.page_link("labels", "Label this dataset", icon=":material/label:", dataset=dataset.id)
    elif not store.read_only:
        page.fold(
            "Sample a slice of another size",
            ":material/tune:",
            "agreement.box.draw",
            lambda: _slice_form(store, labelling),
        )


def _slice_form(store: Store, labelling: LabellingRow) -> None:
    labelled = population(store, labelling.id)
    if not len(labelled):
        page.notice("No pair of this labelling has a counted vote yet, so there is nothing to sample.")
        return
    left, right, name_box, _ = st.columns([2, 2, 3, 5], vertical_alignment="bottom")
    usual = min(USUAL_SIZE, len(labelled))
    size = left.number_input("Pairs to sample", 1, len(labelled), usual, key="agreement.slice.size")
    seed = right.number_input(
        "Seed", 0, MOST_SEED, 0, key="agreement.slice.seed", help="The same seed samples the same pairs."
    )
    longest = audits.LONGEST_SLICE_NAME
    name = name_box.text_input(
        "Name", max_chars=longest, key="agreement.slice.name", placeholder=f"{int(size)} pairs, seed {int(seed)}"
    )
    with page.Reporting("This slice cannot be sampled.", StoreError):
        page.notice(expected_interval(labelled, int(size)))
    who = annotator.required()
    drew = f"Drew a slice of {count(int(size), 'pair')}."
    with page.Reporting("The slice was not saved.", StoreError):
        once.button(
            "Sample the slice",
            lambda: draw_slice(store, labelling.id, size=int(size), seed=int(seed), name=name, annotator=who),
            lambda _: page.keep_notices(_NOTICE, drew),
            icon=":material/casino:",
            key="agreement.slice.draw",
            disabled=not who,
        )


def _slice(store: Store, dataset: DatasetRow, labelling: LabellingRow | None, row: SliceRow) -> None:
    items = slice_items(store, row.id)
    text, queue, statistics, more = st.columns([6, 2, 2, 1], vertical_alignment="center")
    with text:
        half = row.manifest.get("half_width_at_80")
        expected = f"; ±{100 * half:.0f} points if people agree on 80 %" if isinstance(half, float) else ""
        total = count(row.items)
        detail = f"{total}, seed {row.seed}, sampled by {row.annotator} on {row.created[:10]}{expected}"
        people = [
            f"{who}: {count(done)} of {total} ({count(blind)} blind)"
            for who, (done, blind) in progress(store, dataset.id, items).items()
        ]
        lines = [
            tag("div", tag("b", row.name), f": {detail}"),
            tag("div", "; ".join(people) or "no answers yet", cls="ci-muted"),
        ]
        safe.show(tag("div", *lines, cls="ci-lines"))
    with queue:
        url.page_link(
            "review",
            "Answer blind",
            icon=":material/keyboard:",
            dataset=dataset.id,
            labelling=labelling.id if labelling else None,
            slice=row.id,
            blind=1,
        )
    with statistics:
        st.button(
            "Show its agreement",
            key=f"agreement.slice.show.{row.id}",
            type="tertiary",
            icon=":material/query_stats:",
            disabled=url.get_int("slice") == row.id,
            on_click=url.durable(lambda: url.put(slice=row.id)),
        )
    with more, st.popover("", icon=":material/more_vert:", type="tertiary"):
        st.text("This deletes the slice. Answers to its pairs stay.")

        def deleted(_: None) -> None:
            page.keep_notices(_NOTICE, f"Deleted '{row.name}'.")
            url.replace(slice=None)

        once.button(
            "Delete the slice",
            lambda: delete_slice(store, row.id),
            deleted,
            key=f"agreement.slice.delete.{row.id}",
            type="primary",
        )
        frame = pd.DataFrame([vars(item) for item in items]).drop(columns="response")
        simulated = "simulated labels" if labelling is not None and labelling.simulated else ""
        tables.csv_button(
            frame.assign(slice=row.name, seed=row.seed, simulated=simulated),
            f"slice-{row.id}.csv",
            key=f"agreement.slice.csv.{row.id}",
        )


def _effect(store: Store, dataset: DatasetRow, labelling: LabellingRow | None, runs: dict[str, RunRow]) -> None:
    if not runs:
        page.notice("This dataset has no run yet. Decisions move Violation@n and completeness once there is one.")
        return
    with st.columns([4, 8])[0]:
        run = choice("Run", "run", list(runs), lambda i: f"{runs[i].name} ({i})", None) or next(iter(runs))
    scope = resolve_scope(store, run, labelling.id if labelling else None)
    flows = shared_flows(store)
    samples = scope.run.samples
    requested = min(max(url.get_int("n") or samples, 1), samples)
    effect = decision_effect(flows, scope, requested)
    if effect.n < requested:
        page.notice(f"Violation is {sentences.read_at(effect.n, samples)}.")
    page.badge_simulated(scope.simulated)
    if not effect.decided:
        page.notice("No pair of this run has a decision, so the labels are those of the consensus.")
        return
    shown = effect_of(effect)
    safe.heading(shown.sentence)
    tables.grid(shown.rows, shown.rows.caption)
    safe.show(safe.lines(map(sentence, shown.notes)))
    if not effect.changed:
        page.notice("Every decision agrees with the consensus, so no number moves.")
        return
    _moved(effect, moved_pairs(flows, scope, effect.moved), dataset, labelling, scope)


def _moved(
    effect: DecisionEffect, frame: pd.DataFrame, dataset: DatasetRow, labelling: LabellingRow | None, scope: Scope
) -> None:
    safe.heading("The pairs that moved them most")

    def points(value: float) -> str:
        return "undefined without it" if value != value else f"{100 * value:+.3f}"

    selected = pair_table(
        frame.assign(
            violation=frame["violation"].map(points),
            completeness=frame["completeness"].map(points),
            consensus=frame["consensus"].replace("", "no vote"),
        ),
        f"agreement.moved.{scope.run.id}.{effect.n}",
        {
            "violation": ("text", "Violation"),
            "completeness": ("text", "Completeness"),
            "consensus": ("text", "Consensus"),
            "decision": ("text", "Decision"),
        },
        "Decided pairs by how far they move the numbers of the run, most first",
        f"Points by which the decision moves Violation@{effect.n} and completeness, all other decisions kept; they do "
        "not add up. Select a row to see its votes.",
    )
    # The changes by the decision, not the numbers themselves.
    named = frame.rename(columns={name: f"{name}_change" for name in ("violation", "completeness")})
    about = {"run": scope.run.id, "n": effect.n}
    answers.export(Table(named, {}), f"agreement.decisions-{scope.run.id}", about, scope.simulated)
    if selected is not None and labelling is not None:
        go_to_pair(dataset, labelling, frame.iloc[selected])
