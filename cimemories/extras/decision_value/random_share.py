"""A share of the queue that is drawn at random, so that the answers to it represent all pairs.

Pairs chosen by value are no random sample. So the queue regularly takes the next pair by a hash of seed, attribute and
context (Kossen et al. 2021, Active Testing: labels chosen for their information need known probabilities). The hash
alone determines which pairs are in the sample, however and by whom they were decided: the first k of N pairs by hash
are a simple random sample, each with the probability k / N. k ends before the first pair by hash that is neither
answered nor set aside. The estimate is that of Horvitz and Thompson (1952), its interval Korn and Graubard's."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv

from cimemories.agreement.people import answers
from cimemories.flows.labels import AMBIGUOUS, UNLABELLED
from cimemories.review.index import Ints, PairIndex, hashed
from cimemories.store import reviews
from cimemories.store.engine import Store
from cimemories.store.reviews import MarkKind
from cimemories.text import count, percent

SHARE = 0.1  # of the queue, by default
MIXED = 3000  # pairs at the front of a queue into which the random share is mixed; no page shows more at once


def interleaved(first: Ints, by_hash: Ints, share: float) -> Ints:
    """Mix positions of `by_hash` into `first`, so that up to each place this share comes from there (0: none, 1: all);
    no position twice. Both hold the same positions [matching]. Only the first MIXED are mixed; the rest of `first`
    follows."""
    if share <= 0 or not len(first):
        return first
    if share >= 1:
        return by_hash
    slots = min(MIXED, len(first))
    # Of k places floor(k share + 1/2) are random: the first one is in the middle of the first interval.
    random = np.diff(np.floor(np.arange(slots + 1) * share + 0.5)) > 0
    head = np.empty(slots, first.dtype)
    head[random] = by_hash[: int(random.sum())]
    head[~random] = first[: slots - int(random.sum())]
    # A pair may be due in both orders: it stands at the first of its places.
    _, places = np.unique(head, return_index=True)
    head = head[np.sort(places)]
    rest = first[~np.isin(first, head)]
    return np.concatenate([head, rest])


@dataclass(frozen=True)
class ShareAgreement:
    """Agreement of the consensus with people on the random share.

    population: pairs with a consensus label (ambiguous is one), N. sampled: the first of them by hash, k; answered: of
    these, with a person's answer; the others were skipped or flagged. blind: answers given without sight of the votes.
    agree, of: answers equal to the consensus label, and all. settled_agree, settled: the same for pairs whose consensus
    is necessary or inappropriate; settled_population: the number of such pairs."""

    population: int
    sampled: int
    answered: int
    blind: int
    agree: int
    settled_agree: int
    settled: int
    settled_population: int

    @property
    def probability(self) -> float:
        """Return the probability with which each pair was drawn: k / N."""
        return self.sampled / self.population if self.population else 0.0

    def estimate(self) -> tuple[float, float, float]:
        """Return (share, low, high) of the pairs on which people agree with the consensus, with a 95 % interval; nan
        without an answer. Every pair has the same probability, so it is the share of the answered ones."""
        return _share(self.agree, self.answered, self.population)

    def settled_estimate(self) -> tuple[float, float, float]:
        """Return `estimate` over the pairs that the consensus calls necessary or inappropriate."""
        return _share(self.settled_agree, self.settled, self.settled_population)

    @property
    def sentence(self) -> str:
        if not self.answered:
            return "Nothing of the random share is answered yet, so nothing is known of all pairs."
        parts = [
            f"Random share: {count(self.answered)} of {count(self.population, 'pair')} answered"
            + (f", {count(self.sampled - self.answered)} skipped" if self.sampled > self.answered else "")
        ]
        if self.settled:
            share, low, high = self.settled_estimate()
            parts.append(
                f"people agree with {percent(share)} [{percent(low)}, {percent(high)}] of the labels agreed on by the "
                f"personas ({count(self.settled, 'answer')})"
            )
        if self.blind < self.answered:
            parts.append(f"{count(self.answered - self.blind)} answered with the votes in sight, which may raise it")
        return "; ".join(parts) + "."

    def as_json(self) -> dict[str, object]:
        def plain(figures: tuple[float, float, float]) -> list[float] | None:
            return None if math.isnan(figures[0]) else list(figures)

        return {
            "pairs": self.population,
            "drawn": self.sampled,
            "answered": self.answered,
            "blind": self.blind,
            "agreement": plain(self.estimate()),
            "agreement_where_settled": plain(self.settled_estimate()),
        }


def _share(agree: int, of: int, population: int) -> tuple[float, float, float]:
    """Return a share with Clopper and Pearson's interval, with the effective number of observations in a finite
    population (Korn and Graubard 1998): its width is 0 only if all pairs are answered. Skipped pairs are not."""
    if not of:
        return math.nan, math.nan, math.nan
    share = agree / of
    if of >= population:
        return share, share, share
    number = of / (1 - of / population)
    hits = share * number
    low = float(betaincinv(hits, number - hits + 1, 0.025)) if hits > 0 else 0.0
    high = float(betaincinv(hits + 1, number - hits, 0.975)) if hits < number else 1.0
    return share, low, high


def share_agreement(store: Store, index: PairIndex, seed: int = 0, among: Ints | None = None) -> ShareAgreement:
    """Return the agreement of the consensus with people on all labelled pairs, or on those `among` them (positions),
    from the first pairs by the hash of this seed. Adjudications do not count as answers; of several people's answers to
    a pair the most frequent counts, the newest of these."""
    shape = index.shape
    labelled = np.asarray(index.consensus >= AMBIGUOUS)
    positions = np.flatnonzero(labelled) if among is None else np.asarray(among)[labelled[among]]
    order = positions[np.argsort(hashed(seed, shape.attributes[positions], shape.contexts[positions]), kind="stable")]
    decided = answers(store, index.dataset_id)
    label, blind = np.full(shape.pairs, UNLABELLED, np.int8), np.zeros(shape.pairs, np.bool_)
    at = shape.locate(decided.attributes, decided.contexts)
    label[at[at >= 0]] = decided.majority()[at >= 0]
    # Blind if all answers are.
    given = decided.labels != UNLABELLED
    blind[at[at >= 0]] = (decided.blind | ~given).all(axis=0)[at >= 0]
    with store.read() as connection:
        marked = reviews.standing_marks(connection, index.dataset_id, MarkKind.SKIP, MarkKind.FLAG)
    seen = label != UNLABELLED
    if marked:
        places = shape.locate([a for a, _ in marked], [c for _, c in marked])
        seen[places[places >= 0]] = True
    # Up to the first pair without an answer or mark: later decisions may have been chosen for their value.
    missing = np.flatnonzero(~seen[order])
    sampled = order[: int(missing[0])] if len(missing) else order
    answered = sampled[label[sampled] != UNLABELLED]
    same = label[answered] == index.consensus[answered]
    settled = index.consensus[answered] != AMBIGUOUS
    return ShareAgreement(
        population=len(order),
        sampled=len(sampled),
        answered=len(answered),
        blind=int(blind[answered].sum()),
        agree=int(same.sum()),
        settled_agree=int((same & settled).sum()),
        settled=int(settled.sum()),
        settled_population=int((index.consensus[order] != AMBIGUOUS).sum()),
    )
