"""How far a model agrees with itself: the draws of each persona, and the personas with each other. People are not in
it: their agreement is measured in people_agreement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cimemories.analysis.kappa import Figure, alpha
from cimemories.analysis.labels import vote_counts
from cimemories.store.engine import Store

NO_MAJORITY = 3
LETTERS = "NX?-"  # a majority for necessary, for inappropriate, of abstentions; none
Codes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Draws:
    """One persona's draws. pairs: with two counted votes or more; same: on how many of these all counted votes say the
    same; alpha: Krippendorff's over the votes, each draw an annotator."""

    persona: str
    pairs: int
    same: int
    alpha: Figure

    @property
    def share(self) -> float:
        """Pairs on which all draws say the same; nan where no pair has two."""
        return self.same / self.pairs if self.pairs else float("nan")


@dataclass(frozen=True)
class DrawsAgreement:
    """A labelling's model with itself. draws: one a persona, empty for a labelling that was imported as shares.
    personas: alpha over the personas' majority verdicts; pairs: with a majority of two personas or more; same: on how
    many of these all such majorities are the same."""

    draws: Sequence[Draws]
    personas: Figure
    pairs: int
    same: int

    @property
    def share(self) -> float:
        return self.same / self.pairs if self.pairs else float("nan")


def draws_agreement(store: Store, labelling_id: str) -> DrawsAgreement:
    """Agreement of draws and of personas, by verdict (necessary, inappropriate, abstain). Raises StoreError for an
    unknown labelling."""
    counts = vote_counts(store, labelling_id)
    draws = []
    if not counts.imported:
        for position, persona in enumerate(counts.personas):
            votes = counts.votes[:, position].astype(np.int64)
            several = votes[votes.sum(axis=1) > 1]
            draws.append(Draws(persona.key, len(several), _alike(several), alpha(votes)))
    verdicts = majorities(counts.votes)
    given = np.stack([(verdicts == code).sum(axis=1) for code in range(NO_MAJORITY)], axis=1).astype(np.int64)
    several = given[given.sum(axis=1) > 1]
    return DrawsAgreement(draws, alpha(given), len(several), _alike(several))


def majorities(votes: npt.ArrayLike) -> Codes:
    """What more than half of each persona's counted votes say: [pairs, personas], 0 necessary, 1 inappropriate, 2
    abstain, NO_MAJORITY where it is divided or has no counted vote. votes: [pairs, personas, 3], counts or shares."""
    counts = np.asarray(votes, np.float64)
    most = counts.argmax(axis=-1)
    enough = 2 * counts.max(axis=-1) > counts.sum(axis=-1)
    return np.where(enough, most, NO_MAJORITY).astype(np.int64)


def _alike(counts: Codes) -> int:
    """Items on which everybody gives the same answer. counts: [items, answers]."""
    return int((counts.max(axis=1) == counts.sum(axis=1)).sum()) if len(counts) else 0
