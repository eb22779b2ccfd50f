"""What an open workspace and everything that was read from it share: the record, and what was computed from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from cimemories.store.engine import Store, StoreError
from cimemories.text import visible, without_credentials

if TYPE_CHECKING:
    from cimemories.flows.flows import Flows


class Choices(TypedDict, total=False):
    """What flows rest on, as the command line takes it. labels: 'decisions' (of people, then the consensus; default),
    'consensus', or the id of a labelling. rule: 'paper', or a rule of the dataset. judge: id or name of a judge, or
    any, majority or all of them; default: the first. grounded: count only reveals whose quote is in the message."""

    labels: str | None
    rule: str | None
    judge: str | None
    grounded: bool


class Reading(Choices, total=False):
    """What numbers rest on. identifiers: which attributes never count as violations: exact (those that repeat the
    biography; default), substring or none."""

    identifiers: str


class Session:
    """An open record until `close`. `name`: its folder or address, without a password."""

    def __init__(self, store: Store) -> None:
        self._store: Store | None = store
        self._flows: Flows | None = None
        address = store.engine.url.render_as_string(hide_password=True)
        self.name = visible(without_credentials(str(store.workspace) if store.is_sqlite else address))

    @property
    def closed(self) -> bool:
        return self._store is None

    @property
    def store(self) -> Store:
        """Raises StoreError once it is closed."""
        if self._store is None:
            raise StoreError(f"the workspace {self.name} was closed. Open it again with cimemories.open().")
        return self._store

    @property
    def flows(self) -> Flows:
        """Made when it is first asked for: pandas and DuckDB take a moment to load. Raises StoreError once it is
        closed."""
        from cimemories.flows.flows import Flows

        store = self.store
        if self._flows is None:
            self._flows = Flows(store)
        return self._flows

    def close(self) -> None:
        """Closing twice is no error."""
        if self._store is not None:
            self._store.close()
        self._store = self._flows = None
