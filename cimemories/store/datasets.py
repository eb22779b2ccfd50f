"""Datasets and their profiles, attributes and contexts."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import sqlalchemy as sa

from cimemories.model import GENERAL, Attribute, Context, Profile, is_bio
from cimemories.store import work
from cimemories.store.engine import StoreError, content_hash, new_id, now, plain_name
from cimemories.store.rows import (
    count,
    exists,
    from_row,
    insert,
    insert_new,
    insert_one,
    insert_returning,
    rows_in_chunks,
    rows_of,
)
from cimemories.store.tables import (
    attribute,
    context,
    dataset,
    dataset_version,
    edit,
    freeze,
    generation,
    labelling,
    memory,
    profile,
    profile_context,
    recall,
    run,
    sweep,
)

# ---- memories
#
# What an assistant holds, or was shown, in one context: attributes of a profile in the order of the prompt. Responses
# name it by its hash, so that the memory of thousands of them is written once.


def memory_hash(profile_id: int, attribute_ids: Sequence[int]) -> str:
    """Return the name of these attributes of a profile in this order. Ids are of one workspace, and so is the hash."""
    return content_hash([int(profile_id), [int(a) for a in attribute_ids]])


def keep_memories(connection: sa.Connection, profile_id: int, attribute_ids: Sequence[int]) -> str:
    """Write a memory of this profile if it is new; return its hash. An empty one is a memory too. That the attributes
    are the profile's is not checked."""
    digest = memory_hash(profile_id, attribute_ids)
    ids = [int(a) for a in attribute_ids]
    insert_new(connection, memory, [{"hash": digest, "profile": profile_id, "attributes": ids}])
    return digest


def memories_of(connection: sa.Connection, hashes: Collection[str]) -> dict[str, tuple[int, ...]]:
    """Return the attribute ids of each memory, in the order of the prompt. A hash that is unknown is left out."""
    rows = rows_in_chunks(connection, sa.select(memory.c.hash, memory.c.attributes), memory.c.hash, hashes)
    return {row["hash"]: tuple(row["attributes"]) for row in rows}


@dataclass(frozen=True)
class RecalledLine:
    """A line that a memory system put into the prompt, the ids of the attributes that it carries, and its score. A line
    without attributes is ungrounded: what of the memory it repeats is unknown."""

    text: str
    attributes: tuple[int, ...] = ()
    score: float | None = None


@dataclass(frozen=True)
class RecallRecord:
    """The lines that a memory system recalled of a profile for one context, in the order of the prompt. seconds: what
    the recall itself took; cost: as the system tells it."""

    profile: int
    system: str
    lines: tuple[RecalledLine, ...]
    seconds: float | None = None
    cost: Mapping[str, float] | None = None

    @property
    def attributes(self) -> tuple[int, ...]:
        """Return the ids of the attributes that were recalled, in the order of the prompt, each once."""
        return tuple(dict.fromkeys(a for line in self.lines for a in line.attributes))

    @property
    def ungrounded(self) -> int:
        return sum(not line.attributes for line in self.lines)

    @property
    def hash(self) -> str:
        """Return its name. Time and cost are not in it: they differ each time."""
        lines = [[line.text, list(line.attributes), line.score] for line in self.lines]
        return content_hash([self.profile, self.system, lines])


def keep_recall(connection: sa.Connection, item: RecallRecord) -> str:
    """Write what was recalled if it is new; return its hash."""
    digest = item.hash
    values = {"profile": item.profile, "system": item.system, "lines": [asdict(line) for line in item.lines]}
    values |= {"seconds": item.seconds, "cost": None if item.cost is None else dict(item.cost)}
    insert_new(connection, recall, [{"hash": digest, "ungrounded": item.ungrounded, **values}])
    return digest


def recalls_of(connection: sa.Connection, hashes: Collection[str]) -> dict[str, RecallRecord]:
    """Return what was recalled, by hash. A hash that is unknown is left out."""

    def lines(row: sa.RowMapping) -> tuple[RecalledLine, ...]:
        return tuple(RecalledLine(each["text"], tuple(each["attributes"]), each["score"]) for each in row["lines"])

    rows = rows_in_chunks(connection, sa.select(recall), recall.c.hash, hashes)
    return {row["hash"]: from_row(RecallRecord, row, lines=lines(row), cost=row["cost"] or None) for row in rows}


