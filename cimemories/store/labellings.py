"""Labellings: passes of persona votes over a dataset. A ballot is one persona's draw in one context of one profile."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from cimemories.model import Persona, Verdict, WorkStatus
from cimemories.store import work
from cimemories.store.datasets import ProfileRecord, require_not_frozen, revise, tested_pairs
from cimemories.store.engine import (
    StoreError,
    canonical_json,
    content_hash,
    later_than,
    new_id,
    now,
    one_line,
    plain_name,
)
from cimemories.store.rows import count as count_rows
from cimemories.store.rows import from_row, in_chunks, insert, insert_new, rows_of
from cimemories.store.rows import settle as settle_rows
from cimemories.store.runs import NOT_NOTED, ModelCalls, usage
from cimemories.store.tables import attribute, ballot, context, imported_vote, labelling, persona, profile, rule, vote
from cimemories.store.team import log
from cimemories.text import count

IMPORTED = "imported"  # the endpoint of a labelling whose shares came from a file, without votes
OWED = "owed"
OK = "ok"
# A resume asks again for failures on the way to the server and answers that never came; an answer that came but cannot
# be used would come again, since the same draw is the same call.
RETRIABLE = (OWED, "failed")
_OUTCOME = ("status", "cause", "call", "conflicts", "unknown")
# How a labelling asks its server, and what that may cost; its votes stay comparable whatever these are.
HOW = ("api_key_env", "timeout", "parameters", "seed", "schema", "n_at_once", "capabilities", "prices", "cap")

if TYPE_CHECKING:  # numpy takes a fifth of the time in which a command starts
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True)
class LabellingRow:
    """One labelling in a list, with its ballots by status."""

    id: str
    dataset: int
    model: str
    endpoint: str
    simulated: bool
    pack: str
    draws: int
    manifest: dict[str, object]
    status: WorkStatus
    error: str | None
    created: str
    finished: str | None
    revision: int
    ballots: dict[str, int]

    @property
    def imported(self) -> bool:
        """Return whether its labels came from a file, as shares without votes."""
        return self.endpoint == IMPORTED

    @property
    def from_results(self) -> bool:
        """Return whether its labels came with results of runs, beside those that the dataset had: no number rests on
        them unless they are asked for."""
        return bool(self.manifest.get("from_results"))

    @property
    def chosen(self) -> str:
        """Return when a person chose that all numbers of the dataset rest on it; empty if no one did."""
        return str(self.manifest.get("chosen") or "")

    @property
    def expected(self) -> int:
        return sum(self.ballots.values())


@dataclass(frozen=True)
class BallotGroup:
    """The draws that one persona still owes in one context of one profile: one request."""

    profile: int
    context: int
    persona: int
    ballots: dict[int, int]  # draw -> ballot id


def personas_of(connection: sa.Connection, pack: str, personas: Sequence[Persona]) -> list[int]:
    """Return the ids of these personas, written if they are new; a changed wording or prior is another persona."""
    ids = []
    for item in personas:
        values = {"pack": pack, **vars(item)}
        digest = content_hash(values)
        insert_new(connection, persona, [{"hash": digest, **values}])
        ids.append(connection.execute(sa.select(persona.c.id).where(persona.c.hash == digest)).scalar_one())
    return ids


def personas(connection: sa.Connection, labelling_id: str) -> dict[int, Persona]:
    """Return the personas that vote in a labelling, by id, in the order of their pack. Raises sqlalchemy's
    NoResultFound for an id that is not there."""
    query = sa.select(labelling.c.manifest).where(labelling.c.id == labelling_id)
    ids = connection.execute(query).scalar_one()["personas"]
    rows = rows_of(connection, sa.select(persona).where(persona.c.id.in_(ids)))
    by_id = {row["id"]: from_row(Persona, row) for row in rows}
    return {i: by_id[i] for i in ids}


def add(
    connection: sa.Connection,
    *,
    identity: str,
    dataset_id: int,
    manifest: Mapping[str, object],
    **values: Any,
) -> str:
    """Return the id of the labelling of that identity, written if it is new. One that is there is asked from now on for
    `draws` draws, if it had fewer, and in the way that this manifest says (HOW), which does not make it another one.
    values: model, endpoint, simulated, pack and draws. Raises StoreError while a living process works on it."""
    plain_name(values["model"], "model")
    # Written first and read afterwards: two processes that plan the same labelling at once go on with one row.
    fresh = new_id("labelling")
    new = {"id": fresh, "identity": identity, "dataset": dataset_id, "manifest": canonical_json(manifest)}
    insert_new(connection, labelling, [{**new, **values, "status": WorkStatus.QUEUED, "created": now()}])
    row = connection.execute(sa.select(labelling).where(labelling.c.identity == identity)).mappings().one()
    if row["id"] != fresh:
        # Its worker would not see what is added, and the command that adds it would then be refused.
        row = work.locked(connection, row["id"])
        work.require_idle([row])
        there, asked = row["manifest"], manifest.get("asked")
        way = {name: manifest[name] for name in HOW if name in manifest}
        now_asked = {name: asked[name] for name in HOW if name in asked} if isinstance(asked, Mapping) else {}
        way["asked"] = {**there.get("asked", {}), **now_asked}
        written = canonical_json({**there, **way})
        # Draws are only ever added: votes that are there stay votes of this labelling.
        work.update(
            connection,
            row["id"],
            manifest=written,
            endpoint=values["endpoint"],
            draws=max(values["draws"], row["draws"]),
        )
    return str(row["id"])


def with_identity(connection: sa.Connection, identity: str) -> str | None:
    """Return the address at which the labelling of that identity was asked last, or None."""
    return connection.scalar(sa.select(labelling.c.endpoint).where(labelling.c.identity == identity))


def plan(
    connection: sa.Connection,
    labelling_id: str,
    profile_ids: Sequence[int],
    context_ids: Sequence[int],
    persona_ids_: Sequence[int],
    draws: int,
) -> None:
    """Write these ballots as owed; those that are already there stay as they are."""
    rows = (
        {
            "labelling": labelling_id,
            "profile": profile_id,
            "context": context_id,
            "persona": persona_id,
            "draw": draw,
            "status": OWED,
        }
        # Only pairs that are tested: a vote on any other would be paid for and counted nowhere.
        for profile_id, context_id in tested_pairs(connection, profile_ids, context_ids)
        for persona_id in persona_ids_
        for draw in range(draws)
    )
    # A ballot that is there already may have been voted on: it stays as it is, whatever its status.
    for chunk in in_chunks(rows):
        insert_new(connection, ballot, chunk)


def all_rows(connection: sa.Connection, dataset_id: int | None = None) -> list[LabellingRow]:
    """Return labellings with their ballots counted by status, oldest first; of one dataset if given."""
    query = work.select(labelling).order_by(labelling.c.created, labelling.c.id)
    if dataset_id is not None:
        query = query.where(labelling.c.dataset == dataset_id)
    return work.listed(connection, query, LabellingRow, "ballots", ballot.c.labelling, ballot.c.status)


def owed(connection: sa.Connection, labelling_id: str, profile_id: int) -> list[BallotGroup]:
    """Return what is still owed for one profile, one group a request, contexts in their order."""
    rows = connection.execute(
        sa.select(ballot.c.context, ballot.c.persona, ballot.c.draw, ballot.c.id)
        .join(context, ballot.c.context == context.c.id)
        .where(ballot.c.labelling == labelling_id, ballot.c.profile == profile_id, ballot.c.status.in_(RETRIABLE))
        .order_by(context.c.ordinal, ballot.c.persona, ballot.c.draw)
    )
    groups: dict[tuple[int, int], dict[int, int]] = {}
    for row in rows:
        # Draws of one prompt are one request, where the server takes several at once.
        groups.setdefault((row.context, row.persona), {})[row.draw] = row.id
    return [BallotGroup(profile_id, c, p, draws) for (c, p), draws in groups.items()]


def owing_profiles(connection: sa.Connection, labelling_id: str) -> list[int]:
    """Return the profiles for which ballots are owed, in order."""
    # exists stops at the first ballot that is owed.
    owing = sa.exists().where(
        ballot.c.labelling == labelling_id, ballot.c.profile == profile.c.id, ballot.c.status.in_(RETRIABLE)
    )
    return list(connection.scalars(sa.select(profile.c.id).where(owing).order_by(profile.c.ordinal)))


def ballots_of(connection: sa.Connection, labelling_id: str, profile_id: int) -> tuple[int, int]:
    """Return how many ballots of one profile are usable, and how many were planned."""
    here = ballot.c.labelling == labelling_id, ballot.c.profile == profile_id
    return count_rows(connection, ballot, *here, ballot.c.status == OK), count_rows(connection, ballot, *here)


@dataclass(frozen=True)
class Settled:
    """The outcome of one ballot. call: the key of the call that was answered. votes: (attribute id, verdict)."""

    ballot: int
    status: str
    cause: str | None
    call: str
    votes: Sequence[tuple[int, Verdict]] = ()
    conflicts: int = 0
    unknown: int = 0


def settle(connection: sa.Connection, outcomes: Sequence[Settled]) -> None:
    """Write the outcomes of ballots, each named once, votes included; one that is settled already stays as it is."""
    rows = [{"id": item.ballot} | {name: getattr(item, name) for name in _OUTCOME} for item in outcomes]
    written = settle_rows(connection, ballot, rows, RETRIABLE)
    fresh = [item for item in outcomes if item.ballot in written]
    votes = ((outcome.ballot, of, verdict) for outcome in fresh for of, verdict in outcome.votes)
    insert(connection, vote, ({"ballot": b, "attribute": a, "verdict": str(v)} for b, a, v in votes))


def tallies(connection: sa.Connection, labelling_id: str, profile_id: int | None = None) -> sa.CursorResult[tuple]:
    """Return votes counted by (attribute, context, persona): columns attribute, context, persona, necessary,
    inappropriate, abstain, conflict. Of one profile if given. Of an imported labelling: the shares of its file, 0 to
    1."""
    endpoint = connection.scalar(sa.select(labelling.c.endpoint).where(labelling.c.id == labelling_id))
    if endpoint == IMPORTED:
        return _shares(connection, labelling_id, profile_id)

    def count(verdict: Verdict) -> sa.ColumnElement[int]:
        # A sum for each verdict, so that one row holds all of them, zeros included.
        return sa.func.sum(sa.case((vote.c.verdict == str(verdict), 1), else_=0)).label(str(verdict))

    query = (
        sa.select(vote.c.attribute, ballot.c.context, ballot.c.persona, *(count(v) for v in Verdict))
        # A vote names its ballot alone; which context and persona it is of stands there.
        .join(ballot, vote.c.ballot == ballot.c.id)
        .where(ballot.c.labelling == labelling_id)
        .group_by(vote.c.attribute, ballot.c.context, ballot.c.persona)
    )
    if profile_id is not None:
        query = query.where(ballot.c.profile == profile_id)
    return connection.execute(query)


def _shares(connection: sa.Connection, labelling_id: str, profile_id: int | None) -> sa.CursorResult[tuple]:
    shares = imported_vote.c
    query = sa.select(
        *(shares[n] for n in ("attribute", "context", "persona", "necessary", "inappropriate", "abstain")),
        # The same columns as of counted votes, for one reader of both.
        sa.literal(0).label(str(Verdict.CONFLICT)),
    ).where(shares.labelling == labelling_id)
    if profile_id is not None:
        # A share names no profile: it is of the one whose attribute it names.
        attributes = sa.select(attribute.c.id).where(attribute.c.profile == profile_id)
        query = query.where(shares.attribute.in_(attributes))
    return connection.execute(query)


def covered_pairs(connection: sa.Connection, labelling_id: str, *, imported: bool) -> int:
    """Return the number of (profile, context) pairs that a labelling has usable ballots, or imported shares, for."""
    return count_rows(connection, _covered(labelling_id, imported).distinct().subquery())


def covered_profiles(connection: sa.Connection, labelling_id: str, *, imported: bool) -> set[int]:
    """Return the profiles that a labelling has usable ballots, or imported shares, for."""
    pairs = _covered(labelling_id, imported).subquery()
    return set(connection.scalars(sa.select(pairs.c.profile).distinct()))


def _covered(labelling_id: str, imported: bool) -> sa.Select[tuple[int, int]]:
    if not imported:
        return sa.select(ballot.c.profile, ballot.c.context).where(
            ballot.c.labelling == labelling_id, ballot.c.status == OK
        )
    # A share names no profile: it is of the one whose attribute it names.
    shares = imported_vote.join(attribute, imported_vote.c.attribute == attribute.c.id)
    pairs = sa.select(attribute.c.profile, imported_vote.c.context).select_from(shares)
    return pairs.where(imported_vote.c.labelling == labelling_id)


def choose(connection: sa.Connection, labelling_id: str) -> None:
    """Let all numbers of the dataset rest on this labelling, whatever others cover. Raises StoreError for one that is
    not there or has no votes, and for a frozen dataset."""
    rows = all_rows(connection)
    row = next((row for row in rows if row.id == labelling_id), None)
    if row is None:
        raise StoreError(f"there is no labelling '{labelling_id}'. `cimemories labellings` lists what is there.")
    if not (row.imported or row.ballots.get(OK)):
        raise StoreError(f"'{labelling_id}' has no votes yet, so no number can rest on it.")
    require_not_frozen(
        connection, row.dataset, "this dataset is frozen with its labels. Choose another labelling on the next version."
    )
    # The revision is what everything computed from labels is cached under.
    revise(connection, row.dataset)
    before = max(other.chosen for other in rows if other.dataset == row.dataset)
    manifest = canonical_json({**row.manifest, "chosen": later_than(before, now())})
    work.update(connection, labelling_id, manifest=manifest)
    log.add(connection, "labelling.chosen", labelling_id, dataset=log.dataset_name(connection, row.dataset))


def planned_draws(
    connection: sa.Connection, labelling_id: str, profiles: Sequence[int] | None = None
) -> dict[tuple[int, int], int]:
    """Return how many draws of each persona were planned, by (profile, context), whatever became of them; empty for an
    imported labelling. profiles: of these alone; None: of all."""
    conditions = [ballot.c.labelling == labelling_id, *([] if profiles is None else [ballot.c.profile.in_(profiles)])]
    rows = connection.execute(
        sa.select(ballot.c.profile, ballot.c.context, sa.func.count(ballot.c.draw.distinct()))
        .where(*conditions)
        .group_by(ballot.c.profile, ballot.c.context)
    )
    return {(profile_id, context_id): int(draws) for profile_id, context_id, draws in rows}


def context_votes(
    connection: sa.Connection, labelling_id: str, profile_id: int, context_id: int
) -> dict[int, dict[int, list[tuple[int, str]]]]:
    """Return every vote of a profile in one context: attribute -> persona -> [(draw, verdict)], draws in order."""
    rows = connection.execute(
        sa.select(vote.c.attribute, ballot.c.persona, ballot.c.draw, vote.c.verdict)
        .join(ballot, vote.c.ballot == ballot.c.id)
        .where(ballot.c.labelling == labelling_id, ballot.c.profile == profile_id, ballot.c.context == context_id)
        .order_by(ballot.c.draw)
    )
    votes: dict[int, dict[int, list[tuple[int, str]]]] = {}
    for attribute_id, persona_id, draw, verdict in rows:
        votes.setdefault(attribute_id, {}).setdefault(persona_id, []).append((draw, verdict))
    return votes


def calls_by_model(connection: sa.Connection, labelling_id: str, since: str | None = None) -> list[ModelCalls]:
    """Return what a labelling used, by kind and model. since: only what was asked from that time on."""
    used = sa.select(ballot.c.call, NOT_NOTED).where(ballot.c.labelling == labelling_id).distinct()
    return usage(connection, used, since)


# ---- imported
#
# Labels that a file brought without their votes: shares by persona in place of votes.


STAND_IN = Persona(
    IMPORTED,
    "The imported label",
    1.0,
    "Stands for the labeller of the file that was imported: it gives labels, and not who voted for them.",
)


@dataclass(frozen=True)
class SharedLabels:
    """One model's shares. Arrays of one length n; positions are those of profiles, of attributes and contexts inside
    their profile, and of `personas`. `shares` [n, 3]: necessary, inappropriate, abstain, adding up to 1. `provenance`:
    what the manifest says of where they come from."""

    model: str
    pack: str
    personas: tuple[Persona, ...]
    profile: npt.NDArray[np.int32]
    attribute: npt.NDArray[np.int32]
    context: npt.NDArray[np.int32]
    persona: npt.NDArray[np.int32]
    shares: npt.NDArray[np.float64]
    simulated: bool
    provenance: Mapping[str, object]


def add_imported(
    connection: sa.Connection,
    dataset_id: int,
    records: Sequence[ProfileRecord],
    labels: SharedLabels,
    *,
    from_results: bool = False,
) -> str:
    """Write them as a finished labelling of the dataset, whose profiles are `records`; return its id. from_results: as
    in LabellingRow."""
    persona_ids = personas_of(connection, labels.pack, labels.personas)
    labelling_id = add(
        connection,
        identity=content_hash([IMPORTED, dataset_id, labels.model, persona_ids, labels.provenance]),
        dataset_id=dataset_id,
        model=labels.model,
        endpoint=IMPORTED,
        simulated=labels.simulated,
        pack=labels.pack,
        draws=0,
        manifest={"personas": persona_ids, "imported": dict(labels.provenance)}
        | ({"from_results": True} if from_results else {}),
    )
    columns = (labels.profile, labels.attribute, labels.context, labels.persona)
    positions = zip(*(column.tolist() for column in columns), labels.shares.tolist(), strict=True)
    rows = (
        {
            "labelling": labelling_id,
            "attribute": records[p].attribute_ids[a],
            "context": records[p].context_ids[c],
            "persona": persona_ids[who],
            **dict(zip(("necessary", "inappropriate", "abstain"), shares, strict=True)),
        }
        for p, a, c, who, shares in positions
    )
    insert(connection, imported_vote, rows)
    work.finish(connection, labelling_id, WorkStatus.FINISHED)
    work.bump(connection, labelling_id)
    return labelling_id


def has_imported(connection: sa.Connection, dataset_id: int, labels: SharedLabels) -> bool:
    """Return whether the dataset has the labelling that these very bytes brought, under whatever name the file had."""
    imported = labelling.c.dataset == dataset_id, labelling.c.endpoint == IMPORTED, labelling.c.model == labels.model
    manifests = connection.scalars(sa.select(labelling.c.manifest).where(*imported))
    return any(m.get("imported", {}).get("sha256") == labels.provenance["sha256"] for m in manifests)


# ---- rules
#
# Named rules for turning votes into labels: a threshold, the personas' priors, and how many votes each must have. At
# most one of a dataset is current; if none is, the paper's rule holds (threshold 1, and the priors that the labelling
# was planned with).


PAPER_RULE = "paper"  # the name by which the paper's rule is asked for; no other rule can have it
LONGEST_NAME = 80
PRIOR_TOLERANCE = 1e-6
MOST_VOTES = 10_000  # more than any labelling plans
BOTH_LISTS = ("conflict", "necessary")  # what a vote in both lists is; the first if a rule does not say
_FURTHER = {"least_votes", "both_lists"}


@dataclass(frozen=True)
class RuleRow:
    """One named rule of a dataset. `priors`: persona key -> share in the mixture, adding up to 1. `least_votes`: what
    each persona must have on a pair; None if the rule does not say. `both_lists`: of BOTH_LISTS."""

    id: int
    dataset: int
    name: str
    threshold: float
    priors: dict[str, float]
    current: bool
    annotator: str
    created: str
    least_votes: int | None = None
    both_lists: str = BOTH_LISTS[0]


def least_text(least_votes: int | None) -> str:
    """Return how many votes a rule asks for, in words; '' if any number is enough."""
    if least_votes is None:
        return "at least 9 in 10 votes of each persona"
    return f"at least {count(least_votes, 'vote')} of each persona" if least_votes else ""


def rule_numbers(written: object) -> tuple[dict[str, float], int | None, str]:
    """Return priors, least number of votes, and what a vote in both lists is, of the field `priors` of a rule.

    That is an object of numbers by persona, or {"least_votes": 5, "both_lists": "necessary", "priors": {...}} if the
    rule names one of the two or both. Raises ValueError for anything else.
    """
    least: object = None
    both: object = BOTH_LISTS[0]
    further = set(written) - {"priors"} if isinstance(written, dict) else set()
    if isinstance(written, dict) and isinstance(written.get("priors"), dict) and further and further <= _FURTHER:
        least, both = written.get("least_votes"), written.get("both_lists", both)
        if "least_votes" in further and (isinstance(least, bool) or not isinstance(least, int)):
            raise ValueError("least_votes must be a whole number")
        if both not in BOTH_LISTS:
            raise ValueError(f"both_lists must be {' or '.join(BOTH_LISTS)}")
        written = written["priors"]
    if not isinstance(written, dict) or not all(
        isinstance(prior, int | float) and not isinstance(prior, bool) for prior in written.values()
    ):
        raise ValueError("priors must be an object of numbers by persona")
    return dict(written), least if isinstance(least, int) else None, str(both)


def all_rules(connection: sa.Connection, dataset_id: int) -> list[RuleRow]:
    """Return the named rules of a dataset, oldest first; the paper's rule is not among them."""
    rows = rows_of(connection, sa.select(rule).where(rule.c.dataset == dataset_id).order_by(rule.c.id))
    return [
        from_row(RuleRow, row, priors=priors, least_votes=least, both_lists=both)
        for row in rows
        for priors, least, both in [rule_numbers(row["priors"])]
    ]


