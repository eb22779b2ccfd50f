"""Part of the agreement of the Review page: a labelling's model with itself, apart from all figures of people."""

from __future__ import annotations

import pandas as pd

from cimemories.analysis.draws_agreement import draws_agreement
from cimemories.store.engine import Store
from cimemories.store.labellings import LabellingRow
from cimemories.ui import page, safe, tables
from cimemories.ui.safe import tag
from pages.curate.review_agreement_figures import columns, count_cell, count_head, grid, head, shown


def draw(store: Store, labelling: LabellingRow) -> None:
    page.fold(
        "The model with itself: draws and personas, apart from people",
        ":material/smart_toy:",
        "agreement.box.models",
        lambda: _inside(store, labelling),
    )


def _inside(store: Store, labelling: LabellingRow) -> None:
    found = draws_agreement(store, labelling.id)
    safe.inline(
        f"How far {safe.option(labelling.model, 60)} agrees with itself in {labelling.id}. No person's answer is in "
        "these numbers, and they are in no figure of people."
    )
    if found.draws:
        safe.heading("Draws of one persona")
        rows = [
            [
                tag("td", item.persona),
                count_cell(item.pairs),
                tag("td", tables.percent(item.share) if item.pairs else "no pair has two draws", cls="ci-number"),
                tag("td", shown(item.alpha), cls="ci-number"),
            ]
            for item in found.draws
        ]
        heads = [
            tag("th", "Persona"),
            count_head("Pairs", "with two counted votes or more"),
            count_head("All draws alike"),
        ]
        safe.show(grid([*heads, head("alpha")], rows))
    else:
        page.notice("These labels were imported as shares: there are no draws to compare.")
    safe.heading("Personas with each other")
    share = tables.percent(found.share) if found.pairs else "no pair has two"
    safe.show(
        safe.facts(
            [
                ("Krippendorff's alpha", shown(found.personas)),
                ("All personas alike", f"{share} of {tables.count(found.pairs)} pairs with a majority of two or more"),
            ]
        )
    )
    safe.inline(
        "A persona says what more than half of its counted votes say: necessary, inappropriate, or that it abstains.",
        muted=True,
    )
    frame = pd.DataFrame(
        [
            *(
                {
                    "of": f"draws of {item.persona}",
                    "pairs": item.pairs,
                    "alike": item.same,
                    **columns("alpha", item.alpha),
                }
                for item in found.draws
            ),
            {"of": "personas", "pairs": found.pairs, "alike": found.same, **columns("alpha", found.personas)},
        ]
    )
    simulated = "simulated" if labelling.simulated else ""
    marked = frame.assign(labelling=labelling.id, model=labelling.model, simulated=simulated)
    tables.csv_button(marked, f"model-with-itself-{labelling.id}.csv", key="agreement.csv.models")
