"""Several sessions: the tasks of one user come one after the other, and the assistant remembers what it wrote.

    --sessions all       every earlier message of the same sample is in the memory of the next task
    --sessions last-3    the last three of them

Sample s of a context is asked with its memory and with the messages of sample s in the contexts before it, in one order
of the user's contexts: that of the dataset, or shuffled by a seed, another one for each user. The messages stand behind
the statements, one line each. So the messages of a sample are asked for one after the other; users and samples go on
side by side.

A message that is missing (failed, refused, truncated, empty) is not in the memory of later tasks, which go on without
it: nothing was sent, so there is nothing to remember. What each message was shown is recorded (`response.earlier`), so
that numbers rest on what was in the prompt. A failed message that is asked for again on resume is remembered by the
tasks that were not written yet, and by no others.

With a gate or a rewrite the earlier messages stand in the prompt of the message or draft; the gate chooses among
attributes alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from hashlib import blake2b

from cimemories.llm.replies import one_line
from cimemories.manifest import SessionsPart
from cimemories.seeds.prompts import Prompt
from cimemories.store.datasets import ProfileRecord
from cimemories.store.engine import StoreError

# ---- the setting

ALL = "all"
_KEPT = re.compile(r"all|last-([1-9]\d{0,3})")


@dataclass(frozen=True)
class Sessions:
    """window: how many of the earlier messages are in memory; None: all of them. seed: of a shuffled order."""

    window: int | None = None
    order: str = "fixed"
    seed: int = 0

    @property
    def label(self) -> str:
        """Return 'all' or 'last-3', as `read_sessions` takes it."""
        return ALL if self.window is None else f"last-{self.window}"

    @property
    def text(self) -> str:
        """Return 'all earlier messages in memory, contexts shuffled by seed 3'."""
        what = "all earlier messages" if self.window is None else f"the last {self.window} earlier messages"
        what = "the message before" if self.window == 1 else what
        return f"{what} in memory" + (f", contexts shuffled by seed {self.seed}" if self.order != "fixed" else "")

    def remembered(self, written: tuple[Written, ...]) -> tuple[Written, ...]:
        """Return which of a user's earlier messages, in their order, are in memory."""
        return written if self.window is None else written[-self.window :]

    def as_json(self) -> dict[str, object]:
        return {"order": self.order, "seed": self.seed, "kept": self.label}

    @classmethod
    def of(cls, recorded: SessionsPart | None) -> Sessions | None:
        """Return the sessions of a manifest, or None. Raises StoreError for some that cannot be read."""
        if recorded is None or not recorded.kept:
            return None
        return read_sessions(recorded.kept, recorded.order, recorded.seed)


def read_sessions(window: str, order: str = "fixed", seed: int = 0) -> Sessions:
    """Return the sessions that a text names: all, or last-N. Raises StoreError for any other."""
    match = _KEPT.fullmatch(window.strip())
    if match is None:
        raise StoreError(f"sessions keep all earlier messages (all) or the last N of them (last-N), not '{window}'.")
    if order not in ("fixed", "shuffled"):
        raise StoreError(f"the order of sessions is fixed or shuffled, not '{order}'.")
    return Sessions(int(match[1]) if match[1] else None, order, seed)


def session_order(sessions: Sessions, record: ProfileRecord, context_ids: Collection[int]) -> list[int]:
    """Return these contexts of a user in the order of their tasks, which fewer contexts do not change."""
    places = [(position, context) for position, context in enumerate(record.context_ids) if context in context_ids]

    def rank(place: tuple[int, int]) -> bytes:
        # NUL between the parts: seed 1 of user 23 is not seed 12 of user 3.
        key = f"sessions\0{sessions.seed}\0{record.ordinal}\0{place[0]}"
        return blake2b(key.encode(), digest_size=16).digest()

    return [context for _, context in (places if sessions.order == "fixed" else sorted(places, key=rank))]


# ---- what is remembered


@dataclass(frozen=True)
class Written:
    """A message of an earlier task: the id of its context, its recipient, and its text."""

    context: int
    recipient: str
    text: str

    def line(self, template: Prompt) -> str:
        return template.render(recipient=one_line(self.recipient), message=one_line(self.text))
