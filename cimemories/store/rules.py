"""Named rules for turning votes into labels: a threshold and the personas' priors. At most one of a dataset is current;
where none is, the paper's rule holds (threshold 1, and the priors that the labelling was planned with)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

import sqlalchemy as sa

from cimemories.store.curation_tables import freeze, rule
from cimemories.store.engine import StoreError, insert_ignore, plain_name, storable
from cimemories.store.ids import canonical_json, now
from cimemories.store.tables import dataset

PAPER = "paper"  # the name by which the paper's rule is asked for; no other rule can have it
LONGEST_NAME = 80
PRIOR_TOLERANCE = 1e-6


@dataclass(frozen=True)
class RuleRow:
    """One named rule of a dataset. `priors`: persona key -> share in the mixture, adding up to 1."""

    id: int
    dataset: int
    name: str
    threshold: float
    priors: dict[str, float]
    current: bool
    annotator: str
    created: str


def all_rows(connection: sa.Connection, dataset_id: int) -> list[RuleRow]:
    """The named rules of a dataset, oldest first; the paper's rule is not among them."""
    rows = connection.execute(sa.select(rule).where(rule.c.dataset == dataset_id).order_by(rule.c.id)).mappings()
    return [RuleRow(**{**row, "priors": json.loads(row["priors"])}) for row in rows]


def current(connection: sa.Connection, dataset_id: int) -> RuleRow | None:
    """The rule that labels of a dataset rest on; None for the paper's."""
    return next((row for row in all_rows(connection, dataset_id) if row.current), None)


def named(connection: sa.Connection, dataset_id: int, name: str) -> RuleRow:
    """The rule of that name. Raises StoreError that lists what there is."""
    rows = all_rows(connection, dataset_id)
    for row in rows:
        if row.name == name:
            return row
    there = ", ".join(f"'{row.name}'" for row in rows) or "none yet"
    raise StoreError(f"there is no rule named '{name}' here. Named rules of this dataset: {there}.")


def check(threshold: float, priors: Mapping[str, float]) -> None:
    """Raises StoreError for a threshold that is not above 0.5 and at most 1, or priors that are no shares of a whole:
    none given, one below 0 or no number, or a sum that is not 1 (within 1e-6)."""
    if not 0.5 < threshold <= 1.0:  # written so that nan is refused too
        raise StoreError(f"the threshold must lie above 0.5 and not above 1, this is {threshold:g}.")
    if not priors:
        raise StoreError(
            "a rule needs a prior for every persona, e.g. fundamentalist 0.26, pragmatic 0.64, unconcerned 0.1."
        )
    for key, prior in priors.items():
        if not (math.isfinite(prior) and prior >= 0):
            raise StoreError(f"the prior of '{key}' must be a share from 0 to 1, this is {prior:g}.")
    total = math.fsum(priors.values())
    if abs(total - 1) > PRIOR_TOLERANCE:
        raise StoreError(
            f"the priors of the personas must add up to 1, these add up to {total:.6g}. Change one of them."
        )


def add(
    connection: sa.Connection,
    dataset_id: int,
    name: str,
    *,
    threshold: float,
    priors: Mapping[str, float],
    annotator: str,
    use: bool = False,
) -> int:
    """Write a new rule, and make it current where `use` says so; returns its id.

    Raises StoreError for an empty, too long or taken name, a missing annotator, or numbers that `check` refuses.
    """
    wanted, who = plain_name(_line(name), "rule"), plain_name(_line(annotator), "annotator")
    if not wanted or len(wanted) > LONGEST_NAME:
        raise StoreError(f"a rule needs a name of 1 to {LONGEST_NAME} characters.")
    if wanted.lower() == PAPER:
        raise StoreError(f"'{wanted}' stands for the paper's rule. Choose another name.")
    if not who:
        raise StoreError("a rule needs the name of who sets it.")
    check(threshold, priors)
    values = {
        "dataset": dataset_id,
        "name": wanted,
        "threshold": float(threshold),
        "priors": canonical_json({key: float(prior) for key, prior in priors.items()}),
        "current": False,
        "annotator": who[:LONGEST_NAME],
        "created": now(),
    }
    row = connection.execute(insert_ignore(connection, rule).values(**values).returning(rule.c.id)).first()
    if row is None:
        raise StoreError(f"a rule named '{wanted}' exists already. Choose another name, or delete that one first.")
    if use:
        _make_current(connection, dataset_id, int(row[0]))
    return int(row[0])


def make_current(connection: sa.Connection, dataset_id: int, name: str) -> None:
    """From now on the labels of the dataset rest on the rule of that name; 'paper' goes back to the paper's rule.
    Raises StoreError for a name that is not there, or a frozen dataset."""
    _make_current(connection, dataset_id, None if name.lower() == PAPER else named(connection, dataset_id, name).id)


def delete(connection: sa.Connection, dataset_id: int, name: str) -> None:
    """Remove a rule; where it was current, the paper's rule holds again. Raises StoreError as make_current does."""
    row = named(connection, dataset_id, name)
    if row.current:
        _make_current(connection, dataset_id, None)
    connection.execute(sa.delete(rule).where(rule.c.id == row.id))


def _make_current(connection: sa.Connection, dataset_id: int, rule_id: int | None) -> None:
    before = current(connection, dataset_id)
    if (before.id if before else None) == rule_id:
        return
    if connection.execute(sa.select(freeze.c.dataset).where(freeze.c.dataset == dataset_id)).first():
        raise StoreError(
            "this dataset is frozen with the rule that holds now, so another one cannot be made current. "
            "Try other rules on its next version; what they would do can be looked at here."
        )
    # The revision is what everything computed from labels is held under. Raised first: its row is also the lock
    # without which two people at once could make two rules current.
    connection.execute(sa.update(dataset).where(dataset.c.id == dataset_id).values(revision=dataset.c.revision + 1))
    connection.execute(sa.update(rule).where(rule.c.dataset == dataset_id).values(current=False))
    if rule_id is not None:
        connection.execute(sa.update(rule).where(rule.c.id == rule_id).values(current=True))


def _line(text: str) -> str:
    return " ".join(storable(text).split())
