"""Parts of the Review page: the settings of the order by value, and the agreement on the random share."""

from __future__ import annotations

from cimemories.extras.decision_value.effects import WIDTH
from cimemories.extras.decision_value.ordering import TITLE as TITLE
from cimemories.extras.decision_value.ordering import ByValue
from cimemories.extras.decision_value.random_share import SHARE, share_agreement
from cimemories.extras.decision_value.value import MOST_RUNS, Aim, Target, candidates, run_name
from cimemories.review.index import pair_index
from cimemories.store.engine import Store
from cimemories.ui import page, safe, url
from pages.curate.label_matrix import choice

TARGETS = {
    Target.VIOLATION: "violation",
    Target.COMPLETENESS: "completeness",
    Target.ORDER: "the order of models",
}


def ordering(store: Store, dataset: int, seed: int) -> ByValue:
    """Draw the settings of the order, and return it as the address has it."""
    safe.heading("Most informative first")
    targets = [str(item) for item in Target]
    chosen = choice("Reduce uncertainty in", "target", targets, lambda name: TARGETS[Target(name)], None)
    target = Target(chosen or targets[0])
    rows = candidates(store, dataset)
    names = {row.id: run_name(row, rows) for row in rows}
    if target == Target.ORDER:
        runs = page.runs(names, "filters.runs", "all judged runs", most=MOST_RUNS)
    else:
        run = choice("For run", "run", list(names), names.__getitem__, "the newest judged run")
        runs = [run] if run else []
    width = page.number("Wanted label uncertainty, ± points", "width", 100 * WIDTH, 0.1, 10.0, 0.1) / 100
    share = page.number("Drawn at random, in %", "share", 100 * SHARE, 0.0, 100.0, 5.0) / 100
    return ByValue(seed=seed, aim=Aim(target, tuple(runs)), share=share, width=width)


def random_share(store: Store, dataset: int, labelling: str) -> None:
    """Draw the agreement on the random share, which unlike pairs chosen by value represents all pairs."""
    agreement = share_agreement(store, pair_index(store, dataset, labelling), url.get_int("seed") or 0)
    if agreement.answered:
        safe.inline(agreement.sentence)
