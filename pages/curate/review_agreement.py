"""Part of the Review page: how far people agree with each other and with the consensus, and what their decisions do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from cimemories.agreement.models import ORDER, draws_agreement
from cimemories.agreement.people import Against, PeopleAgreement, answered, cell_pairs, people_agreement
from cimemories.agreement.statistics import Estimate
from cimemories.flows.catalogue import all_runs
from cimemories.flows.flows import shared_flows
from cimemories.flows.labels import LABELS
from cimemories.flows.scope import Scope, resolve_scope
from cimemories.labels.votes import GroupBy
from cimemories.metrics import sentences
from cimemories.review.effect import DecisionEffect, decision_effect, moved_pairs
from cimemories.review.index import pair_index
from cimemories.review.random_share import share_agreement
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
from cimemories.text import count, decimal, percent
from cimemories.ui import annotator, once, page, safe, tables, url
from cimemories.ui.safe import Html, join, tag
from pages.curate.label_matrix import choice
from pages.curate.pair_panel import go_to_pair, pair_table

EVERYONE = "all people together"
LABEL_NAMES = [str(LABELS[code]) for code in ORDER]
MOST_SEED = 2**31 - 1
_NOTICE = "agreement.notice"
_DRAWN = "agreement.drawn"  # the slice that is to be answered now
# By statistic: the title of its column, and the definition that the title shows under the pointer.
STATISTICS = {
    "alpha": (
        "Krippendorff's alpha",
        "Krippendorff's alpha, nominal: 1 is full agreement, 0 what chance would give, over pairs that two or more "
        "answered.",
    ),
    "agreement": ("Same label", "Share of the pairs with the same label on both sides, not corrected for chance."),
    "kappa": (
        "Cohen's kappa",
        "Cohen's kappa: agreement beyond what chance would give, each side with the shares of its own labels.",
    ),
    "ac1": ("Gwet's AC1", "Gwet's AC1: like kappa, but stable where one label is much more frequent than the others."),
}
HINTS = {
    **dict(STATISTICS.values()),
    "Compared": "pairs with a counted vote",
    "By two or more": "pairs that alpha rests on",
    "Pairs": "with two counted votes or more",
}


def draw(store: Store, dataset: DatasetRow, labelling: LabellingRow | None, filters_box: DeltaGenerator) -> str:
    """Draws the part; returns the page's takeaway. filters_box: where what is chosen only now and then goes."""
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
    if result.answered:
        _notes(result)
    else:
        _nothing(result, dataset)
    if result.sampled is None:
        _no_sample(store, result, dataset, labelling)
    _slices(store, dataset, labelling, slices)
    if result.answered:
        _among(result)
        if labelling is None:
            page.notice("Without a labelling there is no consensus to compare people with.")
        else:
            _against(store, result, dataset, labelling)
            _random_share(store, dataset, labelling)
        _groups(result, dataset, labelling)
    if labelling is not None:
        page.fold(
            "The model with itself: repeated votes and personas, apart from people",
            ":material/smart_toy:",
            "agreement.box.models",
            lambda: _models(store, labelling),
        )
    runs = {row.id: row for row in reversed(all_runs(store)) if row.dataset == dataset.id}
    page.fold(
        "What the decisions do to a run",
        ":material/balance:",
        "agreement.box.effect",
        lambda: _effect(store, dataset, labelling, runs),
    )
    return _takeaway(result)


def _random_share(store: Store, dataset: DatasetRow, labelling: LabellingRow) -> None:
    """What the random share of the queue says of all pairs, which the pairs that came by their value do not."""
    agreement = share_agreement(store, pair_index(store, dataset.id, labelling.id), url.get_int("seed") or 0)
    if agreement.answered:
        safe.inline(agreement.sentence)


def _takeaway(result: PeopleAgreement) -> str:
    if not result.answered:
        return "No pair has been answered by a person yet, so there is no agreement to report."
    # All people together come first.
    together = result.against[0].comparison
    if together.items:
        of = f"{count(together.items)} pairs"
        if result.sampled is not None:
            of = f"all {count(result.sampled.reached)} pairs that the slice '{result.sampled.row.name}' stands for"
        return f"People give the label of the consensus to {_plain(together.agreement, share=True)} of {of}."
    if result.among.alpha.value is not None:
        pairs = count(result.among.pairs, "pair")
        return f"Among themselves people agree with alpha {_plain(result.among.alpha)} over {pairs}."
    return f"{count(result.answered, 'pair')} answered, none of them comparable yet."


