"""Part of the Survival page: a rule is tried, saved under a name, and made the one that labels rest on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pandas as pd
import streamlit as st

from cimemories.analysis.rule import AppliedRule, rule_of
from cimemories.analysis.whatif import WhatIf, what_if
from cimemories.store import rules
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError
from cimemories.store.labellings import LabellingRow
from cimemories.ui import bars, page, safe, tables, url
from cimemories.ui.rule_sliders import rule_sliders
from pages.curate.survival_shares import PLURALS, download, group_control

MOST_ROWS = 60
_ANNOTATOR = "annotator"
_SAID = "survival.said"


def draw(store: Store, dataset: DatasetRow, labelling: LabellingRow, say: Callable[[str], None]) -> None:
    """Draws the part; `say` draws the head with the page's takeaway, as early as it is known."""
    holds = rule_of(store, labelling.id)
    left, right = st.columns([2, 5], gap="large")
    with left:
        said = st.session_state.pop(_SAID, None)
        if said:
            page.notice(said)
        safe.heading("A rule to try")
        threshold, priors = _sliders(holds)
        effect = _tried(store, labelling, threshold, priors)
    with right:
        if effect is None:
            say("Move a slider to see what another rule would do to the labels.")
        else:
            say(_takeaway(effect))
            _changes(effect, labelling)
    with left:
        if effect is not None:
            _save(store, dataset, effect)
    _named_rules(store, dataset)


def _tried(store: Store, labelling: LabellingRow, threshold: float, priors: Mapping[str, float]) -> WhatIf | None:
    try:
        return what_if(store, labelling.id, threshold, priors)
    except StoreError as problem:
        page.error("This is no rule.", str(problem))
        return None


def _sliders(holds: AppliedRule) -> tuple[float, dict[str, float]]:
    """Threshold and priors as they stand; what nobody has moved is the rule's own, however fine."""
    moved = rule_sliders("survival", holds.threshold, holds.keys, holds.priors)
    priors = dict(holds.prior_by_key)
    if moved.weights:
        total = sum(moved.weights)
        priors = {key: weight / total for key, weight in zip(holds.keys, moved.weights, strict=True)}
    safe.inline(
        "All weights are 0: raise one of them. Until then the priors are those of the rule."
        if moved.all_zero
        else "Priors: " + ", ".join(f"{key} {tables.percent(prior)}" for key, prior in priors.items()) + ".",
        muted=True,
    )
    if moved.any:
        st.button("Back to the rule that holds", icon=":material/undo:", on_click=_forget, key="survival.back")
    return (holds.threshold if moved.threshold is None else moved.threshold), priors


def _forget() -> None:
    url.put(threshold=None, priors=None)


def _takeaway(effect: WhatIf) -> str:
    if not effect.changed:
        survival = tables.percent(effect.survival_before)
        return f"No label of {tables.count(effect.pairs)} pairs would change; survival stays at {survival}."
    return (
        f"{tables.count(effect.changed)} of {tables.count(effect.pairs)} pairs would change their label; survival "
        f"{tables.percent(effect.survival_before)} now, {tables.percent(effect.survival_after)} then."
    )


def _changes(effect: WhatIf, labelling: LabellingRow) -> None:
    safe.show(
        safe.facts(
            [
                ("Holds now", f"{effect.before.name}: {effect.before.words}"),
                ("Tried", effect.after.words),
                ("Survival", f"{tables.percent(effect.survival_before)} → {tables.percent(effect.survival_after)}"),
                *(
                    (f"{tables.count(n)} pairs", f"{_glyphed(before)} → {_glyphed(after)}")
                    for before, after, n in effect.changes
                ),
            ]
        )
    )
    if effect.decided:
        safe.inline(
            f"{tables.count(effect.decided)} of the pairs that change were decided by a person and keep that label."
        )
    safe.inline("Nothing is changed until a rule is saved and made current.", muted=True)
    if not effect.changed:
        page.notice("No label would change. Move the threshold, or a weight while the threshold is below 100.")
        return
    group_by = group_control("survival.whatif.by")
    frame = effect.by[group_by].sort_values("changed", ascending=False, kind="stable").reset_index(drop=True)
    top = frame.iloc[0]
    shown = frame.head(MOST_ROWS)
    cut = f"; the first {MOST_ROWS} of {len(frame)} {PLURALS[group_by]} drawn" if len(frame) > MOST_ROWS else ""
    name = safe.option(top["name"], 50)
    bars.before_after(
        shown,
        name="name",
        before="survival_before",
        after="survival_after",
        count="pairs",
        unit="pairs",
        title=f"{name[:1].upper()}{name[1:]} changes most: {tables.count(top['changed'])} of its "
        f"{tables.count(top['pairs'])} pairs",
        subtitle=f"Survival of {tables.count(effect.pairs)} labelled pairs by {group_by}, most changes on top{cut}",
        key=f"survival.whatif.{group_by}.{labelling.id}",
        alt=f"Survival by {group_by} before and after. The same numbers are in the table below.",
    )

    def table() -> None:
        tables.table(
            frame,
            key=f"survival.whatif.table.{group_by}.{labelling.id}",
            columns={
                "name": ("text", "Group"),
                "changed": ("count", "Pairs that change"),
                "gained": ("count", "Get a label"),
                "lost": ("count", "Lose it"),
                "survival_before": ("percent", "Survival now"),
                "survival_after": ("percent", "Survival then"),
                "pairs": ("count", "Labelled pairs"),
            },
            alt="What would change, by group",
        )
        download(frame.drop(columns="id"), f"what-if-{group_by}", labelling, effect.after.words)

    page.fold("The same as a table", ":material/table:", "survival.box.whatif", table)


