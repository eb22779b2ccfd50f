"""On which pairs the personas of a labelling agree, who prevents a label, which contexts count, and who labelled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pandas as pd

from cimemories.answer import Answer, Column, Rows, Table
from cimemories.flows.labels import AppliedRule, unlabelled_text
from cimemories.labels.survival import NEITHER, PAPER, Contexts, Decided, Survival, contexts, survival, table2
from cimemories.labels.votes import GroupBy
from cimemories.metrics import sentences
from cimemories.metrics.warnings import FamilyCheck, families, family_warnings
from cimemories.store.engine import Store
from cimemories.store.labellings import LabellingRow
from cimemories.text import count, percent

LABELS = {
    "necessary": Column("count", "N necessary"),
    "ambiguous": Column("count", "U ambiguous"),
    "inappropriate": Column("count", "I inappropriate"),
}
SHARES = {
    "survival": Column("percent", "Consensus", "Share of the labelled pairs"),
    "pairs": Column("count", "Labelled pairs"),
    **LABELS,
}
TOO_FEW = {"too_few": Column("count", "Too few votes")}
DISSENT = {
    "who": Column("text", "Who dissents"),
    "how": Column("text", "How"),
    "pairs": Column("count", "Ambiguous pairs"),
    "share": Column("percent", "Of all ambiguous"),
}
CONTEXTS = {
    "user": Column("text", "Profile"),
    "name": Column("wide", "Context"),
    "sphere": Column("text", "Sphere"),
    "attributes": Column("count", "Labelled"),
    "necessary": LABELS["necessary"],
    "inappropriate": LABELS["inappropriate"],
    "reason": Column("text", "Retained, or why not"),
}
TABLE2 = {
    "name": Column("text", "Statistic"),
    "mean": Column("number", "Mean ± sd"),
    "over": Column("count", "Over"),
    "unit": Column("text", "Unit"),
    "published": Column("text", "Published"),
    "source": Column("text", "Source of the published figure"),
}
FAMILIES = {
    "run_name": Column("text", "Run"),
    "model": Column("text", "Model under test"),
    "family": Column("text", "Its family"),
    "labeller": Column("text", "Labelled by"),
    "labeller_family": Column("text", "Labeller's family"),
    "warning": Column("wide", "Warning"),
}


@dataclass(frozen=True, kw_only=True)
class Shares(Answer):
    """The pairs of a labelling by what became of them (`labels.survival.Survival`). by: a table a grouping."""

    rule: AppliedRule
    imported: bool
    planned: int
    labelled: int
    necessary: int
    inappropriate: int
    ambiguous: int
    too_few: int
    unlabelled: int
    needed: tuple[int, int]
    survival: float
    by: Mapping[GroupBy, Table]
    dissent: Table
    decisions: Decided

    def tables(self) -> dict[str, Table]:
        return {f"by {by}": table for by, table in self.by.items()} | super().tables()


@dataclass(frozen=True, kw_only=True)
class Retained(Answer):
    """The number of profiles' contexts that count, why the others do not, and the statistics of the paper's Table 2."""

    retained: int
    discarded: dict[str, int]
    unlabelled: int
    table2: Table


@dataclass(frozen=True, kw_only=True)
class Consensus(Answer):
    """All of a labelling. warnings: runs on its dataset whose model is of the labeller's family."""

    dataset: str
    labelling: str
    model: str
    shares: Shares
    contexts: Retained
    warnings: tuple[FamilyCheck, ...]


def consensus(store: Store, dataset: str, row: LabellingRow) -> Consensus:
    """Return all that is known of a labelling. Raises SeedError where the families of models are not valid."""
    result = shares(survival(store, row.id), row)
    checks = family_warnings(store, row.id)
    rule = f"rule: {result.rule.name} ({result.rule.text})"
    return Consensus(
        notes=tuple(filter(None, (rule, result.rule.note, *family_notes(checks)))),
        simulated=result.simulated,
        dataset=dataset,
        labelling=row.id,
        model=row.model,
        shares=result,
        contexts=retained(store, row, contexts(store, row.id)),
        warnings=tuple(item for item in checks if item.warning),
    )


def shares(counted: Survival, row: LabellingRow) -> Shares:
    """Return the shares of pairs with a consensus, and who dissents on the others."""
    columns = SHARES | (TOO_FEW if counted.too_few else {})
    return Shares(
        sentence=_shares_sentence(counted),
        notes=(
            *["imported as shares, no votes"] * counted.imported,
            "a persona dissents alone where the rule, applied to the others only, would give a label; it says the "
            "opposite, or abstains, where more than half of its votes do, and is divided otherwise",
            _decided(counted.decisions),
        ),
        simulated=("labels",) * row.simulated,
        rule=counted.rule,
        imported=counted.imported,
        planned=counted.planned,
        labelled=counted.pairs,
        necessary=counted.necessary,
        inappropriate=counted.inappropriate,
        ambiguous=counted.ambiguous,
        too_few=counted.too_few,
        unlabelled=counted.unlabelled,
        needed=counted.needed,
        survival=counted.share,
        by={
            by: Table(
                frame,
                {"name": Column("text", by.capitalize()), **columns},
                f"Pairs with a consensus by {by}",
                folded=by in (GroupBy.CONTEXT, GroupBy.PROFILE),
            )
            for by, frame in counted.by.items()
        },
        dissent=Table(counted.dissent, DISSENT, "Who prevents a consensus"),
        decisions=counted.decisions,
    )


