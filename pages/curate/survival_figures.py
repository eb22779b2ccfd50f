"""Parts of the Survival page: shares by group, contexts and Table 2, trying a rule, who labelled, and agreement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pandas as pd
import streamlit as st

from cimemories.agreement.models import ORDER, Agreement, agreement, agreements
from cimemories.charts.bars import LABEL_PARTS, BarPart, before_after, count_bars, share_bars
from cimemories.curation.consensus import LABELS
from cimemories.flows.labels import AppliedRule, rule_of
from cimemories.labels.survival import (
    ALL_ABSTAIN,
    ANY_OF_SEVERAL,
    NEITHER,
    NO_INAPPROPRIATE,
    NO_NECESSARY,
    PAPER,
    SEVERAL,
    Contexts,
    Statistic,
    Survival,
    contexts,
    survival,
    table2,
)
from cimemories.labels.votes import GroupBy
from cimemories.labels.whatif import WhatIf, what_if
from cimemories.metrics import headline
from cimemories.store import labellings
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError
from cimemories.store.labellings import LabellingRow
from cimemories.text import count, percent
from cimemories.ui import charts, page, safe, tables, url
from cimemories.ui.page import rule_sliders
from cimemories.ui.safe import Html, join, tag
from pages.curate.pair_panel import PAIR_COLUMNS, go_to_pair

# ---- survival shares
#
# Part of the Survival page: the share of pairs with a consensus by group, and who dissents on the others.


PLURALS = {
    GroupBy.DOMAIN: "domains",
    GroupBy.SPHERE: "spheres",
    GroupBy.CONTEXT: "contexts",
    GroupBy.PROFILE: "profiles",
}
WHO = {
    ALL_ABSTAIN: "all personas abstain",
    ANY_OF_SEVERAL: "any one of several personas",
    SEVERAL: "several personas together",
}


def draw_shares(store: Store, dataset: DatasetRow, labelling: LabellingRow, say: Callable[[str], None]) -> None:
    """Draws the part; `say` draws the head with the page's takeaway, as early as it is known."""
    found = survival(store, labelling.id)
    if not found.pairs:
        say("No vote is counted yet.")
        page.empty("No vote is counted yet", "Wait for the labelling, or look at its failures on the Labels page.")
        return
    say(_shares_takeaway(found))
    group_by = group_control("survival.by")
    _bars(found, group_by, labelling)
    _dissent(found, labelling)
    _people(found, dataset, labelling)


def group_control(key: str) -> GroupBy:
    """What shares are broken down by, as the URL says."""
    asked = url.get("by")
    st.session_state[key] = asked if asked in set(GroupBy) else str(GroupBy.DOMAIN)

    def changed() -> None:
        url.put(by=st.session_state[key])

    st.segmented_control(
        "By", [str(item) for item in GroupBy], key=key, on_change=changed, required=True, width="content"
    )
    return GroupBy(st.session_state[key] or GroupBy.DOMAIN)


def _shares_takeaway(found: Survival) -> str:
    domains = found.by[GroupBy.DOMAIN].sort_values("survival", kind="stable")
    least, most = domains.iloc[0], domains.iloc[-1]
    text = (
        f"{percent(found.share)} of {count(found.pairs)} labelled pairs have a consensus, "
        f"{count(found.necessary)} necessary and {count(found.inappropriate)} inappropriate"
    )
    if len(domains) > 1:
        text += (
            f"; most in {most['name']} ({percent(most['survival'])}), "
            f"least in {least['name']} ({percent(least['survival'])})"
        )
    missing = found.planned - found.pairs
    return f"{text}." + (f" {count(missing)} pairs have no counted vote." if missing else "")


