"""Who may come in where people log in, and what each may do.

A person is known by the account of their login: its issuer and subject, which no two people share or can choose. The
name, under which decisions are recorded, is taken from the login the first time and stays; if another person has it
already, the mail address tells the two apart. An address that is given a role beforehand is matched at the first login,
and only where the provider says that it has verified it: elsewhere a user could enter any address.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from cimemories.access import roles
from cimemories.access.roles import Actor, Role
from cimemories.store.engine import Store, StoreError, now, one_line, plain_name
from cimemories.store.rows import insert_new
from cimemories.store.tables import assignee, person
from cimemories.store.team import log

LONGEST_NAME = 80
SEEN_EVERY = timedelta(hours=1)  # how exactly the last visit is known: a write for each page would be too many


@dataclass(frozen=True)
class Person:
    """A person with a role. account: None if they have not logged in yet; then `name` is the address that they were
    named by."""

    id: int
    account: str | None
    name: str
    email: str | None
    role: Role
    created: str
    seen: str | None


@dataclass(frozen=True)
class Login:
    """The account of a person, as a provider describes it. email: empty where the provider has not verified it. groups:
    what the configured claim holds, in texts."""

    account: str
    name: str
    email: str = ""
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Policy:
    """The rules by which roles come about. default: of a first login. by_group: where it is not empty, the provider
    decides: the highest role of the account's groups, and the default for those in none of them."""

    default: Role = Role.ANNOTATOR
    by_group: Mapping[str, Role] = field(default_factory=dict)

    def role_of(self, groups: Iterable[str]) -> Role | None:
        """Return the role by the provider; None where it does not decide."""
        if not self.by_group:
            return None
        given = [self.by_group[group] for group in groups if group in self.by_group]
        return max(given, key=list(Role).index, default=self.default)


def policy_of(settings: Mapping[str, Any]) -> Policy:
    """Return the policy of the section [people] of the app's secrets. Raises StoreError for a role that is none."""
    by_group = settings.get("roles") or {}
    return Policy(
        _role(settings.get("default_role") or Role.ANNOTATOR, "default_role"),
        {str(group): _role(role, f"roles.{group}") for group, role in dict(by_group).items()}
        if settings.get("role_claim")
        else {},
    )


def _role(value: object, where: str) -> Role:
    if value not in set(Role):
        raise StoreError(
            f"secrets.toml, [people] {where}: '{value}' is no role. Write one of {', '.join(Role)}, and start the app "
            "again."
        )
    return Role(str(value))


def claimed(claims: Mapping[str, Any], path: str) -> tuple[str, ...]:
    """Return what a claim holds, as texts: of 'realm_access.roles' the list `roles` inside `realm_access`. A claim of
    this very name goes first. Empty for a claim that is missing or holds something else."""
    value: Any = claims.get(path)
    if value is None:
        value = claims
        for part in path.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
    if isinstance(value, str):
        return (value,)
    # Streamlit hands out what a token holds in types of its own, which are sequences and no lists.
    return tuple(str(item) for item in value) if isinstance(value, Iterable) and not isinstance(value, Mapping) else ()


def login_of(claims: Mapping[str, Any], role_claim: str | None = None) -> Login:
    """Return the account of an ID token's claims."""
    email = str(claims.get("email") or "").strip()
    name = str(claims.get("name") or claims.get("preferred_username") or email or claims.get("sub") or "")
    # Without a subject, which a provider must give, the address or name is all that there is.
    account = f"{claims.get('iss') or ''} {claims.get('sub') or email or name}".strip()
    verified = email if claims.get("email_verified") is True else ""
    if name != verified:
        # Else a user who calls themselves by another's address would get that person's role.
        name = name.replace("@", " at ")
    return Login(account, name, verified, claimed(claims, role_claim) if role_claim else ())


def everybody(connection: sa.Connection) -> list[Person]:
    """Return all people by role, the highest first, then by name."""
    order = list(Role)
    members = (_person(row) for row in connection.execute(sa.select(person)).mappings())
    return sorted(members, key=lambda item: (-order.index(item.role), item.name))


def admins(store: Store) -> list[str]:
    """Return the names of the admins, to say whom to ask."""
    with store.read() as connection:
        return [item.name for item in everybody(connection) if item.role is Role.ADMIN]


def enter(store: Store, login: Login, policy: Policy) -> Person:
    """Return the person of a login, added to the record at their first. A read-only record adds no one: their role is
    that of the provider, else of the record, else the policy's default, at most a viewer's."""
    with store.read() as connection:
        row = _one(connection, person.c.account == login.account)
    given = policy.role_of(login.groups)
    fresh = datetime.now(UTC) - SEEN_EVERY
    if row is not None and given in (None, row.role) and row.seen and datetime.fromisoformat(row.seen) > fresh:
        return row
    if store.read_only:
        if row is not None and given is None:
            return row
        with store.read() as connection:
            expected = _expected(connection, login)
        role = given or (policy.default if expected is None else expected.role)
        new = row or Person(0, login.account, login.name, login.email or None, role, now(), None)
        return replace(new, role=min(role, Role.VIEWER, key=list(Role).index))
    with store.write(Role.NONE) as connection:
        if row is None:
            row = _first_login(connection, login, policy)
        if given is not None and given is not row.role:
            # By the provider: it is not this person who gave themselves the role.
            _change(connection, row, given, by="the login's provider")
        seen = now()
        connection.execute(sa.update(person).where(person.c.id == row.id).values(seen=seen))
        return replace(row, seen=seen, role=given or row.role)


