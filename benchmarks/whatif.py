"""What another rule would do, at the paper's scale: ten profiles of 147 attributes in 49 contexts, three personas.

    .venv/bin/python benchmarks/whatif.py [ROUNDS]

Prints medians in milliseconds, and each as a ratio to the same question asked of pandas group-bys in the same run: one
over the tallies (a row a pair and persona), one over single votes (a row a draw). The answers are compared first.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import pandas as pd

from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY, UNLABELLED, VoteCounts, custom_rule, paper_rule
from cimemories.labels.survival import by_group, dissent
from cimemories.labels.votes import GroupBy, Groups
from cimemories.labels.whatif import Pairs, compare
from cimemories.model import DOMAINS
from cimemories.seeds import load_personas

PROFILES, ATTRIBUTES, CONTEXTS, DRAWS = 10, 147, 49, 10
PERSONAS = load_personas().personas
PAPER = paper_rule(PERSONAS)
TRIED = custom_rule(PERSONAS, "tried", 0.8, PAPER.prior_by_key)
SPHERES = 10


def world() -> Pairs:
    """Votes that lean one way in each pair, so that some agree and some do not."""
    rng = np.random.default_rng(7)
    attributes = np.repeat(np.arange(PROFILES * ATTRIBUTES), CONTEXTS)
    contexts = np.tile(np.arange(CONTEXTS), PROFILES * ATTRIBUTES)
    size = len(attributes)
    lean = rng.dirichlet([0.08, 0.2, 0.08], size)
    votes = np.stack([rng.multinomial(DRAWS, lean) for _ in PERSONAS], axis=1).astype(np.int16)
    counts = VoteCounts("labelling-0", 0, attributes, contexts, votes, PERSONAS, imported=False)

    def groups(codes: np.ndarray, many: int) -> Groups:
        return Groups(tuple(range(many)), tuple(map(str, range(many))), codes)

    by = {
        GroupBy.DOMAIN: groups(attributes % len(DOMAINS), len(DOMAINS)),
        GroupBy.SPHERE: groups(contexts % SPHERES, SPHERES),
        GroupBy.CONTEXT: groups(contexts, CONTEXTS),
        GroupBy.PROFILE: groups(attributes // ATTRIBUTES, PROFILES),
    }
    return Pairs(1, counts, by, np.zeros(size, bool), np.full(size, UNLABELLED, np.int8))


def tallies(pairs: Pairs) -> pd.DataFrame:
    """A row a pair and persona, with what it is grouped by."""
    counts = pairs.counts
    many = len(PERSONAS)
    frame = pd.DataFrame(counts.votes.reshape(-1, 3).astype(float), columns=["necessary", "inappropriate", "abstain"])
    frame.insert(0, "attribute", np.repeat(counts.attributes, many))
    frame.insert(1, "context", np.repeat(counts.contexts, many))
    frame["persona"] = np.tile(np.arange(many), len(counts.attributes))
    for group_by, groups in pairs.groups.items():
        frame[str(group_by)] = np.repeat(groups.codes, many)
    return frame


def single_votes(frame: pd.DataFrame) -> pd.DataFrame:
    """A row a draw, as the record has them."""
    long = frame.melt(["attribute", "context", "persona"], ["necessary", "inappropriate", "abstain"], "verdict", "n")
    return long.loc[long.index.repeat(long["n"].astype(int)), ["attribute", "context", "persona", "verdict"]]


def label_by_pandas(frame: pd.DataFrame, threshold: float) -> pd.Series:
    verdicts = ["necessary", "inappropriate", "abstain"]
    prior = frame["persona"].map(dict(enumerate(PAPER.priors)))
    shares = frame[verdicts].div(frame[verdicts].sum(axis=1), axis=0).mul(prior, axis=0)
    mixed = shares.groupby([frame["attribute"], frame["context"]]).sum()
    label = pd.Series(AMBIGUOUS, index=mixed.index)
    label[mixed["necessary"] >= threshold - 1e-12] = NECESSARY
    label[mixed["inappropriate"] >= threshold - 1e-12] = INAPPROPRIATE
    return label


def by_pandas(frame: pd.DataFrame) -> pd.DataFrame:
    """The what-if, its shares by domain, sphere, context and profile included."""
    before, after = label_by_pandas(frame, 1.0), label_by_pandas(frame, 0.8)
    pairs = frame.drop_duplicates(["attribute", "context"]).set_index(["attribute", "context"])
    moved = pairs.assign(changed=before != after, old=before > AMBIGUOUS, new=after > AMBIGUOUS)
    grouped = [moved.groupby(str(g))[["changed", "old", "new"]].agg(["sum", "mean"]) for g in GroupBy]
    moved.groupby([before, after]).size()
    return grouped[0]


def by_pandas_from_votes(votes: pd.DataFrame, frame: pd.DataFrame) -> pd.DataFrame:
    counted = votes.groupby(["attribute", "context", "persona"])["verdict"].value_counts().unstack(fill_value=0)
    wide = counted.reset_index().merge(
        frame.drop(columns=["necessary", "inappropriate", "abstain"]), on=["attribute", "context", "persona"]
    )
    return by_pandas(wide)


def median(action: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Median and worst, in milliseconds, after one round that does not count."""
    action()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        action()
        times.append((time.perf_counter() - start) * 1000)
    return statistics.median(times), max(times)


def main(rounds: int) -> None:
    pairs = world()
    frame = tallies(pairs)
    votes = single_votes(frame)
    ours, theirs = compare(pairs, PAPER, TRIED), by_pandas(frame)
    assert ours.by[GroupBy.DOMAIN].frame["changed"].tolist() == theirs["changed"]["sum"].tolist()
    labels = pairs.counts.labels(PAPER)
    print(
        f"{len(frame) // len(PERSONAS):,} pairs, {len(votes):,} votes; {ours.changed:,} labels change, "
        f"survival {ours.survival_before:.1%} to {ours.survival_after:.1%}"
    )
    rows = [
        ("what-if, all four groupings", lambda: compare(pairs, PAPER, TRIED), rounds),
        ("survival by four groupings", lambda: [by_group(g, labels) for g in pairs.groups.values()], rounds),
        ("who dissents", lambda: dissent(pairs.counts.votes, PAPER, labels), rounds),
        ("what-if by pandas, from tallies", lambda: by_pandas(frame), max(3, rounds // 4)),
        ("what-if by pandas, from votes", lambda: by_pandas_from_votes(votes, frame), 3),
    ]
    measured = {name: median(action, times) for name, action, times in rows}
    base = measured[rows[0][0]][0]
    print(f"{'':34} {'median ms':>10} {'worst':>8}  ratio to the what-if")
    for name, (middle, worst) in measured.items():
        print(f"{name:34} {middle:10.1f} {worst:8.1f}  {middle / base:.1f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
