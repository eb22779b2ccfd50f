"""What people say of pairs beside decisions: comments, guidelines, marks, saved views; and who holds which pair.

All but the claims is append-only: a comment is settled, and a mark taken back, by one more row.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from itertools import islice
from pathlib import Path

import sqlalchemy as sa

from cimemories.installation import app_root
from cimemories.store.decisions import moment
from cimemories.store.engine import (
    StoreError,
    canonical_json,
    content_hash,
    insert_ignore,
    later_than,
    now,
    plain_name,
    storable,
    text_hash,
)
from cimemories.store.tables import (
    audit,
    claim,
    comment,
    decision,
    edit,
    guideline,
    mark,
    plan_change,
    review_plan,
    rule,
    saved_view,
    slice,
)
from cimemories.store.work import database_clock

# ---- people


def people(connection: sa.Connection) -> list[str]:
    """Everybody who has decided, audited, commented or edited here, in any dataset; who worked last comes first."""
    tables = (decision, mark, comment, audit, edit, rule, slice)
    of_each = [
        sa.select(table.c.annotator, sa.func.max(table.c.created).label("last")).group_by(table.c.annotator)
        for table in tables
    ]
    every = sa.union_all(*of_each).subquery()
    last = sa.func.max(every.c.last)
    return list(
        connection.scalars(
            sa.select(every.c.annotator).group_by(every.c.annotator).order_by(last.desc(), every.c.annotator)
        )
    )


# ---- comments
#
# Comments on pairs (attribute, context): append-only. A comment is settled by one more row, which says why.


@dataclass(frozen=True)
class Comment:
    """One comment on a pair. `resolved_by`: who settled it, None while it is open; `resolution`: their word why. Where
    it was settled more than once, in two workspaces that were merged, the earliest word counts."""

    id: int
    uid: str
    attribute: int
    context: int
    annotator: str
    text: str
    resolved_by: str | None
    resolution: str
    created: str

    @property
    def open(self) -> bool:
        return self.resolved_by is None


def add_comment(
    connection: sa.Connection,
    dataset_id: int,
    annotator: str,
    attribute: int,
    context: int,
    text: str,
    uid: str | None = None,
    created: str | None = None,
) -> bool:
    """Append a comment. False, and nothing is written, where the dataset has that uid already. Raises StoreError for a
    text without a word."""
    if not text.strip():
        raise StoreError("a comment cannot be empty. Write a few words about the pair.")
    values = {"attribute": attribute, "context": context, "text": storable(text), "resolves": None}
    return _append(connection, dataset_id, annotator, uid, created, values)


def resolve_comment(
    connection: sa.Connection,
    dataset_id: int,
    annotator: str,
    comment_id: int,
    text: str = "",
    uid: str | None = None,
    created: str | None = None,
) -> bool:
    """Append that a comment is settled, and why. False, and nothing is written, for a uid that is known. One that is
    settled already can be settled again (two people at once do that); the earliest word counts. Raises StoreError where
    the dataset has no such comment."""
    pair = connection.execute(
        sa.select(comment.c.attribute, comment.c.context).where(
            comment.c.id == comment_id, comment.c.dataset == dataset_id, comment.c.resolves.is_(None)
        )
    ).first()
    if pair is None:
        raise StoreError(f"there is no comment {comment_id} in this dataset. It may have been deleted with its pair.")
    values = {"attribute": pair.attribute, "context": pair.context, "text": storable(text), "resolves": comment_id}
    return _append(connection, dataset_id, annotator, uid, created, values)


def _append(
    connection: sa.Connection,
    dataset_id: int,
    annotator: str,
    uid: str | None,
    created: str | None,
    values: dict[str, object],
) -> bool:
    who = plain_name(annotator, "annotator")
    row = {"dataset": dataset_id, "annotator": who, "uid": uid or uuid.uuid4().hex, "created": created or now()}
    statement = insert_ignore(connection, comment).values(**row, **values).returning(comment.c.id)
    return connection.execute(statement).first() is not None


def comments_of_dataset(connection: sa.Connection, dataset_id: int) -> list[Comment]:
    """All comments of a dataset, oldest first; those of one moment by uid, so that two workspaces agree."""
    return _comments(connection, comment.c.dataset == dataset_id)


def comments_of_pair(connection: sa.Connection, attribute: int, context: int) -> list[Comment]:
    """All comments on one pair, oldest first."""
    return _comments(connection, sa.and_(comment.c.attribute == attribute, comment.c.context == context))


def _comments(connection: sa.Connection, where: sa.ColumnElement[bool]) -> list[Comment]:
    # Ordered here and not in the database, whose order of texts may be another one.
    unordered = connection.execute(sa.select(comment).where(where)).mappings()
    rows = sorted(unordered, key=lambda row: (row["created"], row["uid"]))
    comments: list[sa.RowMapping] = []
    settled: dict[int, tuple[str, str]] = {}
    for row in rows:
        if row["resolves"] is None:
            comments.append(row)
        else:
            # setdefault: rows come oldest first, and the earliest word counts.
            settled.setdefault(row["resolves"], (str(row["annotator"]), str(row["text"])))
    plain = ("id", "uid", "attribute", "context", "annotator", "text", "created")
    listed = []
    for row in comments:
        who, why = settled.get(row["id"], (None, ""))
        listed.append(Comment(**{name: row[name] for name in plain}, resolved_by=who, resolution=why))
    return listed


# ---- guidelines
#
# What annotators go by, in versions: append-only. The first is the one that ships, seeds/guideline.md.
#
# A decision names the hash of the version that stood when it was made, so every version that anybody worked by is kept.


FILE = "guideline.md"
LONGEST_GUIDELINE = 100_000  # characters
LONGEST_REASON = 500
SHIPPED_GUIDELINE = "CIMemories Studio"  # who wrote the first version
# As seeds.SEEDS, which stands beside the store and cannot be asked from here.
_HOME = app_root() / "seeds"


@dataclass(frozen=True)
class Guideline:
    """One version, numbered from 1. `hash` is of the text; where an earlier text is taken up again, of the text and the
    version, so that each version has its own. `created` is empty for one that ships and that nobody has kept yet.
    `reason`: why it was written; empty for one that ships, and for those from before versions had one."""

    hash: str
    text: str
    annotator: str
    created: str
    version: int
    reason: str = ""


def current_guideline(connection: sa.Connection, *, alone: bool = False) -> Guideline:
    """The newest version; the one that ships where none was saved. alone: whoever asks so too waits until this
    transaction ends, so that the next version is written after this one. Raises StoreError where it cannot be read."""
    if alone:
        _lock(connection, _GUIDELINE)
    return guideline_versions(connection)[-1]


def guideline_versions(connection: sa.Connection) -> list[Guideline]:
    """Every version, oldest first; at least the one that ships."""
    rows = connection.execute(sa.select(guideline).order_by(guideline.c.id)).mappings()
    names = ("hash", "text", "annotator", "created", "reason")
    versions = [Guideline(**{n: row[n] for n in names}, version=number) for number, row in enumerate(rows, start=1)]
    return versions or [_shipped()]


def save_guideline(connection: sa.Connection, text: str, annotator: str, reason: str) -> Guideline:
    """Append a version, with the reason for it, and return it; nothing is written where the text is the current one's.
    Raises StoreError for a text without a word or of more than 100,000 characters, and without a reason."""
    text = _clean(text)
    if not text.strip():
        raise StoreError("the guideline cannot be empty: annotators need one. Write some text and save again.")
    if len(text) > LONGEST_GUIDELINE:
        raise StoreError(f"the guideline has {len(text):,} characters, more than {LONGEST_GUIDELINE:,}. Shorten it.")
    # The shipped one is written down first: decisions may have been made by it.
    before = keep_guideline(connection)
    if before.text == text:
        return before
    why = _reason(reason)
    versions = guideline_versions(connection)
    number = len(versions) + 1
    digest = text_hash(text)
    # Hashes are unique, and a decision must say by which of two versions of one text it was made.
    if any(item.hash == digest for item in versions):
        digest = content_hash([text, number])
    _write(connection, Guideline(digest, text, annotator, now(), number, why))
    return current_guideline(connection)


def keep_guideline(connection: sa.Connection) -> Guideline:
    """The current version, written to the record where it is the one that ships: a later release may ship another, and
    decisions name this one."""
    current = current_guideline(connection)
    if not current.created:
        _write(connection, current)
        current = current_guideline(connection)
    return current


def _write(connection: sa.Connection, item: Guideline) -> None:
    who = plain_name(item.annotator, "annotator")
    values = {"hash": item.hash, "text": item.text, "annotator": who, "created": item.created or now()}
    connection.execute(insert_ignore(connection, guideline).values(**values, reason=item.reason))


def _reason(text: str) -> str:
    """Why something was changed that everybody goes by. Raises StoreError where it has no word."""
    if not (reason := storable(" ".join(text.split()))):
        raise StoreError("a change that everybody goes by needs a reason. Write a few words and save again.")
    return reason[:LONGEST_REASON]


def _shipped() -> Guideline:
    folder = Path(os.environ.get("CIMEMORIES_SEEDS") or _HOME)
    path = folder / FILE if (folder / FILE).is_file() else _HOME / FILE
    text = _read(path)
    return Guideline(text_hash(text), text, SHIPPED_GUIDELINE, "", 1)


@cache
def _read(path: Path) -> str:
    try:
        return _clean(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{path}: the guideline cannot be read ({error}). Restore the file.") from error


def _clean(text: str) -> str:
    """One text for what browsers and files write differently."""
    return storable(text.replace("\r\n", "\n").replace("\r", "\n")).strip() + "\n"


# ---- marks
#
# What is said of a pair that is no label: skipped for now, flagged as a bad item, or cleared. Append-only.


class MarkKind(StrEnum):
    """The newest of an annotator on a pair holds; `clear` takes back what was said before."""

    SKIP = "skip"
    FLAG = "flag"
    CLEAR = "clear"


@dataclass(frozen=True)
class Mark:
    """One event. uid: given by whoever made it, so that it is recorded once however often it is sent."""

    attribute: int
    context: int
    kind: MarkKind
    uid: str = field(default_factory=lambda: uuid.uuid4().hex)
    reason: str = ""
    seconds: float | None = None
    created: str | None = None


def add_marks(connection: sa.Connection, dataset_id: int, annotator: str, marks: Sequence[Mark]) -> None:
    """Append marks of one annotator; those whose uid the dataset has already are left out. One without a time of its
    own is later than all of theirs on its pair that are in the record."""
    own = mark.c.dataset == dataset_id, mark.c.annotator == annotator
    attributes = {item.attribute for item in marks if item.created is None}
    # Times are ISO 8601 texts in UTC: the greatest text is the latest.
    query = sa.select(mark.c.attribute, mark.c.context, sa.func.max(mark.c.created).label("created"))
    query = query.where(*own, mark.c.attribute.in_(attributes)).group_by(mark.c.attribute, mark.c.context)
    times = {(row.attribute, row.context): row.created for row in connection.execute(query)} if attributes else {}
    rows = [
        {
            "dataset": dataset_id,
            "annotator": plain_name(annotator, "annotator"),
            **vars(item),
            "kind": str(item.kind),
            "created": item.created or later_than(times.get((item.attribute, item.context), ""), now()),
        }
        for item in marks
    ]
    if rows:
        connection.execute(insert_ignore(connection, mark), rows)


def take_back_mark(connection: sa.Connection, dataset_id: int, annotator: str, uid: str, new_uid: str) -> bool:
    """Clear a mark of this annotator that is still their newest on its pair. False, and nothing is written, where there
    is none or they have said something else since."""
    pair = connection.execute(
        sa.select(mark.c.attribute, mark.c.context, mark.c.id).where(
            mark.c.dataset == dataset_id, mark.c.uid == uid, mark.c.annotator == annotator
        )
    ).first()
    if pair is None:
        return False
    newest = _newest(connection, mark.c.dataset == dataset_id, mark.c.annotator == annotator)
    if newest[pair.attribute, pair.context, annotator].id != pair.id:
        return False
    add_marks(connection, dataset_id, annotator, [Mark(pair.attribute, pair.context, MarkKind.CLEAR, new_uid)])
    return True


def standing_marks(
    connection: sa.Connection, dataset_id: int, *kinds: MarkKind, annotator: str | None = None
) -> set[tuple[int, int]]:
    """The (attribute, context) pairs on which somebody's newest mark is of these kinds; one annotator's where given."""
    of_whom = () if annotator is None else (mark.c.annotator == annotator,)
    newest = _newest(connection, mark.c.dataset == dataset_id, *of_whom)
    return {(a, c) for (a, c, _), row in newest.items() if row.kind in kinds}


def counts(connection: sa.Connection, dataset_id: int) -> tuple[int, int]:
    """How many comments there are on a dataset's pairs, and how many marks that hold."""
    own = comment.c.dataset == dataset_id, comment.c.resolves.is_(None)
    comments = connection.execute(sa.select(sa.func.count()).select_from(comment).where(*own)).scalar_one()
    newest = _newest(connection, mark.c.dataset == dataset_id)
    return comments, sum(row.kind != MarkKind.CLEAR for row in newest.values())


