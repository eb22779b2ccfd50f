"""What a heatmap can have along its sides: information domains, events, attribute keys, profiles; contexts, their
recipients and their spheres. Places stand in the order of the dataset, domains in that of the paper."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import pandas as pd

from cimemories.analysis.cube import Ints, Words, cube
from cimemories.analysis.flows import Flows, Scope
from cimemories.model import DOMAINS
from cimemories.store import datasets

NO_NAME = "(none)"


class By(StrEnum):
    """One side of a heatmap. ATTRIBUTE is the key, which several profiles may have."""

    DOMAIN = "domain"
    EVENT = "event"
    ATTRIBUTE = "attribute"
    PROFILE = "profile"
    CONTEXT = "context"
    RECIPIENT = "recipient"
    SPHERE = "sphere"

    @property
    def of_context(self) -> bool:
        """Whether it says where something is revealed; else what, and of whom."""
        return self in (By.CONTEXT, By.RECIPIENT, By.SPHERE)


@dataclass(frozen=True)
class Places:
    """The places along one side. ids: what an address calls them; names: short, no two alike; titles: in full.

    codes: which place each flow is in, by its attribute ([profile x attribute]) or its context ([context]), -1 for the
    padding of the arrays.
    """

    by: By
    ids: tuple[str, ...]
    names: tuple[str, ...]
    titles: tuple[str, ...]
    codes: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ids)

    def of(self, owners: Ints, contexts: Ints) -> npt.NDArray[np.int64]:
        """The place of each flow. owners, contexts: [flows], positions in the arrays that `codes` is for."""
        found: npt.NDArray[np.int64] = self.codes[contexts if self.by.of_context else owners]
        return found

    def position(self, place: str | None) -> int | None:
        """Where a place of that id stands; None where there is none."""
        return self.ids.index(place) if place in self.ids else None


def places(flows: Flows, asked: Scope, by: By) -> Places:
    """One side of the heatmaps of a run."""
    return flows.remember(("heatmap places", asked.version, by), lambda: _places(flows, asked, by))


def _places(flows: Flows, asked: Scope, by: By) -> Places:
    data = cube(flows, asked)
    if by == By.PROFILE:
        with flows.store.read() as connection:
            users, _ = datasets.wording(connection, asked.run.dataset)
        titles = [users[profile] for profile in data.profiles]
        codes = np.repeat(np.arange(len(titles)), data.labels.shape[1])
        return Places(by, tuple(map(str, data.profiles)), _unlike(titles), tuple(titles), codes)
    if not by.of_context:
        words = {By.DOMAIN: data.names.domain, By.EVENT: data.names.event, By.ATTRIBUTE: data.names.key}[by]
        return _worded(by, words.reshape(-1), data.names.attribute.reshape(-1) >= 0)
    with flows.store.read() as connection:
        rows = {row.id: row.context for row in datasets.contexts(connection, asked.run.dataset)}
    there = [rows[context] for context in data.contexts]
    if by == By.CONTEXT:
        titles = [f"{item.recipient}: {item.task}" for item in there]
        often = Counter(item.recipient for item in there)
        names = [item.recipient if often[item.recipient] == 1 else f"{item.recipient}: {item.task}" for item in there]
        return Places(by, tuple(map(str, data.contexts)), _unlike(names), tuple(titles), np.arange(len(titles)))
    texts = [item.recipient if by == By.RECIPIENT else item.sphere or "" for item in there]
    return _worded(by, np.array(texts, dtype=object), np.ones(len(texts), dtype=np.bool_))


def _worded(by: By, words: Words, real: npt.NDArray[np.bool_]) -> Places:
    """Places that are words, in the order in which they first appear; domains in the paper's."""
    codes = np.full(len(words), -1, dtype=np.int64)
    found, unique = pd.factorize(words[real])
    ids = [str(word) for word in unique]
    if by == By.DOMAIN:
        order = sorted(range(len(ids)), key=lambda i: (DOMAINS.index(ids[i]) if ids[i] in DOMAINS else len(DOMAINS), i))
        found = np.argsort(order)[found] if len(order) else found
        ids = [ids[i] for i in order]
    codes[real] = found
    names = [word.replace("_", " ") or NO_NAME for word in ids]
    return Places(by, tuple(ids), _unlike(names), tuple(names), codes)


def _unlike(names: Sequence[str]) -> tuple[str, ...]:
    """The same names, those that occur twice with a number."""
    often, seen = Counter(names), Counter[str]()
    told = []
    for name in names:
        seen[name] += 1
        told.append(f"{name} ({seen[name]})" if often[name] > 1 else name)
    return tuple(told)