def _bars(found: Survival, group_by: GroupBy, labelling: LabellingRow) -> None:
    frame = found.by[group_by].sort_values("survival", ascending=False, kind="stable").reset_index(drop=True)
    shown = frame.head(MOST_BARS)
    least = frame.iloc[-1]
    words = PLURALS[group_by]
    title = (
        f"{_short(least['name'])} keeps the fewest labels: {percent(least['survival'])} of its pairs"
        if len(frame) > 1
        else f"{_short(least['name'])}: {percent(least['survival'])} of the pairs keep a label"
    )
    cut = f"; the first {MOST_BARS} of {len(frame)} {words} drawn" if len(frame) > MOST_BARS else ""
    fig = share_bars(
        shown,
        LABEL_PARTS,
        name="name",
        title=title[0].upper() + title[1:],
        subtitle=f"{count(found.pairs)} labelled pairs by {group_by}, most survival on top{cut}",
        unit="pairs",
    )
    charts.show(
        fig,
        key=f"survival.bars.{group_by}.{labelling.id}",
        alt=f"Labels by {group_by}, as shares of the labelled pairs. The same numbers are in the table below.",
    )

    def table() -> None:
        tables.table(
            frame,
            key=f"survival.table.{group_by}.{labelling.id}",
            columns={
                "name": ("text", "Group"),
                "survival": ("percent", "Survival"),
                "pairs": ("count", "Labelled pairs"),
                "necessary": ("count", "N necessary"),
                "ambiguous": ("count", "? ambiguous"),
                "inappropriate": ("count", "X inappropriate"),
            },
            alt="Survival by group",
        )
        download(frame.drop(columns="id"), f"survival-{group_by}", labelling, found.rule.words)

    page.fold("The same as a table", ":material/table:", "survival.box.shares", table)


def download(frame: pd.DataFrame, name: str, labelling: LabellingRow, rule: str) -> None:
    """A CSV that says where its numbers come from in every row."""
    marked = frame.assign(
        labelling=labelling.id, model=labelling.model, rule=rule, simulated="simulated" if labelling.simulated else ""
    )
    tables.csv_button(marked, f"{name}-{labelling.id}.csv", key=f"survival.csv.{name}")


def _dissent(found: Survival, labelling: LabellingRow) -> None:
    frame = found.dissent
    if frame.empty:
        page.notice("Every labelled pair has a consensus, so nobody dissents.")
        return
    by_who = frame.groupby("who", sort=False)["pairs"].sum().sort_values(ascending=False)
    shown = pd.DataFrame({"name": [_who(who) for who in by_who.index], "pairs": by_who.to_numpy()})
    alone = by_who[[who not in WHO for who in by_who.index]]
    if len(alone):
        title = (
            f"The {alone.index[0]} alone stands in the way of a consensus on "
            f"{percent(alone.iloc[0] / found.ambiguous)} of the ambiguous pairs"
        )
    else:
        title = "No persona alone stands in the way of a consensus"
    fig = count_bars(
        shown,
        name="name",
        column="pairs",
        colour=safe.AMBIGUOUS,
        title=title,
        subtitle=f"{count(found.ambiguous)} ambiguous pairs, by who would have to leave for a consensus",
        unit="ambiguous pairs",
    )
    charts.show(
        fig,
        key=f"survival.dissent.{labelling.id}",
        alt="Ambiguous pairs by the persona that dissents. The same numbers are in the table below.",
    )

    def table() -> None:
        tables.table(
            frame.assign(who=[_who(who) for who in frame["who"]]),
            key=f"survival.dissent.table.{labelling.id}",
            columns={
                "who": ("text", "Who"),
                "how": ("text", "What it does"),
                "pairs": ("count", "Ambiguous pairs"),
                "share": ("percent", "Of all ambiguous"),
            },
            alt="Who dissents and how",
        )
        st.caption(
            "A persona dissents alone where the rule, applied to the others only, would give a label. It says the "
            "opposite, or abstains, where more than half of its votes do; else it is divided."
        )
        download(frame, "dissent", labelling, found.rule.words)

    page.fold("Who dissents and how, as a table", ":material/table:", "survival.box.dissent", table)


