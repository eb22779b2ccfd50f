"""Compare: leaderboard, trade-off, difference of two runs, sweeps, and what the numbers depend on."""

from __future__ import annotations

import streamlit as st

from cimemories import extras
from cimemories.compare.leaderboard import judged_runs
from cimemories.flows import catalogue
from cimemories.store.engine import shared_store
from cimemories.ui import page, url
from pages.explore.compare_scope import Compared, SetTakeaway, choose

TITLE = "Compare"
LEADERBOARD = "leaderboard"
KEPT = "compare.kept"
# Parameters of this page's addresses alone, and those shared with other pages.
OWN = ("tab", "runs", "tag", "ranked", "against", "axis", "change")
SHARED = ("dataset", "run", "judge", "n", "labels", "sweep")
TABS = {
    LEADERBOARD: "Leaderboard",
    "plane": "Trade-off",
    "difference": "Difference",
    "sweeps": "Sweeps",
    **{name: name.capitalize() for name in extras.panels("compare")},
    "report": "Report",
}


def draw() -> None:
    store = shared_store()
    # Back from a page that a view linked to brings that page's query and none of this page's: then the last view is
    # kept. An address with any parameter of this page is taken as it is.
    if not any(url.get(name) for name in OWN):
        url.replace(**st.session_state.get(KEPT, {}))
    if not catalogue.all_runs(store):
        page.no_runs(TITLE, "Nothing to compare yet", "Compare runs of one dataset side by side.")
        return
    rows = judged_runs(store)
    if not rows:
        page.head(TITLE, "No run is judged yet.")
        page.empty(
            "Nothing to compare yet",
            "What a run reveals is known once a judge has read its messages. Watch the runs, or start their judges.",
            lambda: url.page_link("runs", "See the runs", icon=":material/play_circle:"),
        )
        return
    top = st.container()
    compared = choose(store, rows)
    if compared is None:
        with top:
            page.head(TITLE, "These runs cannot be compared.")
        return

    def set_takeaway(takeaway: str) -> None:
        with top:
            page.head(TITLE, takeaway, simulated=compared.board.simulated)

    _draw_tab(page.choice("Part of the page", TABS, "compare.tab", "tab", visible=False), compared, set_takeaway)
    st.session_state[KEPT] = {name: url.get(name) for name in (*OWN, *SHARED)}


def _draw_tab(tab: str, compared: Compared, set_takeaway: SetTakeaway) -> None:
    """Draw a part, imported when it is opened, so that a switch to the page stays quick."""
    if tab == "difference":
        from pages.explore import compare_difference

        compare_difference.draw(compared, set_takeaway)
    elif place := extras.panels("compare").get(tab):
        extras.load(place)(compared, set_takeaway)
    elif tab == "report":
        from pages.explore import compare_report

        compare_report.draw(compared, set_takeaway)
    else:
        from pages.explore import compare_leaderboard as board

        {LEADERBOARD: board.draw, "plane": board.draw_plane, "sweeps": board.draw_sweeps}[tab](compared, set_takeaway)


draw()