# ---- profile lists
#
# Profiles in lists: counts and search without reading any profile whole, however many there are.


@dataclass(frozen=True)
class Summary:
    """One profile in a list; `events` in order of first mention, `general` left out."""

    id: int
    ordinal: int
    name: str
    age: int
    events: tuple[str, ...]
    attributes: int


@dataclass(frozen=True)
class Hit:
    """An attribute that matches a search."""

    profile: int
    attribute: int
    name: str
    statement: str
    domain: str


def profile_summaries(connection: sa.Connection, dataset_id: int) -> list[Summary]:
    """Return every profile of a dataset in its order, with what a list says of it."""
    events: dict[int, list[str]] = {}
    counts = Counter[int]()
    for profile_id, event, number in connection.execute(
        sa.select(attribute.c.profile, attribute.c.event, sa.func.count())
        .join(profile, attribute.c.profile == profile.c.id)
        .where(profile.c.dataset == dataset_id)
        .group_by(attribute.c.profile, attribute.c.event)
        # Of each event its first attribute: groups come in the order in which a profile first mentions them.
        .order_by(attribute.c.profile, sa.func.min(attribute.c.ordinal))
    ):
        counts[profile_id] += number
        # Grouped by the database as the file spelled them: two spellings are one event.
        if event != GENERAL and event not in events.setdefault(profile_id, []):
            events[profile_id].append(event)
    rows = connection.execute(
        sa.select(profile.c.id, profile.c.ordinal, profile.c.name, profile.c.age)
        .where(profile.c.dataset == dataset_id)
        .order_by(profile.c.ordinal)
    )
    return [Summary(r.id, r.ordinal, r.name, r.age, tuple(events.get(r.id, ())), counts[r.id]) for r in rows]


def domains_of(connection: sa.Connection, dataset_id: int) -> dict[str, int]:
    """Return how many attributes each domain of a dataset has, over all profiles; domains without any are left out."""
    rows = connection.execute(
        sa.select(attribute.c.domain, sa.func.count())
        .join(profile, attribute.c.profile == profile.c.id)
        .where(profile.c.dataset == dataset_id)
        .group_by(attribute.c.domain)
        .order_by(attribute.c.domain)
    )
    return {row.domain: int(row[1]) for row in rows}


def search_profiles(
    connection: sa.Connection,
    dataset_id: int,
    text: str,
    *,
    domains: Collection[str] = (),
    profiles: Sequence[int] | None = None,
    limit: int = 200,
) -> tuple[list[Hit], int]:
    """Return the first `limit` attributes in whose statement, key or owner's name every word of `text` occurs, whatever
    its case, and how many there are. In `domains` and of these profiles (ids), if given. The engines fold the case of
    ASCII letters alone, so words with others are looked at here."""
    words = text.casefold().split()
    query = (
        sa.select(attribute.c.profile, attribute.c.id.label("attribute"), profile.c.name)
        .add_columns(attribute.c.statement, attribute.c.domain, attribute.c.key)
        .join(profile, attribute.c.profile == profile.c.id)
        .where(profile.c.dataset == dataset_id)
    )
    if domains:
        query = query.where(attribute.c.domain.in_(domains))
    if profiles is not None:
        query = query.where(attribute.c.profile.in_(profiles))
    # What the database can decide narrows the rows: each run of ASCII.
    columns = (attribute.c.statement, attribute.c.key, profile.c.name)
    for piece in (piece for word in words for piece in re.findall(r"[\x21-\x7e]+", word)):
        query = query.where(sa.or_(*(column.icontains(piece, autoescape=True) for column in columns)))
    ordered = query.order_by(profile.c.ordinal, attribute.c.ordinal)
    if all(word.isascii() for word in words):
        rows = connection.execute(ordered.limit(limit)).all()
        total = len(rows)
        if total == limit:
            # Counted only where the limit may have cut something off.
            total = count(connection, query.subquery())
    else:
        rows = [
            row
            for row in connection.execute(ordered)
            if all(word in f"{row.statement}\n{row.key}\n{row.name}".casefold() for word in words)
        ]
        total = len(rows)
    return [Hit(r.profile, r.attribute, r.name, r.statement, r.domain) for r in rows[:limit]], total


