"""Part of the Review page: how far people agree with each other and with the consensus, and what their decisions do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd
import streamlit as st

from cimemories.agreement.models import ORDER, draws_agreement
from cimemories.agreement.people import Against, PeopleAgreement, answered, cell_pairs, people_agreement
from cimemories.agreement.statistics import Comparison, Estimate
from cimemories.curation.consensus import LABELS
from cimemories.flows.flows import shared_flows
from cimemories.flows.scope import Scope, resolve_scope
from cimemories.labels.votes import GroupBy
from cimemories.review.effect import DecisionEffect, decision_effect, words
from cimemories.review.sampling import Population, draw_slice, expected_interval, population, progress
from cimemories.store import audits, runs
from cimemories.store.audits import SliceRow
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError
from cimemories.store.labellings import LabellingRow
from cimemories.store.runs import RunRow
from cimemories.text import count, percent
from cimemories.ui import annotator, page, safe, tables, url
from cimemories.ui.safe import Html, join, tag
from pages.curate.label_matrix import choice
from pages.curate.pair_panel import PAIR_COLUMNS, go_to_pair

# ---- review agreement figures
#
# Figures of agreement in words: the value, its interval in smaller type, and the reason where there is none.


EVERYONE = "all people together"
TERMS = {
    "alpha": "Krippendorff's alpha, nominal: 1 is full agreement, 0 what chance would give, over what two or more "
    "answered.",
    "agreement": "Share of the pairs with the same label on both sides, not corrected for chance.",
    "kappa": "Cohen's kappa: agreement beyond what chance would give, each side with the shares of its own labels.",
    "ac1": "Gwet's AC1: like kappa, but steady where one label is much more frequent than the others.",
}
HEADS = {
    "alpha": "Krippendorff's alpha",
    "agreement": "Same label",
    "kappa": "Cohen's kappa",
    "ac1": "Gwet's AC1",
}
SHARES = ("agreement",)


def shown(found: Estimate, *, share: bool = False) -> Html:
    """A figure as it stands in a table or line."""
    if found.value is None:
        return tag("span", f"undefined: {found.why}", cls="ci-muted")
    value = _number(found.value, share)
    if found.low is None or found.high is None:
        return join([value, " ", tag("span", "no interval", cls="ci-muted", title=found.why)])
    return join([value, " ", tag("span", _interval(found.low, found.high, share), cls="ci-muted")])


def said(found: Estimate, *, share: bool = False) -> str:
    """The same as plain text, without the reason."""
    if found.value is None:
        return "undefined"
    value = _number(found.value, share)
    if found.low is None or found.high is None:
        return value
    return f"{value} {_interval(found.low, found.high, share)}"


def _number(value: float, share: bool) -> str:
    return percent(value) if share else f"{value:.2f}"


def _interval(low: float, high: float, share: bool) -> str:
    return f"[{100 * low:.1f}, {100 * high:.1f}]" if share else f"[{low:.2f}, {high:.2f}]"


def head(name: str) -> Html:
    """The title of a column of figures, its definition one hover away."""
    return tag("th", HEADS[name], cls="ci-number", title=TERMS[name])


def cell(found: Estimate, name: str) -> Html:
    return tag("td", shown(found, share=name in SHARES), cls="ci-number")


def grid(heads: Sequence[Html], rows: Iterable[Sequence[Html]]) -> Html:
    """A table of cells that were made elsewhere."""
    body = join([tag("tr", *row) for row in rows])
    return tag("table", tag("thead", tag("tr", *heads)), tag("tbody", body), cls="ci-grid")


def count_head(words: str, title: str = "") -> Html:
    return tag("th", words, cls="ci-number", title=title)


def count_cell(number: int) -> Html:
    return tag("td", count(number), cls="ci-number")


def comparison_columns(found: Comparison) -> dict[str, object]:
    """The figures of a comparison as columns of a download."""
    named = {"agreement": found.agreement, "kappa": found.kappa, "ac1": found.ac1}
    return {"pairs": found.items} | {k: v for name, item in named.items() for k, v in columns(name, item).items()}


def columns(name: str, found: Estimate) -> dict[str, object]:
    """One figure as columns of a download: its value, interval, count, and why there is none."""
    return {
        name: found.value,
        f"{name}_low": found.low,
        f"{name}_high": found.high,
        f"{name}_pairs": found.items,
        f"{name}_note": found.why,
    }


def flat(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame with cells that are figures as one of plain columns."""
    rows = []
    for row in frame.to_dict("records"):
        plain: dict[str, object] = {}
        for name, value in row.items():
            plain |= columns(str(name), value) if isinstance(value, Estimate) else {str(name): value}
        rows.append(plain)
    return pd.DataFrame(rows)


