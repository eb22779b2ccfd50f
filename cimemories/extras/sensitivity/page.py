"""Part of the Compare page: how the numbers and the order of models move with the choices behind them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain

import pandas as pd
import streamlit as st

from cimemories.answer import Column, Table
from cimemories.answers.metrics import by_norm
from cimemories.compare.leaderboard import ranking_notes
from cimemories.compare.norms import per_norm
from cimemories.compare.ranking import Measure
from cimemories.compare.relabel import Numbers
from cimemories.compare.study import Study, ranked_study
from cimemories.extras.sensitivity.charts import choices, coverage, order, profiles
from cimemories.extras.sensitivity.choices import (
    Tried,
    by_profiles,
    flows_per_run,
    judged_otherwise,
    personas_left_out,
    ranges,
    setting_of,
    settings_table,
    trial,
    variants,
)
from cimemories.extras.sensitivity.coverage import PARTS, WORDS, flow_coverage
from cimemories.flows.arrays import IdentifierRule
from cimemories.flows.scope import parts_of
from cimemories.metrics.places import By
from cimemories.store.engine import StoreError
from cimemories.store.labellings import MOST_VOTES
from cimemories.text import count, sentence
from cimemories.ui import answers, once, page, safe, tables, url
from cimemories.ui.page import Moved, least_votes, rule_sliders
from pages.explore import compare_scope
from pages.explore.compare_scope import Compared, SetTakeaway, show

# ---- what each choice does alone, personas left out, fewer profiles, and coverage


GROUPS: dict[str, str] = {
    "": "Runs",
    By.DOMAIN: "Domains",
    By.CONTEXT: "Contexts",
    By.SPHERE: "Spheres",
    By.PROFILE: "Profiles",
}


def _key(compared: Compared, study: Study) -> tuple[object, ...]:
    """Return the cache key of these parts."""
    return (*(scope.version for scope in compared.scopes), study.base, compared.n)


def _tried(compared: Compared, study: Study, report: Callable[[str], None] = lambda _: None) -> list[Tried]:
    """Return every setting of every choice. report: called with the name of each when it has been tried."""

    def compute() -> list[Tried]:
        tried = []
        for one in chain(variants(study), judged_otherwise(compared.flows, study)):
            report(one.name)
            tried.append(one)
        return tried

    return compared.flows.cached(("sensitivity choices", *_key(compared, study)), compute)


def choices_part(compared: Compared, study: Study, measure: Measure) -> str:
    """Draw how far each choice moves the number, widest first; returns the title."""
    names = _names(compared)
    key = _key(compared, study)
    tried = _tried(compared, study)
    moved = compared.flows.cached(("sensitivity ranges", measure, *key), lambda: ranges(study, tried, measure))
    drawing = choices(moved, names, measure, unanimous=study.base.unanimous)
    if drawing is None:
        return "There is nothing to vary"
    safe.heading("What each choice does alone")
    show(drawing, "choices", "compare.box.choices", compared, about=_about(compared, measure))

    def every() -> None:
        shown = settings_table(study, tried, names)
        answers.twin(shown, "compare.every.table")
        answers.export(shown, "compare.every", _about(compared), compared.board.simulated)

    page.fold("Every run by every setting", ":material/table_rows:", "compare.box.every", every)
    return drawing.title


def personas_part(compared: Compared, study: Study, measure: Measure) -> None:
    """Draw the effect of leaving out each persona on every run."""
    names = _names(compared)
    # names are in the key because the frame holds them: a run may be renamed.
    key = ("sensitivity personas", measure, *names, *_key(compared, study))
    result = compared.flows.cached(key, lambda: personas_left_out(study, names, measure))
    if result is not None:
        safe.heading("Without one persona")
        answers.show(result, "compare.personas", _about(compared, measure))


def profiles_part(compared: Compared, study: Study, measure: Measure) -> None:
    """Draw what fewer profiles would have shown."""
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
    show(drawing, "profiles", "compare.box.profiles", compared, about=_about(compared, measure))


def norms_part(compared: Compared) -> None:
    """Draw each run's numbers by the norm of one persona at a time, with how many pairs each labels."""
    scored = [
        (compared.run_names[scope.run.id], by_norm(per_norm(compared.flows, scope, compared.rule)))
        for scope in compared.scopes
    ]
    norms = [(name, item) for name, item in scored if item is not None and len(item.scores.frame) > 1]
    if not norms:
        return
    safe.heading("By the norm of one persona")
    page.badge_simulated(compared.board.simulated)
    if len(norms) == 1:
        safe.inline(norms[0][1].sentence)
    frame = pd.concat([item.scores.frame.assign(run=name, n=item.n) for name, item in norms], ignore_index=True)
    columns = {"run": Column("text", "Run"), **norms[0][1].scores.columns, "n": Column("count", "at n")}
    shown = Table(frame, columns | {"violation": Column("percent", "Violation")}, norms[0][1].scores.caption)
    tables.grid(shown, shown.caption)
    safe.inline(
        "By one norm a pair is labelled by the votes of that persona alone; decisions of people go before them as "
        "everywhere. Each norm has its own pairs"
        + (", and each run is shown with all of its own flows." if compared.board.cut else "."),
        muted=True,
    )
    answers.export(shown, "compare.norms", _about(compared), compared.board.simulated)


