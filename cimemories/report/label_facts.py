"""What the labels of a run rest on, counted once for the section on labels and for the words of the methods."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from cimemories.analysis.flows import Flows, Labels, Scope
from cimemories.analysis.pair_groups import GroupBy
from cimemories.analysis.rule import AppliedRule, rule_of
from cimemories.analysis.survival import by_group, dissent
from cimemories.analysis.whatif import labelled_pairs
from cimemories.curation.consensus import AMBIGUOUS, INAPPROPRIATE, NECESSARY, UNLABELLED
from cimemories.model import Persona
from cimemories.store import labellings
from cimemories.store.labellings import LabellingRow


@dataclass(frozen=True)
class LabelFacts:
    """One labelling under the rule that a scope uses. Counts are (attribute, context) pairs with a counted vote;
    decided: pairs with a standing decision of a person. missing: (status, cause, count) of ballots. domains: as of
    survival.by_group; dissent: as of survival.dissent. before: whether decisions go before the consensus."""

    row: LabellingRow
    rule: AppliedRule
    personas: tuple[Persona, ...]
    pairs: int
    necessary: int
    inappropriate: int
    ambiguous: int
    decided: int
    before: bool
    ballots: int
    missing: tuple[tuple[str, str, int], ...]
    domains: pd.DataFrame
    dissent: pd.DataFrame

    @property
    def share(self) -> float:
        """Survival: pairs with a label that is agreed on, over all pairs with a vote; nan without one."""
        return (self.necessary + self.inappropriate) / self.pairs if self.pairs else float("nan")


def label_facts(flows: Flows, asked: Scope) -> LabelFacts | None:
    """None where nothing is labelled."""
    row = asked.labelling
    if row is None:
        return None
    rule = asked.rule or rule_of(flows.store, row.id)
    pairs = labelled_pairs(flows.store, row.id)
    labels = pairs.counts.labels(rule)
    with flows.store.read() as connection:
        missing = labellings.failures(connection, row.id)
        personas = tuple(labellings.personas(connection, row.id).values())
    return LabelFacts(
        row=row,
        rule=rule,
        personas=personas,
        pairs=int((labels != UNLABELLED).sum()),
        necessary=int((labels == NECESSARY).sum()),
        inappropriate=int((labels == INAPPROPRIATE).sum()),
        ambiguous=int((labels == AMBIGUOUS).sum()),
        decided=int(pairs.decided.sum()),
        before=asked.labels == Labels.DECISIONS,
        ballots=int(row.ballots.get(labellings.OK, 0)),
        missing=tuple(missing),
        domains=by_group(pairs.groups[GroupBy.DOMAIN], labels),
        dissent=dissent(pairs.counts.votes, rule, labels),
    )


def all_label_facts(flows: Flows, scopes: tuple[Scope, ...]) -> list[LabelFacts]:
    """Of every labelling that the scopes are held against, each once."""
    found: dict[tuple[str, str], LabelFacts] = {}
    for asked in scopes:
        facts = label_facts(flows, asked)
        if facts is not None:
            found.setdefault((facts.row.id, facts.rule.digest), facts)
    return list(found.values())
