"""Part of the Compare page: how the numbers and the order of models move with the choices behind them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import streamlit as st

from cimemories.analysis.cube import IdentifierRule
from cimemories.analysis.ranking import Measure
from cimemories.analysis.relabel import Numbers
from cimemories.analysis.sensitivity import Study, study
from cimemories.analysis.trying import Trial, flows_of, order_drawing, setting_of, trial, under_words
from cimemories.store.engine import StoreError
from cimemories.ui import exports, page, safe, tables, url
from cimemories.ui.rule_sliders import Moved, rule_sliders
from cimemories.ui.safe import Html, tag
from pages.explore import compare_scope
from pages.explore.compare_drawing import Columns, show
from pages.explore.compare_scope import Compared, Say
from pages.explore.compare_sensitivity_parts import choices_part, personas_part, profiles_part, spoken_part
from pages.start import database_lost

Row = dict[Hashable, Any]  # of a table
MEASURES = {
    Measure.BALANCED: "Balanced score",
    Measure.VIOLATION: "Violation",
    Measure.COMPLETENESS: "Completeness",
}
RULES = {
    IdentifierRule.EXACT: "exact",
    IdentifierRule.SUBSTRING: "substring",
    IdentifierRule.NONE: "none",
}


def draw(compared: Compared, say: Say) -> None:
    """The panel with its sliders, and what each choice does alone."""
    try:
        found = study(compared.flows, compared.scopes, compared.rule, n=compared.n)
    except StoreError as problem:
        say("How far the numbers depend on the labels can be seen once there are some.")
        page.empty(
            "Nothing to move yet",
            str(problem)[:1].upper() + str(problem)[1:],
            lambda: url.page_link("labels", "Label the dataset", icon=":material/label:"),
        )
        return
    measure = _measure()
    compare_scope.warnings(compared.board.warnings, key="compare.box.warnings")
    now = found.at(found.base)
    database_lost.fragment(_panel)(compared, found, measure, now)
    say(f"{choices_part(compared, found, measure)}.")
    personas_part(compared, found, measure)
    database_lost.fragment(profiles_part)(compared, found, measure)
    spoken_part(compared)


def _measure() -> Measure:
    """What models are put in order by, as the URL says."""
    key = "compare.ranking"
    asked = url.get("ranking")
    st.session_state[key] = Measure(asked) if asked in set(Measure) else Measure.BALANCED
    st.segmented_control(
        "Put in order by",
        list(MEASURES),
        format_func=MEASURES.__getitem__,
        key=key,
        required=True,
        on_change=lambda: url.put(
            ranking=None if st.session_state[key] == Measure.BALANCED else str(st.session_state[key])
        ),
    )
    return Measure(st.session_state[key] or Measure.BALANCED)


def _panel(compared: Compared, found: Study, measure: Measure, now: Sequence[Numbers]) -> None:
    """The sliders, and at once what they do to every run and to the order."""
    names = _names(compared)
    left, right = st.columns([2, 6], gap="large")
    with left:
        moved, rule = _sliders(compared, found)
    setting = setting_of(found, moved.threshold, moved.weights, rule)
    tried = trial(found, setting, names, measure, flows_of(compared.flows, found), now)
    with right:
        _said(found, tried)
        _numbers(compared, tried, measure)
    drawing = order_drawing(found, tried, names, measure)
    if drawing is None:
        page.notice(f"No run has a {MEASURES[measure].lower()} by any threshold, so there is no order to draw.")
        return
    columns: Columns = {
        "threshold": ("percent", "Threshold"),
        "run": ("text", "Run"),
        "rank": ("number", "Place"),
        "value": ("percent", "Number"),
    }
    show(drawing, "order", "compare.box.order", compared, columns)


def _names(compared: Compared) -> list[str]:
    called = compared.called
    return [called[asked.run.id] for asked in compared.scopes]


def _sliders(compared: Compared, found: Study) -> tuple[Moved, IdentifierRule]:
    moved = rule_sliders("compare", found.base.threshold, found.votes.keys, found.base.priors)
    if moved.all_zero:
        page.notice("All weights are 0: raise one. Until then the priors are the current ones.")
    rule = _identifiers(compared)
    if moved.any or rule != compared.rule:
        st.button("Back to the current settings", icon=":material/undo:", on_click=_forget, key="compare.back")
    return moved, rule


def _identifiers(compared: Compared) -> IdentifierRule:
    key = "compare.identifiers"
    asked = url.get("identifiers")
    st.session_state[key] = IdentifierRule(asked) if asked in set(IdentifierRule) else compared.rule
    st.segmented_control(
        "Identifier rule",
        list(RULES),
        format_func=RULES.__getitem__,
        key=key,
        required=True,
        on_change=lambda: url.put(
            identifiers=None if st.session_state[key] == compared.rule else str(st.session_state[key])
        ),
        help="Which attributes never count as violations, since a message has to be signed: those of the biography; "
        "every key that contains name, address, sex or age; or none.",
    )
    return IdentifierRule(st.session_state[key] or compared.rule)


def _forget() -> None:
    url.put(threshold=None, priors=None, identifiers=None)


def _said(found: Study, tried: Trial) -> None:
    """In one sentence what is tried, and what it does to the order."""
    if tried.setting == found.base:
        safe.inline("These are the current settings: move a slider to see what depends on them.", strong=True)
        safe.inline(f"Now: {found.rule.name}, {found.rule.words}.", muted=True)
        return
    safe.inline(tried.sentence, strong=True)
    more = under_words(found.base, tried.setting, found.votes.keys)
    safe.inline(
        f"Tried: a threshold of {100 * tried.setting.threshold:.4g} %{more}. Now: {found.rule.words}.", muted=True
    )


def _numbers(compared: Compared, tried: Trial, measure: Measure) -> None:
    """Every run by the setting that is tried, with its change against the current one."""
    head = ["Run", "Place", compared.board.violation_name, "Completeness", "Balanced score", "Speaks for"]
    head += ["Contexts", "Attributes", "Flows"]
    titles = {
        "Speaks for": "Share of the run's flows that violation and completeness rest on",
        "Contexts": "Retained (profile, context) pairs",
        "Flows": "Inappropriate flows behind violation",
        "Place": f"By {MEASURES[measure].lower()}",
    }
    cells = [tag("th", name, cls="ci-number" if i else "", title=titles.get(name, "")) for i, name in enumerate(head)]
    rows = []
    for row in tried.frame.to_dict("records"):
        marked = page.SIMULATED if _simulated(compared, str(row["run"])) else ""
        counts = [_counted(row, name) for name in ("retained", "attributes", "flows")]
        rows.append(
            tag(
                "tr",
                tag("td", tag("b", str(row["run"])), " ", marked),
                _place(row["rank_now"], row["rank"]),
                *(_moved(row, name) for name in ("violation", "completeness", "balanced")),
                tag(
                    "td",
                    tables.percent(row["speaks"]),
                    cls="ci-number",
                    title=f"now {tables.percent(row['speaks_now'])}",
                ),
                *counts,
            )
        )
    safe.show(tag("table", tag("thead", tag("tr", *cells)), tag("tbody", *rows), cls="ci-grid"))
    exports.buttons(
        "sensitivity",
        tried.frame,
        fig=None,
        key="compare.sensitivity",
        simulated=compared.board.simulated,
        about=compared.about() | {"threshold": tried.setting.threshold, "priors": str(tried.setting.priors)},
    )


def _simulated(compared: Compared, name: str) -> bool:
    return any(line.simulated for line in compared.board.lines if compared.called[line.run.id] == name)


def _moved(row: Row, name: str) -> Html:
    """The number, and by how many points it differs from now."""
    change = 100 * row[f"{name}_change"]
    if row[name] != row[name]:
        return tag("td", "–", cls="ci-number", title=f"now {tables.percent(row[f'{name}_now'])}")
    said = "" if change != change or abs(change) < 0.05 else f"{change:+.1f} points"
    small = tag("div", said or "as now", cls="ci-muted")
    return tag("td", tag("b", tables.percent(row[name])), small, cls="ci-number")


def _place(now: float, then: float) -> Html:
    if then != then:
        return tag("td", "–", cls="ci-number")
    said = f"was {now:.0f}" if now == now and now != then else ""
    return tag("td", tag("b", f"{then:.0f}"), tag("div", said, cls="ci-muted"), cls="ci-number")


def _counted(row: Row, name: str) -> Html:
    change = row[name] - row[f"{name}_now"]
    small = tag("div", f"{change:+,.0f}" if change else "", cls="ci-muted")
    return tag("td", tables.count(row[name]), small, cls="ci-number")
