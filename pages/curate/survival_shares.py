"""Part of the Survival page: the share of pairs with a consensus by group, and who dissents on the others."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import streamlit as st

from cimemories.analysis.pair_groups import GroupBy
from cimemories.analysis.survival import ALL_ABSTAIN, ANY_OF_SEVERAL, SEVERAL, Survival, survival
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store
from cimemories.store.labellings import LabellingRow
from cimemories.ui import bars, page, safe, style, tables, url
from cimemories.ui.bars import LABEL_PARTS

PLURALS = {
    GroupBy.DOMAIN: "domains",
    GroupBy.SPHERE: "spheres",
    GroupBy.CONTEXT: "contexts",
    GroupBy.PROFILE: "profiles",
}
MOST_BARS = 60
WHO = {
    ALL_ABSTAIN: "all personas abstain",
    ANY_OF_SEVERAL: "any one of several personas",
    SEVERAL: "several personas together",
}


def draw(store: Store, dataset: DatasetRow, labelling: LabellingRow, say: Callable[[str], None]) -> None:
    """Draws the part; `say` draws the head with the page's takeaway, as early as it is known."""
    found = survival(store, labelling.id)
    if not found.pairs:
        say("No vote is counted yet.")
        page.empty("No vote is counted yet", "Wait for the labelling, or look at its failures on the Labels page.")
        return
    say(_takeaway(found))
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


def _takeaway(found: Survival) -> str:
    domains = found.by[GroupBy.DOMAIN].sort_values("survival", kind="stable")
    least, most = domains.iloc[0], domains.iloc[-1]
    text = (
        f"{tables.percent(found.share)} of {tables.count(found.pairs)} labelled pairs have a consensus, "
        f"{tables.count(found.necessary)} necessary and {tables.count(found.inappropriate)} inappropriate"
    )
    if len(domains) > 1:
        text += (
            f"; most in {most['name']} ({tables.percent(most['survival'])}), "
            f"least in {least['name']} ({tables.percent(least['survival'])})"
        )
    missing = found.planned - found.pairs
    return f"{text}." + (f" {tables.count(missing)} pairs have no counted vote." if missing else "")


def _bars(found: Survival, group_by: GroupBy, labelling: LabellingRow) -> None:
    frame = found.by[group_by].sort_values("survival", ascending=False, kind="stable").reset_index(drop=True)
    shown = frame.head(MOST_BARS)
    least = frame.iloc[-1]
    words = PLURALS[group_by]
    title = (
        f"{_short(least['name'])} keeps the fewest labels: {tables.percent(least['survival'])} of its pairs"
        if len(frame) > 1
        else f"{_short(least['name'])}: {tables.percent(least['survival'])} of the pairs keep a label"
    )
    cut = f"; the first {MOST_BARS} of {len(frame)} {words} drawn" if len(frame) > MOST_BARS else ""
    bars.share_bars(
        shown,
        LABEL_PARTS,
        name="name",
        title=title[0].upper() + title[1:],
        subtitle=f"{tables.count(found.pairs)} labelled pairs by {group_by}, most survival on top{cut}",
        key=f"survival.bars.{group_by}.{labelling.id}",
        unit="pairs",
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
            f"{tables.percent(alone.iloc[0] / found.ambiguous)} of the ambiguous pairs"
        )
    else:
        title = "No persona alone stands in the way of a consensus"
    bars.counted_bars(
        shown,
        name="name",
        count="pairs",
        colour=style.AMBIGUOUS,
        title=title,
        subtitle=f"{tables.count(found.ambiguous)} ambiguous pairs, by who would have to leave for a consensus",
        key=f"survival.dissent.{labelling.id}",
        unit="ambiguous pairs",
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
        f"{tables.count(decided.settled)} settle an ambiguous pair",
        f"{tables.count(decided.against)} go against the consensus",
        f"{tables.count(decided.agree)} agree with the labelling",
    ]
    if decided.alone:
        parts.append(f"{tables.count(decided.alone)} stand where nobody voted")
    safe.inline(
        f"Decided by people, apart from all shares above: {tables.count(decided.pairs)} pairs; {', '.join(parts)}. "
        "Runs count a person's decision before the consensus."
    )
    url.page_link("labels", "Look at the labels", icon=":material/label:", dataset=dataset.id, labelling=labelling.id)


def _who(who: str) -> str:
    return WHO.get(who, f"{who} alone")


def _short(name: object) -> str:
    return safe.option(name, 60)
