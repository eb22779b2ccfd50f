"""One pair explained: the rule in words for votes, for other rules and for imported shares; what runs did with it."""

from __future__ import annotations

import pytest
from worlds import PERSONAS, add_dataset, add_labels, add_run, records

from cimemories.flows.labels import INAPPROPRIATE, NECESSARY
from cimemories.labels.votes import PairRun, PersonaVotes, explain, pair_runs, pairs
from cimemories.model import JudgementStatus, Label, ResponseStatus, Verdict
from cimemories.store import labellings
from cimemories.store.engine import Store, StoreError

N, X, Q = Verdict.NECESSARY, Verdict.INAPPROPRIATE, Verdict.ABSTAIN
Shares = tuple[float, float, float]


def votes(*draws: str) -> list[PersonaVotes]:
    """Persona by persona, one character a draw."""
    verdict_of: dict[str, str] = {"N": N, "X": X, "?": Q, "-": "failed"}
    return [PersonaVotes(p, tuple(verdict_of[d] for d in row), p.prior) for p, row in zip(PERSONAS, draws, strict=True)]


def shares(*rows: Shares) -> list[PersonaVotes]:
    return [PersonaVotes(p, (), p.prior, row) for p, row in zip(PERSONAS, rows, strict=True)]


@pytest.mark.parametrize(
    ("cast", "label", "threshold", "beginning"),
    [
        (votes("XX", "XX", "XX"), Label.INAPPROPRIATE, 1.0, "6 of 6 counted votes say inappropriate: consensus."),
        (votes("X-", "XX", "XX"), Label.INAPPROPRIATE, 1.0, "5 of 5 counted votes say inappropriate: consensus."),
        (votes("??", "??", "??"), Label.AMBIGUOUS, 1.0, "6 of 6 counted votes abstain: ambiguous."),
        (votes("--", "XX", "XX"), Label.AMBIGUOUS, 1.0, "No counted vote of fundamentalist. Consensus needs"),
        (votes("--", "--", "--"), None, 1.0, "No vote is counted for this pair"),
        (
            votes("XX", "X?", "XN"),
            Label.AMBIGUOUS,
            1.0,
            "Pragmatic 1 of 2 abstain; unconcerned 1 of 2 say necessary. Not every counted vote says inappropriate",
        ),
        # 0.26 + 0.64 = 0.9 of the mixture
        (votes("X", "X", "N"), Label.INAPPROPRIATE, 0.9, "90 % of the mixture says inappropriate; the threshold is 90"),
        (votes("X", "X", "N"), Label.AMBIGUOUS, 0.95, "90 % of the mixture says inappropriate, less than the thresh"),
        (shares((0, 1, 0), (0, 1, 0), (0, 1, 0)), Label.INAPPROPRIATE, 1.0, "Every persona's share is wholly inappr"),
        (shares((0, 1, 0), (0, 0.9, 0.1), (0, 1, 0)), Label.AMBIGUOUS, 1.0, "Not inappropriate: pragmatic 10 %."),
        (shares((0, 0, 0), (0, 0, 0), (0, 0, 0)), None, 1.0, "No share is given for this pair"),
    ],
)
def test_the_rule_is_said_in_words(
    cast: list[PersonaVotes], label: Label | None, threshold: float, beginning: str
) -> None:
    assert explain(cast, label, threshold).startswith(beginning)


def test_imported_shares_are_shown_as_shares() -> None:
    (first, *_) = shares((0, 0.97, 0.03), (1, 0, 0), (0, 0, 1))
    assert first.strip == "X 97 %, ? 3 %"
    assert (first.draws, first.missing) == ((), {})


def test_the_current_rule_gives_label_mixture_and_words(store: Store) -> None:
    data = add_dataset(store, 1, 1, 1)
    labelling = add_labels(store, data.id, [[[0]]])  # two personas abstain, the unconcerned says necessary
    (record,) = records(store, data.id)
    where = (store, labelling, record.id, record.context_ids[0])
    (before,) = pairs(*where)
    assert (before.consensus, before.rule and before.rule.is_paper) == (Label.AMBIGUOUS, True)
    priors = {"fundamentalist": 0.0, "pragmatic": 0.0, "unconcerned": 1.0}
    with store.write() as connection:
        labellings.add_rule(connection, data.id, "bold", threshold=0.9, priors=priors, annotator="Ada", use=True)
    (after,) = pairs(*where)
    assert (after.consensus, after.mixture) == (Label.NECESSARY, (1.0, 0.0, 0.0))
    assert [v.prior for v in after.votes] == [0.0, 0.0, 1.0]
    assert after.explanation == "100 % of the mixture says necessary; the threshold is 90 %: consensus."


def test_one_pair_alone_is_the_same_as_among_all(store: Store) -> None:
    data = add_dataset(store, 1, 3, 2)
    labelling = add_labels(store, data.id, [[[NECESSARY, 0], [INAPPROPRIATE, 0], [0, NECESSARY]]], draws=2)
    (record,) = records(store, data.id)
    for context in record.context_ids:
        everything = pairs(store, labelling, record.id, context)
        alone = [pairs(store, labelling, record.id, context, a)[0] for a in record.attribute_ids]
        assert everything == alone
    with pytest.raises(StoreError, match="no attribute"):
        pairs(store, labelling, record.id, record.context_ids[0], 999)


def test_runs_are_counted_on_what_was_judged(store: Store) -> None:
    data = add_dataset(store, 2, 2, 2)
    lost = {(0, 0, 1): ResponseStatus.FAILED, (0, 0, 2): JudgementStatus.UNPARSED}
    first = add_run(store, data.id, 5, [[[3, 1], [0, 0]], [[5, 5], [5, 5]]], missing=lost)
    second = add_run(store, data.id, 2, [[[0, 2], [1, 0]], [[0, 0], [0, 0]]], simulated=True)
    person, _ = records(store, data.id)
    a, c = person.attribute_ids, person.context_ids
    assert pair_runs(store, a[0], c[0]) == [
        PairRun(first, "small run", False, expected=5, draws=3, reveals=3),
        PairRun(second, "small run", True, expected=2, draws=2, reveals=0),
    ]
    assert [(r.reveals, r.draws) for r in pair_runs(store, a[1], c[0])] == [(0, 3), (1, 2)]
    assert [(r.reveals, r.draws) for r in pair_runs(store, a[0], c[1])] == [(1, 5), (2, 2)]
    assert pair_runs(store, 999, c[0]) == []
