"""How far people agree, with each other and with the consensus; a model with itself; and what decisions do to a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from cimemories.agreement.models import draws_agreement
from cimemories.agreement.people import PeopleAgreement
from cimemories.agreement.statistics import reasons
from cimemories.answer import Answer, Column, Rows, Table
from cimemories.labels.votes import GroupBy
from cimemories.review.effect import DecisionEffect
from cimemories.store.engine import Store
from cimemories.store.labellings import LabellingRow
from cimemories.text import count, shortened

EVERYONE = "all people together"
ALPHA = Column(
    "decimal",
    "Krippendorff's alpha",
    "Krippendorff's alpha, nominal: 1 is full agreement, 0 what chance would give, over pairs that two or more "
    "answered.",
)
STATISTICS = {
    "agreement": Column(
        "percent", "Same label", "Share of the pairs with the same label on both sides, not corrected for chance."
    ),
    "kappa": Column(
        "decimal",
        "Cohen's kappa",
        "Cohen's kappa: agreement beyond what chance would give, each side with the shares of its own labels.",
    ),
    "ac1": Column(
        "decimal", "Gwet's AC1", "Gwet's AC1: like kappa, but stable where one label is much more frequent than others."
    ),
}
AMONG = {
    "alpha": ALPHA,
    "same": Column("percent", "Same label", "Of the pairs that two or more answered"),
    "pairs": Column("count", "Answered by two or more"),
    "people": Column("count", "People"),
}
AGAINST = {"who": Column("text", "Who"), "answered": Column("count", "Answered"), **STATISTICS}
DRAWS = {
    "of": Column("text", "Votes of"),
    "pairs": Column("count", "Pairs", "With two counted votes, or majorities, or more"),
    "share": Column("percent", "All the same"),
    "alpha": ALPHA,
}
NUMBERS = {
    "number": Column("text", "Number"),
    "consensus": Column("percent", "Consensus alone"),
    "decisions": Column("percent", "With decisions"),
    "difference": Column("difference", "Difference, points"),
}


@dataclass(frozen=True, kw_only=True)
class People(Answer):
    """The agreement of people. among: with each other, a row; against: with the consensus, all people together first;
    by: both by group."""

    among: Table
    against: Table
    by: Mapping[GroupBy, Table]


def people(result: PeopleAgreement) -> People:
    """Return what agreement says of people. Without a labelling nothing compares with a consensus."""
    among = result.among
    rows: list[dict[str, object]] = []
    estimates = [among.alpha]
    for item in result.against if result.labelling_id else ():
        row: dict[str, object] = {"who": item.person or EVERYONE, "answered": item.answered}
        for name in STATISTICS:
            estimates.append(getattr(item.comparison, name))
            row |= estimates[-1].columns(name)
        rows.append(row)
    one = among.alpha.columns("alpha") | {"same": among.share, "pairs": among.pairs, "people": among.people}
    shown = {"alpha": ALPHA} | (STATISTICS if result.labelling_id else {})
    by = {}
    for group, frame in result.by.items():
        cells = []
        for line in frame.to_dict("records"):
            cells.append({"name": line["name"], "answered": line["answered"]})
            for name in shown:
                estimates.append(line[name])
                cells[-1] |= line[name].columns(name)
        columns = {
            "name": Column("text", group.capitalize()),
            "answered": Column("count", "Answered", "Pairs with an answer"),
        }
        by[group] = Table(pd.DataFrame(cells), columns | shown, f"Agreement by {group}")
    return People(
        sentence=_sentence(result),
        notes=(*_notes(result), *reasons(estimates)),
        among=Table(pd.DataFrame([one]), AMONG, "People among themselves"),
        against=Table(pd.DataFrame(rows), AGAINST, "People against the consensus"),
        by=by,
    )


def _sentence(result: PeopleAgreement) -> str:
    if not result.answered:
        return "No pair has been answered by a person yet, so there is no agreement to report."
    together = result.against[0].comparison
    if together.items:
        of = f"{count(together.items)} pairs"
        if result.sampled is not None:
            of = f"all {count(result.sampled.reached)} pairs that the slice '{result.sampled.row.name}' stands for"
        return f"People give the label of the consensus to {together.agreement.text()} of {of}."
    if result.among.alpha.value is not None:
        pairs = count(result.among.pairs, "pair")
        return f"Among themselves people agree with alpha {result.among.alpha.text('decimal')} over {pairs}."
    return f"{count(result.answered, 'pair')} answered, none of them comparable yet."


def _notes(result: PeopleAgreement) -> list[str]:
    # All people together come first, so there is one entry more than there are people.
    who, pairs = count(len(result.against) - 1, "person", "people"), count(result.answered, "pair")
    notes = [f"{count(result.in_force, 'decision')} in force, by {who} on {pairs}; undone ones are not counted"]
    if result.adjudicated:
        notes.append(f"{count(result.adjudicated, 'adjudication')} left out: made with the others' answers in sight")
    notes.append("intervals are 95 %, from 2,000 bootstrap resamples of the pairs")
    notes.append("all people together: the label that most of them give; on a tie, the one given last")
    if sampled := result.sampled:
        notes.append(
            f"slice '{sampled.row.name}': {count(sampled.answered)} of {count(sampled.row.items)} sampled pairs are "
            "answered; each pair has the weight of the pairs of its stratum that it represents (Horvitz-Thompson): "
            f"shares, kappa and AC1 against the consensus cover {count(sampled.reached)} of the "
            f"{count(sampled.population)} pairs that were sampled from; alpha among people is not weighted"
        )
    return notes


def with_itself(store: Store, labelling: LabellingRow) -> Rows:
    """Return how far the model of a labelling agrees with itself. Raises StoreError for an unknown labelling."""
    result = draws_agreement(store, labelling.id)
    parts = [(item.persona, item) for item in result.draws]
    rows = [
        {"of": of, "pairs": item.pairs, "same": item.unanimous, "share": item.share, **item.alpha.columns("alpha")}
        for of, item in parts
    ]
    last = {"of": "the personas, by majority", "pairs": result.pairs, "same": result.unanimous, "share": result.share}
    frame = pd.DataFrame([*rows, last | result.personas.columns("alpha")])
    notes = [
        "no person's answer is in these numbers, and none of them is in the statistics of people",
        "a persona's verdict is what more than half of its counted votes say: necessary, inappropriate, or abstain",
        *reasons([*(item.alpha for _, item in parts), result.personas]),
    ]
    if not result.draws:
        notes.append("these labels were imported as shares: there are no votes to compare")
    elif not all(frame["pairs"]):
        notes.append("without a share: no pair has two votes")
    return Rows(
        sentence=f"How far {shortened(labelling.model, 60)} agrees with itself in {labelling.id}.",
        notes=tuple(notes),
        simulated=("labels",) * labelling.simulated,
        rows=Table(frame, DRAWS, "Votes of one persona, and the personas with each other"),
    )


def effect_of(effect: DecisionEffect) -> Rows:
    """Return what decisions do to the numbers of a run."""
    n, before, after = effect.n, effect.consensus, effect.decisions
    moved = after.violation[n] - before.violation[n]
    if math.isnan(moved):
        outcome = f"one of the two sets of labels leaves Violation@{n} undefined"
    elif abs(moved) < 5e-5:
        outcome = f"Violation@{n} does not move"
    else:
        outcome = f"Violation@{n} {'rises' if moved > 0 else 'falls'} by {100 * abs(moved):.1f} points"
    measures = [
        (f"Violation@{k}", before.violation[k], after.violation[k])
        for k in dict.fromkeys((1, n, max(before.violation)))
    ]
    measures.append(("Completeness", before.completeness, after.completeness))
    frame = pd.DataFrame(measures, columns=["number", "consensus", "decisions"])
    frame["difference"] = frame["decisions"] - frame["consensus"]
    undefined = ("Undefined where no context is retained",) * bool(frame["difference"].isna().any())
    return Rows(
        sentence=f"{count(effect.decided, 'decided pair')}, {count(effect.changed)} against the consensus: {outcome}.",
        notes=(
            f"retained contexts of profiles: {count(before.retained)} by the consensus alone, {count(after.retained)} "
            f"with decisions ({after.retained - before.retained:+,})",
            *undefined,
        ),
        rows=Table(frame, NUMBERS, "The run with decisions and without"),
    )
