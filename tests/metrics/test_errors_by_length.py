"""Whether a judge's errors depend on length: the fit is the maximum, a known dependence is found and a rate corrected
for it is the true one, and where there is none none is claimed."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from typer.testing import CliRunner
from worlds import add_dataset, add_labels, add_run

from cimemories.agreement.judge_audit import column
from cimemories.cli import cli
from cimemories.flows.flows import Flows
from cimemories.flows.labels import INAPPROPRIATE, NECESSARY
from cimemories.flows.scope import resolve_scope
from cimemories.metrics.judge_uncertainty import length, length_sentence, rogan_gladen
from cimemories.metrics.judge_uncertainty.length import LengthDependence, dependence, fitted
from cimemories.review.sampling import draw_audit_slice
from cimemories.store import audits
from cimemories.store.audits import AuditVerdict, NewVerdict
from cimemories.store.engine import Store
from cimemories.store.judgements import JudgeRow

JUDGE = JudgeRow(1, "llm", "judge", "http://x", False, {}, 0)
MESSAGES, ATTRIBUTES = 400, 10


def test_a_fit_is_the_maximum_of_the_penalised_likelihood() -> None:
    rng = np.random.default_rng(4)
    x, weights = rng.normal(size=40), rng.uniform(0.2, 3, size=(3, 40))
    for error in (rng.random(40) < expit(-1 + x), np.zeros(40, np.bool_), x > 0):
        fit = fitted(x, error, weights)
        for row in range(3):

            def loss(beta: np.ndarray, error: np.ndarray = error, row: int = row) -> float:
                at = beta[0] + beta[1] * x
                prior = (beta / 2 - np.logaddexp(0, beta)).sum()
                return -float((weights[row] * (error * at - np.logaddexp(0, at))).sum() + prior)

            best = minimize(loss, np.zeros(2), method="BFGS", options={"gtol": 1e-9}).x
            assert fit[row] == pytest.approx(best, abs=1e-4)


def simulated(slope: float, seed: int = 1) -> tuple[LengthDependence, float, float]:
    """Simulate a judge that misses a reveal with logit -1.5 + slope * doublings of length, where long messages reveal
    more and are audited less. Returns the result, the true rate, and the rate by one sensitivity for all lengths."""
    rng = np.random.default_rng(seed)
    doublings = rng.normal(size=MESSAGES)
    true = rng.random((MESSAGES, ATTRIBUTES)) < expit(-1 + 0.8 * doublings)[:, None]
    missed = rng.random((MESSAGES, ATTRIBUTES)) < expit(-1.5 + slope * doublings)[:, None]
    claimed = np.where(true, ~missed, rng.random((MESSAGES, ATTRIBUTES)) < 0.05)
    audited = rng.random(MESSAGES) < np.where(doublings < 0, 0.6, 0.3)
    number = np.arange(MESSAGES)
    profile, context = number % 8, number % 20
    texts = pd.DataFrame({"response": number, "profile": profile, "context": context, "memory": None})
    texts["length"] = np.round(1000 * 2.0**doublings)
    # Attributes have ids of their own in every profile.
    attribute = ATTRIBUTES * profile[:, None] + np.arange(ATTRIBUTES)
    table = texts[["response", "profile", "context"]].loc[np.repeat(number, ATTRIBUTES)].reset_index(drop=True)
    table["attribute"] = attribute.ravel()
    words = np.array(["none", "full"])
    items = table.drop(columns="profile").assign(weight=1.0, verdict=words[true.astype(int)].ravel())
    items[column(JUDGE)] = words[claimed.astype(int)].ravel()
    exposed = table[["profile", "attribute", "context"]].drop_duplicates()
    result = dependence(JUDGE, items[np.repeat(audited, ATTRIBUTES)], exposed, texts, table[claimed.ravel()], {})
    seen, hit = true[audited], claimed[audited]
    plain = rogan_gladen(claimed.mean(), hit[seen].mean(), 1 - hit[~seen].mean())
    return result, float(true.mean()), float(plain)


def test_a_judge_that_misses_more_in_long_messages_is_found_out_and_its_rate_is_corrected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(length, "RESAMPLES", 400)
    result, truth, plain = simulated(0.9)
    low, high = result.missed.low, result.missed.high
    assert low is not None and high is not None and 1 < low <= np.exp(0.9) <= high
    assert result.depends and "depend on length" in length_sentence(result)
    rate = result.adjusted
    assert rate.value is not None and rate.low is not None and rate.high is not None
    assert rate.low <= truth <= rate.high
    assert abs(rate.value - truth) < 0.5 * abs(plain - truth), "one sensitivity for all lengths is off"


@pytest.mark.parametrize(
    ("resamples", "judges"), [(200, 8), pytest.param(length.RESAMPLES, 20, marks=pytest.mark.long)]
)
def test_a_judge_whose_errors_do_not_depend_on_length_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, resamples: int, judges: int
) -> None:
    monkeypatch.setattr(length, "RESAMPLES", resamples)
    depends = 0
    for seed in range(judges):
        result, truth, _ = simulated(0.0, seed)
        depends += result.depends
        assert result.adjusted.value == pytest.approx(truth, abs=0.05)
    assert depends <= judges / 4  # two intervals of 95 % each


def test_too_few_items_give_no_fit_and_say_so(sqlite_store: Store) -> None:
    dataset = add_dataset(sqlite_store, profiles=1, attributes=3, contexts=2)
    add_labels(sqlite_store, dataset.id, [[[INAPPROPRIATE] * 2, [INAPPROPRIATE] * 2, [NECESSARY] * 2]])
    run_id = add_run(sqlite_store, dataset.id, 4, [[[2, 2], [0, 0], [4, 4]]])
    flows, scope = Flows(sqlite_store), resolve_scope(sqlite_store, run_id)
    slice_id = draw_audit_slice(flows, scope, size=24, seed=0, claimed=0.5, name="all", annotator="Ada")
    with sqlite_store.write() as connection:
        items = audits.slice_items(connection, slice_id)
        verdicts = [NewVerdict(item.response or 0, item.attribute, AuditVerdict.FULL) for item in items]
        audits.add_all(connection, dataset.id, "Ada", verdicts)
    done = CliRunner().invoke(cli, ["judges", run_id, "--json", "--workspace", str(sqlite_store.workspace)])
    [found] = json.loads(done.stdout)["errors_by_length"]["rows"]
    assert found["items"] > 0 and found["wrong"] is None
    assert "fewer than 10" in found["wrong_why"]