def _people(found: Survival, dataset: DatasetRow, labelling: LabellingRow) -> None:
    decided = found.decisions
    if not decided.pairs:
        safe.inline("No pair has been decided by a person yet.", muted=True)
        return
    parts = [
        f"{count(decided.settled)} settle an ambiguous pair",
        f"{count(decided.against)} go against the consensus",
        f"{count(decided.agree)} agree with the labelling",
    ]
    if decided.alone:
        parts.append(f"{count(decided.alone)} stand where nobody voted")
    safe.inline(
        f"Decided by people, apart from all shares above: {count(decided.pairs)} pairs; {', '.join(parts)}. "
        "Runs count a person's decision before the consensus."
    )
    url.page_link("labels", "Look at the labels", icon=":material/label:", dataset=dataset.id, labelling=labelling.id)


def _who(who: str) -> str:
    return WHO.get(who, f"{who} alone")


def _short(name: object) -> str:
    return safe.option(name, 60)


# ---- survival agreement
#
# Part of the Survival page: how far two labellings of the dataset agree, models with models.


MOST_AGREEMENT_ROWS = 500
NAMES = [safe.glyphed(LABELS[code]) for code in ORDER]


def draw_agreement(store: Store, dataset: DatasetRow, labelling: LabellingRow, say: Callable[[str], None]) -> None:
    """Draws the part; `say` draws the head with the page's takeaway, as early as it is known."""
    with store.read() as connection:
        rows = labellings.all_rows(connection, dataset.id)
    others = {
        row.id: row
        for row in reversed(rows)
        if row.id != labelling.id and (row.imported or row.ballots.get(labellings.OK))
    }
    if not others:
        say(f"{dataset.name} has one labelling, so there is nothing to compare it with.")
        page.empty(
            "There is only one labelling",
            "Label the dataset again with another model or persona pack, or import labels; both then stand side by "
            "side here, with the pairs on which they differ.",
            lambda: url.page_link("labels", "Label it again", icon=":material/label:", dataset=dataset.id),
        )
        return
    if url.get("second") not in others:
        url.put(second=None)
    with st.columns([3, 6])[0]:
        second = page.select("Compare with", list(others), lambda i: _named(others[i]), "survival.second", "second")
    found = agreement(store, labelling.id, str(second))
    say(_agreement_takeaway(found))
    if len(others) > 1:
        _all(store, dataset)
    if not found.pairs:
        page.notice("No pair has been labelled by both, so there is nothing to compare yet.")
        return
    _rules(found)
    left, right = st.columns([4, 5], gap="large")
    with left:
        _confusion(found)
    with right:
        _domains(found)
    _differing(found, dataset, labelling)


def _agreement_takeaway(found: Agreement) -> str:
    if not found.pairs:
        return "No pair has been labelled by both."
    one, two = _words(found)
    return (
        f"{one} and {two} give the same label to {percent(found.share)} of "
        f"{count(found.pairs)} pairs (Cohen's kappa {_kappa(found.kappa)}); "
        f"{count(int(found.differing['opposite'].sum()))} pairs get opposite labels."
    )


def _named(row: LabellingRow) -> str:
    kinds = [row.id, *["imported, no votes"] * row.imported, *["simulated"] * row.simulated]
    return f"{row.model} ({', '.join(kinds)})"


def _words(found: Agreement) -> tuple[str, str]:
    """The two labellings by their models, by their ids too where one model made both."""
    rows = (found.first, found.second)
    alike = found.first.model == found.second.model
    one, two = (f"{safe.option(row.model, 40)} ({row.id})" if alike else safe.option(row.model, 40) for row in rows)
    return one, two


def _kappa(value: float) -> str:
    return "undefined" if value != value else f"{value:.2f}"


def _rules(found: Agreement) -> None:
    for words, rule in zip(_words(found), found.rules, strict=True):
        if rule.note:
            page.notice(f"{words}: {rule.note}.")
    only = [
        f"{count(n)} only by {words}"
        for n, words in zip((found.only_first, found.only_second), _words(found), strict=True)
        if n
    ]
    if only:
        safe.inline(f"Not compared, labelled by one alone: {', '.join(only)}.", muted=True)