def _no_sample(store: Store, result: PeopleAgreement, dataset: DatasetRow, labelling: LabellingRow | None) -> None:
    """What figures of pairs that nobody drew at random leave open, and the click that draws a sample."""
    together = result.against[0]
    if result.answered:
        text = (
            "Pairs of the queue are no sample: they came by their value or by somebody's filters. These figures are of "
            "them alone; those of a random slice speak for all pairs."
        )
        # Columns are the consensus: of one label, agreement beyond chance is 0 whatever people answer.
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


def _plain(estimate: Estimate, *, share: bool = False) -> str:
    """'0.61 [0.48, 0.72]', as percentages of a share; without the reason where it is undefined."""
    if estimate.value is None:
        return "undefined"
    value = percent(estimate.value) if share else decimal(estimate.value)
    return f"{value} {interval}" if (interval := _interval(estimate, share)) else value


def _interval(estimate: Estimate, share: bool) -> str:
    if estimate.low is None or estimate.high is None:
        return ""
    scale, digits = (100, 1) if share else (1, 2)
    return f"[{scale * estimate.low:.{digits}f}, {scale * estimate.high:.{digits}f}]"


def _shown(estimate: Estimate, notes: list[str], *, share: bool = False) -> Html:
    """The same for a table: the interval in smaller type; an undefined value as a dash, whose reason joins `notes`."""
    if estimate.value is None:
        if estimate.why not in notes:
            notes.append(estimate.why)
        return tag("span", f"– ({notes.index(estimate.why) + 1})", cls="ci-muted", title=estimate.why)
    interval = _interval(estimate, share)
    muted = tag("span", interval or "no interval", cls="ci-muted", title="" if interval else estimate.why)
    return join([percent(estimate.value) if share else decimal(estimate.value), " ", muted])


def _footnotes(notes: Sequence[str]) -> None:
    """Why values of the table above are missing."""
    if notes:
        text = "; ".join(f"({number}) undefined: {why}" for number, why in enumerate(notes, start=1))
        safe.inline(f"– {text}.", muted=True)


def _cell(estimate: Estimate, name: str, notes: list[str]) -> Html:
    return tag("td", _shown(estimate, notes, share=name == "agreement"), cls="ci-number")


def _number(text: int | str) -> Html:
    return tag("td", count(text) if isinstance(text, int) else text, cls="ci-number")


def _columns(name: str, estimate: Estimate) -> dict[str, object]:
    """One estimate as columns of a download: its value, interval, count, and why there is none."""
    return {
        name: estimate.value,
        f"{name}_low": estimate.low,
        f"{name}_high": estimate.high,
        f"{name}_pairs": estimate.items,
        f"{name}_note": estimate.why,
    }


def _download(
    frame: pd.DataFrame, name: str, result: PeopleAgreement, dataset: DatasetRow, labelling: LabellingRow | None
) -> None:
    """A CSV that says in every row where its numbers come from."""
    marked = frame.assign(
        dataset=dataset.name,
        labelling=result.labelling_id or "",
        rule=result.rule.text if result.rule else "",
        answers="blind" if result.blind_only else "all",
        slice=result.sampled.row.name if result.sampled else "",
        simulated="simulated labels" if labelling is not None and labelling.simulated else "",
    )
    tables.csv_button(marked, f"{name}-{dataset.id}.csv", key=f"agreement.csv.{name}")


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