def current_rule(connection: sa.Connection, dataset_id: int) -> RuleRow | None:
    """Return the rule that labels of a dataset rest on, or None for the paper's."""
    return next((row for row in all_rules(connection, dataset_id) if row.current), None)


def rule_by_name(connection: sa.Connection, dataset_id: int, name: str) -> RuleRow:
    """Return the rule of that name. Raises StoreError that lists what there is."""
    rows = all_rules(connection, dataset_id)
    if row := next((row for row in rows if row.name == name), None):
        return row
    there = ", ".join(f"'{row.name}'" for row in rows) or "none yet"
    raise StoreError(f"there is no rule named '{name}' here. Rules of this dataset: {there}.")


def check_rule(
    threshold: float,
    priors: Mapping[str, float],
    least_votes: int | None = None,
    both_lists: str = BOTH_LISTS[0],
) -> None:
    """Raise StoreError for a threshold that is not above 0.5 and at most 1, priors that do not add up to 1 within 1e-6
    (or none, or one below 0), a least number of votes below 1, or a `both_lists` that is none of BOTH_LISTS."""
    if both_lists not in BOTH_LISTS:
        raise StoreError(f"a vote in both lists counts as {' or '.join(BOTH_LISTS)}, not as '{both_lists}'.")
    if not 0.5 < threshold <= 1.0:  # written so that nan is refused too
        raise StoreError(f"the threshold must be above 0.5 and at most 1, not {threshold:g}.")
    if least_votes is not None and not 1 <= least_votes <= MOST_VOTES:
        raise StoreError(f"the least number of votes must be from 1 to {MOST_VOTES:,}, not {least_votes:,}.")
    if not priors:
        raise StoreError(
            "a rule needs a prior for every persona, e.g. fundamentalist 0.26, pragmatic 0.64, unconcerned 0.1."
        )
    for key, prior in priors.items():
        if not (math.isfinite(prior) and prior >= 0):
            raise StoreError(f"the prior of '{key}' must be a share from 0 to 1, not {prior:g}.")
    # fsum rounds once: the order in which personas are named must not decide whether their priors add up.
    total = math.fsum(priors.values())
    if abs(total - 1) > PRIOR_TOLERANCE:
        raise StoreError(
            f"the priors of the personas must add up to 1, these add up to {total:.6g}. Change one of them."
        )