def _confusion(found: Agreement) -> None:
    one, two = _words(found)
    safe.heading("Labels side by side")
    safe.inline(f"First, down: {one}. Second, across: {two}.", muted=True)
    total = found.pairs
    head = tag("tr", tag("th", "first \\ second"), *(tag("th", name, cls="ci-number") for name in NAMES))
    rows: list[Html] = []
    for i, name in enumerate(NAMES):
        cells = [
            tag(
                "td",
                tag("b", count(n)) if i == j else count(n),
                f" ({percent(n / total)})",
                cls="ci-number",
            )
            for j, n in enumerate(found.confusion[i].tolist())
        ]
        rows.append(tag("tr", tag("td", name), *cells))
    safe.show(tag("table", tag("thead", head), tag("tbody", join(rows)), cls="ci-grid"))
    st.caption("Pairs by both labels; bold: the same label. This is models with models; people are not in it.")
    frame = pd.DataFrame(found.confusion, columns=NAMES)
    frame.insert(0, "first \\ second", NAMES)
    tables.csv_button(
        _marked(frame, found), f"confusion-{found.first.id}-{found.second.id}.csv", key="survival.csv.confusion"
    )


def _domains(found: Agreement) -> None:
    frame = found.by_domain.sort_values("share", kind="stable").reset_index(drop=True)
    least = frame.iloc[0]
    safe.heading(f"They agree least in {str(least['domain']).replace('_', ' ')}: {percent(least['share'])}")
    tables.table(
        frame.assign(domain=frame["domain"].str.replace("_", " "), kappa=[_kappa(value) for value in frame["kappa"]]),
        key=f"survival.agreement.{found.first.id}.{found.second.id}",
        columns={
            "domain": ("text", "Domain"),
            "share": ("percent", "Same label"),
            "kappa": ("text", "Cohen's kappa"),
            "same": ("count", "Same"),
            "pairs": ("count", "Pairs"),
        },
        height="content",
        alt="Agreement by domain, least first",
    )


def _differing(found: Agreement, dataset: DatasetRow, labelling: LabellingRow) -> None:
    frame = found.differing
    safe.heading(f"{count(len(frame))} pairs on which they differ")
    if frame.empty:
        page.notice("They give the same label to every pair.")
        return
    shown = frame.head(MOST_AGREEMENT_ROWS)
    picked = tables.table(
        shown.assign(
            domain=shown["domain"].str.replace("_", " "),
            opposite=["opposite" if flag else "" for flag in shown["opposite"]],
        ),
        key=f"survival.differing.{found.first.id}.{found.second.id}",
        columns={
            "opposite": ("small", ""),
            "first": ("text", "First"),
            "second": ("text", "Second"),
            **PAIR_COLUMNS,
        },
        on_select="row",
        alt="Pairs on which the two labellings differ, opposite labels first",
    )
    first = (
        f"The first {MOST_AGREEMENT_ROWS} are shown; the download has all. " if len(frame) > MOST_AGREEMENT_ROWS else ""
    )
    safe.inline(f"{first}Choose a row to see its votes.", muted=True)
    words = f"{found.rules[0].words} / {found.rules[1].words}"
    download(_marked(frame, found), "differing", labelling, words)
    if picked is not None:
        go_to_pair(dataset, labelling, shown.iloc[picked])


def _marked(frame: pd.DataFrame, found: Agreement) -> pd.DataFrame:
    simulated = [row.model for row in (found.first, found.second) if row.simulated]
    return frame.assign(
        first_labelling=found.first.id, second_labelling=found.second.id, simulated=", ".join(simulated)
    )


