"""The rule that holds for a labelling: the dataset's current named rule, else the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from cimemories.model import Persona
from cimemories.store import labellings as labelling_rows
from cimemories.store import rules, work
from cimemories.store.engine import Store, StoreError
from cimemories.store.ids import content_hash
from cimemories.store.rules import RuleRow

PAPER_NAME = "the paper's rule"
PAPER_THRESHOLD = 1.0


@dataclass(frozen=True)
class AppliedRule:
    """A rule as it is applied to one labelling: `priors` stand in the order of its personas, and so do `keys`.

    name: of the named rule, or PAPER_NAME. note: why the dataset's current rule does not hold here, else ''.
    """

    name: str
    threshold: float
    keys: tuple[str, ...]
    priors: tuple[float, ...]
    note: str = ""

    @property
    def is_paper(self) -> bool:
        """Whether this is the paper's rule, by name: a named rule with the same numbers is not."""
        return self.name == PAPER_NAME

    @property
    def digest(self) -> str:
        """Changes whenever the numbers of the rule change: a part of the name of all that is cached from it."""
        return content_hash([self.threshold, list(self.priors)])[:12]

    @property
    def prior_by_key(self) -> dict[str, float]:
        return dict(zip(self.keys, self.priors, strict=True))

    @property
    def words(self) -> str:
        """'threshold 100 %, priors fundamentalist 0.26, pragmatic 0.64, unconcerned 0.1'."""
        shares = ", ".join(f"{key} {prior:.4g}" for key, prior in self.prior_by_key.items())
        return f"threshold {100 * self.threshold:.4g} %, priors {shares}"


def paper_rule(personas: Sequence[Persona], note: str = "") -> AppliedRule:
    """The paper's rule (Section 4.1.2: no entropy) with the priors of these personas."""
    return AppliedRule(PAPER_NAME, PAPER_THRESHOLD, _keys(personas), tuple(p.prior for p in personas), note)


def custom_rule(personas: Sequence[Persona], name: str, threshold: float, priors: Mapping[str, float]) -> AppliedRule:
    """A rule of one's own for these personas. Raises StoreError where the numbers are no rule, or the priors are not
    for exactly these personas."""
    rules.check(threshold, priors)
    keys = _keys(personas)
    if set(priors) != set(keys):
        raise StoreError(
            f"a rule for this labelling needs a prior for each of {', '.join(keys)} and for nobody else; "
            f"given were {', '.join(priors)}."
        )
    return AppliedRule(name, threshold, keys, tuple(priors[key] for key in keys))


def fitted(row: RuleRow | None, personas: Sequence[Persona]) -> AppliedRule:
    """The current rule of a dataset, by persona key, for the personas of one of its labellings.

    Where the keys are not the same, the rule says nothing of some persona: the paper's rule holds then, and the note
    says so.
    """
    if row is None:
        return paper_rule(personas)
    keys = _keys(personas)
    if set(row.priors) != set(keys):
        return paper_rule(
            personas,
            f"the current rule '{row.name}' is for the personas {', '.join(row.priors)}; this labelling's are "
            f"{', '.join(keys)}, so {PAPER_NAME} holds for it",
        )
    return custom_rule(personas, row.name, row.threshold, row.priors)


def applied_rule(connection: sa.Connection, labelling_id: str) -> AppliedRule:
    """The rule that turns the votes of a labelling into its labels now. Raises StoreError for an unknown labelling."""
    dataset_id = int(work.load(connection, labelling_id)["dataset"])
    personas = list(labelling_rows.personas(connection, labelling_id).values())
    return fitted(rules.current(connection, dataset_id), personas)


def rule_of(store: Store, labelling_id: str) -> AppliedRule:
    """`applied_rule` for who has no connection at hand."""
    with store.read() as connection:
        return applied_rule(connection, labelling_id)


def _keys(personas: Sequence[Persona]) -> tuple[str, ...]:
    return tuple(persona.key for persona in personas)