# ---- datasets


@dataclass(frozen=True)
class DatasetRow:
    """One dataset in a list. `simulated_profiles`: the simulator wrote its profiles or those of the version it was made
    from. `simulated`: that, or a labelling of it was voted by the simulator. `parent`: the dataset that it is the next
    version of."""

    id: int
    name: str
    origin: str
    source_name: str | None
    source_hash: str
    created: str
    profiles: int
    attributes: int
    contexts: int
    labellings: int
    runs: int
    simulated: bool
    simulated_profiles: bool
    revision: int
    version: int
    parent: int | None
    frozen: str | None

    @property
    def note(self) -> str:
        """Return what to know beside its name: 'version 2, frozen as ab12cd34'; empty for a first, open one."""
        parts = [f"version {self.version}"] if self.version > 1 else []
        return ", ".join([*parts, f"frozen as {self.frozen[:8]}"] if self.frozen else parts)


@dataclass(frozen=True)
class ProfileRecord:
    """A profile with the record's ids, which stand in the same order as profile.attributes and profile.contexts."""

    id: int
    dataset: int
    ordinal: int
    profile: Profile
    attribute_ids: tuple[int, ...]
    context_ids: tuple[int, ...]


@dataclass(frozen=True)
class Size:
    """The size of one profile."""

    name: str
    attributes: int
    contexts: int


@dataclass(frozen=True)
class ContextRow:
    id: int
    ordinal: int
    context: Context


def add(
    connection: sa.Connection,
    name: str,
    profiles: Sequence[Profile],
    *,
    origin: str,
    source_name: str | None,
    source_hash: str,
) -> int:
    """Write a dataset with all its profiles; return its id. Raises StoreError if the name is taken."""
    if not plain_name(name, "dataset").strip():
        raise StoreError("the dataset needs a name (on the command line: --dataset).")
    if exists(connection, dataset.c.name == name):
        raise StoreError(f"a dataset named '{name}' exists already. Give this one another name with --dataset.")
    # Asked above for the common case and here again: two processes may add the same name at the same time.
    values = {"name": name, "origin": origin, "source_name": source_name, "source_hash": source_hash, "created": now()}
    written, ids = insert_new(connection, dataset, [values], ["id"])
    if not written:
        raise StoreError(f"a dataset named '{name}' was added by another process just now. Choose another name.")
    dataset_id = int(ids[0][0])
    # First, and once each: profiles share contexts, and name them by the ids that come back.
    contexts: dict[tuple[str, str], Context] = {}
    for each in (c for p in profiles for c in p.contexts):
        contexts.setdefault((each.task, each.recipient), each)
    rows = [{"dataset": dataset_id, "ordinal": at, **vars(each)} for at, each in enumerate(contexts.values())]
    inserted = insert_returning(connection, context, rows, "id")
    context_ids = {pair: row.id for pair, row in zip(contexts, inserted, strict=True)}
    people = [
        {"dataset": dataset_id, "ordinal": at, "name": p.name, "sex": p.sex, "address": p.address, "age": p.age}
        for at, p in enumerate(profiles)
    ]
    owners = [row.id for row in insert_returning(connection, profile, people, "id")]
    attributes = (
        {
            "profile": owner,
            "ordinal": position,
            "key": a.key,
            "value": json.dumps(a.value, ensure_ascii=False),
            "domain": a.domain,
            "event": a.spelled_event,
            "statement": a.statement,
            "bio": is_bio(a.key, a.domain),
        }
        for owner, item in zip(owners, profiles, strict=True)
        for position, a in enumerate(item.attributes)
    )
    insert(connection, attribute, attributes)
    tested = (
        {"profile": owner, "context": context_ids[c.task, c.recipient], "ordinal": position}
        for owner, item in zip(owners, profiles, strict=True)
        for position, c in enumerate(item.contexts)
    )
    insert(connection, profile_context, tested)
    return dataset_id