def _all(store: Store, dataset: DatasetRow) -> None:
    def table() -> None:
        found = agreements(store, dataset.id)
        frame = pd.DataFrame(
            [
                {
                    "first": _named(item.first),
                    "second": _named(item.second),
                    "share": item.share,
                    "kappa": _kappa(item.kappa),
                    "pairs": item.pairs,
                }
                for item in found
            ]
        )
        tables.table(
            frame,
            key=f"survival.agreements.{dataset.id}",
            columns={
                "first": ("text", "First"),
                "second": ("text", "Second"),
                "share": ("percent", "Same label"),
                "kappa": ("text", "Cohen's kappa"),
                "pairs": ("count", "Pairs of both"),
            },
            height="content",
            alt="Agreement of every two labellings",
        )

    page.fold("Every two labellings", ":material/table:", "survival.box.agreements", table)


# ---- survival contexts
#
# Part of the Survival page: contexts retained or discarded and why, and the statistics of the paper's Table 2.


MOST_BARS = 60
PARTS = (
    BarPart("retained", "retained", "", "#56B4E9"),
    BarPart(NO_NECESSARY, f"discarded: {NO_NECESSARY}", "X", safe.INAPPROPRIATE, "/"),
    BarPart(NO_INAPPROPRIATE, f"discarded: {NO_INAPPROPRIATE}", "N", safe.NECESSARY, "\\"),
    BarPart(NEITHER, "discarded: neither, all ambiguous", "?", safe.AMBIGUOUS, "x"),
)


def draw_contexts(store: Store, dataset: DatasetRow, labelling: LabellingRow, say: Callable[[str], None]) -> None:
    """Draws the part; `say` draws the head with the page's takeaway, as early as it is known."""
    found = contexts(store, labelling.id)
    if found.frame.empty:
        say("No context has a label yet.")
        page.empty("No context has a label yet", "Wait for the labelling, or look at its failures on the Labels page.")
        return
    say(_contexts_takeaway(found))
    _chart(found, labelling)
    _discarded(found, dataset, labelling)
    _statistics(table2(store, labelling.id), labelling)


def _contexts_takeaway(found: Contexts) -> str:
    total = len(found.frame)
    gone = total - found.retained
    reasons = ", ".join(f"{count(n)} with {reason}" for reason, n in found.discarded.items() if n)
    return (
        f"{count(found.retained)} of {count(total)} contexts of profiles are retained; "
        + (f"{count(gone)} are discarded, {reasons}." if gone else "none is discarded.")
    ).replace(f"with {NEITHER}", "with neither a necessary nor an inappropriate attribute")


def _chart(found: Contexts, labelling: LabellingRow) -> None:
    reasons = found.frame["reason"].replace("", "retained")
    table = pd.crosstab(found.frame["profile"], reasons)
    names = dict(zip(found.frame["profile"], found.frame["user"], strict=True))
    frame = pd.DataFrame({"name": [names[i] for i in table.index]}, index=table.index)
    for part in PARTS:
        frame[part.column] = table.get(part.column, 0)
    frame = frame.sort_values("retained", ascending=False, kind="stable")
    least = frame.iloc[-1]
    total = int(least[[part.column for part in PARTS]].sum())
    title = (
        "Every context of every profile is retained"
        if found.retained == len(found.frame)
        else f"{safe.option(least['name'], 60)} loses most: {int(least['retained'])} of {total} contexts retained"
    )
    cut = f"; the first {MOST_BARS} of {len(frame)} profiles drawn" if len(frame) > MOST_BARS else ""
    fig = share_bars(
        frame.head(MOST_BARS),
        PARTS,
        name="name",
        title=title,
        subtitle=f"{count(len(found.frame))} contexts of {len(frame)} profiles, by effective labels{cut}",
        unit="contexts",
    )
    charts.show(
        fig,
        key=f"survival.contexts.{labelling.id}",
        alt="Contexts retained and discarded by profile. The same is in the table below.",
    )