def _notes(result: PeopleAgreement) -> None:
    # All people together come first, so there is one entry more than there are people.
    people = count(len(result.against) - 1, "person", "people")
    pairs = count(result.answered, "pair")
    text = f"{count(result.in_force, 'decision')} in force, by {people} on {pairs}; undone ones are not counted."
    if result.adjudicated:
        text += f" {count(result.adjudicated, 'adjudication')} left out: made with the others' answers in sight."
    safe.inline(text)
    safe.inline("Intervals are 95 %, from 2,000 bootstrap resamples of the pairs.", muted=True)
    if (sampled := result.sampled) is None:
        return
    safe.inline(
        f"Slice '{sampled.row.name}': {count(sampled.answered)} of {count(sampled.row.items)} sampled pairs are "
        "answered. Each pair has the weight of the pairs of its stratum that it represents (Horvitz-Thompson): shares, "
        f"kappa and AC1 against the consensus cover {count(sampled.reached)} of the {count(sampled.population)} pairs "
        "that were sampled from. Alpha among people is not weighted."
    )
    if sampled.covered < sampled.strata:
        missing = sampled.strata - sampled.covered
        page.notice(f"{count(missing)} of {count(sampled.strata)} strata have no answer yet; their pairs are left out.")


def _among(result: PeopleAgreement) -> None:
    safe.heading("People among themselves")
    among = result.among
    notes: list[str] = []
    rows: list[tuple[str, Html | str]] = [("Krippendorff's alpha", _shown(among.alpha, notes))]
    if among.pairs:
        rows.append(("Same label", f"{percent(among.share)} of the pairs that two or more answered"))
    rows.append(("Pairs", f"{count(among.pairs)} answered by two or more people ({among.people} people)"))
    safe.show(safe.facts(rows))
    _footnotes(notes)
    if not among.pairs:
        safe.inline("Let several people answer one slice, or set an overlap (Set up, Overlap).", muted=True)


def _against(store: Store, result: PeopleAgreement, dataset: DatasetRow, labelling: LabellingRow) -> None:
    safe.heading("People against the consensus")
    names = ("agreement", "kappa", "ac1")
    titles = ["Who", "Answered", "Compared", *(STATISTICS[name][0] for name in names)]
    cells, rows = [], []
    notes: list[str] = []
    for item in result.against:
        estimates = {name: getattr(item.comparison, name) for name in names}
        who, answered_pairs, compared = item.who or EVERYONE, item.answered, item.comparison.items
        first = tag("td", item.who or tag("b", EVERYONE)), _number(answered_pairs), _number(compared)
        cells.append(tag("tr", *first, *(_cell(value, name, notes) for name, value in estimates.items())))
        row: dict[str, object] = {"who": who, "answered": answered_pairs, "pairs": compared}
        for name, value in estimates.items():
            row |= _columns(name, value)
        rows.append(row)
    safe.show(safe.wide(safe.grid(titles, cells, hints=HINTS), "People against the consensus"))
    _footnotes(notes)
    st.caption("All people together: the label that most of them give; on a tie, the one given last.")
    _download(pd.DataFrame(rows), "people-against-consensus", result, dataset, labelling)
    _confusion(store, result, dataset, labelling)


def _confusion(store: Store, result: PeopleAgreement, dataset: DatasetRow, labelling: LabellingRow) -> None:
    """The confusion table of one person, or of all together, and the pairs behind the cell that is chosen."""
    people = [str(item.who) for item in result.against if item.who is not None]
    with st.columns([3, 9])[0]:
        who = choice("Whose labels", "who", people, str, EVERYONE)
    item = next(item for item in result.against if item.who == who)
    if not item.counts.sum():
        page.notice("None of these pairs has a counted vote, so there is nothing to compare.")
        return
    chosen = _confusion_buttons(item)
    frame = pd.DataFrame([[item.counts[i, j] for j in ORDER] for i in ORDER], columns=LABEL_NAMES)
    frame.insert(0, "person \\ consensus", LABEL_NAMES)
    _download(frame.assign(who=who or EVERYONE), "confusion", result, dataset, labelling)
    if chosen is None:
        return
    slice_id = result.sampled.row.id if result.sampled else None
    data = answered(store, dataset.id, labelling.id, blind_only=result.blind_only, slice_id=slice_id)
    pairs = cell_pairs(store, dataset.id, data, item.who, *chosen)
    label, consensus = (str(LABELS[code]) for code in chosen)
    title = f"{count(len(pairs), 'pair')}: {label} by {item.who or EVERYONE}, {consensus} by the consensus"
    safe.heading(title)
    if pairs.empty:
        return
    selected = pair_table(
        pairs,
        f"agreement.pairs.{item.who}.{label}.{consensus}",
        {"people": ("text", "People")},
        "The pairs behind a cell of the confusion table",
        "Select a row to see its votes on the Labels page.",
    )
    _download(pairs, "confusion-pairs", result, dataset, labelling)
    if selected is not None:
        go_to_pair(dataset, labelling, pairs.iloc[selected])