def _shares_sentence(counted: Survival) -> str:
    if not counted.pairs:
        return counted.too_few_text or "No vote is counted yet."
    domains = counted.by[GroupBy.DOMAIN].dropna(subset="survival")
    text = (
        f"{percent(counted.share)} of {count(counted.pairs, 'labelled pair')} have a consensus, "
        f"{count(counted.necessary)} necessary and {count(counted.inappropriate)} inappropriate"
    )
    if len(domains) > 1:
        text += f"; by domain {sentences.ends([str(name) for name in domains['name']], domains['survival'].tolist())}"
    have = "has" if counted.unlabelled == 1 else "have"
    missing = f"{count(counted.unlabelled, 'pair')} {have} no counted vote." if counted.unlabelled else ""
    return " ".join(filter(None, (f"{text}.", counted.too_few_text, missing)))


def _decided(decided: Decided) -> str:
    if not decided.pairs:
        return "no pair has been decided by a person yet"
    parts = [
        f"{count(decided.settled)} settle an ambiguous pair",
        f"{count(decided.against)} go against the consensus",
        f"{count(decided.agree)} agree with the labelling",
    ]
    if decided.unlabelled:
        parts.append(f"{count(decided.unlabelled)} stand where there are too few votes, or none")
    return (
        f"decided by people, apart from all shares above: {count(decided.pairs, 'pair')}; {', '.join(parts)}. "
        "Runs count a person's decision before the consensus"
    )


def retained(store: Store, row: LabellingRow, counted: Contexts) -> Retained:
    """Return which contexts of profiles are retained, with Table 2 beside the published figures."""
    total, discarded = len(counted.frame), len(counted.frame) - counted.retained
    reasons = ", ".join(f"{count(n)} with {reason}" for reason, n in counted.discarded.items() if n)
    reasons = reasons.replace(f"with {NEITHER}", "with neither a necessary nor an inappropriate attribute")
    have = "has" if counted.unlabelled == 1 else "have"
    without = f"{count(counted.unlabelled, 'more context')} of profiles {have} no label" if counted.unlabelled else ""
    which = "labelled context" if counted.unlabelled else "context"
    lost = f"{count(discarded)} {'is' if discarded == 1 else 'are'} discarded, {reasons}"
    text = f"{count(counted.retained)} of {count(total, which)} of profiles are retained; "
    frame = pd.DataFrame(
        [
            {
                "name": line.name,
                "mean": line.mean,
                "mean_sd": line.sd,
                "over": line.over,
                "unit": line.unit,
                "published": line.published and line.published.figure,
                "source": line.published and f"{PAPER}, {line.published.source}",
            }
            for line in table2(store, row.id)
        ]
    )
    missing = unlabelled_text(store, row)
    notes = (
        "by effective labels under the current rule; sd with n - 1; the published figures describe the authors' own "
        "labels",
        f"{missing}; Table 2 leaves them out" if missing else "",
        f"{without}: not counted as retained here" if without else "",
    )
    return Retained(
        sentence=". ".join(filter(None, (text + (lost if discarded else "none is discarded"), without))) + ".",
        notes=tuple(filter(None, notes)),
        simulated=("labels",) * row.simulated,
        retained=counted.retained,
        discarded=counted.discarded,
        unlabelled=counted.unlabelled,
        table2=Table(frame, TABLE2, "The statistics of the paper's Table 2"),
    )


def models(store: Store, row: LabellingRow) -> Rows:
    """Return which models were tested by the labels of a model of their family. Raises SeedError as `consensus`."""
    checks = family_warnings(store, row.id)
    unknown = "not known"
    family = " and ".join(families(row.model)) or unknown
    rows = [
        vars(item) | {"family": " and ".join(item.families) or unknown, "labeller_family": family} for item in checks
    ]
    number = sum(item.warning is not None for item in checks)
    tested = f"{number} of {count(len(checks), 'run')} on this dataset test a model of the same family"
    return Rows(
        sentence=f"Labelled by {row.model} (family: {family}); "
        + (tested if checks else "no model has been tested on it yet")
        + ".",
        notes=(
            "seeds/models.yaml says which names belong to which family; a name it does not know raises no warning, "
            "unless it is the labeller's own",
        ),
        rows=Table(pd.DataFrame(rows, columns=[*FAMILIES]), FAMILIES),
    )


def family_notes(checks: Iterable[FamilyCheck]) -> list[str]:
    """Return the warnings of these runs, each once: of all runs of a sweep it is the same."""
    by_text: dict[str, list[str]] = {}
    for item in checks:
        if item.warning:
            by_text.setdefault(item.warning, []).append(item.run_name)
    notes = []
    for text, (first, *others) in by_text.items():
        more = f" and {count(len(others), 'other run')}" if others else ""
        notes.append(f"run '{first}'{more}: {text}")
    return notes