def add_rule(
    connection: sa.Connection,
    dataset_id: int,
    name: str,
    *,
    threshold: float,
    priors: Mapping[str, float],
    annotator: str,
    use: bool = False,
    least_votes: int | None = None,
    both_lists: str = BOTH_LISTS[0],
) -> int:
    """Write a new rule, and make it current if `use` says so; return its id. Raises StoreError for an empty, too long
    or taken name, a missing annotator, or numbers that `check_rule` refuses."""
    title, who = plain_name(one_line(name), "rule"), plain_name(one_line(annotator), "annotator")
    if not title or len(title) > LONGEST_NAME:
        raise StoreError(f"a rule needs a name of 1 to {LONGEST_NAME} characters.")
    # In any case of letters: no rule may pass for the paper's.
    if title.lower() == PAPER_RULE:
        raise StoreError(f"'{title}' stands for the paper's rule. Choose another name.")
    if not who:
        raise StoreError("a rule needs the name of who sets it.")
    check_rule(threshold, priors, least_votes, both_lists)
    numbers: dict[str, object] = {key: float(prior) for key, prior in priors.items()}
    further: dict[str, object] = {} if least_votes is None else {"least_votes": least_votes}
    further |= {"both_lists": both_lists} if both_lists != BOTH_LISTS[0] else {}
    values = {
        "dataset": dataset_id,
        "name": title,
        "threshold": float(threshold),
        # Without further settings the field is what it always was, so that earlier versions read it too.
        "priors": canonical_json({**further, "priors": numbers} if further else numbers),
        "current": False,
        "annotator": who[:LONGEST_NAME],
        "created": now(),
    }
    # The unique name decides: no row comes back if it was taken, be it a moment ago.
    written, ids = insert_new(connection, rule, [values], ["id"])
    if not written:
        raise StoreError(f"a rule named '{title}' exists already. Choose another name, or delete that one first.")
    rule_id = int(ids[0][0])
    _log_rule(connection, dataset_id, "saved", title, threshold=f"{threshold:g}", least_votes=least_votes)
    if use:
        _make_current(connection, dataset_id, rule_id)
    return rule_id