def coverage_part(compared: Compared) -> None:
    """Draw the share of flows that the headline covers, of all runs or of one by group."""
    safe.heading("What the numbers cover")
    labelling = compared.scopes[0].labelling
    left, right = st.columns([5, 2], vertical_alignment="bottom")
    with left:
        by = page.choice("By", GROUPS, "compare.by", "by")
    chosen = compared.scopes[0].run.id
    if by:
        there = {scope.run.id for scope in compared.scopes}  # fewer than the board has, if some cannot be ranked
        ids = [line.run.id for line in compared.board.lines if line.run.id in there]
        with right:
            chosen = str(page.select("Flows of", ids, compared.run_names.__getitem__, "compare.spoken", "run"))
    named = [(compared.run_names[scope.run.id], scope) for scope in compared.scopes if not by or scope.run.id == chosen]
    rows = [(name, flow_coverage(compared.flows, scope, By(by or By.DOMAIN), compared.rule)) for name, scope in named]
    drawing = coverage(rows, bool(by))
    if drawing is None:
        page.notice("There is no flow yet.")
        return
    simulated = parts_of(scope.simulated for _, scope in named)
    about = _about(compared) | ({"run": chosen} if by else {})
    show(drawing, "spoken", "compare.box.spoken", compared, simulated=simulated, about=about)
    absent = [WORDS[part] for part in PARTS if not pd.Series(drawing.table.frame[part]).any()]
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
    """Draw the panel with its sliders and the effect of each choice alone, for runs that can be ranked together."""
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
    compare_scope.differences(compared)
    page.notices(ranking_notes(compared.board))
    now = result.at(result.base)
    # A fragment: a slider in it moves without the parts below, which try many settings.
    st.fragment(_panel)(compared, result, measure, now)
    set_takeaway(f"{choices_part(compared, result, measure)}.")
    personas_part(compared, result, measure)
    norms_part(compared)
    st.fragment(profiles_part)(compared, result, measure)
    coverage_part(compared)


ASKED = "compare.sensitivity.asked"
STEPS = ("votes and decisions", "every setting of every choice", "the norm of each persona")
TRIED = ("threshold", "priors", "identifiers", "votes", "subset", "by")  # parameters of a link to computed results


def _study_if_requested(compared: Compared, set_takeaway: SetTakeaway) -> Study | None:
    """Return the study of all settings, computed step by step once the user asks by the button or by a link that names
    a setting; None until then. Raises StoreError if there is nothing to vary."""
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
                    key="show.compare.sensitivity.compute",
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

    store = compared.flows.store
    job = once.job(f"sensitivity.{store.engine.url}.{store.workspace.absolute()}.{of}", compute)
    if not job.done():
        set_takeaway("Computing what the numbers and the order depend on.")
        once.wait(job, stop="show.compare.sensitivity.stop")
        return None
    try:
        return job.result()
    except once.StoppedError:
        st.session_state[ASKED] = None
        st.rerun()


def _panel(compared: Compared, study: Study, measure: Measure, now: Sequence[Numbers]) -> None:
    """Draw the sliders and their effect on every run and on the order."""
    names = _names(compared)
    left, right = st.columns([2, 6], gap="large")
    with left:
        moved, rule, least = _sliders(compared, study)
    setting = setting_of(study, moved.threshold, moved.weights, rule, least)
    tried = trial(study, setting, names, measure, flows_per_run(compared.flows, study), now)
    with right:
        if tried.setting == study.base:
            safe.inline("These are the current settings. Move a slider to see what depends on them.", strong=True)
            safe.inline(f"Now: {study.rule.name}, {study.rule.text}.", muted=True)
        else:
            safe.inline(tried.sentence, strong=True)
            safe.inline(f"{tried.runs.caption}. Now: {study.rule.text}.", muted=True)
        page.badge_simulated(tried.simulated)
        tables.grid(tried.runs, "Ranking under this setting")
        about = _about(compared) | {"threshold": tried.setting.threshold, "priors": str(tried.setting.priors)}
        answers.export(tried.runs, "compare.sensitivity", about, tried.simulated)
    drawing = order(study, tried, names, measure)
    if drawing is None:
        page.notice(f"No run has a {MEASURES[measure].lower()} by any threshold, so there is no order to draw.")
        return
    show(drawing, "order", "compare.box.order", compared, about=_about(compared, measure))


def _about(compared: Compared, measure: Measure | None = None) -> dict[str, object]:
    """Return the basis of the numbers, for exports. measure: the measure, if the columns do not name it."""
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
            key="show.compare.back",
            on_click=url.durable(lambda: url.put(threshold=None, priors=None, identifiers=None, votes=None)),
        )
    return moved, rule, least
