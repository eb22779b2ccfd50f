"""Team: who decides which slice and their progress; for admins the roles, and the log of actions."""

from __future__ import annotations

from datetime import date

import pandas as pd
import streamlit as st

from cimemories.access.roles import MAY, Role
from cimemories.answers import lists
from cimemories.flows.catalogue import all_datasets
from cimemories.flows.catalogue import people as people_of_record
from cimemories.review.assignments import UNITS, Progress, assign, progress
from cimemories.review.assignments import slices as slices_of
from cimemories.review.status import status
from cimemories.store.audits import ATTRIBUTES, SLICE_LABELS, SliceRow
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError, shared_store
from cimemories.store.team import log, people
from cimemories.store.team.people import Person
from cimemories.text import count, listed
from cimemories.ui import annotator, answers, login, once, page, safe, tables, url

TABS = {"assignments": "Assignments", "people": "People", "log": "Log"}
MOST_KNOWN = 500  # training or test pairs of a slice
MOST = 1000  # entries shown; the command line prints all
_DONE = "team.done"
_OPENED = "team.opened."  # by slice, the time of the assignment that the open form was drawn for
HINT = (
    "No person has logged in yet. If the app has a login, people appear here at their first one; `docs/team.md` says "
    "how to set one up. Without a login, all people who reach the app may do everything."
)


def main() -> None:
    store = shared_store()
    top = st.container()
    tab = page.choice("Part", TABS, "team.tab", "tab", default="assignments", visible=False)
    if tab == "assignments":
        takeaway = _assignments(store)
    elif not login.may(Role.ADMIN):
        takeaway = "Admins give roles and read the log."
    else:
        takeaway = _log(store) if tab == "log" else _people(store)
    with top:
        page.head("Team", takeaway)


def _assignments(store: Store) -> str:
    rows = all_datasets(store)
    names = {row.id: row.name for row in rows}
    chosen = page.select("Dataset", list(names), lambda i: names[i], "team.dataset", "dataset")
    if chosen is None:
        page.empty("No datasets yet", "Slices of a dataset are assigned to people here.")
        return "Nothing is assigned."
    dataset = next(row for row in rows if row.id == chosen)
    for text in page.kept_notices(_DONE):
        page.notice(text)
    every = progress(store, dataset_id=dataset.id)
    assigned = {item.of.slice: item for item in every}
    slices = sorted(slices_of(store, dataset.id), key=lambda row: (row.id not in assigned, row.id))
    if not slices:
        page.empty(
            "No slices yet",
            "A slice is a random sample of labelled pairs or of a judge's answers. Sample one on Review, Agreement, or "
            "on Judge audit, then assign it here.",
            lambda: url.page_link(
                "review", "Sample a slice", icon=":material/casino:", dataset=chosen, tab="agreement"
            ),
        )
    for row in slices:
        with st.container(border=True):
            _assignment(store, dataset, row, assigned.get(row.id))
    if every:
        rows_of = pd.DataFrame([row for item in every for row in lists.paces(item).records()])
        tables.csv_button(rows_of, "assignments.csv", key="team.assignments.csv")
    reviewed = status(store, dataset.name).people
    if login.refusal(Role.CURATOR) is None and not reviewed.empty:
        safe.heading(reviewed.caption)
        tables.grid(reviewed, reviewed.caption)
    left = sum(item.left for item in every)
    return f"{count(len(every), 'assigned slice')}, {count(left, 'answer')} left." if every else "Nothing is assigned."


def _assignment(store: Store, dataset: DatasetRow, row: SliceRow, item: Progress | None) -> None:
    safe.inline(row.name, strong=True)
    curates = login.refusal(Role.CURATOR) is None
    unit = UNITS[row.kind]
    # A slice of attributes holds the messages that are read for them.
    size = f"{count(row.items, 'message')} of attributes" if row.kind == ATTRIBUTES else count(row.items, unit)
    if item is None:
        safe.inline(f"{size}, not assigned: each person who opens it answers all of it.", muted=True)
    else:
        people = count(item.of.wanted, "person", "people")
        each = f"each person answers each {unit}" if item.of.overlap is None else f"{people} for each {unit}"
        safe.inline(f"{item.sentence}. {size}, {each}.")
        if curates and (item.of.training or item.of.tests):
            training = count(item.of.training, "training pair")
            safe.inline(f"{training} before it, {count(item.of.tests, 'hidden test pair')} in it.", muted=True)
        answers.twin(lists.paces(item), f"team.paces.{item.of.slice}")
    if curates and not store.read_only:
        opened, made = f"{_OPENED}{row.id}", item.of.created if item else ""
        if st.session_state.get(opened, made) != made:
            by = item.of.annotator if item else "Another person"
            page.notice(f"{by} has changed this assignment since you opened it, and nothing of yours was saved.")
        drawn = page.fold(
            "Change the assignment" if item else "Assign",
            ":material/assignment_ind:",
            f"team.box.assign.{row.id}",
            lambda: _assign(store, dataset, row, item),
        )
        if drawn:
            st.session_state[opened] = made
        else:
            st.session_state.pop(opened, None)


