"""Review beside decisions: comments, guidelines, marks, saved views, and which annotator holds which pair.

All but the claims is append-only: a comment is settled, and a mark taken back, by one more row.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from itertools import chain, islice
from pathlib import Path

import sqlalchemy as sa

from cimemories.installation import app_root
from cimemories.model import Label
from cimemories.store.decisions import Pair, moment
from cimemories.store.engine import StoreError, content_hash, later_than, now, plain_name, storable, text_hash
from cimemories.store.rows import count as count_rows
from cimemories.store.rows import exists, fetch, from_row, insert, insert_new, insert_one, rows_of
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
    """Return all who have decided, audited, commented or edited here, in any dataset, the last to work first."""
    tables = (decision, mark, comment, audit, edit, rule, slice)
    of_each = (
        sa.select(table.c.annotator, sa.func.max(table.c.created).label("last")).group_by(table.c.annotator)
        for table in tables
    )
    every = sa.union_all(*of_each).subquery()
    query = sa.select(every.c.annotator).group_by(every.c.annotator)
    return list(connection.scalars(query.order_by(sa.func.max(every.c.last).desc(), every.c.annotator)))


# ---- comments
#
# Comments on pairs (attribute, context): append-only. A comment is settled by one more row, which says why.


@dataclass(frozen=True)
class Comment:
    """One comment on a pair. `resolved_by`: who settled it, None while it is open; `resolution`: why. If it
    was settled more than once, in two workspaces that were merged, the earliest word counts."""

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
    """Append a comment. Return False, and write nothing, if the dataset has that uid already. Raises StoreError for a
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
    """Append that a comment is settled, and why. Return False, and write nothing, for a uid that is known. One that is
    settled already can be settled again (two people at once do that); the earliest word counts. Raises StoreError if
    the dataset has no such comment."""
    unresolved = comment.c.id == comment_id, comment.c.dataset == dataset_id, comment.c.resolves.is_(None)
    pair = connection.execute(sa.select(comment.c.attribute, comment.c.context).where(*unresolved)).first()
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
    return insert_new(connection, comment, [{**row, **values}])[0] == 1


def comments_of_dataset(connection: sa.Connection, dataset_id: int) -> list[Comment]:
    """Return all comments of a dataset, oldest first; those of one moment by uid, so that two workspaces agree."""
    return _comments(connection, comment.c.dataset == dataset_id)


def comments_of_pair(connection: sa.Connection, attribute: int, context: int) -> list[Comment]:
    """Return all comments on one pair, oldest first."""
    return _comments(connection, sa.and_(comment.c.attribute == attribute, comment.c.context == context))


def _comments(connection: sa.Connection, where: sa.ColumnElement[bool]) -> list[Comment]:
    # Ordered here and not in the database, whose order of texts may be another one.
    rows = sorted(rows_of(connection, sa.select(comment).where(where)), key=lambda row: (row["created"], row["uid"]))
    # Backwards, since the earliest word counts.
    settled = {row["resolves"]: (row["annotator"], row["text"]) for row in reversed(rows)}
    comments = []
    for row in rows:
        if row["resolves"] is None:
            who, why = settled.get(row["id"], (None, ""))
            comments.append(from_row(Comment, row, resolved_by=who, resolution=why))
    return comments


# ---- guidelines
#
# The text that annotators follow, in versions: append-only. The first is the one that ships, seeds/guideline.md. A
# decision names the hash of the version that stood when it was made, so every version stays.


FILE = "guideline.md"
LONGEST_GUIDELINE = 100_000  # characters
LONGEST_REASON = 500
SHIPPED_GUIDELINE = "CIMemories Studio"  # the author of the first version
# As seeds.SEEDS, which the store may not import.
_HOME = app_root() / "seeds"


@dataclass(frozen=True)
class Guideline:
    """One version, numbered from 1. `hash` is of the text; if an earlier text is taken up again, of the text and the
    version, so that each version has its own. `created` is empty for the one that ships until it is in the record.
    `reason`: why it was written; empty for one that ships, and for those from before versions had one."""

    hash: str
    text: str
    annotator: str
    created: str
    version: int
    reason: str = ""


def current_guideline(connection: sa.Connection, *, exclusive: bool = False) -> Guideline:
    """Return the newest version, or the one that ships if none was saved. exclusive: callers who ask so too wait until
    this transaction ends, so that the next version is written after this one. Raises StoreError if it cannot be
    read."""
    if exclusive:
        _lock(connection, _GUIDELINE)
    return guideline_versions(connection)[-1]


