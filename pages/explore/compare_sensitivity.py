"""Part of the Compare page: how the numbers and the order of models move with the choices behind them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import pandas as pd
import streamlit as st

from cimemories.charts.comparison import coverage
from cimemories.charts.sensitivity import choices, order, profiles
from cimemories.compare.leaderboard import coverage_warnings, ranking_notes
from cimemories.compare.norms import per_norm
from cimemories.compare.ranking import Measure
from cimemories.compare.relabel import Numbers
from cimemories.compare.sensitivity import (
    Study,
    Trial,
    Tried,
    as_frame,
    by_profiles,
    changed_settings,
    flows_per_run,
    judged_otherwise,
    left_out,
    left_out_frame,
    measure_values,
    ranges,
    ranked_study,
    setting_of,
    trial,
    variants,
)
from cimemories.flows.arrays import IdentifierRule
from cimemories.flows.scope import parts_of
from cimemories.metrics import sentences
from cimemories.metrics.breakdown import PARTS, WORDS, By, flow_coverage
from cimemories.store.engine import StoreError
from cimemories.store.labellings import MOST_VOTES
from cimemories.text import UNDEFINED, count, decimal, percent, sentence
from cimemories.ui import exports, once, page, safe, tables, url
from cimemories.ui.page import Moved, least_votes, rule_sliders
from cimemories.ui.safe import Html, tag
from pages.explore import compare_scope
from pages.explore.compare_scope import Columns, Compared, SetTakeaway, show
from pages.start import database_lost

# ---- what each choice does alone, personas left out, fewer profiles, and coverage


GROUPS: dict[str, str] = {
    "": "Runs",
    By.DOMAIN: "Domains",
    By.CONTEXT: "Contexts",
    By.SPHERE: "Spheres",
    By.PROFILE: "Profiles",
}


def _key(compared: Compared, study: Study) -> tuple[object, ...]:
    """What these parts rest on: their cache key."""
    return (*(scope.version for scope in compared.scopes), study.base, compared.n)


def _tried(compared: Compared, study: Study, report: Callable[[str], None] = lambda _: None) -> list[Tried]:
    """Every setting of every choice. report: called with the name of each when it has been tried."""

    def compute() -> list[Tried]:
        tried = []
        for one in chain(variants(study), judged_otherwise(compared.flows, study)):
            report(one.name)
            tried.append(one)
        return tried

    return compared.flows.cached(("sensitivity choices", *_key(compared, study)), compute)


def choices_part(compared: Compared, study: Study, measure: Measure) -> str:
    """How far each choice moves the number, widest first; returns its title."""
    names = _names(compared)
    key = _key(compared, study)
    tried = _tried(compared, study)
    moved = compared.flows.cached(("sensitivity ranges", measure, *key), lambda: ranges(study, tried, measure))
    drawing = choices(moved, names, measure, unanimous=study.base.unanimous)
    if drawing is None:
        return "There is nothing to vary"
    safe.heading("What each choice does alone")
    columns: Columns = {
        "choice": ("text", "Choice"),
        "settings": ("number", "Other settings"),
        "low": ("percent", "Least change, points"),
        "low_setting": ("text", "at"),
        "low_run": ("text", "of"),
        "high": ("percent", "Greatest change, points"),
        "high_setting": ("text", "by"),
        "high_run": ("text", "for"),
        "least_tau": ("number", "Least Kendall's tau"),
        "tau_setting": ("text", "there"),
    }
    show(drawing, "choices", "compare.box.choices", compared, columns, about=_about(compared, measure))

    def every() -> None:
        frame = as_frame(study, tried, names)
        columns: Columns = {
            "choice": ("text", "Choice"),
            "setting": ("text", "Setting"),
            "run": ("text", "Run"),
            "violation": ("percent", "Violation"),
            "completeness": ("percent", "Completeness"),
            "balanced": ("percent", "Balanced"),
            "retained": ("count", "Contexts"),
            "attributes": ("count", "Attributes"),
            "flows": ("count", "Flows"),
            f"tau_{measure}": ("number", "Kendall's tau"),
        }
        tables.table(frame, key="compare.every.table", columns=columns, alt="Every run by every setting")
        about, simulated = _about(compared), compared.board.simulated
        exports.buttons("settings", frame, fig=None, key="compare.every", simulated=simulated, about=about)

    page.fold("Every run by every setting", ":material/table_rows:", "compare.box.every", every)
    return drawing.title


def personas_part(compared: Compared, study: Study, measure: Measure) -> None:
    """What leaving out each persona does to every run."""
    settings = left_out(study)
    if not settings:
        return
    names = _names(compared)
    keys = [key for key, _ in settings]

    def compute() -> pd.DataFrame:
        now = measure_values(study.at(study.base), measure)[:, 0]
        without = [(key, measure_values(study.at(setting), measure)[:, 0]) for key, setting in settings]
        return left_out_frame(now, without, names, measure)

    # names are in the key because they stand in the frame: a run may be renamed.
    frame = compared.flows.cached(("sensitivity personas", measure, *names, *_key(compared, study)), compute)
    changes = [
        (key, str(frame["run"][run]), float(frame[f"change_{key}"][run])) for key in keys for run in range(len(names))
    ]
    if title := sentences.personas(changes, measure):
        safe.heading(title)
    safe.inline(
        f"{measure.label.capitalize()} with one persona left out and the others' priors scaled up, by the current "
        f"threshold of {100 * study.base.threshold:.4g} %; {count(len(names), 'run')}.",
        muted=True,
    )
    shown = frame if len(names) > 1 else frame.iloc[:-1]  # the last row is about an order
    rows = [_persona_row(row, keys) for row in shown.to_dict("records")]
    page.badge_simulated(compared.board.simulated)
    titles = ["Run", "Now", *(f"Without the {key}" for key in keys)]
    safe.show(safe.wide(safe.grid(titles, rows), "Without one persona"))
    exports.buttons(
        "personas",
        shown,
        fig=None,
        key="compare.personas",
        simulated=compared.board.simulated,
        about=_about(compared, measure),
    )


def _persona_row(row: Row, keys: list[str]) -> Html:
    """A run, or the last row: Kendall's tau of each order."""
    if row["now"] != row["now"] and str(row["run"]) == "Kendall's tau":
        taus = ["" if row[f"value_{key}"] != row[f"value_{key}"] else decimal(row[f"value_{key}"]) for key in keys]
        numbers = [tag("td", tau, cls="ci-number ci-muted") for tau in taus]
        return tag("tr", tag("td", "Kendall's tau with the current order", cls="ci-muted"), tag("td"), *numbers)
    rank_text = "" if row["rank"] != row["rank"] else f"rank {row['rank']:.0f}"
    cells = [tag("td", tag("b", str(row["run"]))), _cell(row["now"], rank_text)]
    for key in keys:
        change, rank = row[f"change_{key}"], row[f"rank_{key}"]
        change_text = "" if change != change else f"{100 * change:+.1f}" if abs(change) >= 0.0005 else "as now"
        moved = f", rank {rank:.0f}" if rank == rank and rank != row["rank"] else ""
        cells.append(_cell(row[f"value_{key}"], f"{change_text}{moved}"))
    return tag("tr", *cells)