def _assign(store: Store, dataset: DatasetRow, row: SliceRow, item: Progress | None) -> bool:
    # Keyed by the current assignment: if another user changes it meanwhile, the fields show the new one, and a click on
    # the old one does nothing. It would remove people who have been added.
    key = f"team.assign.{row.id}" + (f".{item.of.created}" if item else "")
    before = list(item.of.people) if item else []
    options = [*before, *(person.name for person in people.listed(store)), *people_of_record(store)]
    names: list[str] = st.multiselect(
        "People", list(dict.fromkeys(options)), before, key=f"{key}.people", accept_new_options=True,
        format_func=safe.option, placeholder="Choose, or enter a name",
    )  # fmt: skip
    left, right, _ = st.columns([2, 2, 5])
    most = max(len(names), 1)
    chosen = st.session_state.get(f"{key}.overlap", (item.of.overlap or 0) if item else 0)
    # Streamlit raises if the number is above the maximum, as it is once people are removed from the list.
    st.session_state[f"{key}.overlap"] = min(chosen, most)
    overlap = left.number_input(
        "People an item", 0, most, key=f"{key}.overlap",
        help="0: each person answers everything, as agreement of all needs it.",
    )  # fmt: skip
    training = tests = 0
    if row.kind == SLICE_LABELS:
        known, hidden, _ = st.columns([2, 2, 5])
        training = known.number_input(
            "Training pairs", 0, MOST_KNOWN, item.of.training if item else 0, key=f"{key}.training",
            help="Come first. Their answers are known and show after each; what people answer there does not count.",
        )  # fmt: skip
        tests = hidden.number_input(
            "Hidden test pairs", 0, MOST_KNOWN, item.of.tests if item else 0, key=f"{key}.tests",
            help="Mixed in. Their answers are known to you; people are not told which they are.",
        )  # fmt: skip
    due = right.date_input("Due", date.fromisoformat(item.of.due) if item and item.of.due else None, key=f"{key}.due")
    me = annotator.required()

    def assigned(_: None) -> None:
        st.session_state.pop(f"{_OPENED}{row.id}", None)
        page.keep_notices(_DONE, f"'{row.name}' is assigned to {listed(names) or 'no person'}.")

    with page.Reporting("The slice was not assigned.", StoreError):
        once.button(
            "Assign" if names else "Remove the assignment",
            lambda: assign(
                store,
                row.id,
                names,
                overlap=int(overlap) or None,
                due=due.isoformat() if due else None,
                annotator=me,
                training=int(training),
                tests=int(tests),
            ),
            assigned,
            key=f"{key}.give",
            disabled=not me or not (names or item),
            type="primary",
        )
    return True


def _people(store: Store) -> str:
    rows = people.listed(store)
    for text in page.kept_notices(_DONE):
        page.notice(text)
    if rows:
        linked, names = url.get("person"), [row.name for row in rows]
        selected = names.index(linked) if linked in names else None
        at = answers.twin(lists.people(store), "team.people", on_select="row", selected=selected)
        if at is None:
            safe.inline("Select a person to give them another role.", muted=True)
        else:
            url.put(person=rows[at].name)
            _role(store, rows[at])
    else:
        page.empty("No people yet", HINT)
    _expect(store)
    page.fold(
        "Roles",
        ":material/badge:",
        "team.box.roles",
        lambda: page.definitions((safe.tag("b", str(role)), f"can {MAY[role]}") for role in Role),
    )
    here = sum(row.account is not None for row in rows)
    return f"{count(here, 'person', 'people')} with an account. Each role includes those before it."


def _role(store: Store, chosen: Person) -> None:
    with st.container(border=True):
        safe.inline(chosen.name, strong=True)
        # Keyed by the current role: if another admin changes it meanwhile, the field shows the new one.
        role = _roles(f"team.role.{chosen.id}.{chosen.role}", chosen.role)
        with page.Reporting("The role was not changed.", StoreError):
            once.button(
                "Change the role",
                lambda: people.give(store, chosen.name, role),
                lambda new: page.keep_notices(_DONE, f"{new.name} is now {new.role}."),
                key=f"team.give.{chosen.id}.{role}",
                disabled=role is chosen.role,
                type="primary",
            )


def _expect(store: Store) -> None:
    """Draw the form for the address of a person who has not logged in yet."""
    with st.expander("Add a person by mail address", icon=":material/person_add:"):
        address = st.text_input("Mail address", key="team.address", max_chars=200, placeholder="ada@example.org")
        role = _roles("team.role.new", Role.ANNOTATOR)
        safe.inline("The role holds from their first login, if the provider has verified the address.", muted=True)
        with page.Reporting("No person was added.", StoreError):
            once.button(
                "Add",
                lambda: people.give(store, address.strip(), role),
                lambda new: page.keep_notices(_DONE, f"{new.name} will be {new.role}."),
                key="team.add",
                disabled="@" not in address,
            )


def _roles(key: str, default: Role) -> Role:
    every = list(Role)
    chosen: str = st.selectbox("Role", every, every.index(default), key=key, width=240)
    return Role(chosen)


def _log(store: Store) -> str:
    person, action = url.get("person"), url.get("action")
    listed = log.listed(store, person=person, action=action, most=MOST)
    with st.container(horizontal=True):
        # A person named by a link is in the list even without actions, or it would say that all people are shown.
        who = {"": "all people", **{name: name for name in [*listed.people, *([person] if person else [])]}}
        page.choice("Who", who, "team.who", "person", boxed=True)
        what = {"": "everything", **{kind: kind for kind in listed.kinds}}
        page.choice("What", what, "team.what", "action", boxed=True)
    if not listed.entries:
        if person or action:
            page.empty("Nothing matches", "Choose all people and everything to see all entries.")
        else:
            page.empty("Nothing here yet", "Imports, exports, runs, deletions and changes of roles are listed here.")
        return "Nothing matches."
    shown = lists.log(listed.entries)
    answers.twin(shown, "team.log")
    tables.csv_button(pd.DataFrame(shown.records()), "log.csv", key="team.log.csv")
    more = ", the newest" if len(listed.entries) == MOST else ""
    return f"{count(len(listed.entries), 'entry', 'entries')}{more}. They cannot be changed in the app."


main()
