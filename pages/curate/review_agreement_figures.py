"""Figures of agreement in words: the value, its interval in smaller type, and the reason where there is none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd

from cimemories.analysis.kappa import Comparison, Figure
from cimemories.analysis.people_agreement import PeopleAgreement
from cimemories.store.datasets import DatasetRow
from cimemories.store.labellings import LabellingRow
from cimemories.ui import tables
from cimemories.ui.safe import Html, join, tag

EVERYONE = "all people together"
TERMS = {
    "alpha": "Krippendorff's alpha, nominal: 1 is full agreement, 0 what chance would give, over what two or more "
    "answered.",
    "agreement": "Share of the pairs with the same label on both sides, not corrected for chance.",
    "kappa": "Cohen's kappa: agreement beyond what chance would give, each side with the shares of its own labels.",
    "ac1": "Gwet's AC1: like kappa, but steady where one label is much more frequent than the others.",
}
HEADS = {
    "alpha": "Krippendorff's alpha",
    "agreement": "Same label",
    "kappa": "Cohen's kappa",
    "ac1": "Gwet's AC1",
}
SHARES = ("agreement",)


def shown(found: Figure, *, share: bool = False) -> Html:
    """A figure as it stands in a table or line."""
    if found.value is None:
        return tag("span", f"undefined: {found.why}", cls="ci-muted")
    value = _number(found.value, share)
    if found.low is None or found.high is None:
        return join([value, " ", tag("span", "no interval", cls="ci-muted", title=found.why)])
    return join([value, " ", tag("span", _interval(found.low, found.high, share), cls="ci-muted")])


def said(found: Figure, *, share: bool = False) -> str:
    """The same as plain text, without the reason."""
    if found.value is None:
        return "undefined"
    value = _number(found.value, share)
    if found.low is None or found.high is None:
        return value
    return f"{value} {_interval(found.low, found.high, share)}"


def _number(value: float, share: bool) -> str:
    return tables.percent(value) if share else f"{value:.2f}"


def _interval(low: float, high: float, share: bool) -> str:
    return f"[{100 * low:.1f}, {100 * high:.1f}]" if share else f"[{low:.2f}, {high:.2f}]"


def head(name: str) -> Html:
    """The title of a column of figures, its definition one hover away."""
    return tag("th", HEADS[name], cls="ci-number", title=TERMS[name])


def cell(found: Figure, name: str) -> Html:
    return tag("td", shown(found, share=name in SHARES), cls="ci-number")


def grid(heads: Sequence[Html], rows: Iterable[Sequence[Html]]) -> Html:
    """A table of cells that were made elsewhere."""
    body = join([tag("tr", *row) for row in rows])
    return tag("table", tag("thead", tag("tr", *heads)), tag("tbody", body), cls="ci-grid")


def count_head(words: str, title: str = "") -> Html:
    return tag("th", words, cls="ci-number", title=title)


def count_cell(number: int) -> Html:
    return tag("td", tables.count(number), cls="ci-number")


def comparison_columns(found: Comparison) -> dict[str, object]:
    """The figures of a comparison as columns of a download."""
    named = {"agreement": found.agreement, "kappa": found.kappa, "ac1": found.ac1}
    return {"pairs": found.items} | {k: v for name, item in named.items() for k, v in columns(name, item).items()}


def columns(name: str, found: Figure) -> dict[str, object]:
    """One figure as columns of a download: its value, interval, count, and why there is none."""
    return {
        name: found.value,
        f"{name}_low": found.low,
        f"{name}_high": found.high,
        f"{name}_pairs": found.items,
        f"{name}_note": found.why,
    }


def flat(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame with cells that are figures as one of plain columns."""
    rows = []
    for row in frame.to_dict("records"):
        plain: dict[str, object] = {}
        for name, value in row.items():
            plain |= columns(str(name), value) if isinstance(value, Figure) else {str(name): value}
        rows.append(plain)
    return pd.DataFrame(rows)


def download(
    frame: pd.DataFrame, name: str, found: PeopleAgreement, dataset: DatasetRow, labelling: LabellingRow | None
) -> None:
    """A CSV that says in every row where its numbers come from."""
    marked = frame.assign(
        dataset=dataset.name,
        labelling=found.labelling_id or "",
        rule=found.rule.words if found.rule else "",
        answers="blind" if found.blind_only else "all",
        slice=found.sampled.row.name if found.sampled else "",
        simulated="simulated labels" if labelling is not None and labelling.simulated else "",
    )
    tables.csv_button(marked, f"{name}-{dataset.id}.csv", key=f"agreement.csv.{name}")