def _confusion_buttons(item: Against) -> tuple[int, int] | None:
    """The confusion table as buttons; the cell (person's code, consensus's code) that the URL names."""
    cells = {f"{LABEL_NAMES[i]}-{LABEL_NAMES[j]}": (ORDER[i], ORDER[j]) for i in range(3) for j in range(3)}
    chosen = url.get("cell") or ""
    names = [safe.glyphed(LABELS[code]) for code in ORDER]
    safe.inline(f"Rows: {item.who or EVERYONE}. Columns: the consensus. Click a cell to see its pairs.", muted=True)
    with st.container(key="confusion"):
        _cells(item, names, cells, chosen)
    return cells.get(chosen)


def _cells(item: Against, names: Sequence[str], cells: Mapping[str, tuple[int, int]], chosen: str) -> None:
    widths = [2, 2, 2, 2, 4]
    for column, name in zip(st.columns(widths)[1:4], names, strict=True):
        with column:
            safe.inline(name, strong=True)
    # Within a slice the table has weights, so that its shares are those of all pairs; counts are of what was answered.
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


def _groups(result: PeopleAgreement, dataset: DatasetRow, labelling: LabellingRow | None) -> None:
    title = st.container()
    options = {str(item): str(item) for item in (GroupBy.DOMAIN, GroupBy.SPHERE)}
    by = GroupBy(page.choice("By", options, "agreement.by", "by", default=str(GroupBy.DOMAIN), visible=False))
    with title:
        safe.heading(f"By {by}")
    names = ("alpha", "agreement", "kappa", "ac1") if labelling is not None else ("alpha",)
    titles = [by.capitalize(), "Answered", "By two or more", *(STATISTICS[name][0] for name in names)]
    groups = result.by[by].to_dict("records")
    notes: list[str] = []
    cells = [
        tag(
            "tr",
            tag("td", str(row["name"])),
            _number(row["answered"]),
            _number(row["shared"]),
            *(_cell(row[name], name, notes) for name in names),
        )
        for row in groups
    ]
    hints = HINTS | {"Answered": "pairs that somebody answered"}
    safe.show(safe.wide(safe.grid(titles, cells, hints=hints), f"Agreement by {by}"))
    _footnotes(notes)
    st.caption("Alpha is among people; the other statistics are of all people together against the consensus.")
    rows: list[dict[str, object]] = []
    for group in groups:
        rows.append({})
        for name, value in group.items():
            rows[-1] |= _columns(str(name), value) if isinstance(value, Estimate) else {str(name): value}
    _download(pd.DataFrame(rows).drop(columns="id"), f"people-by-{by}", result, dataset, labelling)


