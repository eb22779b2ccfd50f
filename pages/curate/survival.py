"""Survival: which pairs keep a consensus, who stands in the way, what another rule would do, how labellings agree."""

from __future__ import annotations

import streamlit as st

from cimemories.flows import catalogue
from cimemories.flows.labels import rule_of
from cimemories.metrics import headline
from cimemories.seeds import SeedError
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
    voted = catalogue.labellings_of(store, dataset.id, voted=True)
    with right:
        labelling = page.select(
            "Labelling", list(voted), lambda i: f"{named(voted[i])} ({i})", "survival.labelling", "labelling"
        )
    return dataset, voted.get(labelling or "")


def _part() -> str:
    """Which part of the page is shown: what the URL says, else the part shown last, else the shares."""
    part = url.get("part") or url.remembered("part")
    st.session_state["survival.part"] = part if part in PARTS else "shares"

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
    """The rule in use: always in sight."""
    rule = rule_of(store, labelling.id)
    name = safe.tag("b", rule.name if rule.is_paper else f"the rule '{rule.name}'")
    safe.show(safe.tag("p", "Labels follow ", name, f": {rule.words}.", cls="ci-line"))
    if rule.note:
        page.notice(f"{rule.note[0].upper()}{rule.note[1:]}.")


def _family_warning(store: Store, labelling: LabellingRow) -> None:
    """The warning where the labelling model is from the same family as a model under test."""
    try:
        same_family = [item for item in headline.family_warnings(store, labelling.id) if item.warning]
    except SeedError as problem:
        page.error("The families of the models are unknown.", str(problem))
        return
    if same_family:
        first, others = same_family[0], len(same_family) - 1
        more = f" The same holds for {others} more of the dataset's runs." if others else ""
        page.notice(f"Run '{first.run_name}': {first.warning}.{more} See 'Labeller and models'.")


def main() -> None:
    store = shared_store()
    rows = catalogue.all_datasets(store)
    if not rows:
        page.no_datasets(
            TITLE,
            "There is no dataset yet.",
            "Survival is the share of pairs with a consensus. Import profiles and label them first.",
        )
        return
    top = st.container()
    dataset, labelling = _scope(store, rows)
    if labelling is None:
        with top:
            page.head(TITLE, f"'{dataset.name}' has no labels yet.")
        page.empty(
            "Nothing is labelled yet",
            "Survival is the share of pairs with a consensus. Have a model vote, or import labels.",
            lambda: url.page_link("labels", "Label the dataset", icon=":material/label:", dataset=dataset.id),
        )
        return
    part = _part()
    takeaways: list[str] = []

    def say(takeaway: str) -> None:
        takeaways.append(takeaway)
        with top:
            page.head(TITLE, takeaway, simulated=labelling.simulated)

    try:
        _rule_line(store, labelling)
        if part == "shares":
            _family_warning(store, labelling)
        PARTS[part][1](store, dataset, labelling, say)
    except StoreError as problem:
        if not takeaways:
            say("This cannot be shown.")
        page.error("This part cannot be shown.", str(problem))


main()