def _newest(connection: sa.Connection, *where: sa.ColumnElement[bool]) -> dict[tuple[int, int, str], sa.Row]:
    """Of each pair and annotator the mark that holds: the newest by time and uid, in whatever order they arrived."""
    rows = connection.execute(sa.select(mark).where(*where).order_by(mark.c.created, mark.c.uid))
    # Oldest first, so the newest of a key is the one that stays in the mapping.
    return {(int(row.attribute), int(row.context), str(row.annotator)): row for row in rows}


# ---- saved views
#
# Views that people have given a name: a page and its parameters. A name saved again means the new view.


LONGEST_VIEW_NAME = 80


@dataclass(frozen=True)
class SavedView:
    """A name for an address of the app."""

    name: str
    page: str
    query: dict[str, str]
    annotator: str
    created: str


def save_view(connection: sa.Connection, name: str, page: str, query: Mapping[str, str], annotator: str) -> None:
    """Keep a view under a name. Raises StoreError for an empty or overlong one."""
    clean = plain_name(" ".join(name.split()), "view")
    if not 0 < len(clean) <= LONGEST_VIEW_NAME:
        raise StoreError(f"a view needs a name of at most {LONGEST_VIEW_NAME} characters.")
    values = {"page": page, "query": canonical_json(dict(query)), "created": now()}
    values["annotator"] = plain_name(annotator, "annotator")
    # In this order, since two people may take one name at once: the second waits at the insert, and then goes on.
    connection.execute(insert_ignore(connection, saved_view).values(name=clean, **values))
    connection.execute(sa.update(saved_view).where(saved_view.c.name == clean).values(**values))


