"""The route of the desk: who may post, and what comes back where something is wrong."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping

import pytest
import sqlalchemy as sa
from starlette.applications import Starlette
from starlette.testclient import TestClient
from talking import CLIENT, Talk, event
from worlds import add_dataset

from cimemories.access.guard import Gate, Guard, Mode, Site
from cimemories.access.roles import Actor, Role
from cimemories.desk.labels import LabelsDesk
from cimemories.desk.protocol import Message, Reply
from cimemories.desk.routes import MOST_OPEN, desk_route, open_desk
from cimemories.review.index import DatasetGone
from cimemories.store import decisions
from cimemories.store.engine import Store, StoreError


class Fake:
    """A desk that says what it was told, or fails."""

    owner = "ada"

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.heard: list[Message] = []

    def answer(self, message: Message) -> Reply:
        self.heard.append(message)
        if self.error is not None:
            raise self.error
        return Reply([one.uid for one in message.events], message.malformed, notice="a\u202eb \ud800")


def test_events_are_told_by_their_owner_and_what_is_not_valid_is_refused() -> None:
    desk = Fake()
    fine = event(1, "7.3", text="x" * 9000, seconds=float("nan"), owner="ada")
    broken = [
        {**fine, "uid": "no card", "card": None, "says": []} | {"seconds": "soon"},
        {**fine, "uid": "shouted", "kind": "shout"},
    ]
    body = [fine, {**fine, "uid": "of Bob", "owner": "bob"}, *broken, "nothing", 7]
    reply = Talk(desk).post_raw({"events": body, "place": 5, "looks": "history", "batch": "many", "blind": None})
    assert (reply["recorded"], reply["refused"]) == (["uid-1"], ["no card", "shouted"])
    (one,) = desk.heard[0].events
    assert (len(one.text), one.seconds, one.card) == (2000, 0.0, "7.3")
    assert reply["notice"] != "a\u202eb \ud800" and reply["notice"].startswith("a"), "control characters are visible"
    for body in (None, [], "text", {"events": {}}):
        assert Talk(desk).post_raw(body)["recorded"] == []


def test_a_message_that_is_too_large_or_no_json_is_refused() -> None:
    talk = Talk(Fake())
    for content, status in ((b"{", 400), (b"x" * 2_000_001, 413)):
        answer = CLIENT.post(f"/{talk.address}", content=content)
        assert answer.status_code == status and answer.json()["problem"]
    assert CLIENT.get(f"/{talk.address}").status_code == 405


def full() -> sa.exc.OperationalError:
    """What SQLAlchemy raises where SQLite finds no room."""
    reason = sqlite3.OperationalError("database or disk is full")
    reason.sqlite_errorcode, reason.sqlite_errorname = sqlite3.SQLITE_FULL, "SQLITE_FULL"
    return sa.exc.OperationalError("INSERT INTO decision", {"reason": "private"}, reason)


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (StoreError("The record is busy."), 503, "The record is busy."),
        (full(), 503, "The disk of the workspace is full. Free some space"),
        (DatasetGone("gone"), 410, "This dataset was deleted"),
    ],
)
def test_what_prevents_recording_is_told_and_confirms_nothing(error: Exception, status: int, words: str) -> None:
    talk = Talk(Fake(error))
    reply = talk.post(event(1, "7.3"))
    assert talk.status == status and words in (reply.get("problem") or reply.get("gone") or "")
    assert "recorded" not in reply and "private" not in json.dumps(reply)


def test_an_unknown_address_and_another_login_are_told_nothing() -> None:
    client = TestClient(Starlette(routes=[desk_route("/base", lambda headers: headers.get("cookie", ""))]))
    desk = Fake()
    address = open_desk(desk, "one", Actor("Ada", "ada", Role.ANNOTATOR), login="session=1")
    for path, cookie, status in (
        (f"/base/{address}", "session=1", 200),
        (f"/base/{address}", "session=2", 404),
        (f"/base/{address}", "", 404),
        (f"/{address}", "session=1", 404),
        (f"/base/{address[:-1]}", "session=1", 404),
    ):
        answer = client.post(path, json={}, headers={"cookie": cookie})
        assert answer.status_code == status
    assert len(desk.heard) == 1
    assert open_desk(desk, "one", Actor("Bob", "bob"), login="session=1") != address, "each person's is another"


def test_the_oldest_desks_are_forgotten() -> None:
    old = Talk(Fake())
    for number in range(MOST_OPEN):
        open_desk(Fake(), f"{number}", Actor("Ada"))
    assert old.post() == {"unknown": True} and old.status == 404


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://localhost:8501"}, 200),
        ({"origin": "http://localhost:9999"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({}, 403),
    ],
)
def test_only_pages_of_this_app_may_post(sqlite_store: Store, headers: Mapping[str, str], status: int) -> None:
    gate = Gate(sqlite_store.workspace, Mode.ANYONE)
    site = Site(lambda host: True, lambda: False, lambda headers: False)
    app = Guard(Starlette(routes=[desk_route()]), gate=gate, site=site)
    address = open_desk(Fake(), "guarded", Actor("Ada"))
    client = TestClient(app, base_url="http://localhost:8501")
    assert client.post(f"/{address}", json={}, headers=dict(headers)).status_code == status


@pytest.mark.parametrize("logged_in", [True, False])
def test_where_people_log_in_a_post_needs_a_login(sqlite_store: Store, logged_in: bool) -> None:
    site = Site(lambda host: True, lambda: True, lambda headers: logged_in)
    app = Guard(Starlette(routes=[desk_route()]), gate=Gate(sqlite_store.workspace), site=site)
    address = open_desk(Fake(), "login", Actor("Ada"))
    client = TestClient(app, base_url="http://localhost:8501")
    answer = client.post(f"/{address}", json={}, headers={"origin": "http://localhost:8501"})
    assert answer.status_code == (200 if logged_in else 401)


def test_the_record_checks_the_role_of_the_account_at_every_post(sqlite_store: Store) -> None:
    data = add_dataset(sqlite_store)
    talk = Talk(LabelsDesk(sqlite_store, data, "Ada"), actor=Actor("Ada", "unknown account", Role.ANNOTATOR))
    reply = talk.post(event(1, (1, 1)))
    assert talk.status == 503 and "role annotator" in reply["problem"]
    with sqlite_store.read() as connection:
        assert decisions.history(connection, data.id) == []