def download(
    frame: pd.DataFrame, name: str, found: PeopleAgreement, dataset: DatasetRow, labelling: LabellingRow | None
) -> None:
    """A CSV that says in every row where its numbers come from."""
    marked = frame.assign(
        dataset=dataset.name,
        labelling=found.labelling_id or "",
        rule=found.rule.words if found.rule else "",
        answers="blind" if found.blind_only else "all",
        slice=found.sampled.row.name if found.sampled else "",
        simulated="simulated labels" if labelling is not None and labelling.simulated else "",
    )
    tables.csv_button(marked, f"{name}-{dataset.id}.csv", key=f"agreement.csv.{name}")


# ---- review agreement confusion
#
# Part of the agreement of the Review page: the confusion table of people and consensus, and the pairs of a cell.


MOST_CONFUSION_ROWS = 500
WORDS = [str(LABELS[code]) for code in ORDER]


def draw_confusion(store: Store, found: PeopleAgreement, dataset: DatasetRow, labelling: LabellingRow) -> None:
    """The table of one person, or of all together, and the pairs behind the cell that is chosen."""
    people = [str(item.who) for item in found.against if item.who is not None]
    with st.columns([3, 9])[0]:
        who = choice("Whose labels", "who", people, str, EVERYONE)
    item = next(item for item in found.against if item.who == who)
    total = int(item.counts.sum())
    if not total:
        page.notice("None of these pairs has a counted vote, so there is nothing to compare.")
        return
    chosen = _table(item, total)
    frame = pd.DataFrame([[item.counts[i, j] for j in ORDER] for i in ORDER], columns=WORDS)
    frame.insert(0, "person \\ consensus", WORDS)
    download(frame.assign(who=who or EVERYONE), "confusion", found, dataset, labelling)
    if chosen is not None:
        _cell(store, found, dataset, labelling, item, chosen)


def _table(item: Against, total: int) -> tuple[int, int] | None:
    """The confusion table as buttons; the cell (person's code, consensus's code) that the URL says."""
    by_word = {f"{WORDS[i]}-{WORDS[j]}": (ORDER[i], ORDER[j]) for i in range(3) for j in range(3)}
    asked = url.get("cell") or ""
    names = [safe.glyphed(LABELS[code]) for code in ORDER]
    safe.inline(f"Down: {item.who or EVERYONE}. Across: the consensus. Choose a cell to see its pairs.", muted=True)
    widths = [2, 2, 2, 2, 4]
    for place, name in zip(st.columns(widths)[1:4], names, strict=True):
        with place:
            safe.inline(name, strong=True)
    weighted = item.comparison.table.sum()
    for i, name in enumerate(names):
        row = st.columns(widths, vertical_alignment="center")
        with row[0]:
            safe.inline(name, strong=True)
        for j, place in enumerate(row[1:4]):
            word = f"{WORDS[i]}-{WORDS[j]}"
            number = int(item.counts[ORDER[i], ORDER[j]])
            share = percent(item.comparison.table[ORDER[i], ORDER[j]] / weighted)
            place.button(
                safe.plain_label(f"{count(number)} ({share})"),
                key=f"agreement.cell.{word}",
                type="primary" if asked == word else "secondary",
                disabled=number == 0,
                width="stretch",
                on_click=_choose,
                args=(None if asked == word else word,),
            )
    return by_word.get(asked)


def _choose(word: str | None) -> None:
    url.put(cell=word)


