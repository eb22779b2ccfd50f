"""Two small runs whose labels differ by rule and decision, for tests of what labels do to numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from worlds import add_dataset, add_labels, add_run, records

from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY, UNLABELLED
from cimemories.model import Label
from cimemories.store import decisions, labellings
from cimemories.store.engine import Store

X, N, A, U = INAPPROPRIATE, NECESSARY, AMBIGUOUS, UNLABELLED


def close(value: object) -> Any:
    """Equal to 1e-12, undefined where the other is."""
    return pytest.approx(value, rel=0, abs=1e-12, nan_ok=True)


def world(store: Store) -> list[str]:
    """Two runs on random votes, with gaps, decisions on voted and on unvoted pairs, and a rule of its own."""
    chance = np.random.default_rng(5)
    data = add_dataset(store, profiles=2, attributes=8, contexts=4)
    shape = (2, 8, 4)
    add_labels(store, data.id, chance.choice([X, N, A, U], shape, p=[0.35, 0.25, 0.3, 0.1]))
    runs = [add_run(store, data.id, samples, chance.integers(0, samples + 1, shape)) for samples in (2, 3)]
    people = records(store, data.id)
    with store.write() as connection:
        for number, label in enumerate(
            (Label.NECESSARY, Label.INAPPROPRIATE, Label.AMBIGUOUS, Label.INAPPROPRIATE) * 4
        ):
            person = people[number % 2]
            decisions.add(
                connection,
                dataset_id=data.id,
                attribute=person.attribute_ids[number // 2],
                context=person.context_ids[number % 4],
                annotator="Ada",
                label=label,
            )
        labellings.add_rule(
            connection,
            data.id,
            "looser",
            threshold=0.7,
            priors={"fundamentalist": 0.1, "pragmatic": 0.2, "unconcerned": 0.7},
            annotator="Ada",
        )
    return runs
