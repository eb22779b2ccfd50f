"""Parts of the Consensus page: shares by group, agreement of labellings, contexts and Table 2, and who labelled."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from cimemories.agreement.models import ORDER, Agreement, agreement, agreements
from cimemories.charts.bars import LABEL_PARTS, BarPart, count_bars, share_bars
from cimemories.flows import catalogue
from cimemories.flows.labels import LABELS, unlabelled_text
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
from cimemories.metrics import sentences, warnings
from cimemories.metrics.separation import largest_count
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store
from cimemories.store.labellings import LabellingRow
from cimemories.text import count, decimal, percent
from cimemories.ui import charts, page, safe, tables, url
from cimemories.ui.safe import tag
from pages.curate.pair_panel import go_to_pair, pair_table

Columns = Mapping[str, tables.Column | tuple[tables.Column, str]]

# ---- shares
#
# the share of pairs with a consensus by group, and who dissents on the others.


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


def draw_shares(
    store: Store, dataset: DatasetRow, labelling: LabellingRow, set_takeaway: Callable[[str], None]
) -> None:
    """Draws the part; `set_takeaway` draws the head of the page, as early as its sentence is known."""
    result = survival(store, labelling.id)
    if not result.pairs:
        set_takeaway(result.too_few_text or "No vote is counted yet.")
        if result.too_few:
            page.empty("No pair has enough votes for a label", "Ask for the lost votes again, or try another rule.")
            return
        page.empty("No vote is counted yet", "Wait for the labelling, or look at its failures on the Labels page.")
        return
    set_takeaway(_shares_takeaway(result))
    group_by = group_control("consensus.by")
    _group_bars(result, group_by, labelling)
    _dissent(result, labelling)
    _people_decided(result, dataset, labelling)


def group_control(key: str) -> GroupBy:
    """What shares are broken down by, as the URL says."""
    return GroupBy(page.choice("By", {by: by for by in map(str, GroupBy)}, key, "by", default=str(GroupBy.DOMAIN)))


def _shares_takeaway(result: Survival) -> str:
    domains = result.by[GroupBy.DOMAIN].dropna(subset="survival")
    text = (
        f"{percent(result.share)} of {count(result.pairs)} labelled pairs have a consensus, "
        f"{count(result.necessary)} necessary and {count(result.inappropriate)} inappropriate"
    )
    if len(domains) > 1:
        text += f"; by domain {sentences.ends([str(name) for name in domains['name']], domains['survival'].tolist())}"
    have = "has" if result.unlabelled == 1 else "have"
    missing = f"{count(result.unlabelled, 'pair')} {have} no counted vote." if result.unlabelled else ""
    return " ".join(filter(None, (f"{text}.", result.too_few_text, missing)))


def _group_bars(result: Survival, group_by: GroupBy, labelling: LabellingRow) -> None:
    frame = result.by[group_by].sort_values("survival", ascending=False, kind="stable").reset_index(drop=True)
    known = frame.dropna(subset="survival")
    names = [safe.option(name, 60) for name in known["name"]]
    title = f"Pairs with a consensus: {sentences.ends(names, known['survival'].tolist())}"
    cut = f"; the first {MOST_BARS} of {len(frame)} {PLURALS[group_by]} shown" if len(frame) > MOST_BARS else ""
    fig = share_bars(
        frame.head(MOST_BARS),
        LABEL_PARTS,
        name="name",
        title=title[0].upper() + title[1:],
        subtitle=f"{count(result.pairs, 'labelled pair')} by {group_by}, the largest share on top{cut}",
        unit="pairs",
    )
    columns: Columns = {
        "name": ("text", "Group"),
        "survival": ("percent", "With a consensus"),
        "pairs": ("count", "Labelled pairs"),
        "necessary": ("count", "N necessary"),
        "ambiguous": ("count", "? ambiguous"),
        "inappropriate": ("count", "X inappropriate"),
        **({"too_few": ("count", "Too few votes")} if result.too_few else {}),
    }
    alt, file = f"Labels by {group_by}, as shares of the labelled pairs", f"consensus-{group_by}"
    chart_and_table(fig, alt, frame, columns, labelling, result.rule.text, name=file, box="shares")


def chart_and_table(
    fig: go.Figure,
    alt: str,
    frame: pd.DataFrame,
    columns: Columns,
    labelling: LabellingRow,
    rule: str,
    *,
    name: str,
    box: str,
    note: str = "",
) -> None:
    """A chart, and under it the folded table with the same numbers and its download. name: of files and widgets."""
    charts.show(fig, key=f"consensus.{name}.{labelling.id}", alt=f"{alt}. The same numbers are in the table below.")

    def table() -> None:
        tables.table(frame, key=f"consensus.table.{name}.{labelling.id}", columns=columns, alt=alt)
        if note:
            safe.inline(note, muted=True)
        download(frame.drop(columns="id", errors="ignore"), name, labelling, rule)

    page.fold("The same as a table", ":material/table:", f"consensus.box.{box}", table)


def download(frame: pd.DataFrame, name: str, labelling: LabellingRow, rule: str) -> None:
    """A CSV that says where its numbers come from in every row."""
    marked = frame.assign(
        labelling=labelling.id, model=labelling.model, rule=rule, simulated="simulated" if labelling.simulated else ""
    )
    tables.csv_button(marked, f"{name}-{labelling.id}.csv", key=f"consensus.csv.{name}")


def _dissent(result: Survival, labelling: LabellingRow) -> None:
    frame = result.dissent
    if frame.empty:
        page.notice("Every labelled pair has a consensus, so nobody dissents.")
        return
    by_who = frame.groupby("who", sort=False)["pairs"].sum().sort_values(ascending=False)
    shown = pd.DataFrame({"name": [_who(who) for who in by_who.index], "pairs": by_who.to_numpy()})
    # WHO has the cases in which no single persona is the reason.
    alone = by_who[[who not in WHO for who in by_who.index]]
    if len(alone):
        share = percent(alone.iloc[0] / result.ambiguous)
        title = f"The {alone.index[0]} persona alone prevents a consensus on {share} of the ambiguous pairs"
    else:
        title = "No persona alone prevents a consensus"
    fig = count_bars(
        shown,
        name="name",
        column="pairs",
        colour=safe.AMBIGUOUS,
        title=title,
        subtitle=f"{count(result.ambiguous)} ambiguous pairs, by the persona without which there would be a consensus",
        unit="ambiguous pairs",
    )
    columns: Columns = {
        "who": ("text", "Who"),
        "how": ("text", "What it does"),
        "pairs": ("count", "Ambiguous pairs"),
        "share": ("percent", "Of all ambiguous"),
    }
    named = frame.assign(who=[_who(who) for who in frame["who"]])
    alt = "Ambiguous pairs by the persona that dissents"
    note = (
        "A persona dissents alone where the rule, applied to the others only, would give a label. It says the "
        "opposite, or abstains, where more than half of its votes do; otherwise it is divided."
    )
    chart_and_table(fig, alt, named, columns, labelling, result.rule.text, name="dissent", box="dissent", note=note)


def _people_decided(result: Survival, dataset: DatasetRow, labelling: LabellingRow) -> None:
    decided = result.decisions
    if not decided.pairs:
        safe.inline("No pair has been decided by a person yet.", muted=True)
        return
    parts = [
        f"{count(decided.settled)} settle an ambiguous pair",
        f"{count(decided.against)} go against the consensus",
        f"{count(decided.agree)} agree with the labelling",
    ]
    if decided.alone:
        parts.append(f"{count(decided.alone)} stand where there are too few votes, or none")
    safe.inline(
        f"Decided by people, apart from all shares above: {count(decided.pairs, 'pair')}; {', '.join(parts)}. "
        "Runs count a person's decision before the consensus."
    )
    url.page_link("labels", "Look at the labels", icon=":material/label:", dataset=dataset.id, labelling=labelling.id)


def _who(who: str) -> str:
    return WHO.get(who, f"{who} alone")


# ---- agreement
#
# how far two labellings of the dataset agree, models with models.


LABEL_NAMES = [safe.glyphed(LABELS[code]) for code in ORDER]


def draw_agreement(
    store: Store, dataset: DatasetRow, labelling: LabellingRow, set_takeaway: Callable[[str], None]
) -> None:
    """Draws the part; `set_takeaway` draws the head of the page, as early as its sentence is known."""
    others = catalogue.labellings_of(store, dataset.id, voted=True)
    others.pop(labelling.id, None)
    if not others:
        set_takeaway(f"{dataset.name} has one labelling, so there is nothing to compare it with.")
        page.empty(
            "There is only one labelling",
            "Label the dataset again with another model or persona pack, or import labels, to see here how far the two "
            "agree and which pairs they differ on.",
            lambda: url.page_link("labels", "Label it again", icon=":material/label:", dataset=dataset.id),
        )
        return
    # A link may name the labelling itself or one of another dataset; the first of the others then stands for it.
    if url.get("second") not in others:
        url.replace(second=None)
    with st.columns([3, 6])[0]:
        second = page.select("Compare with", list(others), lambda i: _named(others[i]), "consensus.second", "second")
    result = agreement(store, labelling.id, str(second))
    set_takeaway(_agreement_takeaway(result))
    if len(others) > 1:
        _every_two(store, dataset)
    if not result.pairs:
        page.notice("No pair has been labelled by both, so there is nothing to compare yet.")
        return
    _rules(result)
    left, right = st.columns([4, 5], gap="large")
    with left:
        _confusion(result)
    with right:
        _domains(result)
    _differing(result, dataset, labelling)


def _agreement_takeaway(agreement: Agreement) -> str:
    if not agreement.pairs:
        return "No pair has been labelled by both."
    one, two = _names(agreement)
    opposite = int(agreement.differing["opposite"].sum())
    return (
        f"{one} and {two} give the same label to {percent(agreement.share)} of "
        f"{count(agreement.pairs, 'pair')} (Cohen's kappa {_kappa(agreement.kappa)}); "
        f"{count(opposite, 'pair')} {'gets' if opposite == 1 else 'get'} opposite labels."
    )


def _named(row: LabellingRow) -> str:
    kinds = [row.id, *["imported, no votes"] * row.imported, *["simulated"] * row.simulated]
    return f"{row.model} ({', '.join(kinds)})"


def _names(agreement: Agreement) -> tuple[str, str]:
    """The two labellings by their models, by their ids too where one model made both."""
    rows = (agreement.first, agreement.second)
    alike = agreement.first.model == agreement.second.model
    one, two = (f"{safe.option(row.model, 40)} ({row.id})" if alike else safe.option(row.model, 40) for row in rows)
    return one, two


def _kappa(value: float) -> str:
    return "undefined" if value != value else decimal(value)


def _rules(agreement: Agreement) -> None:
    for name, rule in zip(_names(agreement), agreement.rules, strict=True):
        if rule.note:
            page.notice(f"{name}: {rule.note}.")
    only = [
        f"{count(n)} only by {name}"
        for n, name in zip((agreement.only_first, agreement.only_second), _names(agreement), strict=True)
        if n
    ]
    if only:
        safe.inline(f"Not compared, labelled by one alone: {', '.join(only)}.", muted=True)


def _confusion(agreement: Agreement) -> None:
    one, two = _names(agreement)
    safe.heading("Labels side by side")
    safe.inline(f"Rows: {one}. Columns: {two}.", muted=True)
    rows = []
    for i, name in enumerate(LABEL_NAMES):
        cells = [tag("td", name)]
        for j, n in enumerate(agreement.confusion[i].tolist()):
            share = f" ({percent(n / agreement.pairs)})"
            cells.append(tag("td", tag("b", count(n)) if i == j else count(n), share, cls="ci-number"))
        rows.append(tag("tr", *cells))
    safe.show(safe.grid(["first \\ second", *LABEL_NAMES], rows))
    st.caption(
        "Pairs by both labels; bold: the same label. These are models only; people's decisions are not included."
    )
    frame = pd.DataFrame(agreement.confusion, columns=LABEL_NAMES)
    frame.insert(0, "first \\ second", LABEL_NAMES)
    tables.csv_button(
        _marked(frame, agreement),
        f"confusion-{agreement.first.id}-{agreement.second.id}.csv",
        key="consensus.csv.confusion",
    )


def _domains(agreement: Agreement) -> None:
    frame = agreement.by_domain.sort_values("share", kind="stable").reset_index(drop=True)
    names = frame["domain"].str.replace("_", " ").tolist()
    safe.heading(f"The same label by domain: {sentences.ends(names, frame['share'].tolist())}")
    tables.table(
        frame.assign(domain=frame["domain"].str.replace("_", " "), kappa=[_kappa(value) for value in frame["kappa"]]),
        key=f"consensus.agreement.{agreement.first.id}.{agreement.second.id}",
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


def _differing(agreement: Agreement, dataset: DatasetRow, labelling: LabellingRow) -> None:
    frame = agreement.differing
    safe.heading(f"{count(len(frame), 'pair')} on which they differ")
    if frame.empty:
        page.notice("They give the same label to every pair.")
        return
    selected = pair_table(
        frame.assign(opposite=["opposite" if flag else "" for flag in frame["opposite"]]),
        f"consensus.differing.{agreement.first.id}.{agreement.second.id}",
        {"opposite": ("small", "Opposite"), "first": ("text", "First"), "second": ("text", "Second")},
        "Pairs on which the two labellings differ, opposite labels first",
        "Choose a row to see its votes.",
    )
    rules = f"{agreement.rules[0].text} / {agreement.rules[1].text}"
    download(_marked(frame, agreement), "differing", labelling, rules)
    if selected is not None:
        go_to_pair(dataset, labelling, frame.iloc[selected])


def _marked(frame: pd.DataFrame, agreement: Agreement) -> pd.DataFrame:
    simulated = [row.model for row in (agreement.first, agreement.second) if row.simulated]
    return frame.assign(
        first_labelling=agreement.first.id, second_labelling=agreement.second.id, simulated=", ".join(simulated)
    )


def _every_two(store: Store, dataset: DatasetRow) -> None:
    def table() -> None:
        items = agreements(store, dataset.id)
        tables.listing(
            items,
            range(len(items)),
            {
                "first": ("text", "First", lambda item: _named(item.first)),
                "second": ("text", "Second", lambda item: _named(item.second)),
                "share": ("percent", "Same label", lambda item: item.share),
                "kappa": ("text", "Cohen's kappa", lambda item: _kappa(item.kappa)),
                "pairs": ("count", "Pairs of both", lambda item: item.pairs),
            },
            key=f"consensus.agreements.{dataset.id}",
            alt="Agreement of every two labellings",
        )

    page.fold("Every two labellings", ":material/table:", "consensus.box.agreements", table)


# ---- contexts
#
# contexts retained or discarded and why, and the statistics of the paper's Table 2.


MOST_BARS = 60
CONTEXT_PARTS = (
    BarPart("retained", "retained", "", "#56B4E9"),
    BarPart(NO_NECESSARY, f"discarded: {NO_NECESSARY}", "X", safe.INAPPROPRIATE, "/"),
    BarPart(NO_INAPPROPRIATE, f"discarded: {NO_INAPPROPRIATE}", "N", safe.NECESSARY, "\\"),
    BarPart(NEITHER, "discarded: neither, all ambiguous", "?", safe.AMBIGUOUS, "x"),
)


def draw_contexts(
    store: Store, dataset: DatasetRow, labelling: LabellingRow, set_takeaway: Callable[[str], None]
) -> None:
    """Draws the part; `set_takeaway` draws the head of the page, as early as its sentence is known."""
    result = contexts(store, labelling.id)
    if result.frame.empty:
        set_takeaway("No context has a label yet.")
        page.empty("No context has a label yet", "Wait for the labelling, or look at its failures on the Labels page.")
        return
    set_takeaway(_contexts_takeaway(result))
    _context_bars(result, labelling)
    _contexts_table(result, dataset, labelling)
    _table2(table2(store, labelling.id), labelling, result.unlabelled)
    if without := unlabelled_text(store, labelling):
        safe.inline(f"{without}; Table 2 leaves them out.", muted=True)


def _contexts_takeaway(contexts: Contexts) -> str:
    total = len(contexts.frame)
    discarded = total - contexts.retained
    reasons = ", ".join(f"{count(n)} with {reason}" for reason, n in contexts.discarded.items() if n)
    which = "labelled context" if contexts.unlabelled else "context"
    return (
        f"{count(contexts.retained)} of {count(total, which)} of profiles are retained; "
        + (
            f"{count(discarded)} {'is' if discarded == 1 else 'are'} discarded, {reasons}."
            if discarded
            else "none is discarded."
        )
        + (f" {_without_label(contexts.unlabelled)}." if contexts.unlabelled else "")
    ).replace(f"with {NEITHER}", "with neither a necessary nor an inappropriate attribute")


def _without_label(unlabelled: int) -> str:
    return f"{count(unlabelled, 'more context')} of profiles {'has' if unlabelled == 1 else 'have'} no label"


def _context_bars(contexts: Contexts, labelling: LabellingRow) -> None:
    reasons = contexts.frame["reason"].replace("", "retained")
    table = pd.crosstab(contexts.frame["profile"], reasons)
    names = dict(zip(contexts.frame["profile"], contexts.frame["user"], strict=True))
    frame = pd.DataFrame({"name": [names[i] for i in table.index]}, index=table.index)
    for part in CONTEXT_PARTS:
        # A reason that no context has is no column of the crosstab.
        frame[part.column] = table.get(part.column, 0)
    frame = frame.sort_values("retained", ascending=False, kind="stable")
    totals = frame[[part.column for part in CONTEXT_PARTS]].sum(axis=1)
    lost = (totals - frame["retained"]).tolist()
    most = largest_count(lost)
    title = (
        "Every labelled context is retained" if contexts.unlabelled else "Every context of every profile is retained"
    )
    if most is not None and most.value:
        name, total = safe.option(frame["name"].iloc[most.first], 60), int(totals.iloc[most.first])
        title = sentences.contexts_discarded(name, lost[most.first], total, most)
    cut = f"; the first {MOST_BARS} of {len(frame)} profiles shown" if len(frame) > MOST_BARS else ""
    fig = share_bars(
        frame.head(MOST_BARS),
        CONTEXT_PARTS,
        name="name",
        title=title,
        subtitle=f"{count(len(contexts.frame), 'labelled context')} of {count(len(frame), 'profile')}, by effective "
        f"labels{cut}",
        unit="contexts",
    )
    charts.show(
        fig,
        key=f"consensus.contexts.{labelling.id}",
        alt="Contexts retained and discarded by profile. The same is in the table below.",
    )


def _contexts_table(contexts: Contexts, dataset: DatasetRow, labelling: LabellingRow) -> None:
    discarded = contexts.frame[contexts.frame["reason"] != ""].reset_index(drop=True)

    def table() -> None:
        which = {"discarded": "Only discarded ones", "all": "All contexts"}
        only = len(discarded) > 0 and page.choice(
            "Which contexts", which, "consensus.contexts.show", "show", default="discarded", visible=False
        )
        shown = discarded if only == "discarded" else contexts.frame.reset_index(drop=True)
        worded = shown.assign(reason=shown["reason"].replace("", "retained"))
        selected = tables.table(
            worded,
            key=f"consensus.contexts.table.{labelling.id}",
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
        st.caption("Choose a row to see its labels. A person's decision overrides the consensus, here and in runs.")
        download(worded, "contexts", labelling, "effective labels")
        if selected is not None:
            go_to_pair(dataset, labelling, shown.iloc[selected])

    page.fold(
        "All contexts as a table",
        ":material/table:",
        "consensus.box.contexts",
        table,
        expanded=0 < len(discarded) <= 12,
    )


def _table2(lines: tuple[Statistic, ...], labelling: LabellingRow, unlabelled: int) -> None:
    safe.heading("The statistics of the paper's Table 2")
    frame = pd.DataFrame(
        [
            {
                "name": line.name,
                "here": _mean_and_sd(line),
                "over": f"{count(line.over)} {line.unit}" if line.sd is not None else "",
                "published": line.published.figure if line.published else "not available",
                "place": f"{PAPER}, {line.published.source}" if line.published else "",
            }
            for line in lines
        ]
    )
    tables.table(
        frame,
        key=f"consensus.table2.{labelling.id}",
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
        "By effective labels under the current rule; sd with n - 1. The published figures describe the authors' own "
        "labels."
    )
    if unlabelled:
        page.notice(f"{_without_label(unlabelled)}: not counted as retained here.")
    download(frame, "table2", labelling, "effective labels")


def _mean_and_sd(line: Statistic) -> str:
    if line.mean != line.mean:
        return "undefined: no context is retained"
    if line.sd is None:
        return count(line.mean)
    return f"{line.mean:.1f}" + (f" ± {line.sd:.1f}" if line.sd == line.sd else "")


# ---- models
#
# who labelled, and which models under test are of the same family.


UNKNOWN = "not known"


def draw_models(
    store: Store, dataset: DatasetRow, labelling: LabellingRow, set_takeaway: Callable[[str], None]
) -> None:
    """Draws the part; `set_takeaway` as above. Raises SeedError where seeds/models.yaml is not valid."""
    runs = warnings.family_warnings(store, labelling.id)
    families = " and ".join(warnings.families(labelling.model)) or UNKNOWN
    if not runs:
        set_takeaway(f"Labelled by {labelling.model} (family: {families}); no model has been tested on it yet.")
        page.empty(
            "No run on this dataset yet",
            "Models of one family tend to judge alike. This compares the family of each model under test.",
            lambda: url.page_link("runs", "Start a run", icon=":material/play_circle:"),
        )
        return
    same_family = sum(item.warning is not None for item in runs)
    set_takeaway(
        f"Labelled by {labelling.model} (family: {families}); "
        f"{same_family} of {len(runs)} runs on this dataset test a model of the same family."
    )
    tables.listing(
        runs,
        range(len(runs)),
        {
            "run": ("text", "Run", lambda item: item.run_name),
            "model": ("text", "Model under test", lambda item: item.model),
            "family": ("text", "Its family", lambda item: " and ".join(item.families) or UNKNOWN),
            "labeller": ("text", "Labelled by", lambda item: item.labeller),
            "own": ("text", "Labeller's family", lambda _: families),
            "warning": ("wide", "Warning", lambda item: item.warning or ""),
        },
        key=f"consensus.models.{labelling.id}",
        alt="Runs of this dataset with their model's family and the labeller's",
    )
    st.caption(
        "seeds/models.yaml says which names belong to which family. A name it does not know raises no warning, unless "
        "it is the labeller's own."
    )