def revise(connection: sa.Connection, dataset_id: int) -> None:
    """Move the revision of a dataset by one, so that nothing computed from its labels before is shown as current."""
    update = sa.update(dataset).where(dataset.c.id == dataset_id)
    connection.execute(update.values(revision=dataset.c.revision + 1))


def require_not_frozen(connection: sa.Connection, dataset_id: int, message: str) -> None:
    """Raise StoreError with this message if the dataset is frozen."""
    if exists(connection, freeze.c.dataset == dataset_id):
        raise StoreError(message)


def _count(table: sa.Table, column: sa.Column[int], *only: sa.ColumnElement[bool]) -> sa.ScalarSelect[int]:
    return sa.select(sa.func.count()).select_from(table).where(column == dataset.c.id, *only).scalar_subquery()


def all_rows(connection: sa.Connection) -> list[DatasetRow]:
    """Return every dataset with its counts, oldest first."""
    # Subqueries and no joins: two of these tables joined to a dataset would multiply each other's rows.
    attributes = (
        sa.select(sa.func.count())
        .select_from(attribute.join(profile, attribute.c.profile == profile.c.id))
        .where(profile.c.dataset == dataset.c.id)
        .scalar_subquery()
    )
    voted = sa.exists().where(labelling.c.dataset == dataset.c.id, labelling.c.simulated.is_(sa.true()))
    written = sa.exists().where(generation.c.dataset == dataset.c.id, generation.c.simulated.is_(sa.true()))
    rows = connection.execute(
        sa.select(
            *(dataset.c[n] for n in ("id", "name", "origin", "source_name", "source_hash", "created", "revision")),
            _count(profile, profile.c.dataset).label("profiles"),
            attributes.label("attributes"),
            _count(context, context.c.dataset).label("contexts"),
            _count(labelling, labelling.c.dataset).label("labellings"),
            _count(run, run.c.dataset, run.c.explains.is_(None)).label("runs"),
            voted.label("voted"),
            written.label("written"),
            sa.func.coalesce(dataset_version.c.version, 1).label("version"),
            dataset_version.c.parent,
            freeze.c.hash.label("frozen"),
        )
        .join(dataset_version, dataset_version.c.dataset == dataset.c.id, isouter=True)
        .join(freeze, freeze.c.dataset == dataset.c.id, isouter=True)
        .order_by(dataset.c.id)
    ).mappings()
    datasets: list[DatasetRow] = []
    by_simulator: set[int] = set()
    for row in rows:  # a version has a higher id than what it was made from
        if row["written"] or row["parent"] in by_simulator:
            by_simulator.add(row["id"])
        simulated = row["id"] in by_simulator
        datasets.append(
            from_row(DatasetRow, row, simulated=bool(row["voted"]) or simulated, simulated_profiles=simulated)
        )
    return datasets


def by_name(connection: sa.Connection, name: str) -> DatasetRow:
    """Return the dataset of that name. Raises StoreError that lists what there is."""
    rows = all_rows(connection)
    if row := next((row for row in rows if row.name == name), None):
        return row
    there = ", ".join(f"'{row.name}'" for row in rows) or "none yet"
    raise StoreError(f"there is no dataset named '{name}'. Datasets here: {there}.")


def name_and_revision(connection: sa.Connection, dataset_id: int) -> tuple[str, int]:
    """Return the name and revision of a dataset, without its counts, which take long. Raises StoreError for one that is
    not there."""
    row = connection.execute(sa.select(dataset.c.name, dataset.c.revision).where(dataset.c.id == dataset_id)).first()
    if row is None:
        raise StoreError("this dataset was deleted. `cimemories datasets` lists those that are left.")
    return str(row.name), int(row.revision)


def created(connection: sa.Connection, dataset_id: int) -> str:
    """Return when a dataset was made, or '' for one that is not there. SQLite gives the id of a deleted dataset out
    again, and revisions start from 0: only this tells the two apart."""
    return str(connection.scalar(sa.select(dataset.c.created).where(dataset.c.id == dataset_id)) or "")


def with_source(connection: sa.Connection, source_hash: str) -> DatasetRow | None:
    """Return the dataset that was imported from these very bytes, if any; not one that has been edited since, nor a
    version of it: those hold something else."""
    edited = set(connection.scalars(sa.select(edit.c.dataset).distinct()))
    return next(
        (r for r in all_rows(connection) if r.source_hash == source_hash and r.version == 1 and r.id not in edited),
        None,
    )