def drop(connection: sa.Connection, name: str) -> None:
    """Forget a view; nothing for a name that is not there."""
    connection.execute(sa.delete(saved_view).where(saved_view.c.name == name))


def views_of_page(connection: sa.Connection, page: str) -> list[SavedView]:
    """The views of a page by name."""
    query = sa.select(saved_view).where(saved_view.c.page == page).order_by(saved_view.c.name)
    return [
        SavedView(row["name"], row["page"], json.loads(row["query"]), row["annotator"], row["created"])
        for row in connection.execute(query).mappings()
    ]


# ---- claims
#
# Who is given which pairs: claims that lapse by themselves, and the plan of how many people see a pair.
#
# A claim keeps a pair for one annotator while it is on their screen or next in line. Handing out is one transaction
# that one process at a time may be in, so that two people are never given what only one of them is to have.


LEASE_SECONDS = 300.0  # of a claim that nobody renews; then others are given the pair
_GUIDELINE = 0  # in the place of a dataset's id, which begin at 1: the guideline is of all
LOCK = 0x7265  # tells this advisory lock of PostgreSQL from any other that may come
HELPINGS = (200, 800)  # pairs asked for one by one; after these the decisions of the dataset are read as a whole
MOST_PEOPLE = 100
Pair = tuple[int, int]