def _cell(
    store: Store,
    found: PeopleAgreement,
    dataset: DatasetRow,
    labelling: LabellingRow,
    item: Against,
    chosen: tuple[int, int],
) -> None:
    slice_id = found.sampled.row.id if found.sampled else None
    data = answered(store, dataset.id, labelling.id, blind_only=found.blind_only, slice_id=slice_id)
    frame = cell_pairs(store, dataset.id, data, item.who, *chosen)
    mine, theirs = (str(LABELS[code]) for code in chosen)
    safe.heading(f"{count(len(frame))} pairs: {mine} by {item.who or EVERYONE}, {theirs} by the consensus")
    if frame.empty:
        return
    shown_rows = frame.head(MOST_CONFUSION_ROWS)
    picked = tables.table(
        shown_rows.assign(domain=shown_rows["domain"].str.replace("_", " ")),
        key=f"agreement.pairs.{item.who}.{mine}.{theirs}",
        columns={
            "people": ("text", "People"),
            **PAIR_COLUMNS,
        },
        on_select="row",
        alt="The pairs behind a cell of the confusion table",
    )
    first = (
        f"The first {MOST_CONFUSION_ROWS} are shown; the download has all. " if len(frame) > MOST_CONFUSION_ROWS else ""
    )
    safe.inline(f"{first}Choose a row to see its votes on the Labels page.", muted=True)
    download(frame, "confusion-pairs", found, dataset, labelling)
    if picked is not None:
        go_to_pair(dataset, labelling, shown_rows.iloc[picked])


# ---- review agreement effect
#
# Part of the agreement of the Review page: what people's decisions do to the numbers of a run.


MOST_EFFECT_ROWS = 300


def draw_effect(store: Store, dataset: DatasetRow, labelling: LabellingRow | None) -> None:
    with store.read() as connection:
        rows = {row.id: row for row in reversed(runs.all_rows(connection)) if row.dataset == dataset.id}
    page.fold(
        "What the decisions do to a run",
        ":material/balance:",
        "agreement.box.effect",
        lambda: _effect_inside(store, dataset, labelling, rows),
    )


def _effect_inside(store: Store, dataset: DatasetRow, labelling: LabellingRow | None, rows: dict[str, RunRow]) -> None:
    if not rows:
        page.notice("This dataset has no run yet. Decisions move Violation@n and completeness once there is one.")
        return
    with st.columns([4, 8])[0]:
        run = choice("Run", "run", list(rows), lambda i: f"{rows[i].name} ({i})", None) or next(iter(rows))
    asked = resolve_scope(store, run, labelling.id if labelling else None)
    flows = shared_flows(store)
    most = asked.run.samples
    n = min(max(url.get_int("n") or most, 1), most)
    found = decision_effect(flows, asked, n)
    if asked.simulated:
        page.badge_simulated()
    if not found.decided:
        page.notice("No decision stands on a pair of this run, so both sets of labels are the same.")
        return
    _numbers(found)
    if not found.changed:
        page.notice("Every decision says what the consensus says: no number can move.")
        return
    shown = words(flows, asked, found.moved)
    _moved(found, shown, dataset, labelling, asked)


def _numbers(found: DecisionEffect) -> None:
    safe.heading(_title(found))
    last = max(found.consensus.violation)
    measures = dict.fromkeys((1, found.n, last))
    rows = [(f"Violation@{n}", found.consensus.violation[n], found.decisions.violation[n]) for n in measures] + [
        ("Completeness", found.consensus.completeness, found.decisions.completeness)
    ]
    cells = [
        [tag("td", name), *(tag("td", _share(value), cls="ci-number") for value in (old, new)), _difference(new - old)]
        for name, old, new in rows
    ]
    cells.append(
        [
            tag("td", "Retained contexts of profiles"),
            tag("td", count(found.consensus.retained), cls="ci-number"),
            tag("td", count(found.decisions.retained), cls="ci-number"),
            tag("td", f"{found.decisions.retained - found.consensus.retained:+,}", cls="ci-number"),
        ]
    )
    heads = [tag("th", ""), count_head("Consensus alone"), count_head("With decisions"), count_head("Difference")]
    safe.show(grid(heads, cells))


