"""Two runs compared, for a notebook."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cimemories.answer import html_table
from cimemories.text import visible

if TYPE_CHECKING:
    import pandas as pd

    from cimemories.compare.difference import Difference
    from cimemories.metrics.uncertainty import Interval


@dataclass(frozen=True)
class Comparison:
    """Second run minus first on the flows that are judged in both (`Workspace.compare`). first, second: what the runs
    are called. difference: all of it, as `cimemories compare --json` prints it (`difference.as_json()`)."""

    first: str
    second: str
    difference: Difference

    @property
    def n(self) -> int:
        """At how many samples violation is read: the smaller number of the two runs."""
        return self.difference.paired.n

    @property
    def violation(self) -> Interval:
        """The difference of Violation@n with `.low`, `.high` (95 %) and `.p`; below 0 the second leaks less."""
        return self.difference.paired.violation

    @property
    def completeness(self) -> Interval:
        """The difference of completeness; above 0 the second reveals more of what is necessary."""
        return self.difference.paired.completeness

    @property
    def in_words(self) -> str:
        """Both differences as two sentences."""
        return visible(" ".join(self.difference.sentences(self.first, self.second)))

    @property
    def warnings(self) -> tuple[str, ...]:
        """In what the runs differ apart from their models."""
        return self.difference.warnings

    def to_frame(self) -> pd.DataFrame:
        """Two rows, violation and completeness: measure, first, second (each run's number on the common profiles),
        difference, low, high, p."""
        import pandas as pd

        paired = self.difference.paired
        rows = [
            (name, paired.first[at], paired.second[at], apart.value, apart.low, apart.high, apart.p)
            for at, (name, apart) in enumerate((("violation", self.violation), ("completeness", self.completeness)))
        ]
        return pd.DataFrame(rows, columns=["measure", "first", "second", "difference", "low", "high", "p"])

    def domains(self) -> pd.DataFrame:
        """One row a domain: domain, the differences violation and completeness with their ends (_low, _high), and what
        they rest on (attributes, necessary_flows); nan where a domain has none."""
        return self.difference.domains.copy()

    def changed_flows(self) -> pd.DataFrame:
        """One row an inappropriate flow that newly leaks or stopped leaking: change, profile, attribute, context (ids),
        user, key, domain, statement, recipient, task, and reveals and draws of either run."""
        return self.difference.flows.copy()

    def __repr__(self) -> str:
        return f"<Comparison: {self.in_words}>"

    def _repr_html_(self) -> str:
        sentences = self.difference.sentences(self.first, self.second)
        return html_table(("comparison",), [(text,) for text in sentences], longest=None)
