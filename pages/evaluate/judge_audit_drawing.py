"""Part of the Judge audit page: drawing a slice, with what it would tell before any work is done."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from cimemories.analysis.audit_drawing import ASSUMED, CLAIMED, NOT_REVEALED, Plan, Population, draw_slice, plan
from cimemories.analysis.audit_drawing import population as population_of
from cimemories.analysis.flows import Scope, shared_flows
from cimemories.store.engine import Store, StoreError
from cimemories.ui import page, safe, tables, url

SIZE, MOST = 200, 5000
_PROBLEM = "judge_audit.problem"


def draw(store: Store, asked: Scope, me: str) -> None:
    """The form: size, share of claimed reveals, seed; and the button that draws."""
    flows = shared_flows(store)
    found = population_of(flows, asked)
    if not found.items:
        page.notice("This judge has judged no message of this run yet, so there is nothing to draw from.")
        return
    left, middle, right, button = st.columns([2, 3, 2, 2], vertical_alignment="bottom")
    most = min(MOST, found.items)
    with left:
        size = int(st.number_input("Items", 1, most, min(SIZE, most), key=f"judge_audit.size.{asked.run.id}"))
    with middle:
        share = st.slider(
            "Share of claimed reveals (%)",
            0,
            100,
            round(100 * CLAIMED),
            5,
            key="judge_audit.share",
            help="Claims are rare. Their share of the sample is raised, and weights set it right again.",
        )
    with right:
        seed = int(st.number_input("Seed", 0, 999_999, 1, key="judge_audit.seed"))
    spread = plan(found, size, share / 100)
    safe.inline(words(found, spread))
    page.fold("Strata", ":material/table:", "judge_audit.box.strata", lambda: _strata(asked, found, spread))

    def make() -> None:
        name = f"{size} items, {share} % claims, seed {seed} ({asked.run.id}, judge {asked.judge.id})"
        try:
            new = draw_slice(flows, asked, size=size, seed=seed, claimed=share / 100, name=name, annotator=me)
        except StoreError as problem:
            st.session_state[_PROBLEM] = str(problem)
        else:
            url.put(slice=new)

    with button:
        st.button("Draw the slice", key="judge_audit.make", type="primary", disabled=not me, on_click=make)
    if not me:
        safe.inline("Give your name first: it stands with the slice.", muted=True)
    if problem := st.session_state.pop(_PROBLEM, None):
        page.error("The slice was not drawn.", problem)


def words(found: Population, spread: Plan) -> str:
    """What the sample is of, and how sure it would make of the judge."""
    claims = sum(n for (claim, _), n in spread.drawn.items() if claim != NOT_REVEALED)
    text = (
        f"Of {tables.count(found.items)} places where the judge had to say whether a message reveals an attribute, it "
        f"claims a reveal in {tables.count(found.claimed)} ({tables.percent(found.claimed / found.items)}). "
        f"{tables.count(spread.items)} items would be {tables.count(claims)} claims and "
        f"{tables.count(spread.items - claims)} that it passed over. "
    )
    if spread.precision is None:
        return text + "With no full claim among them, the sample would say nothing of precision."
    text += (
        f"If precision and recall were both {ASSUMED:.0%}, the 95 % interval of precision would be about "
        f"±{100 * spread.precision:.0f} points wide"
    )
    if spread.recall is None:
        return f"{text}, and nothing would be known of recall: no item that the judge passed over is among them."
    many = " (so wide that the sample would hardly say anything of it)" if spread.recall > 0.4 else ""
    return f"{text}, that of recall about ±{100 * spread.recall:.0f} points{many}."


def _strata(asked: Scope, found: Population, spread: Plan) -> None:
    simulated = bool(asked.simulated) or asked.judge.simulated
    frame = pd.DataFrame(
        [
            {"claim": claim, "label": label, "size": found.sizes[claim, label], "drawn": n}
            | {"weight": found.sizes[claim, label] / n if n else None, "simulated": simulated}
            for (claim, label), n in spread.drawn.items()
        ]
    )
    tables.table(
        frame,
        key="judge_audit.strata",
        columns={
            "claim": ("text", "The judge says"),
            "label": ("text", "Label of the pair"),
            "size": ("count", "In the run"),
            "drawn": ("count", "Drawn"),
            "weight": ("count", "Each stands for"),
        },
        height="content",
        alt="Strata of the sample: how many places of the run each has and how many are drawn",
    )
    safe.inline(
        "Inside a stratum domains come in proportion to their size. Attributes that only repeat the biography are "
        "left out: a message has to be signed.",
        muted=True,
    )
    tables.csv_button(frame, f"audit-strata-{asked.run.id}.csv", key="judge_audit.csv.strata")
