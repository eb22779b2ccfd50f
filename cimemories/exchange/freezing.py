"""Freezing a dataset: a content hash over profiles, contexts, votes, decisions and rule, which a paper can name.

A frozen dataset is not edited in place. Votes and decisions may still be added; they change its present hash, and the
additions are named wherever the frozen hash is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cimemories.access.roles import Role
from cimemories.flows.labels import LEAST_VOTES, PAPER_NAME, PAPER_THRESHOLD, applied_rule
from cimemories.model import WorkStatus
from cimemories.store import archive, datasets, decisions, labellings, versions, work
from cimemories.store.engine import Connection, Store, StoreError, content_hash, storable
from cimemories.store.team import log
from cimemories.store.versions import FreezeRow
from cimemories.text import count

_AT_WORK = (WorkStatus.QUEUED, WorkStatus.RUNNING, WorkStatus.PAUSING, WorkStatus.CANCELLING)


@dataclass(frozen=True)
class Content:
    """The current content of a dataset, as a freeze would record it; see FreezeRow for `rule` and `counts`."""

    hash: str
    rule: dict[str, object]
    counts: dict[str, int | str]


@dataclass(frozen=True)
class Frozen:
    """A freeze and the changes since. `since`: in words, e.g. ('3 decisions and undos',); empty without any."""

    row: FreezeRow
    since: tuple[str, ...]

    @property
    def words(self) -> str:
        """Return 'frozen as ab12cd34 by Ada on 2026-11-21, 3 decisions and undos since'."""
        text = f"frozen as {self.row.hash[:8]} by {self.row.annotator} on {self.row.created[:10]}"
        return f"{text}, {', '.join(self.since)} since" if self.since else text


def freeze(store: Store, dataset_id: int, *, labelling_id: str | None, annotator: str) -> FreezeRow:
    """Freeze a dataset with the votes of one labelling (None: without any). Raises StoreError if it is frozen already,
    the labelling is another dataset's or unfinished, or no name is given."""
    who = " ".join(storable(annotator).split())
    if not who:
        raise StoreError("freezing needs the name of who does it. Give yours and try again.")
    with store.write(Role.CURATOR) as connection:
        versions.lock(connection, dataset_id)
        existing = versions.freeze_of(connection, dataset_id)
        if labelling_id is not None and existing is None:
            labelled = work.load(connection, labelling_id)
            if labelled["dataset"] != dataset_id:
                raise StoreError(
                    f"the labelling '{labelling_id}' is of another dataset. `cimemories labellings` lists them."
                )
            if work.shown_status(labelled) in _AT_WORK:
                raise StoreError(f"{labelling_id} is running: its votes still change. Wait for it, or cancel it first.")
        # add_freeze refuses a frozen dataset: then no vote has to be read.
        new = Content("", {}, {}) if existing else content(connection, dataset_id, labelling_id)
        versions.add_freeze(
            connection,
            dataset_id,
            digest=new.hash,
            labelling_id=labelling_id,
            rule=new.rule,
            counts=new.counts,
            annotator=who,
        )
        row = versions.freeze_of(connection, dataset_id)
        name = log.dataset_name(connection, dataset_id)
        log.add(connection, "dataset.frozen", name, hash=new.hash, labelling=labelling_id)
    if row is None:
        raise StoreError("the freeze could not be read back. Nothing is frozen; try again.")
    return row


def content(connection: Connection, dataset_id: int, labelling_id: str | None) -> Content:
    """Return the current content of a dataset, with the votes of one labelling. Reads every vote: seconds for two
    million."""
    places = archive.Positions(connection, dataset_id)
    wording = datasets.dataset_hash(connection, dataset_id)
    decided = places.decision_lines()
    rule = _rule(connection, dataset_id, labelling_id)
    votes, count, revision = "", 0, 0
    if labelling_id is not None:
        votes, count = places.votes_hash(labelling_id)
        revision = int(work.load(connection, labelling_id)["revision"])
    counts: dict[str, int | str] = {
        **{f"{name}s": len(places.numbers[name]) for name in ("profile", "attribute", "context")},
        "votes": count,
        "decisions": len(decided),
        "content": wording,
        "labellings": len(labellings.all_rows(connection, dataset_id)),
        "revision": revision,
    }
    # Not the name of the rule: another name with these numbers gives the same labels.
    covered = [wording, votes, decided, _numbers(rule)]
    return Content(content_hash(covered), rule, counts)


def _rule(connection: Connection, dataset_id: int, labelling_id: str | None) -> dict[str, object]:
    row: tuple[object, ...] = (PAPER_NAME, PAPER_THRESHOLD, {}, None, labellings.BOTH_LISTS[0])
    if labelling_id is not None:
        applied = applied_rule(connection, labelling_id)
        row = (applied.name, applied.threshold, applied.prior_by_key, applied.least_votes, applied.both_lists)
    elif stored := labellings.current_rule(connection, dataset_id):
        row = (stored.name, stored.threshold, stored.priors, stored.least_votes, stored.both_lists)
    rule: dict[str, object] = dict(zip(("name", "threshold", "priors", LEAST_VOTES, "both_lists"), row, strict=True))
    if rule["both_lists"] == labellings.BOTH_LISTS[0]:
        del rule["both_lists"]  # which is named only if it is not the default
    return rule


def _numbers(rule: Mapping[str, object]) -> dict[str, object]:
    """Return the parts of a rule that decide labels. A least number of votes only if the rule names one, so that older
    hashes stay the same."""
    numbers = {name: rule[name] for name in ("threshold", "priors", "both_lists") if name in rule}
    return numbers | ({LEAST_VOTES: rule[LEAST_VOTES]} if rule.get(LEAST_VOTES) else {})


def frozen(store: Store, dataset_id: int) -> Frozen | None:
    """Return the freeze of a dataset and the changes since, counted and not hashed; None for an open one."""
    with store.read() as connection:
        row = versions.freeze_of(connection, dataset_id)
        if row is None:
            return None
        rows = {item.id: item for item in labellings.all_rows(connection, dataset_id)}
        decided = len(decisions.history(connection, dataset_id))
        rule = _rule(connection, dataset_id, row.labelling if row.labelling in rows else None)
    since = []
    if more := decided - int(row.counts["decisions"]):
        since.append(count(more, "decision or undo", "decisions and undos"))
    if (more := len(rows) - int(row.counts["labellings"])) > 0:
        since.append(count(more, "more labelling"))
    if row.labelling is not None and row.labelling not in rows:
        since.append("its labelling was deleted")
    elif row.labelling is not None and rows[row.labelling].revision != row.counts["revision"]:
        since.append("more votes")
    # Without its labelling the rule for it is unknown.
    if _numbers(rule) != _numbers(row.rule) and row.labelling in (None, *rows):
        since.append("another rule")
    return Frozen(row, tuple(since))


def present_hash(store: Store, dataset_id: int) -> str:
    """Return the hash that freezing the dataset would give now, with the labelling of its freeze: equal to it without
    changes. Raises StoreError for a dataset that is not frozen, or whose labelling is gone."""
    with store.read() as connection:
        row = versions.freeze_of(connection, dataset_id)
        if row is None:
            raise StoreError("this dataset is not frozen. Freeze it first: `cimemories datasets freeze --help`.")
        return content(connection, dataset_id, row.labelling).hash
