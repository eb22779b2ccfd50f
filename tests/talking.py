"""A browser at a desk, without a browser: what it posts goes over the route."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from cimemories.access.roles import Actor
from cimemories.desk.protocol import Desk
from cimemories.desk.routes import desk_route, open_desk
from cimemories.ui import desk as desk_ui

CLIENT = TestClient(Starlette(routes=[desk_route()]), raise_server_exceptions=False)


def event(number: int, item: tuple[int, int] | str, says: str | None = "necessary", **changes: Any) -> dict[str, Any]:
    """One press: what is said of an item, or another kind of action."""
    card = item if isinstance(item, str) else f"{item[0]}.{item[1]}"
    plain = {"uid": f"uid-{number}", "kind": "say", "card": card, "says": says}
    return {**plain, "seconds": 1.5, "blind": False, "text": "", "of": None, **changes}


class Talk:
    """One tab of a person at a desk."""

    def __init__(self, desk: Desk, place: str = "here.0", actor: Actor | None = None) -> None:
        self.owner, self.place = desk.owner, place
        self.address = open_desk(desk, "test", actor or Actor("tester"))
        self.status = 0

    def post(self, *events: dict[str, Any], **message: Any) -> dict[str, Any]:
        """Post a message with these events; returns the reply."""
        return self.post_raw(
            {"place": self.place, "events": [{"owner": self.owner, **one} for one in events], **message}
        )

    def post_raw(self, body: Any) -> dict[str, Any]:
        """Post anything."""
        answer = CLIENT.post(f"/{self.address}", content=json.dumps(body))
        self.status = answer.status_code
        reply: dict[str, Any] = answer.json()
        return reply


def cards(reply: dict[str, Any]) -> list[str]:
    """The ids of the cards of a reply."""
    return [card["id"] for card in reply["cards"]]


class Drawn(list[dict[str, Any]]):
    """What pages have drawn of desks, the newest last."""

    def post(self, *events: dict[str, Any], **message: Any) -> dict[str, Any]:
        """Post a message to the desk that was drawn last."""
        data = self[-1]
        sent = [{"owner": data["owner"], **one} for one in events]
        body = {"place": "here.0", "blind": data["blind"], "events": sent, **message}
        reply: dict[str, Any] = CLIENT.post(f"/{data['url']}", json=body).json()
        return reply


def drawn_desks(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    """Record what pages draw of desks from now on."""
    drawn = Drawn()
    draw = desk_ui._component

    def record(*, data: dict[str, Any], **rest: Any) -> Any:
        drawn.append(data)
        return draw(data=data, **rest)

    monkeypatch.setattr(desk_ui, "_component", record)
    return drawn
