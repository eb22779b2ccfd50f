"""Places that flows are grouped by, as sides of a heatmap or groups of a table: domains, contexts, profiles, ..."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from cimemories.flows.arrays import FlowArrays, Ints, axes, text_codes, texts_of
from cimemories.flows.flows import Flows, cached
from cimemories.flows.scope import Scope
from cimemories.model import DOMAINS, Context
from cimemories.store import datasets

NO_NAME = "(none)"


class By(StrEnum):
    """Properties that flows can be grouped by. ATTRIBUTE is the key, which several profiles may have."""

    DOMAIN = "domain"
    EVENT = "event"
    ATTRIBUTE = "attribute"
    PROFILE = "profile"
    CONTEXT = "context"
    RECIPIENT = "recipient"
    SPHERE = "sphere"

    @property
    def of_context(self) -> bool:
        """True for where something is revealed; False for what is, and of whom."""
        return self in (By.CONTEXT, By.RECIPIENT, By.SPHERE)


@dataclass(frozen=True)
class Places:
    """The places of flows by one property, in the order of the dataset, domains in the paper's. ids: their names in an
    address; names: short, no two alike; titles: in full. codes: the place of each context of the run, in the order of
    its axis; empty for places of attributes and profiles, which `codes_in` has for a block."""

    by: By
    ids: tuple[str, ...]
    names: tuple[str, ...]
    titles: tuple[str, ...]
    codes: Ints

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def groups(self) -> dict[str, int]:
        """Names and positions for a table of groups: profiles and contexts in the order of the dataset, all else by
        id."""
        if self.by in (By.PROFILE, By.CONTEXT):
            return {name: at for at, name in enumerate(numbered(self.titles))}
        return {self.ids[at]: at for at in sorted(range(len(self)), key=self.ids.__getitem__)}

    def codes_in(self, data: FlowArrays) -> Ints:
        """Return the place of each flow of a block, -1 for none, to broadcast to [profile, attribute, context]."""
        if self.by == By.PROFILE:
            first = self.ids.index(str(data.profiles[0])) if data.profiles else 0
            return np.arange(first, first + len(data.profiles))[:, None, None]
        if self.by.of_context:
            return self.codes[None, None, :]
        return text_codes(data, COLUMN[self.by], self.ids)[:, :, None]

    def of(self, data: FlowArrays, owners: Ints, contexts: Ints) -> Ints:
        """Return the place of each of these flows of a block. owners, contexts: [flows], as of Entries."""
        at = contexts if self.by.of_context else owners
        if self.by == By.PROFILE:
            at = owners // max(data.counted.shape[1], 1)
        codes: Ints = self.codes_in(data).reshape(-1)[at]
        return codes

    def take(self, order: Ints) -> Places:
        """Return these places in this order. `codes` stay: they say where a flow is, not where it is shown."""
        ids, names, titles = (tuple(field[i] for i in order) for field in (self.ids, self.names, self.titles))
        return replace(self, ids=ids, names=names, titles=titles)

    def position(self, place_id: str | None) -> int | None:
        """Return the position of the place with that id; None if there is none."""
        return self.ids.index(place_id) if place_id in self.ids else None


COLUMN = {By.DOMAIN: "domain", By.EVENT: "event", By.ATTRIBUTE: "key"}  # of the relation and the names of arrays


@cached
def places(flows: Flows, scope: Scope, by: By) -> Places:
    """Return the places of the flows of a run by one property."""
    none = np.zeros(0, np.int64)
    if by in COLUMN:
        ids = list(texts_of(flows, scope, COLUMN[by]))
        if by == By.DOMAIN:
            ids.sort(key=lambda domain: DOMAINS.index(domain) if domain in DOMAINS else len(DOMAINS))
        return _of_texts(by, ids, none)
    run_axes = axes(flows, scope)
    if by == By.PROFILE:
        with flows.store.read() as connection:
            users = datasets.profile_names(connection, scope.run.dataset)
        titles = [users[profile] for profile in run_axes.profiles]
        return Places(by, tuple(map(str, run_axes.profiles)), numbered(titles), tuple(titles), none)
    rows = contexts_of_run(flows, scope)
    contexts = [rows[context] for context in run_axes.contexts]
    if by == By.CONTEXT:
        titles = [f"{item.recipient}: {item.task}" for item in contexts]
        often = Counter(item.recipient for item in contexts)
        names = [
            item.recipient if often[item.recipient] == 1 else title
            for item, title in zip(contexts, titles, strict=True)
        ]
        ids = list(map(str, run_axes.contexts))
        return Places(by, tuple(ids), numbered(names), tuple(titles), np.arange(len(titles)))
    texts = [item.recipient if by == By.RECIPIENT else item.sphere or "" for item in contexts]
    # In the order of first appearance; np.unique would sort.
    ids = list(dict.fromkeys(texts))
    return _of_texts(by, ids, np.array([ids.index(text) for text in texts], np.int64))


def _of_texts(by: By, ids: Sequence[str], codes: Ints) -> Places:
    names = [text.replace("_", " ") or NO_NAME for text in ids]
    return Places(by, tuple(ids), numbered(names), tuple(names), codes)


def numbered(names: Sequence[str]) -> tuple[str, ...]:
    """Add a number to names that occur more than once."""
    often, seen = Counter(names), Counter[str]()
    unique = []
    for name in names:
        seen[name] += 1
        unique.append(f"{name} ({seen[name]})" if often[name] > 1 else name)
    return tuple(unique)


def contexts_of_run(flows: Flows, scope: Scope) -> dict[int, Context]:
    """Return the contexts of a run's dataset, by their record ids."""
    with flows.store.read() as connection:
        return {row.id: row.context for row in datasets.contexts(connection, scope.run.dataset)}