def guideline_versions(connection: sa.Connection) -> list[Guideline]:
    """Return every version, oldest first; at least the one that ships."""
    rows = rows_of(connection, sa.select(guideline).order_by(guideline.c.id))
    if rows:
        return [from_row(Guideline, row, version=number) for number, row in enumerate(rows, start=1)]
    folder = Path(os.environ.get("CIMEMORIES_SEEDS") or _HOME)
    text = _read(folder / FILE if (folder / FILE).is_file() else _HOME / FILE)
    return [Guideline(text_hash(text), text, SHIPPED_GUIDELINE, "", 1)]


def save_guideline(connection: sa.Connection, text: str, annotator: str, reason: str) -> Guideline:
    """Append a version, with the reason for it, and return it; nothing is written if the text is the current one's.
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
    """Return the current version, written to the record if it is the one that ships: a later release may ship another,
    and decisions name this one."""
    current = current_guideline(connection)
    if not current.created:
        _write(connection, current)
        current = current_guideline(connection)
    return current


def _write(connection: sa.Connection, item: Guideline) -> None:
    who = plain_name(item.annotator, "annotator")
    values = {"hash": item.hash, "text": item.text, "annotator": who, "created": item.created or now()}
    insert_new(connection, guideline, [{**values, "reason": item.reason}])


def _reason(text: str) -> str:
    """Return the reason for a change that concerns all annotators. Raises StoreError if it has no word."""
    if not (reason := storable(" ".join(text.split()))):
        raise StoreError("a change that everybody goes by needs a reason. Write a few words and save again.")
    return reason[:LONGEST_REASON]


@cache
def _read(path: Path) -> str:
    try:
        return _clean(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{path}: the guideline cannot be read ({error}). Restore the file.") from error


def _clean(text: str) -> str:
    """Return one text for what browsers and files write differently."""
    return storable(text.replace("\r\n", "\n").replace("\r", "\n")).strip() + "\n"


# ---- marks
#
# Marks on a pair that are no label: skipped for now, flagged as a bad item, or cleared. Append-only.


class MarkKind(StrEnum):
    """The newest of an annotator on a pair holds; `clear` takes back what was said before. `trained`: answered in
    training, and no decision; the reason is the label given."""

    SKIP = "skip"
    FLAG = "flag"
    TRAINED = "trained"
    CLEAR = "clear"


@dataclass(frozen=True)
class Mark:
    """One event. uid: given by the browser or file that made it, so that it is recorded once."""

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
    by_annotator = mark.c.dataset == dataset_id, mark.c.annotator == annotator
    attributes = {item.attribute for item in marks if item.created is None}
    # Times are ISO 8601 texts in UTC: the greatest text is the latest.
    query = sa.select(mark.c.attribute, mark.c.context, sa.func.max(mark.c.created).label("created"))
    query = query.where(*by_annotator, mark.c.attribute.in_(attributes)).group_by(mark.c.attribute, mark.c.context)
    times = {(row.attribute, row.context): row.created for row in connection.execute(query)} if attributes else {}
    rows = [
        {
            "dataset": dataset_id,
            "annotator": plain_name(annotator, "annotator"),
            **vars(item),
            "created": item.created or later_than(times.get((item.attribute, item.context), ""), now()),
        }
        for item in marks
    ]
    insert_new(connection, mark, rows)


def take_back_mark(connection: sa.Connection, dataset_id: int, annotator: str, uid: str, new_uid: str) -> bool:
    """Clear a mark of this annotator that is still their newest on its pair. Return False, and write nothing, if there
    is none or they have said something else since."""
    newest = _newest(connection, mark.c.dataset == dataset_id, mark.c.annotator == annotator)
    row = next((row for row in newest.values() if row.uid == uid), None)
    if row is not None:
        add_marks(connection, dataset_id, annotator, [Mark(row.attribute, row.context, MarkKind.CLEAR, new_uid)])
    return row is not None


def standing_marks(
    connection: sa.Connection, dataset_id: int, *kinds: MarkKind, annotator: str | None = None
) -> set[Pair]:
    """Return the pairs on which some annotator's newest mark is of these kinds; one annotator's if given."""
    of_whom = () if annotator is None else (mark.c.annotator == annotator,)
    newest = _newest(connection, mark.c.dataset == dataset_id, *of_whom)
    return {(a, c) for (a, c, _), row in newest.items() if row.kind in kinds}


def trained(connection: sa.Connection, dataset_id: int) -> dict[tuple[int, int, str], Label]:
    """Return the answers in training that hold: (attribute id, context id, annotator) -> label."""
    kinds = mark.c.kind.in_((MarkKind.TRAINED, MarkKind.CLEAR))  # skipped or flagged later, it was answered still
    newest = _newest(connection, mark.c.dataset == dataset_id, kinds)
    labels = {str(label): label for label in Label}  # an imported mark may have any reason
    held = {place: row.reason for place, row in newest.items() if row.kind == MarkKind.TRAINED}
    return {place: labels[reason] for place, reason in held.items() if reason in labels}


def counts(connection: sa.Connection, dataset_id: int) -> tuple[int, int]:
    """Return how many comments there are on a dataset's pairs, and how many marks that hold."""
    comments = count_rows(connection, comment, comment.c.dataset == dataset_id, comment.c.resolves.is_(None))
    newest = _newest(connection, mark.c.dataset == dataset_id)
    return comments, sum(row.kind != MarkKind.CLEAR for row in newest.values())