def contexts(connection: sa.Connection, dataset_id: int) -> list[ContextRow]:
    """Return the contexts of a dataset in their order, whether or not any profile is tested in them."""
    rows = rows_of(connection, sa.select(context).where(context.c.dataset == dataset_id).order_by(context.c.ordinal))
    return [ContextRow(row["id"], row["ordinal"], from_row(Context, row)) for row in rows]


def profile_ids(connection: sa.Connection, dataset_id: int, limit: int | None = None) -> list[int]:
    """Return the ids of a dataset's profiles in their order, the first `limit` if given."""
    query = sa.select(profile.c.id).where(profile.c.dataset == dataset_id).order_by(profile.c.ordinal)
    return list(connection.scalars(query.limit(limit)))


def longest_profile(connection: sa.Connection, dataset_id: int, limit: int | None = None) -> list[int]:
    """Return the id of the profile whose statements are the longest together, among the first `limit`; empty without
    one."""
    among = sa.select(profile.c.id).where(profile.c.dataset == dataset_id).order_by(profile.c.ordinal).limit(limit)
    length = sa.func.sum(sa.func.length(attribute.c.statement))
    query = sa.select(attribute.c.profile).where(attribute.c.profile.in_(sa.select(among.subquery().c.id)))
    return list(connection.scalars(query.group_by(attribute.c.profile).order_by(length.desc()).limit(1)))


def tested_pairs(
    connection: sa.Connection, profile_ids: Sequence[int], context_ids: Sequence[int]
) -> list[tuple[int, int]]:
    """Return the (profile, context) pairs, of these, in which a profile is tested; by profile, contexts in order."""
    rows = connection.execute(
        sa.select(profile_context.c.profile, profile_context.c.context)
        .where(profile_context.c.profile.in_(profile_ids), profile_context.c.context.in_(context_ids))
        .order_by(profile_context.c.profile, profile_context.c.ordinal)
    )
    return [(int(row.profile), int(row.context)) for row in rows]


def profile_record(connection: sa.Connection, profile_id: int) -> ProfileRecord:
    """Return one profile with its attributes and contexts. Raises StoreError if there is none of that id."""
    row = connection.execute(sa.select(profile).where(profile.c.id == profile_id)).mappings().first()
    if row is None:
        raise StoreError(f"there is no profile {profile_id} in this workspace. Choose one from its dataset's list.")
    # `event` is read in its one spelling (tables.EventName); coerced to text it is as the file had it.
    spelling = sa.type_coerce(attribute.c.event, sa.Text).label("spelling")
    query = sa.select(attribute, spelling).where(attribute.c.profile == profile_id).order_by(attribute.c.ordinal)
    attributes = connection.execute(query).all()
    contexts = connection.execute(
        sa.select(context.c.id, context.c.task, context.c.recipient, context.c.sphere)
        .join(profile_context, profile_context.c.context == context.c.id)
        .where(profile_context.c.profile == profile_id)
        .order_by(profile_context.c.ordinal)
    ).all()
    own = (Attribute(a.key, json.loads(a.value), a.domain, a.event, a.statement, a.spelling) for a in attributes)
    tested = (Context(c.task, c.recipient, c.sphere) for c in contexts)
    return from_row(
        ProfileRecord,
        row,
        profile=from_row(Profile, row, attributes=tuple(own), contexts=tuple(tested)),
        attribute_ids=tuple(a.id for a in attributes),
        context_ids=tuple(c.id for c in contexts),
    )


def profile_records(connection: sa.Connection, dataset_id: int) -> list[ProfileRecord]:
    """Return all profiles of a dataset in their order, all in memory at once."""
    return [profile_record(connection, i) for i in profile_ids(connection, dataset_id)]