@dataclass(frozen=True)
class Plan:
    """How many people are to see a pair: a `share` of the pairs (0 to 1), drawn by `seed`, is given to `people`
    people, every other pair to one."""

    share: float = 0.0
    people: int = 2
    seed: int = 0

    def people_of(self, pair: Pair) -> int:
        """How many people this pair (attribute id, context id) is given to."""
        if self.share <= 0:
            return 1
        # Drawn by a hash of the pair and not by a generator: each pair is decided by itself, whatever else is listed.
        digest = hashlib.blake2b(f"{self.seed} {pair[0]} {pair[1]}".encode(), digest_size=8).digest()
        return self.people if int.from_bytes(digest, "big") < self.share * 2**64 else 1


def overlap_plan(connection: sa.Connection, dataset_id: int) -> Plan:
    """The plan of a dataset; each pair for one person where none is set."""
    row = connection.execute(sa.select(review_plan).where(review_plan.c.dataset == dataset_id)).first()
    return Plan() if row is None else Plan(row.share, row.people, row.seed)


@dataclass(frozen=True)
class PlanChange:
    """A plan that was set: by whom, why and when. `reason` is empty where it was set before there were reasons."""

    plan: Plan
    annotator: str
    reason: str
    created: str


def plan_changes(connection: sa.Connection, dataset_id: int) -> list[PlanChange]:
    """Every plan that was set for a dataset, oldest first. Of those from before changes were kept only the last is
    known: the one that held."""
    query = sa.select(plan_change).where(plan_change.c.dataset == dataset_id).order_by(plan_change.c.id)
    rows = connection.execute(query).mappings().all()
    if not rows:
        held = sa.select(review_plan, sa.literal("").label("reason")).where(review_plan.c.dataset == dataset_id)
        rows = connection.execute(held).mappings().all()
    return [
        PlanChange(Plan(row["share"], row["people"], row["seed"]), row["annotator"], row["reason"], row["created"])
        for row in rows
    ]