def _cell(value: float, small: str) -> Html:
    if value != value:
        return safe.number(UNDEFINED)
    return safe.number(tag("b", percent(value)), small)


def profiles_part(compared: Compared, study: Study, measure: Measure) -> None:
    """What fewer profiles would have said."""
    names = _names(compared)
    safe.heading("How many profiles are enough")
    key = ("sensitivity profiles", measure, *_key(compared, study))
    subsets = compared.flows.cached(key, lambda: by_profiles(study, measure))
    if not subsets.by_k:
        page.notice("This needs at least two profiles that all runs have in common.")
        return
    from_url = url.get_int("subset")
    half = max(subsets.profiles // 2, 1)
    st.session_state["compare.subset"] = from_url if from_url and from_url <= subsets.profiles else half
    st.columns([2, 5])[0].slider(
        "Profiles in a subset",
        1,
        subsets.profiles,
        key="compare.subset",
        on_change=url.durable(lambda: url.put(subset=st.session_state["compare.subset"])),
        help="Numbers are means over profiles: these are the numbers that a study with so many would have.",
    )
    drawing = profiles(subsets, names, measure, int(st.session_state["compare.subset"]))
    if drawing is None:
        return
    columns: Columns = {
        "profiles": ("number", "Profiles"),
        "run": ("text", "Run"),
        "mean": ("percent", "Mean"),
        "low": ("percent", "2.5 % lie below"),
        "high": ("percent", "2.5 % lie above"),
        "subsets": ("count", "Subsets"),
        "same_order": ("percent", "Same order"),
        "same_best": ("percent", "Same first"),
    }
    show(drawing, "profiles", "compare.box.profiles", compared, columns, about=_about(compared, measure))


def norms_part(compared: Compared) -> None:
    """Each run's numbers by the norm of one persona at a time, with how many pairs each labels."""
    scored = [(compared.run_names[s.run.id], per_norm(compared.flows, s, compared.rule)) for s in compared.scopes]
    scored = [(name, scores) for name, scores in scored if len(scores.rows) > 1]
    if not scored:
        return
    safe.heading("By the norm of one persona")
    page.badge_simulated(compared.board.simulated)
    if len(scored) == 1:
        safe.inline(scored[0][1].sentence)
    frame = pd.concat([scores.frame().assign(run=name, n=scores.n) for name, scores in scored], ignore_index=True)
    records = frame.to_dict("records")
    with_ends = {name: [_with_ends(row, name) for row in records] for name in ("violation", "completeness")}
    tables.table(
        frame.assign(**with_ends),
        key="compare.norms",
        columns={
            "run": ("text", "Run"),
            "norm": ("text", "Norm"),
            "violation": ("text", "Violation [95 %]"),
            "n": ("number", "at n"),
            "completeness": ("text", "Completeness [95 %]"),
            "labelled": ("count", "Pairs labelled"),
            "ambiguous": ("count", "Ambiguous"),
            "retained": ("count", "Contexts retained"),
            "attributes": ("count", "Attributes"),
        },
        height="content",
        alt="Violation and completeness of each run by the norm of one persona alone, beside the consensus",
    )
    safe.inline(
        "By one norm a pair is labelled by the votes of that persona alone; decisions of people go before them as "
        "everywhere. Each norm has its own pairs"
        + (", and each run is shown with all of its own flows." if compared.board.cut else "."),
        muted=True,
    )
    exports.buttons(
        "norms",
        frame,
        fig=None,
        key="compare.norms.export",
        simulated=compared.board.simulated,
        about=_about(compared),
    )


def _with_ends(row: Row, name: str) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return percent(row[name]) + (f" [{100 * low:.1f}, {100 * high:.1f}]" if low == low else "")


def coverage_part(compared: Compared) -> None:
    """What share of flows the headline covers, of all runs or of one by group."""
    safe.heading("What the numbers cover")
    labelling = compared.scopes[0].labelling
    left, right = st.columns([5, 2], vertical_alignment="bottom")
    with left:
        by = page.choice("By", GROUPS, "compare.by", "by")
    chosen = compared.scopes[0].run.id
    if by:
        there = {scope.run.id for scope in compared.scopes}  # fewer than the board has, where some cannot be ranked
        ids = [line.run.id for line in compared.board.lines if line.run.id in there]
        with right:
            chosen = str(page.select("Flows of", ids, compared.run_names.__getitem__, "compare.spoken", "run"))
    named = [(compared.run_names[scope.run.id], scope) for scope in compared.scopes if not by or scope.run.id == chosen]
    rows = [(name, flow_coverage(compared.flows, scope, By(by or By.DOMAIN), compared.rule)) for name, scope in named]
    drawing = coverage(rows, bool(by))
    if drawing is None:
        page.notice("There is no flow yet.")
        return
    columns: Columns = {
        "group": ("text", "Run" if not by else "Group"),
        "pairs": ("count", "Flows"),
        "speaks": ("count", "Covered"),
        "share": ("percent", "Share"),
        "decided": ("count", "of these decided by people"),
        "necessary": ("count", "Necessary"),
        "inappropriate": ("count", "Inappropriate"),
        "ambiguous": ("count", "Ambiguous"),
        "discarded_context": ("count", "In discarded contexts"),
        "too_few_votes": ("count", "Too few votes"),
        "unlabelled": ("count", "Not labelled"),
        "identifier": ("count", "Of identifiers"),
        "not_judged": ("count", "Not judged"),
    }
    simulated = parts_of(scope.simulated for _, scope in named)
    about = _about(compared) | ({"run": chosen} if by else {})
    show(drawing, "spoken", "compare.box.spoken", compared, columns, simulated=simulated, about=about)
    absent = [WORDS[part] for part in PARTS if not pd.Series(drawing.frame[part]).any()]
    if absent:
        safe.inline(f"None are: {'; '.join(absent)}.", muted=True)
    if labelling is not None:
        url.page_link(
            "consensus",
            "Consensus of the personas: who dissents",
            icon=":material/how_to_vote:",
            dataset=labelling.dataset,
            labelling=labelling.id,
            part="shares",
        )


# ---- the tab, and its panel with sliders


Row = dict[Hashable, Any]  # of a table
MEASURES: dict[str, str] = {
    Measure.BALANCED: "Balanced score",
    Measure.VIOLATION: "Violation",
    Measure.COMPLETENESS: "Completeness",
}
RULES: dict[str, str] = {
    IdentifierRule.EXACT: "exact",
    IdentifierRule.SUBSTRING: "substring",
    IdentifierRule.NONE: "none",
}


def draw(compared: Compared, set_takeaway: SetTakeaway) -> None:
    """The panel with its sliders, and what each choice does alone; of runs that can be ranked together."""
    scopes, n = compared.board.ordered(compared.scopes)
    compared = replace(compared, scopes=scopes, n=n)
    try:
        result = _study_if_requested(compared, set_takeaway)
    except StoreError as problem:
        set_takeaway("Sensitivity needs labels.")
        page.empty(
            "Nothing to vary yet",
            sentence(problem),
            lambda: url.page_link("labels", "Label the dataset", icon=":material/label:"),
        )
        return
    if result is None:
        return
    measure = Measure(page.choice("Rank by", MEASURES, "compare.ranking", "ranking", default=Measure.BALANCED))
    more = [*coverage_warnings(compared.board.lines), *ranking_notes(compared.board)]
    compare_scope.differences(compared, more=more)
    now = result.at(result.base)
    # A fragment: a slider in it moves without the parts below, which try many settings.
    database_lost.fragment(_panel)(compared, result, measure, now)
    set_takeaway(f"{choices_part(compared, result, measure)}.")
    personas_part(compared, result, measure)
    norms_part(compared)
    database_lost.fragment(profiles_part)(compared, result, measure)
    coverage_part(compared)


ASKED = "compare.sensitivity.asked"
STEPS = ("votes and decisions", "every setting of every choice", "the norm of each persona")
TRIED = ("threshold", "priors", "identifiers", "votes", "subset", "by")  # what a link to what was computed says


def _study_if_requested(compared: Compared, set_takeaway: SetTakeaway) -> Study | None:
    """What it takes to vary the settings, computed step by step once somebody asks, by the button or by a link that
    names a setting; None until then. Raises StoreError where there is nothing to vary."""
    of = (*(scope.version for scope in compared.scopes), compared.n)
    if any(url.get(name) for name in TRIED):
        st.session_state[ASKED] = of
    room = st.empty()
    labelled = any(scope.labelling for scope in compared.scopes)  # else the study says what is missing
    if labelled and st.session_state.get(ASKED) != of:
        runs = count(len(compared.scopes), "run")
        set_takeaway(f"What the numbers and the order of {runs} depend on has not been computed yet.")
        with room.container():
            page.empty(
                "Sensitivity is computed when asked",
                f"Every threshold, prior, rule and judge is tried on all flows of {runs}. It takes seconds, with many "
                "profiles up to a minute.",
                lambda: st.button(
                    "Compute sensitivity",
                    type="primary",
                    icon=":material/tune:",
                    key="compare.sensitivity.compute",
                    on_click=url.durable(lambda: st.session_state.update({ASKED: of})),
                ),
            )
        return None

    def compute(report: once.Report) -> Study:
        report(0, f"Computing: {STEPS[0]}")
        result = ranked_study(compared.flows, compared.board, compared.scopes, compared.rule)
        _tried(compared, result, lambda name: report(1 / 3, f"Computing: {STEPS[1]}: {name}"))
        for done, scope in enumerate(compared.scopes):
            report((2 + done / len(compared.scopes)) / 3, f"Computing: {STEPS[2]}")
            per_norm(compared.flows, scope, compared.rule)
        return result

    return page.computed(
        compute, room, key="compare.sensitivity", on_stop=lambda: st.session_state.update({ASKED: None})
    )


def _panel(compared: Compared, study: Study, measure: Measure, now: Sequence[Numbers]) -> None:
    """The sliders, and at once what they do to every run and to the order."""
    names = _names(compared)
    left, right = st.columns([2, 6], gap="large")
    with left:
        moved, rule, least = _sliders(compared, study)
    setting = setting_of(study, moved.threshold, moved.weights, rule, least)
    tried = trial(study, setting, names, measure, flows_per_run(compared.flows, study), now)
    with right:
        _tried_text(study, tried)
        _numbers(compared, tried, measure)
    drawing = order(study, tried, names, measure)
    if drawing is None:
        page.notice(f"No run has a {MEASURES[measure].lower()} by any threshold, so there is no order to draw.")
        return
    columns: Columns = {
        "threshold": ("percent", "Threshold"),
        "run": ("text", "Run"),
        "rank": ("number", "Place"),
        "value": ("percent", "Number"),
    }
    show(drawing, "order", "compare.box.order", compared, columns, about=_about(compared, measure))


def _about(compared: Compared, measure: Measure | None = None) -> dict[str, object]:
    """What the numbers rest on, for exports. measure: whose they are, where the columns do not say."""
    return compared.about(n=compared.n) | ({"measure": str(measure)} if measure else {})


def _names(compared: Compared) -> list[str]:
    run_names = compared.run_names
    return [run_names[scope.run.id] for scope in compared.scopes]


def _sliders(compared: Compared, study: Study) -> tuple[Moved, IdentifierRule, int | None]:
    moved = rule_sliders("compare", study.base.threshold, study.votes.keys, study.base.priors)
    if moved.all_zero:
        page.notice("All weights are 0. Raise one; until then the current priors apply.")
    rule = IdentifierRule(
        page.choice(
            "Identifier rule",
            RULES,
            "compare.identifiers",
            "identifiers",
            default=compared.rule,
            help="Which attributes never count as violations, since a message has to be signed: those of the "
            "biography; every key that contains name, address, sex or age; or none.",
        )
    )
    least = None if study.counts.imported else least_votes("compare", study.base.least_votes, MOST_VOTES)
    if moved.any or rule != compared.rule or url.get("votes"):
        st.button(
            "Back to the current settings",
            icon=":material/undo:",
            key="compare.back",
            on_click=url.durable(lambda: url.put(threshold=None, priors=None, identifiers=None, votes=None)),
        )
    return moved, rule, least


def _tried_text(study: Study, tried: Trial) -> None:
    """In one sentence what is tried, and what it does to the order."""
    if tried.setting == study.base:
        safe.inline("These are the current settings. Move a slider to see what depends on them.", strong=True)
        safe.inline(f"Now: {study.rule.name}, {study.rule.text}.", muted=True)
        return
    safe.inline(tried.sentence, strong=True)
    more = changed_settings(study.base, tried.setting, study.votes.keys)
    safe.inline(
        f"Tried: a threshold of {100 * tried.setting.threshold:.4g} %{more}. Now: {study.rule.text}.", muted=True
    )


def _numbers(compared: Compared, tried: Trial, measure: Measure) -> None:
    """Every run by the setting that is tried, with its change against the current one."""
    head = ["Run", "Place", compared.board.violation_name, "Completeness", "Balanced score", "Covers"]
    head += ["Contexts", "Attributes", "Flows"]
    titles = {
        "Covers": "Share of the run's flows that violation and completeness rest on",
        "Contexts": "Retained (profile, context) pairs",
        "Flows": "Inappropriate flows behind violation",
        "Place": f"By {MEASURES[measure].lower()}",
    }
    simulated = {compared.run_names[line.run.id]: line.simulated for line in compared.board.lines}
    rows = []
    for row in tried.frame.to_dict("records"):
        marked = page.simulated_badge(simulated[row["run"]])
        rows.append(
            tag(
                "tr",
                tag("td", tag("b", str(row["run"])), " ", marked),
                _place(row["rank_now"], row["rank"]),
                *(_moved(row, name) for name in ("violation", "completeness", "balanced")),
                safe.number(percent(row["speaks"]), title=f"now {percent(row['speaks_now'])}"),
                *(_counted(row, name) for name in ("retained", "attributes", "flows")),
            )
        )
    safe.show(safe.wide(safe.grid(head, rows, hints=titles), "Ranking under this setting"))
    exports.buttons(
        "sensitivity",
        tried.frame,
        fig=None,
        key="compare.sensitivity",
        simulated=compared.board.simulated,
        about=_about(compared) | {"threshold": tried.setting.threshold, "priors": str(tried.setting.priors)},
    )


def _moved(row: Row, name: str) -> Html:
    """The number, and by how many points it differs from now."""
    change = 100 * row[f"{name}_change"]
    if row[name] != row[name]:
        return safe.number(UNDEFINED, title=f"now {percent(row[f'{name}_now'])}")
    small = "as now" if change != change or abs(change) < 0.05 else f"{change:+.1f} points"
    return safe.number(tag("b", percent(row[name])), small)


def _place(now: float, then: float) -> Html:
    if then != then:
        return safe.number(UNDEFINED)
    return safe.number(tag("b", f"{then:.0f}"), f"was {now:.0f}" if now == now and now != then else "")


def _counted(row: Row, name: str) -> Html:
    change = row[name] - row[f"{name}_now"]
    return safe.number(count(row[name]), f"{change:+,.0f}" if change else "")