def attribute_ids(
    connection: sa.Connection, dataset_id: int, profiles: Sequence[int] | None = None
) -> dict[int, list[int]]:
    """Return the ids of the attributes of each profile, both in their order. profiles: of these alone; None: of all."""
    conditions = [profile.c.dataset == dataset_id, *([] if profiles is None else [profile.c.id.in_(profiles)])]
    ids: dict[int, list[int]] = {i: [] for i in (profile_ids(connection, dataset_id) if profiles is None else profiles)}
    rows = connection.execute(
        sa.select(attribute.c.profile, attribute.c.id)
        .join(profile, attribute.c.profile == profile.c.id)
        .where(*conditions)
        .order_by(profile.c.ordinal, attribute.c.ordinal)
    )
    for row in rows:
        ids[row.profile].append(row.id)
    return ids


def sizes(connection: sa.Connection, dataset_id: int) -> dict[int, Size]:
    """Return the size of each profile by its ordinal, in their order."""

    def counted(table: sa.Table) -> sa.ScalarSelect[int]:
        # Each counted by itself: attributes joined with contexts would be counted once for each context.
        query = sa.select(sa.func.count()).select_from(table).where(table.c.profile == profile.c.id)
        return query.scalar_subquery()

    rows = connection.execute(
        sa.select(profile.c.ordinal, profile.c.name, counted(attribute), counted(profile_context))
        .where(profile.c.dataset == dataset_id)
        .order_by(profile.c.ordinal)
    )
    return {ordinal: Size(name, attributes, contexts_) for ordinal, name, attributes, contexts_ in rows}


def profile_names(connection: sa.Connection, dataset_id: int) -> dict[int, str]:
    """Return the names of a dataset's profiles, by id and in their order."""
    query = sa.select(profile.c.id, profile.c.name).where(profile.c.dataset == dataset_id).order_by(profile.c.ordinal)
    return {row.id: row.name for row in connection.execute(query)}


def biographies(connection: sa.Connection, profiles: Iterable[int]) -> dict[int, tuple[str, str, str, int]]:
    """Return name, sex, address and age of each of these profiles, by id."""
    columns = [profile.c[name] for name in ("name", "sex", "address", "age")]
    rows = rows_in_chunks(connection, sa.select(profile.c.id, *columns), profile.c.id, profiles)
    return {row["id"]: (row["name"], row["sex"], row["address"], row["age"]) for row in rows}


def attribute_rows(connection: sa.Connection, dataset_id: int) -> sa.CursorResult[tuple]:
    """Return every attribute of a dataset, by profile, in their order: columns profile, attribute, key, value (JSON
    text), domain, event, statement."""
    columns = (attribute.c[name] for name in ("key", "value", "domain", "event", "statement"))
    return connection.execute(
        sa.select(attribute.c.profile, attribute.c.id.label("attribute"), *columns)
        .join(profile, attribute.c.profile == profile.c.id)
        .where(profile.c.dataset == dataset_id)
        .order_by(profile.c.ordinal, attribute.c.ordinal)
    )


def wording_of(
    connection: sa.Connection, profiles: Sequence[int], attributes: Sequence[int]
) -> tuple[dict[int, str], dict[int, str]]:
    """Return the names of profiles and memory statements of attributes, by id."""
    names = sa.select(profile.c.id, profile.c.name)
    statements = sa.select(attribute.c.id, attribute.c.statement)
    return (
        {row["id"]: row["name"] for row in rows_in_chunks(connection, names, profile.c.id, profiles)},
        {row["id"]: row["statement"] for row in rows_in_chunks(connection, statements, attribute.c.id, attributes)},
    )


def dataset_hash(connection: sa.Connection, dataset_id: int) -> str:
    """Return a hash over all profiles, attributes and contexts, by which a run names the data it ran on. Ids and
    spheres are no part of it, so that the same content in two workspaces has the same hash."""
    queries = (
        sa.select(profile.c.ordinal, profile.c.name, profile.c.sex, profile.c.address, profile.c.age)
        .where(profile.c.dataset == dataset_id)
        .order_by(profile.c.ordinal),
        sa.select(profile.c.ordinal, *(attribute.c[n] for n in ("key", "value", "domain", "event", "statement")))
        .join(profile, attribute.c.profile == profile.c.id)
        .where(profile.c.dataset == dataset_id)
        .order_by(profile.c.ordinal, attribute.c.ordinal),
        sa.select(profile.c.ordinal, context.c.task, context.c.recipient)
        .join(profile_context, profile_context.c.profile == profile.c.id)
        .join(context, profile_context.c.context == context.c.id)
        .where(profile.c.dataset == dataset_id)
        .order_by(profile.c.ordinal, profile_context.c.ordinal),
    )
    return content_hash([[list(row) for row in connection.execute(query)] for query in queries])