def _discarded(found: Contexts, dataset: DatasetRow, labelling: LabellingRow) -> None:
    gone = found.frame[found.frame["reason"] != ""].reset_index(drop=True)

    def table() -> None:
        only = len(gone) > 0 and st.toggle("Only discarded ones", value=True, key="survival.contexts.only")
        shown = gone if only else found.frame.reset_index(drop=True)
        worded = shown.assign(reason=shown["reason"].replace("", "retained"))
        picked = tables.table(
            worded,
            key=f"survival.contexts.table.{labelling.id}",
            columns={
                "user": ("text", "Profile"),
                "name": ("wide", "Context"),
                "sphere": ("text", "Sphere"),
                "attributes": ("count", "Labelled"),
                "necessary": ("count", "N necessary"),
                "inappropriate": ("count", "X inappropriate"),
                "reason": ("text", "Retained, or why not"),
            },
            on_select="row",
            alt="Contexts by profile, with what is necessary and inappropriate in them",
        )
        st.caption("Choose a row to see its labels. A person's decision goes before the consensus, as runs count it.")
        download(worded, "contexts", labelling, "effective labels")
        if picked is not None:
            go_to_pair(dataset, labelling, shown.iloc[picked])

    page.fold(
        "All contexts as a table",
        ":material/table:",
        "survival.box.contexts",
        table,
        expanded=0 < len(gone) <= 12,
    )


def _statistics(lines: tuple[Statistic, ...], labelling: LabellingRow) -> None:
    safe.heading("The statistics of the paper's Table 2")
    frame = pd.DataFrame(
        [
            {
                "name": line.name,
                "here": _mean_and_sd(line),
                "over": f"{count(line.over)} {line.unit}" if line.sd is not None else "",
                "published": line.published.figure if line.published else "not at hand",
                "place": f"{PAPER}, {line.published.place}" if line.published else "",
            }
            for line in lines
        ]
    )
    tables.table(
        frame,
        key=f"survival.table2.{labelling.id}",
        columns={
            "name": ("text", "Statistic"),
            "here": ("text", "This labelling, mean ± sd"),
            "over": ("text", "Over"),
            "published": ("text", "Published"),
            "place": ("text", "Source of the published figure"),
        },
        height="content",
        alt="Statistics of Table 2 of this labelling beside the published ones",
    )
    st.caption(
        "By effective labels under the rule that holds; sd with n - 1. The published column is of the authors' own "
        "labels, not of the ones here."
    )
    download(frame, "table2", labelling, "effective labels")


def _mean_and_sd(line: Statistic) -> str:
    if line.mean != line.mean:
        return "undefined: no context is retained"
    if line.sd is None:
        return count(line.mean)
    return f"{line.mean:.1f}" + (f" ± {line.sd:.1f}" if line.sd == line.sd else "")


# ---- survival models
#
# Part of the Survival page: who labelled, and which models under test are of the same family.


UNKNOWN = "not known"


def draw_models(store: Store, dataset: DatasetRow, labelling: LabellingRow, say: Callable[[str], None]) -> None:
    """Draws the part; `say` draws the head with the page's takeaway. Raises SeedError where seeds/models.yaml does not
    fit."""
    found = headline.family_warnings(store, labelling.id)
    own = " and ".join(headline.families(labelling.model)) or UNKNOWN
    if not found:
        say(f"Labelled by {labelling.model} (family: {own}); no model has been tested on it yet.")
        page.empty(
            "No run on this dataset yet",
            "A model tends to judge as its kin do. Once a model has run, it is compared here with the labeller.",
            lambda: url.page_link("runs", "Start a run", icon=":material/play_circle:"),
        )
        return
    kin = sum(item.warning is not None for item in found)
    say(
        f"Labelled by {labelling.model} (family: {own}); "
        f"{kin} of {len(found)} runs on this dataset test a model of the same family."
    )
    frame = pd.DataFrame(
        [
            {
                "run": item.run_name,
                "model": item.model,
                "family": " and ".join(item.families) or UNKNOWN,
                "labeller": item.labeller,
                "own": own,
                "warning": item.warning or "",
            }
            for item in found
        ]
    )
    tables.table(
        frame,
        key=f"survival.models.{labelling.id}",
        columns={
            "run": ("text", "Run"),
            "model": ("text", "Model under test"),
            "family": ("text", "Its family"),
            "labeller": ("text", "Labelled by"),
            "own": ("text", "Labeller's family"),
            "warning": ("wide", "Warning"),
        },
        height="content",
        alt="Runs of this dataset with their model's family and the labeller's",
    )
    st.caption(
        "Families are told from names by the file seeds/models.yaml, which can be changed; a name it does not know "
        "raises no warning unless it is the labeller's own."
    )


