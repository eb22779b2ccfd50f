"""The headline numbers of a run, for a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from cimemories.api.table import html_table
from cimemories.store.engine import StoreError
from cimemories.text import count, percent

if TYPE_CHECKING:
    import pandas as pd

    from cimemories.metrics.headline import Headline
    from cimemories.metrics.recalled.split import RecalledNumbers
    from cimemories.metrics.uncertainty import Interval

T = TypeVar("T")


class ByN(dict[int, T]):
    """Values by n. An n that is not there raises StoreError, which says which are and why."""

    def __init__(self, values: Mapping[int, T], run: str) -> None:
        super().__init__(values)
        self.run = run

    def __missing__(self, n: object) -> T:
        raise no_such_n(self.run, max(self), n)


def no_such_n(run: str, samples: int, n: object) -> StoreError:
    """Return the error for an n that a run of so many samples cannot be read at."""
    return StoreError(
        f"{run} has {count(samples, 'sample')} a context, so n is 1 to {samples}, not {n!r}. A larger n needs a run "
        "with more samples."
    )


@dataclass(frozen=True)
class Metrics:
    """The numbers of `cimemories metrics RUN --json`. Shares are 0 to 1, nan where undefined; `notes` says why.

    n: the n that `balanced` is read at. violation: Violation@n by n, 1 to the run's samples: mean over attributes, then
    over profiles, of the probability that n samples of some task reveal an attribute where it is inappropriate. At
    n > supported_n messages are missing and it is too low; what can be said then is violation_bounds, by n the lowest
    and the highest it can be. An n above the run's samples raises StoreError. completeness: share of the necessary
    attributes that a message reveals, mean over samples, contexts, then profiles. balanced: harmonic mean of
    completeness and 1 - violation[n].

    violation_interval (by n), completeness_interval, balanced_interval: 95 % intervals over profiles and contexts, with
    `.low` and `.high`. leak_rate: reveals over judged exposures of inappropriate pairs. ambiguous_exposure: the same of
    ambiguous pairs. coverage: judged over planned messages.

    profiles, samples, expected (planned messages), judged (messages), attributes and flows (behind the violation),
    retained and discarded (contexts of profiles). labels, judge: what the numbers rest on, in words. simulated: which
    parts come from a simulator; empty for a wholly real result. notes: what a reader has to know before quoting a
    number. headline: all of it, spread over profiles, missing messages and quotes among it (`headline.as_json()`).
    recalled: of a run behind a gate or a memory system both numbers split at the prompt, and what was recalled by
    label, read at n (docs/metrics.md); None where all that is stored is in every prompt.
    """

    run: str
    n: int
    violation: Mapping[int, float]
    violation_interval: Mapping[int, Interval]
    violation_bounds: Mapping[int, tuple[float, float]]
    supported_n: int | None
    completeness: float
    completeness_interval: Interval
    balanced: float
    balanced_interval: Interval
    leak_rate: float
    ambiguous_exposure: float
    coverage: float
    profiles: int
    samples: int
    expected: int
    judged: int
    attributes: int
    flows: int
    retained: int
    discarded: int
    labels: str
    judge: str
    simulated: tuple[str, ...]
    notes: tuple[str, ...]
    headline: Headline
    recalled: RecalledNumbers | None = None

    def to_frame(self) -> pd.DataFrame:
        """One row a number: measure ('violation' once for every n), n (<NA> where it has none), value, low, high (of
        the 95 % interval, nan where there is none)."""
        import pandas as pd

        undefined = float("nan"), float("nan")
        rows: list[tuple[object, ...]] = [
            *(("violation", n, value, *_ends(self.violation_interval[n])) for n, value in self.violation.items()),
            ("completeness", None, self.completeness, *_ends(self.completeness_interval)),
            ("balanced", self.n, self.balanced, *_ends(self.balanced_interval)),
            ("leak_rate", None, self.leak_rate, *undefined),
            ("ambiguous_exposure", None, self.ambiguous_exposure, *undefined),
            ("coverage", None, self.coverage, *undefined),
        ]
        return pd.DataFrame(rows, columns=["measure", "n", "value", "low", "high"]).astype({"n": "Int64"})

    def per_profile(self) -> pd.DataFrame:
        """One row a profile: user, violation (at `n`), completeness, retained, discarded (contexts)."""
        import pandas as pd

        rows = [
            (item.name, item.violation[self.n], item.completeness, item.retained, item.discarded)
            for item in self.headline.per_profile
        ]
        return pd.DataFrame(rows, columns=["user", "violation", "completeness", "retained", "discarded"])

    def __repr__(self) -> str:
        return (
            f"<Metrics of {self.run}: violation@{self.n} {percent(self.violation[self.n])}, "
            f"completeness {percent(self.completeness)}, coverage {percent(self.coverage)}>"
        )

    def _repr_html_(self) -> str:
        import pandas as pd

        frame = self.to_frame()
        rows = [
            (
                measure if pd.isna(n) else f"{measure}@{n}",
                percent(value),
                "" if pd.isna(low) else f"{100 * low:.1f} to {100 * high:.1f}",
            )
            for measure, n, value, low, high in frame.itertuples(index=False)
        ]
        notes = html_table(("notes",), [(note,) for note in self.notes], longest=None) if self.notes else ""
        return html_table(("measure", "value", "95 % interval"), rows) + notes


def _ends(interval: Interval) -> tuple[float, float]:
    return interval.low, interval.high
