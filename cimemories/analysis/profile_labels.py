"""What the Profiles page says of labels: a strip of glyphs for every attribute, shares by profile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from cimemories.analysis.matrix import GLYPHS, matrix
from cimemories.analysis.pair_groups import GroupBy
from cimemories.analysis.survival import survival
from cimemories.store.datasets import ProfileRecord
from cimemories.store.engine import Store

ORDER = "NX?-"  # necessary, inappropriate, ambiguous, not labelled


@dataclass(frozen=True)
class ProfileLabels:
    """The effective labels of one profile. `strips`: attribute id -> one glyph of ORDER for each context, in the order
    of the profile's contexts. `decided`: pairs that a person decided."""

    strips: dict[int, str]
    decided: int

    def counts(self, attributes: Iterable[int] | None = None) -> dict[str, int]:
        """Pairs by glyph, all four in ORDER; of these attributes (ids) or of all."""
        wanted = self.strips if attributes is None else attributes
        found = Counter("".join(self.strips.get(i, "") for i in wanted))
        return {glyph: found[glyph] for glyph in ORDER}


def profile_labels(store: Store, labelling_id: str | None, record: ProfileRecord) -> ProfileLabels:
    """The labels of one profile by its newest standing decisions, else by the rule that holds for this labelling.
    Raises StoreError where there is no such labelling."""
    found = matrix(store, labelling_id, record)
    strips = {
        attribute_id: "".join(GLYPHS[int(code)] for code in row)
        for attribute_id, row in zip(record.attribute_ids, found.effective, strict=True)
    }
    return ProfileLabels(strips, int(found.decided.sum()))


def ambiguous_shares(store: Store, labelling_id: str) -> dict[int, float]:
    """By profile id, the share of its labelled pairs that are ambiguous under the rule that holds; decisions are not
    looked at. Profiles without a labelled pair are left out."""
    frame = survival(store, labelling_id).by[GroupBy.PROFILE]
    shares = frame["ambiguous"] / frame["pairs"]
    return {int(profile_id): float(share) for profile_id, share in zip(frame["id"], shares, strict=True)}
