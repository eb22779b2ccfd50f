"""What an execution has done so far, in all and by kind of call; counts are draws, not exchanges."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cimemories.store.calls import Answer


@dataclass
class Tally:
    """Draws that were asked for and those taken from the record, failures by cause, and the tokens of what was asked.

    Tokens are what the server said of each exchange; nothing is counted for an answer that was taken from the record.
    """

    asked: int = 0
    reused: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0

    @property
    def done(self) -> int:
        return self.asked + self.reused

    def add(self, reused: int, fresh: Sequence[Answer]) -> None:
        self.reused += reused
        self.asked += len(fresh)
        for answer in fresh:
            self.prompt_tokens += answer.prompt_tokens or 0
            self.cached_tokens += answer.cached_tokens or 0
            self.completion_tokens += answer.completion_tokens or 0
            if not answer.ok:
                self.failed[answer.status] += 1


@dataclass
class Progress(Tally):
    """The tally of all calls, and `by_kind` that of each kind (respond, judge, gate, ...) that there was."""

    by_kind: defaultdict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))

    def count(self, kind: str, held: Mapping[int, Answer], fresh: Sequence[Answer]) -> None:
        """Count the outcomes of one job: draws that the record held, and those that were asked for."""
        self.add(len(held), fresh)
        self.by_kind[kind].add(len(held), fresh)
