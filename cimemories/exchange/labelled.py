"""Shares of votes inside the contexts of profiles, in the authors' layout (formats.labelled)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from cimemories.flows.labels import TOO_FEW, mixture, rule_of, vote_counts
from cimemories.formats.labelled import COMBINED, persona_slugs
from cimemories.formats.reading import FormatError
from cimemories.store import decisions
from cimemories.store.datasets import ProfileRecord
from cimemories.store.engine import Store
from cimemories.store.labellings import STAND_IN, LabellingRow
from cimemories.text import count

_NAMES = ("necessary", "private", "unlabeled")
Shares = npt.NDArray[np.float64]


class LabelWriter:
    """Puts the shares of one labelling into profiles of the authors' layout. Raises FormatError for personas that the
    layout cannot tell apart.

    decided: the number of pairs that people have decided. repeated: pairs written so far with other shares than an
    earlier attribute with the same statement; the file is keyed by statement, and has the shares of the first."""

    def __init__(self, store: Store, chosen: LabellingRow) -> None:
        self.rule, self.counts, self.repeated = rule_of(store, chosen.id), vote_counts(store, chosen.id), 0
        personas = self.counts.personas
        with store.read() as connection:
            self.decided = len(decisions.standing(decisions.history(connection, chosen.dataset)))
        try:
            # Labels that were imported only combined have no personas.
            slugs = [] if list(personas) == [STAND_IN] else persona_slugs(personas)
        except FormatError as problem:
            raise FormatError(f"export: {problem}") from None
        self._keys = [*(f"labels_{chosen.model}___{slug}__" for slug in slugs), COMBINED]
        self._labelling = {
            "model": chosen.model,
            "simulated": chosen.simulated,
            "pack": chosen.pack,
            "rule": self.rule.as_json(),
            "decisions": self.decided,
            "personas": [
                {"key": p.key, "name": p.name, "prior": p.prior, "description": p.description} for p in personas
            ],
        }

    def add(self, content: dict[str, Any], record: ProfileRecord) -> None:
        """Add the labels of a profile to the result of `formats.official.record_of`."""
        content["labelling"] = self._labelling
        shares, combined = self._shares(record)
        first: dict[str, int] = {}
        for at, attribute in enumerate(record.profile.attributes):
            earlier = first.setdefault(attribute.statement, at)
            differ = ~np.isclose(shares[earlier], shares[at], equal_nan=True)
            self.repeated += int(differ.any(axis=(1, 2)).sum())
        for index, context in enumerate(content["contexts"]):
            # Without keys of personas zip leaves their shares out.
            of_personas = np.moveaxis(shares[:, index], 1, 0)[: len(self._keys) - 1]
            for key, cells in zip(self._keys, [*of_personas, combined[:, index]], strict=True):
                rows = cells.tolist()
                by_statement = {
                    statement: dict(zip(_NAMES, rows[at], strict=True))
                    for statement, at in first.items()
                    if not math.isnan(rows[at][0])
                }
                if by_statement:
                    context[key] = by_statement

    def _shares(self, record: ProfileRecord) -> tuple[Shares, Shares]:
        """Return shares of necessary, inappropriate and abstain, 0 to 1, by persona [attributes, contexts, personas, 3]
        and combined by the rule's priors [attributes, contexts, 3]; nan for a persona without a counted vote, and for a
        pair with too few for a label, because shares do not tell their number of votes."""
        counts = self.counts
        votes = np.zeros((len(record.attribute_ids), len(record.context_ids), len(counts.personas), 3))
        low, high = min(record.attribute_ids, default=0), max(record.attribute_ids, default=-1)
        # Votes are sorted by attribute: this cuts out the range that holds those of the profile, and maybe others.
        here = slice(np.searchsorted(counts.attributes, low), np.searchsorted(counts.attributes, high, "right"))
        rows = {id_: at for at, id_ in enumerate(record.attribute_ids)}
        columns = {id_: at for at, id_ in enumerate(record.context_ids)}
        part = counts.at(here)
        labels = part.labels(self.rule).tolist()
        places = zip(part.attributes.tolist(), part.contexts.tolist(), part.votes, labels, strict=True)
        for a, c, cell, code in places:
            if code != TOO_FEW and a in rows and c in columns:
                votes[rows[a], columns[c]] = cell
        total = votes.sum(axis=-1, keepdims=True)
        # nan, not 0: a persona without a counted vote has no shares. Those that were imported are shares already.
        with np.errstate(invalid="ignore"):
            shares = np.where(total > 0, votes, np.nan) if counts.imported else votes / total
        return shares, mixture(votes, self.rule.priors)

    def notes(self) -> list[str]:
        """Return notes on the labels that a file of shares lacks, so that numbers differ after an import."""
        notes = []
        if self.decided:
            notes.append(
                f"{count(self.decided, 'human decision')} {'is' if self.decided == 1 else 'are'} not in this format: "
                "it holds the personas' shares. `cimemories review export` writes them"
            )
        too_few = int((self.counts.labels(self.rule) == TOO_FEW).sum())
        if too_few:
            notes.append(f"left out: the shares of {count(too_few, 'pair')} with too few votes for a label")
        if not self.rule.is_paper:
            notes.append(
                f"the rule '{self.rule.name}' ({self.rule.text}) is only named in the file: where it is imported, "
                "labels follow the rule of that dataset"
            )
        return notes
