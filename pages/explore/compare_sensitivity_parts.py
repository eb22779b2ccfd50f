"""Parts of the Sensitivity tab: what each choice does alone, personas left out, fewer profiles, and survival."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pandas as pd
import streamlit as st

from cimemories.analysis.breakdown import By
from cimemories.analysis.bump_figure import left_out_frame, runs_words
from cimemories.analysis.choices import as_frame, judged_otherwise, left_out, ranges, variants
from cimemories.analysis.profile_subsets import by_profiles
from cimemories.analysis.ranking import Measure
from cimemories.analysis.sensitivity import Study, measured
from cimemories.analysis.sensitivity_figures import choices, profiles
from cimemories.analysis.spoken_figure import spoken
from cimemories.analysis.spoken_for import PARTS, WORDS, spoken_for
from cimemories.ui import exports, page, safe, tables, url
from cimemories.ui.safe import Html, tag
from pages.explore.compare_drawing import Columns, show
from pages.explore.compare_scope import Compared

Row = dict[Hashable, Any]  # of a table
GROUPS = {"": "Runs", By.DOMAIN: "Domains", By.CONTEXT: "Contexts", By.SPHERE: "Spheres", By.PROFILE: "Profiles"}


def _key(compared: Compared, found: Study) -> tuple[object, ...]:
    """What these parts rest on: they are reckoned anew where any of it moves."""
    return (*(asked.version for asked in compared.scopes), found.base, compared.n)


def choices_part(compared: Compared, found: Study, measure: Measure) -> str:
    """How far each choice moves the number, widest first; returns its title."""
    names = [compared.called[asked.run.id] for asked in compared.scopes]
    key = _key(compared, found)
    tried = compared.flows.remember(
        ("sensitivity choices", *key), lambda: [*variants(found), *judged_otherwise(compared.flows, found)]
    )
    moved = compared.flows.remember(("sensitivity ranges", measure, *key), lambda: ranges(found, tried, measure))
    drawing = choices(moved, names, measure)
    if drawing is None:
        return "There is nothing to choose"
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
    show(drawing, "choices", "compare.box.choices", compared, columns)

    def every() -> None:
        frame = as_frame(found, tried, names)
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
        about, simulated = compared.about(), compared.board.simulated
        exports.buttons("settings", frame, fig=None, key="compare.every", simulated=simulated, about=about)

    page.fold("Every run by every setting", ":material/table_rows:", "compare.box.every", every)
    return drawing.title


def personas_part(compared: Compared, found: Study, measure: Measure) -> None:
    """What leaving out each persona does to every run."""
    settings = left_out(found)
    if not settings:
        return
    names = [compared.called[asked.run.id] for asked in compared.scopes]
    keys = [key for key, _ in settings]

    def made() -> pd.DataFrame:
        now = measured(found.at(found.base), measure)[:, 0]
        without = [(key, measured(found.at(setting), measure)[:, 0]) for key, setting in settings]
        return left_out_frame(now, without, names, measure)

    frame = compared.flows.remember(("sensitivity personas", measure, *names, *_key(compared, found)), made)
    changes = [(key, run, frame[f"change_{key}"][run]) for key in keys for run in range(len(names))]
    defined = [item for item in changes if item[2] == item[2]]
    if defined:
        who, run, most = max(defined, key=lambda item: abs(item[2]))
        title = f"Without the {who}, {measure.named} of {frame['run'][run]} changes most: {100 * most:+.1f} points"
        safe.heading(title if abs(most) >= 0.0005 else f"No persona alone moves {measure.named} of any run")
    safe.inline(
        f"{measure.words.capitalize()} with one persona left out and the others' priors scaled up, by the current "
        f"threshold of {100 * found.base.threshold:.4g} %; {runs_words(len(names))}.",
        muted=True,
    )
    cells = [tag("th", name, cls="ci-number" if n else "") for n, name in enumerate(["Run", "Now"])]
    cells += [tag("th", f"Without the {key}", cls="ci-number") for key in keys]
    shown = frame if len(names) > 1 else frame.iloc[:-1]  # the last row is about an order
    rows = [_persona_row(row, keys) for row in shown.to_dict("records")]
    if compared.board.simulated:
        page.badge_simulated()
    safe.show(tag("table", tag("thead", tag("tr", *cells)), tag("tbody", *rows), cls="ci-grid"))
    exports.buttons(
        "personas",
        shown,
        fig=None,
        key="compare.personas",
        simulated=compared.board.simulated,
        about=compared.about() | {"measure": str(measure)},
    )


def _persona_row(row: Row, keys: list[str]) -> Html:
    """A run, or the last row: Kendall's tau of each order."""
    if row["now"] != row["now"] and str(row["run"]) == "Kendall's tau":
        taus = ["" if row[f"value_{key}"] != row[f"value_{key}"] else f"{row[f'value_{key}']:.2f}" for key in keys]
        numbers = [tag("td", said, cls="ci-number ci-muted") for said in taus]
        return tag("tr", tag("td", "Kendall's tau with the current order", cls="ci-muted"), tag("td"), *numbers)
    place = "" if row["rank"] != row["rank"] else f"place {row['rank']:.0f}"
    cells = [tag("td", tag("b", str(row["run"]))), _cell(row["now"], place)]
    for key in keys:
        change, rank = row[f"change_{key}"], row[f"rank_{key}"]
        said = "" if change != change else f"{100 * change:+.1f}" if abs(change) >= 0.0005 else "as now"
        moved = f", place {rank:.0f}" if rank == rank and rank != row["rank"] else ""
        cells.append(_cell(row[f"value_{key}"], f"{said}{moved}"))
    return tag("tr", *cells)