def _title(found: DecisionEffect) -> str:
    moved = found.decisions.violation[found.n] - found.consensus.violation[found.n]
    pairs = f"{count(found.decided)} decided pairs, {count(found.changed)} against the consensus"
    if moved != moved:
        return f"{pairs}: one of the two sets of labels leaves Violation@{found.n} undefined"
    if abs(moved) < 5e-5:
        return f"{pairs}: Violation@{found.n} stays where it is"
    return f"{pairs}: Violation@{found.n} {'rises' if moved > 0 else 'falls'} by {100 * abs(moved):.1f} points"


def _share(value: float) -> str:
    return "undefined: no retained context" if value is None or value != value else percent(value)


def _difference(value: float) -> safe.Html:
    return tag("td", "" if value != value else f"{100 * value:+.1f} points", cls="ci-number")


def _moved(
    found: DecisionEffect, frame: pd.DataFrame, dataset: DatasetRow, labelling: LabellingRow | None, asked: Scope
) -> None:
    safe.heading("The pairs that moved them most")
    shown = frame.head(MOST_EFFECT_ROWS)
    picked = tables.table(
        shown.assign(
            domain=shown["domain"].str.replace("_", " "),
            violation=[_points(value) for value in shown["violation"]],
            completeness=[_points(value) for value in shown["completeness"]],
            consensus=[word or "no vote" for word in shown["consensus"]],
        ),
        key=f"agreement.moved.{asked.run.id}.{found.n}",
        columns={
            "violation": ("text", "Violation"),
            "completeness": ("text", "Completeness"),
            "consensus": ("text", "Consensus"),
            "decision": ("text", "Decision"),
            **PAIR_COLUMNS,
        },
        on_select="row",
        alt="Decided pairs by how far they move the numbers of the run, most first",
    )
    first = f"The first {MOST_EFFECT_ROWS} are shown; the download has all. " if len(frame) > MOST_EFFECT_ROWS else ""
    safe.inline(
        f"{first}By how many points Violation@{found.n} and completeness are higher than if this pair alone had the "
        "label of the consensus, all other decisions kept; these do not add up. Choose a row to see its votes.",
        muted=True,
    )
    marked = frame.assign(run=asked.run.id, n=found.n, simulated=", ".join(asked.simulated))
    tables.csv_button(marked, f"decisions-{asked.run.id}.csv", key="agreement.csv.moved")
    if picked is not None and labelling is not None:
        go_to_pair(dataset, labelling, shown.iloc[picked])


def _points(value: float) -> str:
    return "undefined without it" if value != value else f"{100 * value:+.3f}"


# ---- review agreement models
#
# Part of the agreement of the Review page: a labelling's model with itself, apart from all figures of people.


def draw_models(store: Store, labelling: LabellingRow) -> None:
    page.fold(
        "The model with itself: draws and personas, apart from people",
        ":material/smart_toy:",
        "agreement.box.models",
        lambda: _models_inside(store, labelling),
    )


def _models_inside(store: Store, labelling: LabellingRow) -> None:
    found = draws_agreement(store, labelling.id)
    safe.inline(
        f"How far {safe.option(labelling.model, 60)} agrees with itself in {labelling.id}. No person's answer is in "
        "these numbers, and they are in no figure of people."
    )
    if found.draws:
        safe.heading("Draws of one persona")
        rows = [
            [
                tag("td", item.persona),
                count_cell(item.pairs),
                tag("td", percent(item.share) if item.pairs else "no pair has two draws", cls="ci-number"),
                tag("td", shown(item.alpha), cls="ci-number"),
            ]
            for item in found.draws
        ]
        heads = [
            tag("th", "Persona"),
            count_head("Pairs", "with two counted votes or more"),
            count_head("All draws alike"),
        ]
        safe.show(grid([*heads, head("alpha")], rows))
    else:
        page.notice("These labels were imported as shares: there are no draws to compare.")
    safe.heading("Personas with each other")
    share = percent(found.share) if found.pairs else "no pair has two"
    safe.show(
        safe.facts(
            [
                ("Krippendorff's alpha", shown(found.personas)),
                ("All personas alike", f"{share} of {count(found.pairs)} pairs with a majority of two or more"),
            ]
        )
    )
    safe.inline(
        "A persona says what more than half of its counted votes say: necessary, inappropriate, or that it abstains.",
        muted=True,
    )
    frame = pd.DataFrame(
        [
            *(
                {
                    "of": f"draws of {item.persona}",
                    "pairs": item.pairs,
                    "alike": item.same,
                    **columns("alpha", item.alpha),
                }
                for item in found.draws
            ),
            {"of": "personas", "pairs": found.pairs, "alike": found.same, **columns("alpha", found.personas)},
        ]
    )
    simulated = "simulated" if labelling.simulated else ""
    marked = frame.assign(labelling=labelling.id, model=labelling.model, simulated=simulated)
    tables.csv_button(marked, f"model-with-itself-{labelling.id}.csv", key="agreement.csv.models")


