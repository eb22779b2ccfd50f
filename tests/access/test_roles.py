"""Roles are held by the record: the transaction that writes asks for them, whatever a page shows."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from paging import FOLDS, button, opened, page_html
from streamlit.elements.widgets.button import ButtonMixin
from streamlit.elements.widgets.file_uploader import FileUploaderMixin
from typer.testing import CliRunner
from worlds import add_dataset, add_labels, add_run, records

from cimemories.access import roles
from cimemories.access.roles import Actor, Role
from cimemories.cli import cli
from cimemories.evaluation import planning
from cimemories.evaluation.batches import export_batch
from cimemories.exchange import freezing
from cimemories.flows import catalogue
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.model import Label, WorkStatus
from cimemories.review import bulk, queue, status
from cimemories.review.sampling import draw_slice
from cimemories.store import audits, runs
from cimemories.store.engine import NotAllowed, Store, StoreError
from cimemories.store.reviews import Plan
from cimemories.store.team import assignments, log, people
from cimemories.store.team.people import Login, Policy
from cimemories.store.upkeep import deleting
from cimemories.ui import once, server

X, N, A = INAPPROPRIATE, NECESSARY, AMBIGUOUS
LABELS = [[[X, X, N], [X, X, X], [N, N, A]]]
ISSUER = "https://login.example.org"
RANKED = list(Role)
Become = Callable[[str, Role], None]


@pytest.fixture
def become(monkeypatch: pytest.MonkeyPatch) -> Callable[[Store], Become]:
    """Be somebody with an account and this role from now on."""

    def in_store(store: Store) -> Become:
        def person(name: str, role: Role) -> None:
            monkeypatch.setattr(roles, "_ask", lambda: Actor("a test"))
            known = people.enter(store, Login(f"{ISSUER} {name}", name), Policy())
            people.give(store, known.name, role)
            monkeypatch.setattr(roles, "_ask", lambda: Actor(name, known.account, role))

        return person

    return in_store


def test_a_write_takes_its_role_as_the_record_has_it_at_that_moment(
    store: Store, become: Callable[[Store], Become], monkeypatch: pytest.MonkeyPatch
) -> None:
    be = become(store)
    for role in RANKED:
        be("Ada", role)
        for least in RANKED:
            if role.covers(least):
                with store.write(least):
                    pass
            else:
                with pytest.raises(NotAllowed, match=f"takes the role {least}"), store.write(least):
                    pytest.fail("nobody gets in")
    # Without a word of what it takes, a write is an admin's.
    be("Ada", Role.OPERATOR)
    with pytest.raises(NotAllowed, match="takes the role admin"), store.write():
        pytest.fail("nobody gets in")
    # A session that still thinks that it may is not believed.
    monkeypatch.setattr(roles, "_ask", lambda: Actor("Ada", f"{ISSUER} Ada", Role.ADMIN))
    with pytest.raises(NotAllowed), store.write(Role.ADMIN):
        pytest.fail("nobody gets in")
    # What a thread does for a session is done by its person.
    job = once.Job(lambda _: people.give(store, "bob@example.org", Role.VIEWER))
    assert job.done(30)
    with pytest.raises(NotAllowed):
        job.result()
    # An account that is unknown, and a session in which nobody has logged in, may nothing.
    for account in ("", "https://elsewhere Ada"):
        monkeypatch.setattr(roles, "_ask", lambda account=account: Actor("Ada", account, Role.ADMIN))
        with pytest.raises(NotAllowed, match="no access yet"), store.write(Role.VIEWER):
            pytest.fail("nobody gets in")


def test_what_people_do_takes_the_role_that_the_documentation_gives(
    sqlite_store: Store, become: Callable[[Store], Become]
) -> None:
    store, be = sqlite_store, become(sqlite_store)
    data = add_dataset(store, profiles=1, attributes=3, contexts=3)
    add_labels(store, data.id, LABELS)
    run = add_run(store, data.id, 2, [[[1, 0, 2], [0, 1, 2], [2, 1, 0]]])
    (record,) = records(store, data.id)
    pair = record.attribute_ids[0], record.context_ids[0]
    acts: list[tuple[Role, Callable[[], Any]]] = [
        (Role.VIEWER, lambda: log.note(store, "dataset.exported", "small world")),
        (
            Role.ANNOTATOR,
            lambda: list(
                bulk.decide_all(
                    store,
                    data.id,
                    "Ada",
                    [pair],
                    Label.NECESSARY,
                    reason="",
                    source="batch",
                    batch=str(roles.actor().role),
                )
            ),
        ),
        (Role.ANNOTATOR, lambda: queue.save_view(store, "mine", {}, "Ada")),
        (Role.CURATOR, lambda: queue.set_overlap(store, data.id, Plan(0.5), "Ada", "to measure")),
        (
            Role.CURATOR,
            lambda: status.save_guideline(
                store, f"Be kind, {roles.actor().role}.", "Ada", status.guidelines(store)[-1], "new"
            ),
        ),
        (Role.CURATOR, lambda: catalogue.use_rule(store, data.id, "paper")),
        (Role.OPERATOR, lambda: catalogue.cancel(store, run)),
        (Role.OPERATOR, lambda: catalogue.describe_run(store, run, ["pilot"])),
        (Role.ADMIN, lambda: people.give(store, "bob@example.org", Role.VIEWER)),
    ]
    for role in RANKED:
        be("Ada", role)
        for least, act in acts:
            if role.covers(least):
                try:
                    act()
                except NotAllowed:
                    pytest.fail(f"{role} may do what takes {least}")
                except StoreError:
                    assert least is Role.OPERATOR, "the run has ended: that is another refusal"
            else:
                with pytest.raises(NotAllowed):
                    act()
    be("Ada", Role.ANNOTATOR)
    with pytest.raises(NotAllowed):
        freezing.freeze(store, data.id, labelling_id=None, annotator="Ada")
    with pytest.raises(NotAllowed):
        deleting.delete(store, catalogue.deletion_of(store, data.name))
    be("Ada", Role.CURATOR)
    with pytest.raises(NotAllowed, match="takes the role operator, and you are a curator"):
        deleting.delete(store, catalogue.deletion_of_work(store, run))


def test_an_operator_writes_the_batch_file_of_a_run(
    sqlite_store: Store, become: Callable[[Store], Become], tmp_path: Path
) -> None:
    data = add_dataset(sqlite_store, 1, 3, 2)
    judge = planning.JudgeSpec(kind="llm", model="m", base_url="batch")
    spec = planning.RunSpec(dataset=data.name, model="m", base_url="batch", samples=2, judges=(judge,))
    run = planning.plan(sqlite_store, spec)
    be = become(sqlite_store)
    for role in RANKED[RANKED.index(Role.VIEWER) : RANKED.index(Role.OPERATOR)]:
        be("Ada", role)
        with pytest.raises(NotAllowed, match="takes the role operator"):
            export_batch(sqlite_store, run, tmp_path / "owed.jsonl")
    be("Ada", Role.OPERATOR)
    assert export_batch(sqlite_store, run, tmp_path / "owed.jsonl").lines == 4
    # What it claimed of the run is given back under the same role.
    with sqlite_store.read() as connection:
        assert runs.by_id(connection, run).status is WorkStatus.INTERRUPTED


def test_a_person_is_their_account_and_nobody_can_take_anothers_name_or_role(store: Store) -> None:
    with store.write() as connection:
        people.set_role(connection, "Ada@Example.org", Role.ADMIN)
    policy = Policy(Role.VIEWER)

    def enter(subject: str, name: str, email: str = "", *, verified: object = True) -> people.Person:
        claims = {"iss": ISSUER, "sub": subject, "name": name, "email": email, "email_verified": verified}
        return people.enter(store, people.login_of(claims), policy)

    # Whose address nobody has verified gets the default role, whatever they call themselves.
    thief = enter("1", "ada@example.org", "ada@example.org", verified="true")
    assert (thief.role, thief.email, thief.name) == (Role.VIEWER, None, "ada at example.org")
    ada = enter("2", "Ada", "ada@example.org")
    assert (ada.role, ada.name) == (Role.ADMIN, "Ada")
    assert enter("2", "Ada, renamed") == ada, "the account is known by its subject, and keeps its name"
    other = enter("3", "Ada", "other@example.org")
    assert (other.name, other.role) == ("Ada (other@example.org)", Role.VIEWER)
    assert enter("4", "Ada\u202e\n").name not in (ada.name, other.name)
    with store.write() as connection:
        assert next(row.name for row in people.everybody(connection)) == "Ada"
        with pytest.raises(StoreError, match="no one here is called 'Eve'"):
            people.set_role(connection, "Eve", Role.ADMIN)
        logged = [(entry.action, entry.subject) for entry in log.entries(connection)]
    assert logged.count(("role.changed", "Ada@Example.org")) == 1 and ("person.joined", other.name) in logged


def test_roles_can_come_from_a_claim_of_the_login(sqlite_store: Store) -> None:
    claim = "realm_access.roles"
    settings = {
        "default_role": "none",
        "role_claim": claim,
        "roles": {"staff": "curator", "root": "admin"},
    }
    policy = people.policy_of(settings)

    def enter(*given: str) -> Role:
        claims = {"iss": ISSUER, "sub": "1", "name": "Ada", "realm_access": {"roles": list(given)}}
        return people.enter(sqlite_store, people.login_of(claims, claim), policy).role

    assert [enter("staff", "other"), enter("staff", "root"), enter("other"), enter()] == [
        Role.CURATOR,
        Role.ADMIN,
        Role.NONE,
        Role.NONE,
    ]
    with pytest.raises(StoreError, match=r"\[people\] roles.staff: 'boss' is no role"):
        people.policy_of({"role_claim": "groups", "roles": {"staff": "boss"}})
    with sqlite_store.read() as connection:
        assert [entry.details.get("by") for entry in log.entries(connection, action="role")] == [
            "the login's provider"
        ] * 3


def test_what_was_assigned_to_an_address_is_theirs_who_logs_in_with_it(store: Store) -> None:
    data = add_dataset(store, 1, 3, 2)
    pair = records(store, data.id)[0]
    item = audits.SliceItem(pair.attribute_ids[0], pair.context_ids[0], None, "all", 1.0)
    with store.write() as connection:
        people.set_role(connection, "bob@example.org", Role.ANNOTATOR)
        for name, assigned in [("first", ["bob@example.org", "Ada"]), ("both", ["bob@example.org", "Bob"])]:
            slice_id = audits.add_slice(connection, data.id, audits.SLICE_LABELS, name, 0, {}, "Cleo", [item])
            assignments.assign(connection, slice_id, assigned, annotator="Cleo")
    bob = people.enter(store, Login(f"{ISSUER} 7", "Bob", "Bob@example.org"), Policy())
    with store.read() as connection:
        mine = assignments.assignments(connection, person=bob.name)
    assert [(each.name, each.people) for each in mine] == [("first", ("Ada", "Bob")), ("both", ("Bob",))]


def test_a_read_only_record_shows_nobody_more_than_their_role(sqlite_store: Store) -> None:
    claim = "groups"
    settings = {"default_role": "none", "role_claim": claim, "roles": {"staff": "curator"}}
    by_provider, by_record = people.policy_of(settings), Policy(Role.NONE)
    with sqlite_store.write() as connection:
        people.set_role(connection, "invited@example.org", Role.ADMIN)
    known = people.enter(sqlite_store, Login(f"{ISSUER} 1", "Ada", groups=("staff",)), by_provider)
    assert known.role is Role.CURATOR
    looking = replace(sqlite_store, read_only=True)

    def role(number: int, policy: Policy, *groups: str, email: str = "") -> Role:
        return people.enter(looking, Login(f"{ISSUER} {number}", "Somebody", email, groups), policy).role

    # Nobody whom the policy does not let in sees a page, also where they were let in before.
    assert [role(2, by_record), role(2, by_provider, "other"), role(1, by_provider)] == [Role.NONE] * 3
    # Who is let in looks, whatever else they may do where something can be written.
    assert [role(2, Policy()), role(2, by_provider, "staff")] == [Role.VIEWER] * 2
    assert role(3, by_record, email="Invited@example.org") is Role.VIEWER
    assert role(1, by_record) is Role.CURATOR


def test_the_last_admin_keeps_the_role_in_the_app(sqlite_store: Store, become: Callable[[Store], Become]) -> None:
    be = become(sqlite_store)
    be("Ada", Role.ADMIN)
    with pytest.raises(StoreError, match="Ada is the only admin"):
        people.give(sqlite_store, "Ada", Role.VIEWER)
    be("Bob", Role.ADMIN)
    assert people.give(sqlite_store, "Ada", Role.VIEWER).role is Role.VIEWER


# ---- in the app


class Account(dict[str, str]):
    """What st.user is where a login is set up."""

    is_logged_in = True


@pytest.fixture
def logged_in(app_store: Store, monkeypatch: pytest.MonkeyPatch) -> Callable[[Role], None]:
    """Be logged in to the app as Ada, in this role."""
    monkeypatch.setattr(roles, "_ask", roles._ask)
    monkeypatch.setattr(ButtonMixin, "_button", ButtonMixin._button)
    monkeypatch.setattr(FileUploaderMixin, "_file_uploader", FileUploaderMixin._file_uploader)
    server.disable_writing()
    known = people.enter(app_store, Login(f"{ISSUER} 1", "Ada"), Policy())
    monkeypatch.setattr("streamlit.user", Account({"iss": ISSUER, "sub": "1", "name": "Ada"}))

    def with_role(role: Role) -> None:
        roles.ask_by(lambda: Actor("a test"))
        people.give(app_store, known.name, role)

    return with_role


def test_pages_disable_what_a_role_may_not_do_and_say_who_may(
    app_store: Store, logged_in: Callable[[Role], None]
) -> None:
    data = add_dataset(app_store, profiles=1, attributes=3, contexts=3)
    bare = add_dataset(app_store, profiles=1, attributes=2, contexts=2, name="bare")
    add_labels(app_store, data.id, LABELS)
    run = add_run(app_store, data.id, 2, [[[1, 0, 2], [0, 1, 2], [2, 1, 0]]])
    with app_store.write() as connection:
        people.set_role(connection, "grace@example.org", Role.ADMIN)
    disabled = {}
    for role in (Role.VIEWER, Role.ANNOTATOR, Role.CURATOR, Role.OPERATOR):
        logged_in(role)
        review = opened("pages/curate/review.py", tab="agreement", dataset=data.id)
        drawing = next(item for item in review.button if item.label.startswith("Sample "))
        labels = opened("pages/curate/labels.py", *FOLDS, dataset=bare.id)
        voting = next(item for item in labels.button if item.label == "Start")
        batch = button(opened("pages/evaluate/runs.py", *FOLDS, run=run), "Prepare the batch file")
        disabled[role] = (drawing.disabled, voting.disabled, batch.disabled)
        if role is Role.VIEWER:
            assert "takes the role curator, and you are a viewer. Ask grace@example.org." in drawing.proto.help
    logged_in(Role.NONE)
    closed = opened("pages/curate/consensus.py")
    assert "you have no access yet" in page_html(closed) and not closed.selectbox
    assert disabled == {
        Role.VIEWER: (True, True, True),
        Role.ANNOTATOR: (True, True, True),
        Role.CURATOR: (False, True, True),
        Role.OPERATOR: (False, False, False),
    }


def test_keys_decide_on_labels_only_for_those_whose_role_may(
    app_store: Store, logged_in: Callable[[Role], None]
) -> None:
    data = add_dataset(app_store, profiles=1, attributes=3, contexts=3)
    add_labels(app_store, data.id, LABELS)
    for role, keys in ((Role.VIEWER, []), (Role.ANNOTATOR, ["n", "i", "u"])):
        logged_in(role)
        for view in ("matrix", "context"):
            app = opened("pages/curate/labels.py", dataset=data.id, show=view)
            protos = [item.proto for item in app.get("bidi_component")]
            (sent,) = [text for proto in protos if '"cursor"' in (text := proto.json or proto.mixed.json)]
            shown = json.loads(sent)
            assert [key["key"] for key in shown["keys"]] == keys, (role, view)
            assert ("z" in [name for name, *_ in shown["help"]]) == bool(keys)


def test_an_admin_gives_roles_and_reads_the_log_in_the_app(app_store: Store, logged_in: Callable[[Role], None]) -> None:
    logged_in(Role.ADMIN)
    people.enter(app_store, Login(f"{ISSUER} 2", "Bob <img src=x>", "bob@example.org"), Policy())
    app = opened("pages/start/team.py", tab="people", person="Bob <img src=x>")
    bob = next(row for row in people.listed(app_store) if row.name != "Ada")
    app.selectbox[0].set_value(Role.CURATOR).run()
    button(app, "Change the role").click().run()
    assert not app.exception and "is now curator" in page_html(app)
    log_page = opened("pages/start/team.py", tab="log", action="role")
    frame = log_page.dataframe[0].value
    assert list(frame.iloc[0][["person", "action", "details"]]) == [
        "Ada",
        "role.changed",
        "before: annotator, now: curator",
    ]
    # Where another admin gives a role meanwhile, the field shows that one, and a click would not take it back.
    people.give(app_store, bob.name, Role.VIEWER)
    app.run()
    assert app.selectbox[0].value == Role.VIEWER and button(app, "Change the role").disabled
    nothing = opened("pages/start/team.py", tab="log", person="Zoe <img src=x>")
    assert nothing.selectbox(key="team.who").value == "Zoe <img src=x>"
    assert "Nothing matches" in page_html(nothing) and "Nothing here yet" not in page_html(nothing)
    # The address of the page opens nothing for others.
    logged_in(Role.OPERATOR)
    for tab in ("people", "log"):
        app = opened("pages/start/team.py", tab=tab)
        assert "takes the role admin, and you are an operator" in page_html(app) and not app.dataframe


def test_people_are_taken_from_a_slice_that_several_answer(app_store: Store) -> None:
    data = add_dataset(app_store, profiles=1, attributes=3, contexts=3)
    slice_id = draw_slice(app_store, add_labels(app_store, data.id, LABELS), size=4, seed=0, annotator="Cleo")
    with app_store.write() as connection:
        assignments.assign(connection, slice_id, ["Ada", "Bob", "Cleo"], overlap=3, annotator="Cleo")
    page = opened("pages/start/team.py", f"team.box.assign.{slice_id}", tab="assignments", dataset=data.id)
    number = page.number_input[0]
    assert (number.value, number.max) == (3, 3)
    for left, most in ((["Ada", "Bob"], 2), (["Ada"], 1), ([], 1)):
        page.multiselect[0].set_value(left).run()
        assert not page.exception
        number = page.number_input[0]
        assert (number.value, number.max) == (most, most)
    # Nobody is left: the slice is anybody's again.
    page.session_state["annotator"] = "Cleo"
    button(page.run(), "Remove the assignment").click().run()
    assert not page.exception
    with app_store.read() as connection:
        assert assignments.assignments(connection, slice_id=slice_id) == []


def test_the_command_line_names_the_first_admin_and_prints_the_log(sqlite_store: Store) -> None:
    def ran(*arguments: str) -> str:
        done = CliRunner().invoke(cli, [*arguments, "--workspace", str(sqlite_store.workspace)])
        assert done.exit_code == 0, done.output
        return done.stdout

    assert ran("team", "role", "ada@example.org", "admin").startswith("ada@example.org: admin")
    assert "has not logged in" in ran("team", "list")
    lines = ran("team", "log", "--csv").splitlines()
    assert lines[0] == "created,person,action,subject,details" and "role.changed,ada@example.org" in lines[1]
    assert '"action": "role.changed"' in ran("team", "log", "--json", "--action", "role")