def _newest(connection: sa.Connection, *where: sa.ColumnElement[bool]) -> dict[tuple[int, int, str], sa.Row]:
    """Return of each pair and annotator the mark that holds: the newest by time and uid, in whatever order they
    arrived."""
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
    """Save a view under a name. Raises StoreError for an empty or overlong one."""
    clean = plain_name(" ".join(name.split()), "view")
    if not 0 < len(clean) <= LONGEST_VIEW_NAME:
        raise StoreError(f"a view needs a name of at most {LONGEST_VIEW_NAME} characters.")
    values = {"page": page, "query": dict(query), "created": now(), "annotator": plain_name(annotator, "annotator")}
    # In this order, since two people may take one name at once: the second waits at the insert, and then goes on.
    insert_new(connection, saved_view, [{"name": clean, **values}])
    connection.execute(sa.update(saved_view).where(saved_view.c.name == clean).values(**values))


def views_of_page(connection: sa.Connection, page: str) -> list[SavedView]:
    """Return the views of a page by name."""
    query = sa.select(saved_view).where(saved_view.c.page == page).order_by(saved_view.c.name)
    return fetch(connection, query, SavedView)


# ---- claims
#
# Which annotator is given which pairs: claims that lapse by themselves, and the plan of how many people see a pair.
#
# A claim keeps a pair for one annotator while it is on their screen or next in line. Handing out is one transaction
# that one process at a time may be in, so that two people are never given what only one of them is to have.


LEASE_SECONDS = 300.0  # of a claim that is not renewed; then others are given the pair
_GUIDELINE = 0  # in the place of a dataset's id, which begin at 1: the guideline is of all
LOCK = 0x7265  # tells this advisory lock of PostgreSQL from any other that may come
BATCHES = (200, 800)  # pairs whose decisions are read by their ids; after these those of the whole dataset are read
MOST_PEOPLE = 100


@dataclass(frozen=True)
class Plan:
    """The rule for how many people are to see a pair. A `share` of the pairs (0 to 1), drawn by `seed`, is given to
    `people` people, every other pair to one."""

    share: float = 0.0
    people: int = 2
    seed: int = 0

    def people_of(self, pair: Pair) -> int:
        """Return how many people this pair (attribute id, context id) is given to."""
        if self.share <= 0:
            return 1
        # Drawn by a hash of the pair and not by a generator: each pair is decided by itself, whatever else is listed.
        digest = hashlib.blake2b(f"{self.seed} {pair[0]} {pair[1]}".encode(), digest_size=8).digest()
        return self.people if int.from_bytes(digest, "big") < self.share * 2**64 else 1


def overlap_plan(connection: sa.Connection, dataset_id: int) -> Plan:
    """Return the plan of a dataset; each pair for one person if none is set."""
    plans = fetch(connection, sa.select(review_plan).where(review_plan.c.dataset == dataset_id), Plan)
    return plans[0] if plans else Plan()


@dataclass(frozen=True)
class PlanChange:
    """A plan that was set: by whom, why and when. `reason` is empty if it was set before there were reasons."""

    plan: Plan
    annotator: str
    reason: str
    created: str


def plan_changes(connection: sa.Connection, dataset_id: int) -> list[PlanChange]:
    """Return every plan that was set for a dataset, oldest first. Of those from before changes were recorded only the
    last is known: the one that held."""
    query = sa.select(plan_change).where(plan_change.c.dataset == dataset_id).order_by(plan_change.c.id)
    rows = rows_of(connection, query)
    if not rows:
        held = sa.select(review_plan, sa.literal("").label("reason")).where(review_plan.c.dataset == dataset_id)
        rows = rows_of(connection, held)
    return [from_row(PlanChange, row, plan=from_row(Plan, row)) for row in rows]