def set_role(connection: sa.Connection, who: str, role: Role) -> Person:
    """Give a person a role: by name, or by mail address; an address without an account is expected from then on. Raises
    StoreError for an unknown name, and if no admin with an account would be left."""
    who = one_line(who)
    # Two admins who take each other's role at once would leave none: the second waits here for the first.
    connection.execute(
        sa.select(person.c.id).where(person.c.role == str(Role.ADMIN)).order_by(person.c.id).with_for_update()
    )
    member = find(connection, who)
    if member is None:
        if "@" not in who:
            raise StoreError(
                f"no one here is called '{who}'. Give the mail address of an account that has not logged in yet, or "
                "have them log in once. `cimemories team list` lists all people."
            )
        name = plain_name(who, "person")
        values = {"name": name, "email": who, "role": str(Role.NONE), "created": now()}
        # Another admin may give this address a role at the same moment.
        insert_new(connection, person, [values])
        member = find(connection, who)
        assert member is not None
    if member.role is Role.ADMIN and role is not Role.ADMIN and roles.actor().account is not None:
        others = [item for item in everybody(connection) if item.role is Role.ADMIN and item.id != member.id]
        # On the command line another admin can always be named; in the app no one could do so.
        if not any(item.account for item in others):
            raise StoreError(f"{member.name} is the only admin. Make another person admin first.")
    if member.role is not role:
        _change(connection, member, role)
    return replace(member, role=role)


def find(connection: sa.Connection, who: str) -> Person | None:
    """Return the person of this name, else the only one of this mail address. Raises StoreError where several have
    it."""
    same = sa.func.lower(person.c.email) == who.lower()
    if (by_name := _one(connection, person.c.name == who)) is not None:
        return by_name
    rows = connection.execute(sa.select(person).where(same)).mappings().all()
    if len(rows) > 1:
        names = ", ".join(str(row["name"]) for row in rows)
        raise StoreError(f"several people have the address '{who}' ({names}). Give the name of the one you mean.")
    return _person(rows[0]) if rows else None


def _first_login(connection: sa.Connection, login: Login, policy: Policy) -> Person:
    """Write the account down: into the row of who was expected under its address, else into a new one."""
    expected = _expected(connection, login)
    name = _free_name(connection, login, but=expected.id if expected else None)
    if expected is not None:
        row = person.c.id == expected.id, person.c.account.is_(None)
        connection.execute(sa.update(person).where(*row).values(account=login.account, name=name, email=login.email))
        # Slices were assigned to the address; to whom one is also assigned by this name, it stays once.
        both = assignee.alias()
        twice = sa.exists().where(both.c.slice == assignee.c.slice, both.c.name == name)
        theirs = assignee.c.name == expected.name
        if name != expected.name:
            connection.execute(sa.delete(assignee).where(theirs, twice))
            connection.execute(sa.update(assignee).where(theirs).values(name=name))
    else:
        values = {"account": login.account, "name": name, "email": login.email or None, "created": now()}
        # Two tabs of one person may come at once.
        if not insert_new(connection, person, [{**values, "role": policy.default}])[0]:
            name = ""
    member = _one(connection, person.c.account == login.account)
    if member is None:
        raise StoreError("your account could not be written down. Load the page again.")
    if name:
        with roles.acting(actor_of(member)):  # the session learns only from here who it is
            log.add(connection, "person.joined", name, role=str(member.role))
    return member


def _expected(connection: sa.Connection, login: Login) -> Person | None:
    """Return the person given a role under the verified address of this login before the first one; None where there is
    none."""
    same = person.c.account.is_(None), sa.func.lower(person.c.email) == login.email.lower()
    return _one(connection, *same) if login.email else None


def _free_name(connection: sa.Connection, login: Login, but: int | None) -> str:
    plain = one_line("".join(c for c in login.name if c.isprintable()))[:LONGEST_NAME] or "Unnamed"
    preferred = [plain, *([f"{plain} ({login.email})"] if login.email else [])]
    taken = {row.name for row in connection.execute(sa.select(person.c.id, person.c.name)) if row.id != but}
    names = (*preferred, *(f"{plain} ({number})" for number in range(2, len(taken) + 3)))
    return next(name for name in names if name not in taken)


def _change(connection: sa.Connection, member: Person, role: Role, by: str | None = None) -> None:
    connection.execute(sa.update(person).where(person.c.id == member.id).values(role=str(role)))
    log.add(connection, "role.changed", member.name, before=str(member.role), now=str(role), by=by)


def _one(connection: sa.Connection, *where: sa.ColumnElement[bool]) -> Person | None:
    row = connection.execute(sa.select(person).where(*where)).mappings().first()
    return None if row is None else _person(row)


def _person(row: sa.RowMapping) -> Person:
    return Person(**{**row, "role": Role(row["role"]) if row["role"] in set(Role) else Role.NONE})


def actor_of(member: Person) -> Actor:
    """Return this person as the actor of what is done."""
    return Actor(member.name, member.account, member.role)


def listed(store: Store) -> list[Person]:
    """Return all people, the highest roles first."""
    with store.read() as connection:
        return everybody(connection)


def give(store: Store, who: str, role: Role) -> Person:
    """Give a person a role, as `set_role` does; takes an admin."""
    with store.write(Role.ADMIN) as connection:
        return set_role(connection, who, role)