def _glyphed(label: str) -> str:
    return {"necessary": "N necessary", "inappropriate": "X inappropriate", "ambiguous": "? ambiguous"}[label]


def _save(store: Store, dataset: DatasetRow, effect: WhatIf) -> None:
    # Enter ends the typing of a name; it must not save what is still being thought over.
    with st.form("survival.save", enter_to_submit=False):
        name = st.text_input("Name of the rule", key="survival.name", max_chars=80, placeholder="lenient")
        annotator = st.text_input(
            "Your name", value=st.session_state.get(_ANNOTATOR, ""), key="survival.annotator", max_chars=80
        )
        use = st.checkbox("Make it the current rule at once", key="survival.use")
        saved = st.form_submit_button("Save this rule", icon=":material/save:")
    if not saved:
        return
    try:
        with store.write() as connection:
            rules.add(
                connection,
                dataset.id,
                name,
                threshold=effect.after.threshold,
                priors=effect.after.prior_by_key,
                annotator=annotator,
                use=bool(use),
            )
    except StoreError as problem:
        page.error("The rule was not saved.", str(problem))
        return
    st.session_state[_ANNOTATOR] = " ".join(annotator.split())
    outcome = "and labels rest on it now" if use else "not yet in use"
    st.session_state[_SAID] = f"Saved '{name.strip()}', {outcome}."
    if use:
        _forget()
    st.rerun()


def _named_rules(store: Store, dataset: DatasetRow) -> None:
    safe.heading("Rules of this dataset")
    with store.read() as connection:
        rows = rules.all_rows(connection, dataset.id)
    current = next((row.name for row in rows if row.current), rules.PAPER)
    paper = {
        "name": "the paper's rule",
        "current": "current" if current == rules.PAPER else "",
        "threshold": 1.0,
        "priors": "those of the labelling's persona pack",
        "by": "",
        "created": pd.NaT,
    }
    named = [
        {
            "name": row.name,
            "current": "current" if row.current else "",
            "threshold": row.threshold,
            "priors": ", ".join(f"{key} {prior:.4g}" for key, prior in row.priors.items()),
            "by": row.annotator,
            "created": pd.Timestamp(row.created),
        }
        for row in rows
    ]
    frame = pd.DataFrame([paper, *named])
    tables.table(
        frame,
        key=f"survival.rules.{dataset.id}",
        columns={
            "name": ("text", "Rule"),
            "current": ("small", ""),
            "threshold": ("percent", "Threshold"),
            "priors": ("wide", "Priors"),
            "by": ("text", "Saved by"),
            "created": ("date", "Saved (UTC)"),
        },
        height="content",
        alt="Named rules of this dataset and which of them is current",
    )
    _choose(store, dataset, [rules.PAPER, *(row.name for row in rows)], current)


def _choose(store: Store, dataset: DatasetRow, names: Sequence[str], current: str) -> None:
    if len(names) == 1:
        safe.inline("No rule has been saved yet: labels rest on the paper's.", muted=True)
        return
    choice, use, delete = st.columns([3, 2, 5], vertical_alignment="bottom")
    with choice:
        name = st.selectbox(
            "Rule",
            names,
            index=names.index(current),
            format_func=lambda item: "the paper's rule" if item == rules.PAPER else safe.option(item),
            key=f"survival.rule.{dataset.id}.{current}",
        )
    try:
        with use:
            if st.button("Make it current", disabled=name == current, key="survival.make", icon=":material/check:"):
                with store.write() as connection:
                    rules.make_current(connection, dataset.id, name)
                st.session_state[_SAID] = (
                    f"Labels rest on '{name}' now."
                    if name != rules.PAPER
                    else ("Labels rest on the paper's rule again.")
                )
                _forget()
                st.rerun()
        with delete, st.popover("Delete", icon=":material/delete:", disabled=name == rules.PAPER):
            st.text("The rule goes; votes and decisions stay. Where it is current, the paper's rule holds again.")
            if st.button("Delete this rule", type="primary", key="survival.delete"):
                with store.write() as connection:
                    rules.delete(connection, dataset.id, name)
                st.session_state[_SAID] = f"Deleted '{name}'."
                _forget()
                st.rerun()
    except StoreError as problem:
        page.error("The rule was not changed.", str(problem))
