"""Who is writing, and what a role may do.

Where people log in, each has a role, which includes what the roles before it may do. Without a login, and on the
command line, everybody may do everything. The record checks the role at every write (store/engine.py): by the account
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
    """From the one that may least to the one that may most."""

    NONE = "none"
    VIEWER = "viewer"
    ANNOTATOR = "annotator"
    CURATOR = "curator"
    OPERATOR = "operator"
    ADMIN = "admin"

    def covers(self, least: Role) -> bool:
        """Whether this role may do what asks for at least that one."""
        order = list(Role)
        return order.index(self) >= order.index(least)


# What each role adds to the one before it.
MAY = {
    Role.NONE: "have no access",
    Role.VIEWER: "look at everything and export it",
    Role.ANNOTATOR: "decide, audit and comment",
    Role.CURATOR: "change datasets, labels and the guideline, assign slices and adjudicate",
    Role.OPERATOR: "start and stop runs and servers, and set costs",
    Role.ADMIN: "give people their roles, and read the log",
}


@dataclass(frozen=True)
class Actor:
    """Who is at it. account: by which the record knows who logged in; '' for a session in which nobody has, None where
    there is no login, and everything is allowed. role: as this session saw it last."""

    name: str
    account: str | None = None
    role: Role = Role.ADMIN


@cache
def user_name() -> str:
    """The name of the system's user."""
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container whose user has no entry
        return "unknown"


def _system_user() -> Actor:
    return Actor(user_name())


_ask: Callable[[], Actor] = _system_user


def ask_by(ask: Callable[[], Actor]) -> None:
    """Let this function say who is at it, in this process, from now on: the app asks the session, an upload's process
    is told."""
    global _ask
    _ask = ask


_acting: ContextVar[Actor | None] = ContextVar("actor", default=None)


@contextmanager
def acting(who: Actor) -> Iterator[None]:
    """A block in which this one is at it: what a thread does for the person who began it."""
    before = _acting.set(who)
    try:
        yield
    finally:
        _acting.reset(before)


def actor() -> Actor:
    """Who is at it, in this thread."""
    return _acting.get() or _ask()


def refusal(role: Role, least: Role, admins: Sequence[str] = ()) -> str:
    """Why somebody of this role may not do what asks for at least `least`, and who can change that."""
    own = "you have no access yet" if role is Role.NONE else f"you are {'an' if role[0] in 'aeiou' else 'a'} {role}"
    ask = f"Ask {' or '.join(admins[:3])}." if admins else "Ask an admin."
    return f"this takes the role {least}, and {own}. {ask}"


def refused(least: Role) -> str | None:
    """Why who is at it may not do this, by the role that their session saw last; None where they may."""
    who = actor()
    allowed = who.account is None or who.role.covers(least)
    return None if allowed else refusal(who.role, least)
