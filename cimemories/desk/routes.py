"""The route of the desk in the app's server, `/desk/NAME`, and the desks that pages have opened.

A name is a secret of the process, made of what is worked on and by whom. It is bound to the login of the browser that
opened the page. Requests pass the same guard as pages (access/guard.py): host, origin, token or login.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from threading import Lock
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cimemories.access import roles
from cimemories.access.guard import DESK
from cimemories.access.roles import Actor

if TYPE_CHECKING:  # the server imports the route before everything that desks need
    from cimemories.desk.protocol import Desk

LONGEST_BODY = 2_000_000
MOST_OPEN = 1000
_SECRET = secrets.token_bytes(32)


@dataclass(frozen=True)
class _Opened:
    desk: Desk
    actor: Actor
    login: str


_opened: OrderedDict[str, _Opened] = OrderedDict()
_lock = Lock()


def open_desk(desk: Desk, name: str, actor: Actor, login: str = "") -> str:
    """Open a desk and return its address, relative to the app.

    name: what is worked on; the same name is the same desk, whose newest settings count. actor: in whose name events
    are recorded. login: the login of the browser, as `login_of` of `desk_route` reads it from a request.
    """
    told = json.dumps([name, desk.owner, actor.name, actor.account, login])
    token = hmac.new(_SECRET, told.encode(), hashlib.sha256).hexdigest()[:40]
    with _lock:
        _opened[token] = _Opened(desk, actor, login)
        _opened.move_to_end(token)
        while len(_opened) > MOST_OPEN:
            _opened.popitem(last=False)
    return f"{DESK[1:]}{token}"


def desk_route(base: str = "", login_of: Callable[[Headers], str] = lambda _: "") -> Route:
    """Return the route. base: the path below which the app is served."""

    async def post(request: Request) -> Response:
        with _lock:
            opened = _opened.get(request.path_params["token"])
        if opened is None or login_of(request.headers) != opened.login:
            return _json({"unknown": True}, HTTPStatus.NOT_FOUND)
        if int(request.headers.get("content-length") or 0) > LONGEST_BODY:
            return _json({"problem": "The message is too large."}, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        try:
            raw = json.loads(await request.body())
        except ValueError:
            return _json({"problem": "The message is not JSON."}, HTTPStatus.BAD_REQUEST)
        return _json(*await run_in_threadpool(_answer, opened, raw))

    return Route(f"{base}{DESK}{{token}}", post, methods=["POST"])


def _json(answer: dict[str, Any], status: HTTPStatus) -> Response:
    # Not JSONResponse, which fails for half of a surrogate pair.
    return Response(json.dumps(answer), status, {"cache-control": "no-store"}, "application/json")


def _answer(opened: _Opened, raw: Any) -> tuple[dict[str, Any], HTTPStatus]:
    from cimemories.desk.protocol import Message
    from cimemories.review.index import DatasetGone
    from cimemories.store.engine import for_people

    try:
        with roles.acting(opened.actor):
            message = Message.of(raw, opened.desk.owner)
            return opened.desk.answer(message).as_json(), HTTPStatus.OK
    except DatasetGone:  # unlike what else may fail this does not pass, and no answer can be kept for later
        return {"gone": "This dataset was deleted since you opened it. Reload the page to see those that are left."}, (
            HTTPStatus.GONE
        )
    except Exception as error:  # a full disk is no StoreError
        text = for_people(error)
        if text is None:
            raise
        return {"problem": text}, HTTPStatus.SERVICE_UNAVAILABLE
