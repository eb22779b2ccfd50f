"""The statistics of the paper's Table 2 for a labelling under the rule that holds, beside the published figures.

Published figures are facts of arXiv 2511.14937; a figure that is not at hand is None, never guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from cimemories.analysis.survival import Contexts, contexts
from cimemories.store import work
from cimemories.store.engine import Store
from cimemories.store.tables import attribute, profile, profile_context

PAPER = "arXiv 2511.14937"


@dataclass(frozen=True)
class Published:
    """A figure of the paper: as text, and the place where it stands."""

    figure: str
    place: str


@dataclass(frozen=True)
class Statistic:
    """One line of the table. mean and sd (n - 1) over `over` things; both nan without any, sd nan with one. A plain
    count has sd None. published: None where the figure is not at hand."""

    name: str
    mean: float
    sd: float | None
    over: int
    unit: str
    published: Published | None


def table2(store: Store, labelling_id: str) -> tuple[Statistic, ...]:
    """The statistics of a labelling, by effective labels. All attributes count, those of the biography too, and all
    profiles of the dataset; a profile without a labelled context has none retained. Raises StoreError for an unknown
    labelling."""
    with store.read() as connection:
        dataset_id = int(work.load(connection, labelling_id)["dataset"])
        attributes = _by_profile(connection, dataset_id, attribute)
        tested = _by_profile(connection, dataset_id, profile_context)
    return statistics(attributes, tested, contexts(store, labelling_id))


def statistics(attributes: dict[int, int], tested: dict[int, int], found: Contexts) -> tuple[Statistic, ...]:
    """attributes, tested: how many of them each profile (id) has. found: the contexts by profile."""
    kept = found.frame[found.frame["reason"] == ""]
    by_profile = kept["profile"].value_counts()
    retained = [int(by_profile.get(profile_id, 0)) for profile_id in attributes]
    count = float(len(attributes))
    return (
        Statistic("Profiles", count, None, len(attributes), "profiles", Published("10", "Section 5.1")),
        _over("Attributes a profile", list(attributes.values()), "profiles", Published("about 147", "Table 2")),
        _over("Contexts a profile, all", list(tested.values()), "profiles", Published("49", "Section 4.1.2")),
        _over("Contexts a profile, retained", retained, "profiles", Published("about 45", "Table 2")),
        _over("Necessary attributes a context", kept["necessary"].tolist(), "retained contexts", None),
        _over("Inappropriate attributes a context", kept["inappropriate"].tolist(), "retained contexts", None),
    )


def _over(name: str, values: Sequence[int], unit: str, published: Published | None) -> Statistic:
    array: npt.NDArray[np.float64] = np.array(values, np.float64)
    mean = float(array.mean()) if len(array) else float("nan")
    sd = float(array.std(ddof=1)) if len(array) > 1 else float("nan")
    return Statistic(name, mean, sd, len(array), unit, published)


def _by_profile(connection: sa.Connection, dataset_id: int, table: sa.Table) -> dict[int, int]:
    """How many rows of a table each profile has, none left out."""
    count = sa.select(sa.func.count()).select_from(table).where(table.c.profile == profile.c.id).scalar_subquery()
    rows = connection.execute(
        sa.select(profile.c.id, count).where(profile.c.dataset == dataset_id).order_by(profile.c.ordinal)
    )
    return {profile_id: int(n) for profile_id, n in rows}
