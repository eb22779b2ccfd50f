"""Who is given which pairs: claims that lapse by themselves, and the plan of how many people see a pair.

A claim keeps a pair for one annotator while it is on their screen or next in line. Handing out is one transaction that
one process at a time may be in, so that two people are never given what only one of them is to have.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import sqlalchemy as sa

from cimemories.store.engine import StoreError, plain_name
from cimemories.store.ids import database_clock, now
from cimemories.store.review_tables import claim, review_plan
from cimemories.store.tables import decision

LEASE_SECONDS = 300.0
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
        digest = hashlib.blake2b(f"{self.seed} {pair[0]} {pair[1]}".encode(), digest_size=8).digest()
        return self.people if int.from_bytes(digest, "big") < self.share * 2**64 else 1


def plan(connection: sa.Connection, dataset_id: int) -> Plan:
    """The plan of a dataset; each pair for one person where none is set."""
    row = connection.execute(sa.select(review_plan).where(review_plan.c.dataset == dataset_id)).first()
    return Plan() if row is None else Plan(row.share, row.people, row.seed)


def set_plan(connection: sa.Connection, dataset_id: int, plan: Plan, annotator: str) -> None:
    """Let this plan hold from now on; claims and decisions stay. Raises StoreError for a plan that is none."""
    if not 0 <= plan.share <= 1:
        raise StoreError(f"the share of pairs for several people must lie between 0 and 1, this is {plan.share:g}.")
    if not 1 <= plan.people <= MOST_PEOPLE:
        raise StoreError(f"a pair can be given to between 1 and {MOST_PEOPLE} people, this says {plan.people}.")
    _lock(connection, dataset_id)
    connection.execute(sa.delete(review_plan).where(review_plan.c.dataset == dataset_id))
    who = plain_name(annotator, "annotator")
    connection.execute(sa.insert(review_plan).values(dataset=dataset_id, **vars(plan), annotator=who, created=now()))


def hand_out(
    connection: sa.Connection,
    dataset_id: int,
    annotator: str,
    session: str,
    wanted: Iterable[Pair],
    count: int,
    lease_s: float = LEASE_SECONDS,
) -> list[Pair]:
    """The first `count` of the wanted pairs (attribute id, context id) that this annotator can be given, claimed for
    them and this session for `lease_s` seconds; belongs into one `store.write()` of its own.

    Left out are pairs that the annotator has decided, and those that as many other people as the plan asks for have
    decided or hold a live claim on. What another session of the same person holds is given only where nothing else is
    left. All claims of this session on pairs that are still undecided are renewed; `release` gives them up, as is right
    when the filter changes. Of `wanted` no more is read than it takes. Times are those of the database's clock; a claim
    that would last longer than any lease was made before that clock was set back, and counts as lapsed.
    """
    _lock(connection, dataset_id)
    clock = float(connection.execute(sa.select(database_clock())).scalar_one())
    lapsed = sa.or_(claim.c.until <= clock, claim.c.until > clock + max(lease_s, LEASE_SECONDS))
    connection.execute(sa.delete(claim).where(claim.c.dataset == dataset_id, lapsed))
    held = _Held(connection, dataset_id, annotator, session)
    asked = plan(connection, dataset_id)
    given: list[Pair] = []
    elsewhere: list[Pair] = []
    for pair in held.undecided(wanted):
        if len(given) >= count:
            break
        if held.others(pair) >= asked.people_of(pair):
            continue
        (elsewhere if pair in held.elsewhere and pair not in held.own else given).append(pair)
    given = given or elsewhere[:count]
    kept = list(dict.fromkeys([*given, *held.undecided(held.own)]))
    own = claim.c.dataset == dataset_id, claim.c.annotator == annotator, claim.c.session == session
    connection.execute(sa.delete(claim).where(*own))
    if kept:
        connection.execute(
            sa.insert(claim),
            [
                {
                    "attribute": attribute,
                    "context": context,
                    "annotator": plain_name(annotator, "annotator"),
                    "session": session,
                    "dataset": dataset_id,
                    "until": clock + lease_s,
                }
                for attribute, context in kept
            ],
        )
    return given


def release(connection: sa.Connection, session: str) -> None:
    """Give up all that a session holds: it was closed, or asks for something else now."""
    connection.execute(sa.delete(claim).where(claim.c.session == session))


def _lock(connection: sa.Connection, dataset_id: int) -> None:
    """Wait until nobody else hands out pairs of this dataset. SQLite has taken its write lock at BEGIN."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK, dataset_id % 2**31)))


class _Held:
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
        self._look_up(None)
        if self.annotator not in self.decided.get(pair, ()):
            yield pair
        yield from (pair for pair in remaining if self.annotator not in self.decided.get(pair, ()))

    def _look_up(self, pairs: Sequence[Pair] | None) -> None:
        """Read whose decisions stand on these pairs, None: on all."""
        if pairs is not None and not pairs:
            return
        query = sa.select(decision.c.attribute, decision.c.context, decision.c.annotator, decision.c.label)
        if pairs is None:
            query = query.where(decision.c.dataset == self.dataset_id)
        else:
            # No word of the dataset here: SQLite would go through all its decisions instead of to these pairs.
            columns = sa.column("attribute", sa.BigInteger), sa.column("context", sa.BigInteger)
            asked = sa.values(*columns, name="asked").data(pairs).cte()
            same = asked.c.attribute == decision.c.attribute, asked.c.context == decision.c.context
            query = query.join(asked, sa.and_(*same))
        for attribute, context, annotator, label in self.connection.execute(query.order_by(decision.c.id)):
            people = self.decided.setdefault((attribute, context), set())
            if label is None:
                people.discard(annotator)
            else:
                people.add(annotator)
