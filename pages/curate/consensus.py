"""Consensus: on which pairs the personas agree, who prevents one, the effect of another rule, agreement of
labellings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import streamlit as st

from cimemories.answers import lists
from cimemories.answers.consensus import family_notes
from cimemories.charts.bars import before_after
from cimemories.flows import catalogue
from cimemories.flows.labels import rule_of, vote_counts
from cimemories.labels.whatif import WhatIf, what_if
from cimemories.metrics import sentences, warnings
from cimemories.metrics.separation import largest_count
from cimemories.seeds import SeedError
from cimemories.store import labellings
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError, shared_store
from cimemories.store.labellings import LabellingRow
from cimemories.text import count, exact_percent, listed, percent, sentence
from cimemories.ui import annotator, answers, once, page, safe, tables, url
from cimemories.ui.page import least_votes, rule_sliders
from pages.curate import consensus_figures
from pages.curate.consensus_figures import MOST_BARS, PLURALS, chart_and_table, group_control
from pages.curate.label_matrix import draw_scope, labelling_title

TITLE = "Consensus"


# ---- what if
#
# A rule is tried, saved under a name, and made the one that labels rest on.


_MESSAGE = "consensus.message"


def draw_rule(store: Store, dataset: DatasetRow, labelling: LabellingRow, set_takeaway: Callable[[str], None]) -> None:
    """Draw the sliders, their effect, and the rules; `set_takeaway` draws the head of the page as soon as its sentence
    is known."""
    current = rule_of(store, labelling.id)
    page.outcome(page.kept_notices(_MESSAGE), "rule")
    left, right = st.columns([2, 5], gap="large")
    with left:
        safe.heading("A rule to try")
        moved = rule_sliders("consensus", current.threshold, current.keys, current.priors)
        # An unmoved slider stands for the rule's exact number.
        threshold = current.threshold if moved.threshold is None else moved.threshold
        priors = dict(current.prior_by_key)
        if moved.weights:
            total = sum(moved.weights)
            priors = {key: weight / total for key, weight in zip(current.keys, moved.weights, strict=True)}
        safe.inline(
            "All weights are 0: raise one of them. Until then the priors are those of the rule."
            if moved.all_zero
            else "Priors: " + ", ".join(f"{key} {exact_percent(prior)}" for key, prior in priors.items()) + ".",
            muted=True,
        )
        if moved.any or url.get("votes") or url.get("both"):
            back = url.durable(_forget)
            st.button("Back to the current rule", icon=":material/undo:", on_click=back, key="show.consensus.back")
        least, both = current.least_votes, current.both_lists
        if not labelling.imported:
            least = least_votes("consensus", current.least_votes, labellings.MOST_VOTES)
            both = page.choice(
                "A vote in both lists",
                lists.BOTH_LISTS,
                "consensus.both",
                "both",
                default=both,
                help="What it is when a persona names an attribute necessary and inappropriate in one answer. The "
                "authors' code counts it as necessary.",
            )
        effect: WhatIf | None = None
        with page.Reporting("This rule is not valid.", StoreError):
            effect = what_if(store, labelling.id, threshold, priors, least or None, both)
    with right:
        if effect is None:
            set_takeaway("Move a slider to see what another rule would do to the labels.")
        else:
            set_takeaway(effect.sentence)
            _changed_labels(effect, labelling)
    with left:
        if effect is not None:
            _save_form(store, dataset, effect)
    _rules(store, dataset)


def _forget() -> None:
    url.put(threshold=None, priors=None, votes=None, both=None)


def _done(message: str, *, keep_sliders: bool = False) -> None:
    """Keep a message for the next run of the page."""
    page.keep_notices(_MESSAGE, message)
    if not keep_sliders:
        _forget()


def _changed_labels(effect: WhatIf, labelling: LabellingRow) -> None:
    rules = [("Current rule", f"{effect.before.name}: {effect.before.text}"), ("Tried", effect.after.text)]
    shares = f"{percent(effect.survival_before)} → {percent(effect.survival_after)}"
    safe.show(safe.facts([*rules, ("With a consensus", shares)]))
    safe.show(safe.lines(map(sentence, [*effect.notes, "Nothing changes until you save a rule and make it current"])))
    if not effect.changed:
        page.notice("No label would change. Move the threshold; weights matter only below a threshold of 100 %.")
        return
    tables.grid(effect.changes, effect.changes.caption)
    by = group_control("consensus.whatif.by")
    table = effect.by[by]
    frame = table.frame.sort_values("changed", ascending=False, kind="stable").reset_index(drop=True)
    top, most = frame.iloc[0], largest_count(frame["changed"].tolist())
    assert most is not None  # some label changes, so there is a group
    cut = f"; the first {MOST_BARS} of {len(frame)} {PLURALS[by]} shown" if len(frame) > MOST_BARS else ""
    fig = before_after(
        frame.head(MOST_BARS),
        name="name",
        before="survival_before",
        after="survival_after",
        pairs="pairs",
        unit="pairs",
        title=sentences.labels_changed(
            safe.option(top["name"], 50), int(top["changed"]), int(top["pairs"]), most, str(by), PLURALS[by]
        ),
        subtitle=f"Consensus on {count(effect.pairs, 'pair')} with votes by {by}, most changes on top{cut}",
    )
    table = replace(table, frame=frame)
    chart_and_table(fig, table, f"what-if-{by}", "whatif", labelling, effect.after.text)


def _save_form(store: Store, dataset: DatasetRow, effect: WhatIf) -> None:
    # Enter ends the typing of a name; it must not save an unfinished change.
    with st.form("consensus.save", enter_to_submit=False):
        name = st.text_input("Name of the rule", key="consensus.name", max_chars=80, placeholder="lenient")
        use = st.checkbox("Make it the current rule at once", key="consensus.use")
        button = st.container()
    # Below the button: leaving the field removes it, which moves everything below.
    who = annotator.ask()

    def save() -> None:
        catalogue.save_rule(
            store,
            dataset.id,
            name,
            threshold=effect.after.threshold,
            priors=effect.after.prior_by_key,
            annotator=who,
            use=bool(use),
            least_votes=effect.after.least_votes,
            both_lists=effect.after.both_lists,
        )

    def saved(_: None) -> None:
        outcome = "and labels rest on it now" if use else "not yet in use"
        _done(f"Saved '{name.strip()}', {outcome}.", keep_sliders=not use)

    with page.Reporting("The rule was not saved.", StoreError), button:
        once.button("Save this rule", save, saved, key="consensus.save.rule", submits=True, icon=":material/save:")


def _rules(store: Store, dataset: DatasetRow) -> None:
    safe.heading("Rules of this dataset")
    rules = lists.rules(store, dataset.id)
    answers.twin(rules, f"consensus.rules.{dataset.id}", height="content")
    names = [row["name"] for row in rules.rows]
    current = next(row["name"] for row in rules.rows if row["current"])
    if len(names) == 1:
        safe.inline("No rule has been saved yet: labels rest on the paper's.", muted=True)
        return
    choice, use, delete = st.columns([3, 2, 5], vertical_alignment="bottom")
    name = choice.selectbox(
        "Rule",
        names,
        index=names.index(current),
        format_func=lambda item: "the paper's rule" if item == labellings.PAPER_RULE else safe.option(item),
        # The current rule in the key: once it is another, the list starts at that one.
        key=f"consensus.rule.{dataset.id}.{current}",
    )
    with page.Reporting("The rule was not changed.", StoreError):
        with use:
            paper = name == labellings.PAPER_RULE
            outcome = "Labels rest on the paper's rule again." if paper else f"Labels rest on '{name}' now."
            once.button(
                "Make it current",
                lambda: catalogue.use_rule(store, dataset.id, name),
                lambda _: _done(outcome),
                key="consensus.make",
                disabled=name == current,
                icon=":material/check:",
            )
        with delete, st.popover("Delete", icon=":material/delete:", disabled=name == labellings.PAPER_RULE):
            st.text(
                "This deletes the rule. Votes and decisions stay. If it is current, the paper's rule applies again."
            )
            once.button(
                "Delete this rule",
                lambda: catalogue.delete_rule(store, dataset.id, name),
                lambda _: _done(f"Deleted '{name}'."),
                key=f"consensus.delete.{dataset.id}.{name}",
                type="primary",
            )


# ---- page


PARTS = {
    "shares": ("Shares", consensus_figures.draw_shares),
    "whatif": ("What if", draw_rule),
    "contexts": ("Contexts and Table 2", consensus_figures.draw_contexts),
    "agreement": ("Agreement of labellings", consensus_figures.draw_agreement),
    "models": ("Labeller and models", consensus_figures.draw_models),
}


def main() -> None:
    store = shared_store()
    rows = catalogue.all_datasets(store)
    if not rows:
        page.no_datasets(
            TITLE,
            "There is no dataset yet.",
            "This page shows the pairs on which personas agree. Import profiles and label them first.",
        )
        return
    top = st.container()
    left, right, _ = st.columns([2, 3, 4])
    dataset, labelling = draw_scope(
        store, rows, "consensus", left, right, lambda row: f"{labelling_title(row)} ({row.id})", voted=True
    )
    if labelling is None:
        with top:
            page.head(TITLE, f"'{dataset.name}' has no labels yet.")
        page.empty(
            "Nothing is labelled yet",
            "A pair has a consensus where the personas agree. Have a model vote as them, or import labels.",
            lambda: url.page_link("labels", "Label the dataset", icon=":material/label:", dataset=dataset.id),
        )
        return
    part = url.get("part") or url.remembered("part")
    # Even the default: without it, the address would lead to the part that its reader viewed last.
    url.replace(part=part if part in PARTS else "shares")
    titles = {name: title for name, (title, _) in PARTS.items()}
    # There is no default part, so that each is named in the URL.
    part = page.choice("Part", titles, "consensus.part", "part", visible=False)
    takeaways: list[str] = []

    def set_takeaway(takeaway: str) -> None:
        takeaways.append(takeaway)
        with top:
            page.head(TITLE, takeaway, simulated=("labels",) if labelling.simulated else ())

    try:
        with st.spinner("Counting the votes", show_time=True):
            vote_counts(store, labelling.id)  # every part needs them: seconds, the first time
        rule = rule_of(store, labelling.id)
        name = safe.tag("b", rule.name if rule.is_paper else f"the rule '{rule.name}'")
        whose = f"The consensus is of personas, not people: {listed(rule.keys)}, with votes by {labelling.model}. "
        safe.show(safe.tag("p", whose, "Labels follow ", name, f": {rule.text}.", cls="ci-line"))
        if rule.note:
            page.notice(sentence(rule.note))
        if part == "shares":
            with page.Reporting("The families of the models are unknown.", SeedError):
                if notes := family_notes(warnings.family_warnings(store, labelling.id)):
                    page.notices([*notes, "See 'Labeller and models'"])
        PARTS[part][1](store, dataset, labelling, set_takeaway)
    except StoreError as problem:
        if not takeaways:
            set_takeaway("This cannot be shown.")
        page.error("This part cannot be shown.", str(problem))


main()
