"""Roles, and the actor on whose behalf code runs.

Where people log in, each has a role, which includes what the roles before it may do. Without a login, and on the
command line, all people may do everything. The record checks the role at every write (store/engine.py): by the account
that `actor` names, and by the role that the record has of it in that transaction, so that a role that was taken away
counts at once. What is done outside the record (requests to servers of models, programs) asks `refused`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from functools import cache


class Role(StrEnum):
    """The roles, from least to most permitted."""

    NONE = "none"
    VIEWER = "viewer"
    ANNOTATOR = "annotator"
    CURATOR = "curator"
    OPERATOR = "operator"
    ADMIN = "admin"

    def covers(self, least: Role) -> bool:
        """Return True if this role is at least `least`."""
        order = list(Role)
        return order.index(self) >= order.index(least)


# What each role adds to the one before it.
MAY = {
    Role.NONE: "have no access",
    Role.VIEWER: "look at everything and export it",
    Role.ANNOTATOR: "decide, audit and comment",
    Role.CURATOR: "change datasets, labels and the guideline, assign slices and adjudicate",
    Role.OPERATOR: "start and stop runs and servers, set costs, and tag runs",
    Role.ADMIN: "give people their roles, and read the log",
}


@dataclass(frozen=True)
class Actor:
    """The user on whose behalf code runs. account: of the login in the record; '' in a session without one, None where
    there is no login, and everything is allowed. role: as this session saw it last."""

    name: str
    account: str | None = None
    role: Role = Role.ADMIN


@cache
def user_name() -> str:
    """Return the name of the system's user."""
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container whose user has no entry
        return "unknown"


def _system_user() -> Actor:
    return Actor(user_name())


_ask: Callable[[], Actor] = _system_user


def ask_by(ask: Callable[[], Actor]) -> None:
    """Set the function that returns this process's actor: the app asks the session, an upload's process is told."""
    global _ask
    _ask = ask


_acting: ContextVar[Actor | None] = ContextVar("actor", default=None)


@contextmanager
def acting(who: Actor) -> Iterator[None]:
    """Run a block as this actor, as a thread does for the person who started it."""
    before = _acting.set(who)
    try:
        yield
    finally:
        _acting.reset(before)


def actor() -> Actor:
    """Return the actor of this thread."""
    return _acting.get() or _ask()


def refusal(role: Role, least: Role, admins: Sequence[str] = ()) -> str:
    """Explain why this role may not do what takes `least`, and who can change that."""
    current = "you have no access yet" if role is Role.NONE else f"you are {'an' if role[0] in 'aeiou' else 'a'} {role}"
    ask = f"Ask {' or '.join(admins[:3])}." if admins else "Ask an admin."
    return f"this takes the role {least}, and {current}. {ask}"


def refused(least: Role) -> str | None:
    """Explain why the actor may not do this, by the role that their session saw last, or return None if they may."""
    who = actor()
    allowed = who.account is None or who.role.covers(least)
    return None if allowed else refusal(who.role, least)
