"""Survival: which pairs keep a consensus, who stands in the way, what another rule would do, how labellings agree."""

from __future__ import annotations

import streamlit as st

from cimemories.flows.labels import default_labelling, rule_of
from cimemories.metrics import headline
from cimemories.seeds import SeedError
from cimemories.store import datasets, labellings
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError, shared_store
from cimemories.store.labellings import LabellingRow
from cimemories.ui import page, safe, url
from pages.curate import survival_figures
from pages.curate.label_matrix import named

PARTS = {
    "shares": ("Shares", survival_figures.draw_shares),
    "whatif": ("What if", survival_figures.draw),
    "contexts": ("Contexts and Table 2", survival_figures.draw_contexts),
    "agreement": ("Agreement of labellings", survival_figures.draw_agreement),
    "models": ("Labeller and models", survival_figures.draw_models),
}
TITLE = "Survival"


def _scope(store: Store, rows: list[DatasetRow]) -> tuple[DatasetRow, LabellingRow | None]:
    """The scope bar: dataset and labelling."""
    left, right, _ = st.columns([2, 3, 4])
    by_id = {row.id: row for row in rows}
    with left:
        chosen = page.select("Dataset", list(by_id), lambda i: by_id[i].name, "survival.dataset", "dataset")
    dataset = by_id[chosen] if chosen is not None else rows[0]
    with store.read() as connection:
        every = labellings.all_rows(connection, dataset.id)
    voted = {row.id: row for row in reversed(every) if row.imported or row.ballots.get(labellings.OK)}
    default = default_labelling(store, dataset.id)
    order = sorted(voted, key=lambda i: default is None or i != default.id)
    with right:
        labelling = page.select("Labelling", order, lambda i: _words(voted[i]), "survival.labelling", "labelling")
    return dataset, voted.get(labelling or "")


def _words(row: LabellingRow) -> str:
    return f"{row.model}: imported, no votes ({row.id})" if row.imported else f"{named(row)} ({row.id})"


def _part() -> str:
    """Which part of the page is looked at, as the URL says."""
    asked = url.get("part") or url.remembered("part")
    st.session_state["survival.part"] = asked if asked in PARTS else "shares"

    def changed() -> None:
        url.put(part=st.session_state["survival.part"])

    st.segmented_control(
        "Part",
        list(PARTS),
        format_func=lambda key: PARTS[key][0],
        key="survival.part",
        on_change=changed,
        required=True,
        label_visibility="collapsed",
    )
    part = str(st.session_state["survival.part"] or "shares")
    url.put(part=part)
    return part


def _rule_line(store: Store, labelling: LabellingRow) -> None:
    """Which rule holds: always in sight."""
    rule = rule_of(store, labelling.id)
    safe.show(
        safe.tag(
            "p",
            "Labels rest on ",
            safe.tag("b", rule.name if rule.is_paper else f"the rule '{rule.name}'"),
            f": {rule.words}.",
            cls="ci-line",
        )
    )
    if rule.note:
        page.notice(f"{rule.note[0].upper()}{rule.note[1:]}.")


def _kin(store: Store, labelling: LabellingRow) -> None:
    """The warning where the labeller is kin to a model under test."""
    try:
        kin = [item for item in headline.family_warnings(store, labelling.id) if item.warning]
    except SeedError as problem:
        page.error("Whether labeller and models are kin cannot be told.", str(problem))
        return
    if kin:
        more = f" So it is for {len(kin) - 1} more of the dataset's runs." if len(kin) > 1 else ""
        warning = kin[0].warning or ""
        page.notice(f"Run '{kin[0].run_name}': {warning}.{more} See 'Labeller and models'.")


def main() -> None:
    store = shared_store()
    with store.read() as connection:
        rows = datasets.all_rows(connection)
    if not rows:
        page.no_datasets(
            TITLE,
            "There is no dataset yet.",
            "Survival is the share of pairs on which all personas agree. Import profiles and label them first.",
        )
        return
    top = st.container()
    dataset, labelling = _scope(store, rows)
    if labelling is None:
        with top:
            page.head(TITLE, f"'{dataset.name}' has no labels yet.")
        page.empty(
            "Nothing has been labelled",
            "Survival is the share of pairs on which all personas agree. Let a model vote, or import labels.",
            lambda: url.page_link("labels", "Label the dataset", icon=":material/label:", dataset=dataset.id),
        )
        return
    part = _part()
    told: list[str] = []

    def say(takeaway: str) -> None:
        told.append(takeaway)
        with top:
            page.head(TITLE, takeaway, simulated=labelling.simulated)

    try:
        _rule_line(store, labelling)
        if part == "shares":
            _kin(store, labelling)
        PARTS[part][1](store, dataset, labelling, say)
    except StoreError as problem:
        if not told:
            say("This cannot be shown.")
        page.error("This part cannot be shown.", str(problem))


main()