def _cell(value: float, small: str) -> Html:
    if value != value:
        return tag("td", "–", cls="ci-number")
    return tag("td", tag("b", tables.percent(value)), tag("div", small, cls="ci-muted"), cls="ci-number")


def profiles_part(compared: Compared, found: Study, measure: Measure) -> None:
    """What fewer profiles would have said."""
    names = [compared.called[asked.run.id] for asked in compared.scopes]
    safe.heading("How many profiles it takes")
    key = ("sensitivity profiles", measure, *_key(compared, found))
    subsets = compared.flows.remember(key, lambda: by_profiles(found, measure))
    if not subsets.by_k:
        page.notice("It takes two profiles that all runs have in common.")
        return
    asked = url.get_int("subset")
    half = max(subsets.profiles // 2, 1)
    st.session_state["compare.subset"] = asked if asked and asked <= subsets.profiles else half
    st.columns([2, 5])[0].slider(
        "Profiles in a subset",
        1,
        subsets.profiles,
        key="compare.subset",
        on_change=lambda: url.put(subset=st.session_state["compare.subset"]),
        help="Numbers are means over profiles: this is what a study with so many of them would have found.",
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
        "same_best": ("percent", "Same best"),
    }
    show(drawing, "profiles", "compare.box.profiles", compared, columns)


def spoken_part(compared: Compared) -> None:
    """What share of flows the headline speaks for, of all runs or of one by group."""
    safe.heading("What the numbers speak for")
    labelling = compared.scopes[0].labelling
    left, right = st.columns([5, 2], vertical_alignment="bottom")
    with left:
        by = _by()
    chosen = compared.scopes[0].run.id
    if by:
        ids = [line.run.id for line in compared.board.lines]
        with right:
            chosen = str(page.select("Flows of", ids, compared.called.__getitem__, "compare.spoken", "run"))
    named = [(compared.called[asked.run.id], asked) for asked in compared.scopes if not by or asked.run.id == chosen]
    rows = [(name, spoken_for(compared.flows, asked, By(by or By.DOMAIN), compared.rule)) for name, asked in named]
    drawing = spoken(rows, bool(by))
    if drawing is None:
        page.notice("There is no flow yet.")
        return
    columns: Columns = {
        "group": ("text", "Run" if not by else "Group"),
        "pairs": ("count", "Flows"),
        "speaks": ("count", "Spoken for"),
        "share": ("percent", "Share"),
        "decided": ("count", "of these decided by people"),
        "necessary": ("count", "Necessary"),
        "inappropriate": ("count", "Inappropriate"),
        "ambiguous": ("count", "Ambiguous"),
        "discarded_context": ("count", "In discarded contexts"),
        "unlabelled": ("count", "Not labelled"),
        "identifier": ("count", "Of identifiers"),
        "not_judged": ("count", "Not judged"),
    }
    simulated = any(asked.simulated for _, asked in named)
    show(drawing, "spoken", "compare.box.spoken", compared, columns, simulated=simulated)
    absent = [WORDS[part] for part in PARTS if not pd.Series(drawing.frame[part]).any()]
    if absent:
        safe.inline(f"There are none that are: {'; '.join(absent)}.", muted=True)
    if labelling is not None:
        url.page_link(
            "survival",
            "Survival of the labels: who stands in the way of a consensus",
            icon=":material/how_to_vote:",
            dataset=labelling.dataset,
            labelling=labelling.id,
            part="shares",
        )


def _by() -> str:
    """What the flows are grouped by, as the URL says."""
    key = "compare.by"
    asked = url.get("by") or ""
    st.session_state[key] = asked if asked in GROUPS else ""
    st.segmented_control(
        "By",
        list(GROUPS),
        format_func=GROUPS.__getitem__,
        key=key,
        required=True,
        on_change=lambda: url.put(by=st.session_state[key] or None),
    )
    return str(st.session_state[key] or "")