def set_overlap_plan(connection: sa.Connection, dataset_id: int, plan: Plan, annotator: str, reason: str) -> None:
    """Let this plan hold from now on; claims and decisions stay, and so does the plan before in `plan_changes`. Raises
    StoreError for a plan that is none, and without a reason."""
    if not 0 <= plan.share <= 1:
        raise StoreError(f"the share of pairs for several people must be between 0 and 1, not {plan.share:g}.")
    if not 1 <= plan.people <= MOST_PEOPLE:
        raise StoreError(f"a pair can be given to 1 to {MOST_PEOPLE} people, not {plan.people}.")
    why = _reason(reason)
    _lock(connection, dataset_id)
    known = connection.execute(sa.select(plan_change.c.id).where(plan_change.c.dataset == dataset_id).limit(1)).first()
    # What held before changes were kept is kept with the first of them.
    earlier = [] if known else plan_changes(connection, dataset_id)
    change = PlanChange(plan, plain_name(annotator, "annotator"), why, now())
    for item in (*earlier, change):
        attribution = {"annotator": item.annotator, "reason": item.reason, "created": item.created}
        connection.execute(sa.insert(plan_change).values(dataset=dataset_id, **vars(item.plan), **attribution))
    connection.execute(sa.delete(review_plan).where(review_plan.c.dataset == dataset_id))
    holds = {**vars(plan), "annotator": change.annotator, "created": change.created}
    connection.execute(sa.insert(review_plan).values(dataset=dataset_id, **holds))


def hand_out_pairs(
    connection: sa.Connection,
    dataset_id: int,
    annotator: str,
    session: str,
    wanted: Iterable[Pair],
    count: int,
    lease_s: float = LEASE_SECONDS,
    *,
    everybody: bool = False,
    plan: Plan | None = None,
) -> list[Pair]:
    """The first `count` of the wanted pairs (attribute id, context id) that this annotator can be given, claimed for
    them and this session for `lease_s` seconds; belongs into one `store.write()` of its own.

    Left out are pairs that the annotator has decided, and those that as many other people as the plan asks for have
    decided or hold a live claim on (by `plan`, else the dataset's), unless they are for `everybody`. What another
    session of the same person holds is given only where nothing else is left. All claims of this session on pairs that
    are still undecided are renewed; `release` gives them up, as is right when the filter changes. Of `wanted` no more
    is read than it takes. Times are those of the database's clock; a claim that would last longer than any lease was
    made before that clock was set back, and counts as lapsed.
    """
    _lock(connection, dataset_id)
    clock = float(connection.execute(sa.select(database_clock())).scalar_one())
    # Removed here and not by a timer: claims matter only to whoever is handed pairs.
    lapsed = sa.or_(claim.c.until <= clock, claim.c.until > clock + max(lease_s, LEASE_SECONDS))
    connection.execute(sa.delete(claim).where(claim.c.dataset == dataset_id, lapsed))
    claims = _Claims(connection, dataset_id, annotator, session)
    plan = plan or overlap_plan(connection, dataset_id)
    given: list[Pair] = []
    elsewhere: list[Pair] = []
    for pair in claims.undecided(wanted):
        if len(given) >= count:
            break
        if not everybody and claims.others(pair) >= plan.people_of(pair):
            continue
        (elsewhere if pair in claims.elsewhere and pair not in claims.own else given).append(pair)
    given = given or elsewhere[:count]
    # What the session holds already is renewed with what is new, or it would lapse under somebody who works on it.
    kept = list(dict.fromkeys([*given, *claims.undecided(claims.own)]))
    own = claim.c.dataset == dataset_id, claim.c.annotator == annotator, claim.c.session == session
    connection.execute(sa.delete(claim).where(*own))
    if kept:
        who = plain_name(annotator, "annotator")
        holder = {"annotator": who, "session": session, "dataset": dataset_id, "until": clock + lease_s}
        rows = [{"attribute": attribute, "context": context, **holder} for attribute, context in kept]
        connection.execute(sa.insert(claim), rows)
    return given