def set_overlap_plan(connection: sa.Connection, dataset_id: int, plan: Plan, annotator: str, reason: str) -> None:
    """Let this plan hold from now on; claims and decisions stay, and so does the plan before in `plan_changes`. Raises
    StoreError for a plan out of range, and without a reason."""
    if not 0 <= plan.share <= 1:
        raise StoreError(f"the share of pairs for several people must be between 0 and 1, not {plan.share:g}.")
    if not 1 <= plan.people <= MOST_PEOPLE:
        raise StoreError(f"a pair can be given to 1 to {MOST_PEOPLE} people, not {plan.people}.")
    change = PlanChange(plan, plain_name(annotator, "annotator"), _reason(reason), now())
    _lock(connection, dataset_id)
    # The plan that held before changes were recorded is written with the first of them.
    earlier = [] if exists(connection, plan_change.c.dataset == dataset_id) else plan_changes(connection, dataset_id)
    for item in (*earlier, change):
        values = {"annotator": item.annotator, "reason": item.reason, "created": item.created}
        insert_one(connection, plan_change, dataset=dataset_id, **vars(item.plan), **values)
    connection.execute(sa.delete(review_plan).where(review_plan.c.dataset == dataset_id))
    who = {"annotator": change.annotator, "created": change.created}
    insert_one(connection, review_plan, dataset=dataset_id, **vars(plan), **who)


def hand_out_pairs(
    connection: sa.Connection,
    dataset_id: int,
    annotator: str,
    session: str,
    pairs: Iterable[Pair],
    count: int,
    lease_s: float = LEASE_SECONDS,
    *,
    everybody: bool = False,
    plan: Plan | None = None,
) -> list[Pair]:
    """Return the first `count` of these pairs that this annotator can be given, claimed for them and this session for
    `lease_s` seconds; belongs into one `store.write()` of its own.

    Left out are pairs that the annotator has decided, and those that as many other people as the plan asks for have
    decided or hold a live claim on (by `plan`, else the dataset's), unless they are for `everybody`. What another
    session of the same person holds is given only if nothing else is left. All claims of this session on pairs that
    are still undecided are renewed; `release_pairs` gives them up, as is right when the filter changes. Of `pairs` no
    more is read than it takes. Times are those of the database's clock; a claim that would last longer than any lease
    was made before that clock was set back, and counts as lapsed.
    """
    _lock(connection, dataset_id)
    clock = float(connection.execute(sa.select(database_clock())).scalar_one())
    # Removed here and not by a timer: claims matter only when pairs are handed out.
    lapsed = sa.or_(claim.c.until <= clock, claim.c.until > clock + max(lease_s, LEASE_SECONDS))
    connection.execute(sa.delete(claim).where(claim.c.dataset == dataset_id, lapsed))
    claims = _Claims(connection, dataset_id, annotator, session)
    plan = plan or overlap_plan(connection, dataset_id)
    given: list[Pair] = []
    elsewhere: list[Pair] = []
    for pair in claims.undecided(pairs):
        if len(given) >= count:
            break
        if not everybody and claims.others(pair) >= plan.people_of(pair):
            continue
        (elsewhere if pair in claims.elsewhere and pair not in claims.own else given).append(pair)
    given = given or elsewhere[:count]
    # What the session holds already is renewed with what is new, or it would lapse while it is worked on.
    held = list(dict.fromkeys([*given, *claims.undecided(claims.own)]))
    of_session = claim.c.dataset == dataset_id, claim.c.annotator == annotator, claim.c.session == session
    connection.execute(sa.delete(claim).where(*of_session))
    who = plain_name(annotator, "annotator")
    holder = {"annotator": who, "session": session, "dataset": dataset_id, "until": clock + lease_s}
    insert(connection, claim, ({"attribute": attribute, "context": context, **holder} for attribute, context in held))
    return given


def release_pairs(connection: sa.Connection, session: str) -> None:
    """Give up all claims of a session that was closed, or asks for something else now."""
    connection.execute(sa.delete(claim).where(claim.c.session == session))


def _lock(connection: sa.Connection, dataset_id: int) -> None:
    """Wait until no other process hands out pairs of this dataset, or holds the guideline. SQLite has taken its write
    lock at BEGIN."""
    if connection.dialect.name == "postgresql":
        # Both numbers of this lock are of 32 bits. Two datasets on one number only wait for each other.
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK, dataset_id % 2**31)))


class _Claims:
    """Decisions and claims by pair, read as far as they are asked for."""

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
        """Return how many other people have decided this pair or hold it."""
        return len((self.decided.get(pair, set()) | self.claimed.get(pair, set())) - {self.annotator})

    def undecided(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Yield those of the pairs that the annotator has not decided, with their decisions read."""
        remaining = iter(pairs)
        for size in BATCHES:
            batch = list(islice(remaining, size))
            self._look_up(batch)
            yield from (pair for pair in batch if self.annotator not in self.decided.get(pair, ()))
        if (pair := next(remaining, None)) is None:
            return
        # After a thousand pairs: one query for all, and not many more for a few each.
        self._look_up(None)
        for each in chain([pair], remaining):
            if self.annotator not in self.decided.get(each, ()):
                yield each

    def _look_up(self, pairs: Sequence[Pair] | None) -> None:
        """Read which annotators' decisions stand on these pairs, None: on all."""
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