# ---- review agreement slices
#
# Part of the agreement of the Review page: audit slices are drawn, and how far each person is with them.


USUAL = 200
MOST_SEED = 2**31 - 1
_SAID = "agreement.said"


def draw_slices(store: Store, dataset: DatasetRow, labelling: LabellingRow | None) -> None:
    safe.heading("Audit slices")
    safe.inline(
        "A slice is a random sample of pairs, drawn once, that people answer blind. It says how good the labels are "
        "in all pairs, not only in those that somebody happened to look at.",
        muted=True,
    )
    notice = st.session_state.pop(_SAID, None)
    if notice:
        page.notice(notice)
    with store.read() as connection:
        rows = audits.all_slices(connection, dataset.id, audits.SLICE_LABELS)
    for row in rows:
        _slice(store, dataset, labelling, row)
    if labelling is None:
        page.notice("A slice is drawn from labelled pairs, in proportion to their labels. Label the dataset first.")
        return
    page.fold(
        "Draw a slice",
        ":material/casino:",
        "agreement.box.draw",
        lambda: _form(store, labelling, {row.name for row in rows}),
    )


def _form(store: Store, labelling: LabellingRow, taken: set[str]) -> None:
    found = population(store, labelling.id)
    if not len(found):
        page.notice("No pair of this labelling has a counted vote yet, so there is nothing to draw from.")
        return
    left, right, _ = st.columns([2, 2, 8])
    with left:
        size = st.number_input("Pairs to draw", 1, len(found), min(USUAL, len(found)), key="agreement.slice.size")
    with right:
        seed = st.number_input(
            "Seed", 0, MOST_SEED, 0, key="agreement.slice.seed", help="The same seed draws the same pairs again."
        )
    _expected(found, int(size))
    first, second, third, _ = st.columns([3, 3, 2, 4], vertical_alignment="bottom")
    with first:
        name = st.text_input(
            "Name of the slice",
            max_chars=audits.LONGEST_SLICE_NAME,
            key="agreement.slice.name",
            placeholder="first audit",
        )
    with second:
        who = annotator.ask()
    with third:
        drawn = st.button("Draw the slice", type="primary", icon=":material/casino:", key="agreement.slice.draw")
    if not drawn:
        return
    try:
        draw_slice(store, labelling.id, size=int(size), seed=int(seed), name=name, annotator=who)
    except StoreError as problem:
        page.error("The slice was not drawn.", str(problem))
        return
    st.session_state[_SAID] = f"Drew {count(int(size))} pairs as '{' '.join(name.split())}'."
    st.rerun()


def _expected(found: Population, size: int) -> None:
    try:
        page.notice(expected_interval(found, size))
    except StoreError as problem:
        page.error("This cannot be drawn.", str(problem))