def release_pairs(connection: sa.Connection, session: str) -> None:
    """Give up all that a session holds: it was closed, or asks for something else now."""
    connection.execute(sa.delete(claim).where(claim.c.session == session))


def _lock(connection: sa.Connection, dataset_id: int) -> None:
    """Wait until nobody else hands out pairs of this dataset, or holds the guideline. SQLite has taken its write lock
    at BEGIN."""
    if connection.dialect.name == "postgresql":
        # Both numbers of this lock are of 32 bits. Two datasets on one number only wait for each other.
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK, dataset_id % 2**31)))


class _Claims:
    """Who has decided or holds which pairs, read as far as it is asked for."""

    def __init__(self, connection: sa.Connection, dataset_id: int, annotator: str, session: str) -> None:
        self.connection, self.dataset_id, self.annotator = connection, dataset_id, annotator
        self.own: dict[Pair, None] = {}
        self.elsewhere: set[Pair] = set()
        self.claimed: dict[Pair, set[str]] = {}
        self.decided: dict[Pair, set[str]] = {}
        for row in connection.execute(
            sa.select(claim.c.attribute, claim.c.context, claim.c.annotator, claim.c.session)
            .where(claim.c.dataset == dataset_id)
            .order_by(claim.c.attribute, claim.c.context)
        ):
            pair = int(row.attribute), int(row.context)
            if row.annotator != annotator:
                self.claimed.setdefault(pair, set()).add(row.annotator)
            elif row.session == session:
                self.own[pair] = None
            else:
                self.elsewhere.add(pair)

    def others(self, pair: Pair) -> int:
        """How many other people have decided this pair or hold it."""
        return len((self.decided.get(pair, set()) | self.claimed.get(pair, set())) - {self.annotator})

    def undecided(self, wanted: Iterable[Pair]) -> Iterator[Pair]:
        """Those of the pairs that the annotator has not decided; who has decided them is known from then on."""
        remaining = iter(wanted)
        for helping in HELPINGS:
            pairs = list(islice(remaining, helping))
            self._look_up(pairs)
            yield from (pair for pair in pairs if self.annotator not in self.decided.get(pair, ()))
        if (pair := next(remaining, None)) is None:
            return
        # Whoever comes this far has passed a thousand pairs: one query for all, and not many more for a few each.
        self._look_up(None)
        if self.annotator not in self.decided.get(pair, ()):
            yield pair
        yield from (pair for pair in remaining if self.annotator not in self.decided.get(pair, ()))

    def _look_up(self, pairs: Sequence[Pair] | None) -> None:
        """Read whose decisions stand on these pairs, None: on all."""
        if pairs is not None and not pairs:
            return
        names = ("created", "uid", "id", "attribute", "context", "annotator", "label")
        query = sa.select(*(decision.c[name] for name in names))
        if pairs is None:
            query = query.where(decision.c.dataset == self.dataset_id)
        else:
            # No word of the dataset here: SQLite would go through all its decisions instead of to these pairs.
            columns = sa.column("attribute", sa.BigInteger), sa.column("context", sa.BigInteger)
            requested = sa.values(*columns, name="asked").data(pairs).cte()
            same = requested.c.attribute == decision.c.attribute, requested.c.context == decision.c.context
            query = query.join(requested, sa.and_(*same))
        for row in sorted(self.connection.execute(query), key=moment):
            people = self.decided.setdefault((row.attribute, row.context), set())
            if row.label is None:
                # Rows come by time, so the last word of an annotator is the last one here.
                people.discard(row.annotator)
            else:
                people.add(row.annotator)