# ---- survival rules
#
# Part of the Survival page: a rule is tried, saved under a name, and made the one that labels rest on.


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
        else "Priors: " + ", ".join(f"{key} {percent(prior)}" for key, prior in priors.items()) + ".",
        muted=True,
    )
    if moved.any:
        st.button("Back to the rule that holds", icon=":material/undo:", on_click=_forget, key="survival.back")
    return (holds.threshold if moved.threshold is None else moved.threshold), priors


def _forget() -> None:
    url.put(threshold=None, priors=None)


def _takeaway(effect: WhatIf) -> str:
    if not effect.changed:
        survival = percent(effect.survival_before)
        return f"No label of {count(effect.pairs)} pairs would change; survival stays at {survival}."
    return (
        f"{count(effect.changed)} of {count(effect.pairs)} pairs would change their label; survival "
        f"{percent(effect.survival_before)} now, {percent(effect.survival_after)} then."
    )


def _changes(effect: WhatIf, labelling: LabellingRow) -> None:
    safe.show(
        safe.facts(
            [
                ("Holds now", f"{effect.before.name}: {effect.before.words}"),
                ("Tried", effect.after.words),
                ("Survival", f"{percent(effect.survival_before)} → {percent(effect.survival_after)}"),
                *(
                    (f"{count(n)} pairs", f"{_glyphed(before)} → {_glyphed(after)}")
                    for before, after, n in effect.changes
                ),
            ]
        )
    )
    if effect.decided:
        safe.inline(f"{count(effect.decided)} of the pairs that change were decided by a person and keep that label.")
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
    fig = before_after(
        shown,
        name="name",
        before="survival_before",
        after="survival_after",
        pairs="pairs",
        unit="pairs",
        title=f"{name[:1].upper()}{name[1:]} changes most: {count(top['changed'])} of its {count(top['pairs'])} pairs",
        subtitle=f"Survival of {count(effect.pairs)} labelled pairs by {group_by}, most changes on top{cut}",
    )
    charts.show(
        fig,
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
            labellings.add_rule(
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
        rows = labellings.all_rules(connection, dataset.id)
    current = next((row.name for row in rows if row.current), labellings.PAPER_RULE)
    paper = {
        "name": "the paper's rule",
        "current": "current" if current == labellings.PAPER_RULE else "",
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
    _choose(store, dataset, [labellings.PAPER_RULE, *(row.name for row in rows)], current)


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
            format_func=lambda item: "the paper's rule" if item == labellings.PAPER_RULE else safe.option(item),
            key=f"survival.rule.{dataset.id}.{current}",
        )
    try:
        with use:
            if st.button("Make it current", disabled=name == current, key="survival.make", icon=":material/check:"):
                with store.write() as connection:
                    labellings.make_current_rule(connection, dataset.id, name)
                st.session_state[_SAID] = (
                    f"Labels rest on '{name}' now."
                    if name != labellings.PAPER_RULE
                    else ("Labels rest on the paper's rule again.")
                )
                _forget()
                st.rerun()
        with delete, st.popover("Delete", icon=":material/delete:", disabled=name == labellings.PAPER_RULE):
            st.text("The rule goes; votes and decisions stay. Where it is current, the paper's rule holds again.")
            if st.button("Delete this rule", type="primary", key="survival.delete"):
                with store.write() as connection:
                    labellings.delete_rule(connection, dataset.id, name)
                st.session_state[_SAID] = f"Deleted '{name}'."
                _forget()
                st.rerun()
    except StoreError as problem:
        page.error("The rule was not changed.", str(problem))