def _slice(store: Store, dataset: DatasetRow, labelling: LabellingRow | None, row: SliceRow) -> None:
    with store.read() as connection:
        items = audits.slice_items(connection, row.id)
    done = progress(store, dataset.id, items)
    words, queue, figures, more = st.columns([6, 2, 2, 1], vertical_alignment="center")
    total = count(row.items)
    people = [f"{who}: {count(n)} of {total} ({count(blind)} blind)" for who, (n, blind) in done.items()]
    with words:
        detail = f"{total} pairs, seed {row.seed}, drawn by {row.annotator} on {row.created[:10]}{_half(row)}"
        lines = [
            tag("div", tag("b", row.name), f": {detail}"),
            tag("div", "; ".join(people) or "nobody yet", cls="ci-muted"),
        ]
        safe.show(tag("div", *lines, cls="ci-lines"))
    with queue:
        url.page_link(
            "review",
            "Answer it blind",
            icon=":material/keyboard:",
            dataset=dataset.id,
            labelling=labelling.id if labelling else None,
            slice=row.id,
            blind=1,
        )
    with figures:
        st.button(
            "Show its figures",
            key=f"agreement.slice.show.{row.id}",
            type="tertiary",
            icon=":material/query_stats:",
            disabled=url.get_int("slice") == row.id,
            on_click=lambda: url.put(slice=row.id),
        )
    with more, st.popover("", icon=":material/more_vert:", type="tertiary"):
        st.text("The slice goes; what people said of its pairs stays.")
        if st.button("Delete the slice", type="primary", key=f"agreement.slice.delete.{row.id}"):
            with store.write() as connection:
                audits.delete_slice(connection, row.id)
            st.session_state[_SAID] = f"Deleted '{row.name}'."
            url.put(slice=None)
            st.rerun()
        frame = pd.DataFrame([vars(item) for item in items]).drop(columns="response")
        simulated = "simulated labels" if labelling is not None and labelling.simulated else ""
        tables.csv_button(
            frame.assign(slice=row.name, seed=row.seed, simulated=simulated),
            f"slice-{row.id}.csv",
            key=f"agreement.slice.csv.{row.id}",
        )


def _half(row: SliceRow) -> str:
    """What was said of the interval when the slice was drawn."""
    half = row.manifest.get("half_width_at_80")
    return f"; expected ± {100 * half:.1f} points at 80 %" if isinstance(half, float) else ""


# ---- review agreement


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
        draw_models(store, labelling)
    draw_slices(store, dataset, labelling)
    draw_effect(store, dataset, labelling)
    return _takeaway(found)


def _scope(store: Store, dataset: DatasetRow) -> tuple[int | None, bool]:
    """Which answers count: of one slice or all, and the blind ones alone or all; as the URL says."""
    with store.read() as connection:
        drawn = {str(row.id): row for row in audits.all_slices(connection, dataset.id, audits.SLICE_LABELS)}
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
    parts = [f"{count(found.answered)} pairs answered"]
    if found.adjudicated:
        parts.append(
            f"{count(found.adjudicated)} pairs were adjudicated with the others' answers in sight: that is "
            "nobody's own answer and not counted here"
        )
    if found.rule is not None:
        parts.append(f"the consensus is by {found.rule.name}")
    safe.inline(f"{'; '.join(parts)}. Intervals are 95 %, by 2,000 resamples of the pairs.", muted=True)
    if found.sampled is None:
        return
    drawn = found.sampled
    safe.inline(
        f"Slice '{drawn.row.name}': {count(drawn.answered)} of {count(drawn.row.items)} drawn pairs are "
        "answered. Every pair counts for as many pairs of its stratum as it stands for (Horvitz-Thompson weights), so "
        f"that shares, kappa and AC1 against the consensus speak for {count(drawn.reached)} of the "
        f"{count(drawn.population)} pairs that it was drawn from. Alpha among people is not weighted."
    )
    if drawn.covered < drawn.strata:
        page.notice(
            f"{count(drawn.strata - drawn.covered)} of {count(drawn.strata)} strata have no answer yet: "
            "what they hold is in no figure."
        )


def _among(found: PeopleAgreement, dataset: DatasetRow, labelling: LabellingRow | None) -> None:
    safe.heading("People among themselves")
    among = found.among
    rows: list[tuple[str, Html | str]] = [("Krippendorff's alpha", shown(among.alpha))]
    if among.pairs:
        rows.append(("All say the same", f"{percent(among.share)} of the pairs that two or more answered"))
    rows.append(("Pairs", f"{count(among.pairs)} answered by two or more people ({among.people} people)"))
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
    draw_confusion(store, found, dataset, labelling)


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
    text = f"{who} answered {count(found.answered)} pairs"
    if together.items:
        text += (
            f"; they give the label of the consensus to {said(together.agreement, share=True)} of "
            f"{count(together.items)} (Gwet's AC1 {said(together.ac1)})"
        )
    if found.among.alpha.value is None:
        return f"{text}. Among themselves alpha is undefined: {found.among.alpha.why}."
    return f"{text}. Among themselves alpha is {said(found.among.alpha)} over {count(found.among.pairs)} pairs."