def _models(store: Store, labelling: LabellingRow) -> None:
    result = draws_agreement(store, labelling.id)
    safe.inline(
        f"How far {safe.option(labelling.model, 60)} agrees with itself in {labelling.id}. No person's answer is in "
        "these numbers, and none of them is in the statistics of people."
    )
    notes: list[str] = []
    if result.draws:
        safe.heading("Votes of one persona")
        cells = [
            tag(
                "tr",
                tag("td", item.persona),
                _number(item.pairs),
                _number(percent(item.share) if item.pairs else "no pair has two votes"),
                _cell(item.alpha, "alpha", notes),
            )
            for item in result.draws
        ]
        titles = ["Persona", "Pairs", "All votes the same", STATISTICS["alpha"][0]]
        safe.show(safe.wide(safe.grid(titles, cells, hints=HINTS), "Agreement of the personas"))
    else:
        page.notice("These labels were imported as shares: there are no votes to compare.")
    safe.heading("Personas with each other")
    share = percent(result.share) if result.pairs else "no pair has two"
    safe.show(
        safe.facts(
            [
                ("Krippendorff's alpha", _shown(result.personas, notes)),
                ("All personas the same", f"{share} of {count(result.pairs, 'pair')} with a majority of two or more"),
            ]
        )
    )
    _footnotes(notes)
    safe.inline(
        "A persona's verdict is what more than half of its counted votes say: necessary, inappropriate, or abstain.",
        muted=True,
    )
    rows: list[tuple[str, int, int, Estimate]] = [
        (f"draws of {item.persona}", item.pairs, item.same, item.alpha) for item in result.draws
    ]
    rows.append(("personas", result.pairs, result.same, result.personas))
    frame = pd.DataFrame(
        [{"of": of, "pairs": pairs, "alike": same, **_columns("alpha", alpha)} for of, pairs, same, alpha in rows]
    )
    simulated = "simulated" if labelling.simulated else ""
    marked = frame.assign(labelling=labelling.id, model=labelling.model, simulated=simulated)
    tables.csv_button(marked, f"model-with-itself-{labelling.id}.csv", key="agreement.csv.models")


def _slices(store: Store, dataset: DatasetRow, labelling: LabellingRow | None, slices: Sequence[SliceRow]) -> None:
    for notice in page.kept_notices(_NOTICE):
        page.notice(notice)
    if slices:
        safe.heading("Random slices")
        safe.inline("Everybody who opens a slice answers all its pairs, blind, unless it is assigned.", muted=True)
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
        expected = f"; expected ± {100 * half:.1f} points at 80 %" if isinstance(half, float) else ""
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
    wanted = min(max(url.get_int("n") or samples, 1), samples)
    effect = decision_effect(flows, scope, wanted)
    if effect.n < wanted:
        page.notice(f"Violation is {sentences.read_at(effect.n, samples)}.")
    page.badge_simulated(scope.simulated)
    if not effect.decided:
        page.notice("No pair of this run has a decision, so the labels are those of the consensus.")
        return
    _effect_numbers(effect)
    if not effect.changed:
        page.notice("Every decision agrees with the consensus, so no number moves.")
        return
    _moved(effect, moved_pairs(flows, scope, effect.moved), dataset, labelling, scope)


def _effect_numbers(effect: DecisionEffect) -> None:
    n, before, after = effect.n, effect.consensus, effect.decisions
    moved = after.violation[n] - before.violation[n]
    if moved != moved:  # nan: undefined
        outcome = f"one of the two sets of labels leaves Violation@{n} undefined"
    elif abs(moved) < 5e-5:
        outcome = f"Violation@{n} does not move"
    else:
        outcome = f"Violation@{n} {'rises' if moved > 0 else 'falls'} by {100 * abs(moved):.1f} points"
    safe.heading(f"{count(effect.decided, 'decided pair')}, {count(effect.changed)} against the consensus: {outcome}")
    measures = [
        (f"Violation@{k}", before.violation[k], after.violation[k])
        for k in dict.fromkeys((1, n, max(before.violation)))
    ]
    measures.append(("Completeness", before.completeness, after.completeness))
    rows = [
        [
            tag("td", name),
            *(_number("undefined: no retained context" if v != v else percent(v)) for v in (old, new)),
            _number("" if new - old != new - old else f"{100 * (new - old):+.1f} points"),
        ]
        for name, old, new in measures
    ]
    difference = _number(f"{after.retained - before.retained:+,}")
    rows.append(
        [tag("td", "Retained contexts of profiles"), _number(before.retained), _number(after.retained), difference]
    )
    body = [tag("tr", *cells) for cells in rows]
    safe.show(safe.grid(("", "Consensus alone", "With decisions", "Difference"), body))


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
    # Changes by the decision, and not the numbers themselves.
    named = frame.rename(columns={name: f"{name}_change" for name in ("violation", "completeness")})
    marked = named.assign(run=scope.run.id, n=effect.n, simulated=", ".join(scope.simulated))
    tables.csv_button(marked, f"decisions-{scope.run.id}.csv", key="agreement.csv.moved")
    if selected is not None and labelling is not None:
        go_to_pair(dataset, labelling, frame.iloc[selected])
