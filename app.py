"""CIMemories Studio: opens the workspace and shows the pages. Start it with `streamlit run app.py`."""

from __future__ import annotations

from functools import partial
from typing import Literal

import streamlit as st

from cimemories import files
from cimemories.access import roles
from cimemories.access.roles import Role
from cimemories.installation import WORKSPACE, chosen_workspace
from cimemories.ui import ASSETS, annotator, login, once, page, safe, server, shell, url
from cimemories.ui.url import PAGES

if __name__ == "__main__":  # what the server itself needs none of: it listens before these are imported
    server.wait_for_libraries()
    from cimemories.flows import catalogue
    from cimemories.store.engine import DatabaseLost, StoreError, shared_store
    from cimemories.store.team import people
    from pages.start import failure

ICON = ASSETS / "icon.svg"


MENU = {  # by section, its pages: the name in the address, the title, the icon
    "": [("home", "Home", "home")],
    "Curate": [
        ("profiles", "Profiles", "person"),
        ("labels", "Labels", "label"),
        ("review", "Review", "rate_review"),
        ("consensus", "Consensus", "how_to_reg"),
    ],
    "Evaluate": [("runs", "Runs", "play_circle"), ("judge_audit", "Judge audit", "gavel")],
    "Explore": [
        ("heatmaps", "Heatmaps", "grid_on"),
        ("leaks", "Leaks", "format_ink_highlighter"),
        ("accumulation", "Accumulation", "stacked_line_chart"),
        ("compare", "Compare", "compare_arrows"),
    ],
}


def _to_consensus() -> None:
    """Lead on from the page's address in older links."""
    url.go("consensus", **st.query_params.to_dict())


def _enter() -> StoreError | None:
    """Open the record and look up the user who is logged in. Returns what prevents it."""
    try:
        store = shared_store()
        store.check()
        claims, settings = login.claims(), login.settings()
        if claims is not None:
            person = people.enter(
                store, people.login_of(claims, settings.get("role_claim")), people.policy_of(settings)
            )
            login.hold(people.actor_of(person), people.admins(store))
    except StoreError as problem:
        return problem
    return None


def show() -> None:
    """Run the page that the browser is on, once."""
    # A file of our own: for the name of an icon the browser would ask a server on the internet.
    st.set_page_config(page_title="CIMemories Studio", page_icon=str(ICON), layout="wide", initial_sidebar_state=220)
    safe.style()
    roles.ask_by(login.actor)
    closed = _enter()

    menu = {
        section: [
            st.Page(PAGES[name], title=title, icon=f":material/{icon}:", url_path=name, default=name == "home")
            for name, title, icon in entries
        ]
        for section, entries in MENU.items()
    }
    menu["Curate"].append(st.Page(_to_consensus, title="Consensus", url_path="survival", visibility="hidden"))
    # In sight where people log in; without a login Agreement leads to it.
    seen: Literal["visible", "hidden"] = "visible" if login.claims() else "hidden"
    team = st.Page(PAGES["team"], title="Team", icon=":material/group:", url_path="team", visibility=seen)
    chosen = st.navigation({**menu, "Workspace": [team]})
    url.catch_up()  # by now Streamlit knows which page a link leads to
    # Only where a login is set up does Streamlit know whether the user is logged in.
    if not getattr(st.user, "is_logged_in", True):
        page.head("CIMemories Studio", "Log in to continue.")
        login.ask()
        st.stop()
    login.offer_logout()
    if isinstance(closed, DatabaseLost):
        failure.wait_for_database(closed)
    elif closed is not None:
        page.head("The workspace cannot be opened", "Nothing was changed.")
        page.error("The database could not be opened.", str(closed), f"Fix it, or set {WORKSPACE} to another folder.")
    elif refused := login.refusal(Role.VIEWER):
        page.head("CIMemories Studio", "You are logged in, and have no access yet.")
        page.empty("No access yet", refused)
    else:
        annotator.header(partial(catalogue.people, shared_store()))
        if shared_store().read_only:
            page.notice("This workspace is read-only: you can view everything, and save or start nothing.")
        if warning := shared_store().share_warning:
            page.notice(warning)
        try:
            chosen.run()
            once.forget()
        except DatabaseLost as problem:  # it went away while the page ran
            failure.wait_for_database(problem)
        # Streamlit stops and restarts a script by BaseExceptions, which pass here.
        except Exception as error:
            if not failure.draw(error):
                raise
        finally:
            shell.draw()
        server.page_drawn.set()
        # After the page, when the modules that it needs have been imported.
        server.spare_libraries()


if __name__ == "__main__":  # Streamlit runs this file as a script, again for each run of a page ...
    show()
else:  # ... and its server, which finds the next line by its syntax, imports it once
    # Before anything is written, so that every file and process of the app is private.
    files.adopt_umask()

    def draw_failure(error: Exception) -> bool:
        from pages.start import failure

        return failure.draw(error)

    app = st.App(__file__, on_script_error=draw_failure, **server.protected(chosen_workspace()))
