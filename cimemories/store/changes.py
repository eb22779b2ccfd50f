"""Making a change in a dataset, in place. Whether that is allowed is decided above (curation.editing).

A change says what it believes to stand there. Where something else does by now, nothing is written and StoreError says
so: of two people who change the same thing at once, the second learns of the first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import sqlalchemy as sa

from cimemories.model import canonical_event, is_bio
from cimemories.store.edits import Edit, Side
from cimemories.store.engine import StoreError
from cimemories.store.tables import attribute, context, dataset, profile, profile_context

BIO = ("name", "sex", "address", "age")
CONTENT = ("key", "value", "domain", "event", "statement")
Places = dict[int, int]  # profile ordinal -> position of the context in that profile


def apply(connection: sa.Connection, dataset_id: int, item: Edit) -> Edit:
    """Make one change; returns it with the places where things stood and stand. Raises StoreError and writes nothing
    where it does not fit what is there."""
    done = {"attribute": _attribute, "context": _context, "bio": _bio}[item.kind](connection, dataset_id, item)
    connection.execute(sa.update(dataset).where(dataset.c.id == dataset_id).values(revision=dataset.c.revision + 1))
    return done


def _changed(what: str) -> StoreError:
    return StoreError(
        f"{what} has been changed by somebody else since you looked at it. Nothing was saved: look again, then decide."
    )


def _person(connection: sa.Connection, dataset_id: int, ordinal: int | None) -> sa.RowMapping:
    row = (
        connection.execute(sa.select(profile).where(profile.c.dataset == dataset_id, profile.c.ordinal == ordinal))
        .mappings()
        .first()
    )
    if row is None:
        raise StoreError(f"this dataset has no profile number {ordinal}. Choose one that is listed.")
    return row


def _bio(connection: sa.Connection, dataset_id: int, item: Edit) -> Edit:
    person = _person(connection, dataset_id, item.profile)
    if item.before is None or item.after is None:
        raise StoreError("a biography can be changed, not added or removed.")
    if any(person[name] != item.before[name] for name in BIO):
        raise _changed(f"the biography of '{person['name']}'")
    connection.execute(
        sa.update(profile).where(profile.c.id == person["id"]).values({name: item.after[name] for name in BIO})
    )
    return item


# --- attributes ---


def _attribute(connection: sa.Connection, dataset_id: int, item: Edit) -> Edit:
    person = _person(connection, dataset_id, item.profile)
    rows = connection.execute(sa.select(attribute).where(attribute.c.profile == person["id"])).mappings().all()
    by_key = {row["key"]: row for row in rows}
    wanted = None if item.after is None else _columns(item.after)
    there = None
    if item.before is not None:
        there = by_key.get(str(item.before["key"]))
        if there is None or any(there[name] != value for name, value in _columns(item.before).items()):
            raise _changed(f"the attribute '{item.before['key']}' of '{person['name']}'")
    if wanted is not None and wanted["key"] in by_key and by_key[wanted["key"]] is not there:
        raise StoreError(
            f"'{person['name']}' has an attribute '{wanted['key']}' already. Give this one another key, or change that."
        )
    if there is None:
        taken = {int(row["ordinal"]) for row in rows}
        ordinal = int(str((item.after or {}).get("ordinal", -1)))
        if ordinal < 0 or ordinal in taken:
            ordinal = max(taken, default=-1) + 1
        connection.execute(sa.insert(attribute).values(profile=person["id"], ordinal=ordinal, **(wanted or {})))
    else:
        ordinal = int(there["ordinal"])
        this = attribute.c.id == there["id"]
        if wanted is not None and wanted["event"] == there["event"]:
            del wanted["event"]  # the same event stays as its file spelled it
        connection.execute(
            sa.delete(attribute).where(this) if wanted is None else sa.update(attribute).where(this).values(wanted)
        )
    return _with(item, ordinal=ordinal)


def _columns(side: Side) -> dict[str, object]:
    """The columns of an attribute."""
    values: dict[str, object] = {name: side[name] for name in CONTENT}
    values["event"] = canonical_event(str(side["event"]))  # as it is read; the file's spelling is compared nowhere
    values["value"] = json.dumps(side["value"], ensure_ascii=False)
    values["bio"] = is_bio(str(side["key"]), str(side["domain"]))
    return values


def _with(item: Edit, **more: object) -> Edit:
    def side(value: Side | None) -> Side | None:
        return None if value is None else {**value, **more}

    return replace(item, before=side(item.before), after=side(item.after))


# --- contexts ---


def _context(connection: sa.Connection, dataset_id: int, item: Edit) -> Edit:
    people = _people(connection, dataset_id, item.profile)
    if item.before is None:
        return _add_context(connection, dataset_id, item, people)
    there = _find(connection, dataset_id, item.before)
    if there is None or there["sphere"] != item.before.get("sphere"):
        raise _changed(_said(item.before))
    using = _places(connection, int(there["id"]))
    places = {o: p for o, p in using.items() if o in _wanted(item.before, using if item.profile is None else people)}
    if not places or set(_wanted(item.before, places)) - set(places):
        raise _changed(_said(item.before))
    if item.after is None:
        _unlink(connection, int(there["id"]), places, people)
        return _with(item, ordinal=there["ordinal"], places=places)
    return _change_context(connection, dataset_id, item, there, using, places, people)


def _add_context(connection: sa.Connection, dataset_id: int, item: Edit, people: Mapping[int, int]) -> Edit:
    side = item.after or {}
    there = _find(connection, dataset_id, side)
    using = _places(connection, int(there["id"])) if there else {}
    wanted = _wanted(side, people)
    missing = [ordinal for ordinal in wanted if ordinal not in using]
    if not missing or (isinstance(side.get("places"), dict) and len(missing) < len(wanted)):
        raise StoreError(f"{_said(side)} is there already. Change its task or its recipient.")
    if there is None:
        context_id, ordinal = _insert(connection, dataset_id, side)
    else:
        context_id, ordinal = int(there["id"]), int(there["ordinal"])
        side = {**side, "sphere": there["sphere"]}
    taken = _positions(connection, dataset_id)
    given = side.get("places")
    places: Places = {}
    for person in missing:
        there_already = taken.get(person, set())
        position = int(given[person]) if isinstance(given, dict) else -1
        free = position >= 0 and position not in there_already
        places[person] = position if free else max(there_already, default=-1) + 1
    _link(connection, context_id, places, people)
    return _with(replace(item, after=side), ordinal=ordinal, places=places)


def _change_context(
    connection: sa.Connection,
    dataset_id: int,
    item: Edit,
    there: sa.RowMapping,
    using: Places,
    places: Places,
    people: Mapping[int, int],
) -> Edit:
    """Another wording for some or all of the profiles that have it; a wording that is known already is shared."""
    after = item.after or {}
    same_wording = (after["task"], after["recipient"]) == (there["task"], there["recipient"])
    values = {name: after.get(name) for name in ("task", "recipient", "sphere")}
    known = None if same_wording else _find(connection, dataset_id, after)
    if known is None and set(places) == set(using):
        connection.execute(sa.update(context).where(context.c.id == there["id"]).values(values))
        return _with(item, ordinal=there["ordinal"], places=places)
    if same_wording:
        raise StoreError("the sphere of a context is the same in all profiles. Change it for all of them.")
    if known is None:
        target, _ = _insert(connection, dataset_id, {**after, "ordinal": -1})
    else:
        target = int(known["id"])
        after = {**after, "sphere": known["sphere"]}
        if set(_places(connection, target)) & set(places):
            raise StoreError(f"{_said(after)} is there already. Change its task or its recipient.")
    _unlink(connection, int(there["id"]), places, people)
    _link(connection, target, places, people)
    return _with(replace(item, after=after), ordinal=there["ordinal"], places=places)


def _said(side: Side) -> str:
    return f"the context '{side['recipient']}: {side['task']}'"


def _people(connection: sa.Connection, dataset_id: int, ordinal: int | None) -> dict[int, int]:
    """Profile ids by ordinal: of all profiles, or of the one."""
    if ordinal is not None:
        return {ordinal: int(_person(connection, dataset_id, ordinal)["id"])}
    rows = connection.execute(sa.select(profile.c.ordinal, profile.c.id).where(profile.c.dataset == dataset_id))
    return {row.ordinal: row.id for row in rows}


def _wanted(side: Side, otherwise: Mapping[int, int]) -> list[int]:
    """The profiles that a side names, or else those that it is about."""
    places = side.get("places")
    return list(places) if isinstance(places, dict) else list(otherwise)


def _find(connection: sa.Connection, dataset_id: int, side: Side) -> sa.RowMapping | None:
    return (
        connection.execute(
            sa.select(context).where(
                context.c.dataset == dataset_id,
                context.c.task == side["task"],
                context.c.recipient == side["recipient"],
            )
        )
        .mappings()
        .first()
    )


def _places(connection: sa.Connection, context_id: int) -> Places:
    rows = connection.execute(
        sa.select(profile.c.ordinal, profile_context.c.ordinal)
        .join(profile, profile_context.c.profile == profile.c.id)
        .where(profile_context.c.context == context_id)
        .order_by(profile.c.ordinal)
    )
    return {int(row[0]): int(row[1]) for row in rows}


def _positions(connection: sa.Connection, dataset_id: int) -> dict[int, set[int]]:
    """The positions of contexts that are taken, by profile."""
    found: dict[int, set[int]] = {}
    for person, position in connection.execute(
        sa.select(profile.c.ordinal, profile_context.c.ordinal)
        .join(profile, profile_context.c.profile == profile.c.id)
        .where(profile.c.dataset == dataset_id)
    ):
        found.setdefault(person, set()).add(position)
    return found


def _insert(connection: sa.Connection, dataset_id: int, side: Side) -> tuple[int, int]:
    ordinal = int(str(side.get("ordinal", -1)))
    if ordinal < 0:
        last = connection.execute(sa.select(sa.func.max(context.c.ordinal)).where(context.c.dataset == dataset_id))
        highest = last.scalar()
        ordinal = 0 if highest is None else int(highest) + 1
    values = {name: side.get(name) for name in ("task", "recipient", "sphere")}
    new = connection.execute(
        sa.insert(context).values(dataset=dataset_id, ordinal=ordinal, **values).returning(context.c.id)
    )
    return int(new.scalar_one()), ordinal


def _link(connection: sa.Connection, context_id: int, places: Places, people: Mapping[int, int]) -> None:
    rows = [{"profile": people[o], "context": context_id, "ordinal": position} for o, position in places.items()]
    connection.execute(sa.insert(profile_context), rows)


def _unlink(connection: sa.Connection, context_id: int, places: Places, people: Mapping[int, int]) -> None:
    """Take a context from some profiles; one that nobody has any more goes."""
    own = [people[ordinal] for ordinal in places]
    connection.execute(
        sa.delete(profile_context).where(profile_context.c.context == context_id, profile_context.c.profile.in_(own))
    )
    if connection.execute(sa.select(profile_context).where(profile_context.c.context == context_id)).first() is None:
        connection.execute(sa.delete(context).where(context.c.id == context_id))