def make_current_rule(connection: sa.Connection, dataset_id: int, name: str) -> None:
    """Let the labels of the dataset rest on the rule of that name; 'paper' goes back to the paper's rule. Raises
    StoreError for a name that is not there, or a frozen dataset."""
    chosen = None if name.lower() == PAPER_RULE else rule_by_name(connection, dataset_id, name).id
    _make_current(connection, dataset_id, chosen)


def delete_rule(connection: sa.Connection, dataset_id: int, name: str) -> None:
    """Remove a rule; if it was current, the paper's rule holds again. Raises StoreError as
    `make_current_rule` does."""
    row = rule_by_name(connection, dataset_id, name)
    if row.current:
        _make_current(connection, dataset_id, None)
    connection.execute(sa.delete(rule).where(rule.c.id == row.id))
    _log_rule(connection, dataset_id, "deleted", row.name)


def _log_rule(connection: sa.Connection, dataset_id: int, what: str, name: str, **details: object) -> None:
    log.add(connection, f"rule.{what}", log.dataset_name(connection, dataset_id), rule=name, **details)


def _make_current(connection: sa.Connection, dataset_id: int, rule_id: int | None) -> None:
    before = current_rule(connection, dataset_id)
    if (before.id if before else None) == rule_id:
        return
    require_not_frozen(
        connection,
        dataset_id,
        "this dataset is frozen with its current rule, so another one cannot be made current. "
        "Use it on the next version; What if shows what it would change here.",
    )
    # The revision is what everything computed from labels is cached under. Raised first: its row is also the lock
    # without which two people at once could make two rules current.
    revise(connection, dataset_id)
    connection.execute(sa.update(rule).where(rule.c.dataset == dataset_id).values(current=False))
    if rule_id is not None:
        connection.execute(sa.update(rule).where(rule.c.id == rule_id).values(current=True))
    after = current_rule(connection, dataset_id)
    names = [held.name if held else PAPER_RULE for held in (before, after)]
    _log_rule(connection, dataset_id, "used", names[1], before=names[0])