def work_of(connection: sa.Connection, dataset_id: int) -> list[sa.RowMapping]:
    """Return the rows of all labellings, runs and sweeps of a dataset, as `work.select` gives them."""
    queries = (work.select(table).where(table.c.dataset == dataset_id) for table in (labelling, run, sweep))
    return [row for query in queries for row in rows_of(connection, query)]


def delete(connection: sa.Connection, dataset_id: int) -> None:
    """Remove a dataset with its profiles, labellings, decisions and runs. Recorded calls stay: they cost money.

    Versions that were made from it stay, with the history of its edits, and go on as versions of its own parent; that
    the simulator wrote the profiles stays recorded. Raises StoreError while a living process works on any of it.
    """
    work.require_idle(work_of(connection, dataset_id))
    # Foreign keys take everything else along; what its versions need to know of it is copied to them first.
    # Before the row goes: afterwards nothing says any more who its children were.
    children = connection.scalars(sa.select(dataset_version.c.dataset).where(dataset_version.c.parent == dataset_id))
    for child in children.all():
        for table in (edit, generation):
            for row in rows_of(connection, sa.select(table).where(table.c.dataset == dataset_id)):
                values = {name: value for name, value in row.items() if name != "id"} | {"dataset": child}
                # Its id is text that we give out; those of edits are numbered by the database.
                insert_one(connection, table, **values, **({"id": new_id("generation")} if table is generation else {}))
    parent = sa.select(dataset_version.c.parent).where(dataset_version.c.dataset == dataset_id)
    # Its own parent, if there is one, takes its children over: the family stays in one piece.
    heir = connection.scalar(parent)
    connection.execute(sa.update(dataset_version).where(dataset_version.c.parent == dataset_id).values(parent=heir))
    connection.execute(sa.delete(dataset).where(dataset.c.id == dataset_id))


# ---- same profiles
#
# Which dataset holds these very profiles already, so that what comes later of them is stored beside what is there.


def profile_hash(item: Profile) -> str:
    """Return a hash over biography, attributes and contexts in their order, without spheres."""
    return content_hash(
        [
            [item.name, item.sex, item.address, item.age],
            [[a.key, json.dumps(a.value), a.domain, a.event, a.statement] for a in item.attributes],
            [[c.task, c.recipient] for c in item.contexts],
        ]
    )


def dataset_with(
    connection: sa.Connection, profiles: Sequence[Profile], name: str | None = None
) -> tuple[DatasetRow, list[ProfileRecord]] | None:
    """Return the first of `datasets_with`, or None."""
    return next(datasets_with(connection, profiles, name), None)


def datasets_with(
    connection: sa.Connection, profiles: Sequence[Profile], name: str | None = None
) -> Iterator[tuple[DatasetRow, list[ProfileRecord]]]:
    """Yield the datasets that hold all of these profiles, each with their records in the order given; they may hold
    more. First the one of this name, then those with the fewest profiles, then the oldest."""
    hashes = [profile_hash(item) for item in profiles]
    # If two of them are the same, their records could not be told apart.
    if len(set(hashes)) < len(hashes):
        return
    # Names first, and only then profiles, whose reading takes long.
    names = {item.name for item in profiles}
    rows = [row for row in all_rows(connection) if row.profiles >= len(hashes)]
    for row in sorted(rows, key=lambda row: (row.name != name, row.profiles, row.id)):
        ids = connection.execute(
            sa.select(profile.c.id, profile.c.name).where(profile.c.dataset == row.id).order_by(profile.c.ordinal)
        ).all()
        if not names <= {r.name for r in ids}:
            continue
        records = [profile_record(connection, r.id) for r in ids if r.name in names]
        by_hash = {profile_hash(record.profile): record for record in records}
        if all(digest in by_hash for digest in hashes):
            yield row, [by_hash[digest] for digest in hashes]
