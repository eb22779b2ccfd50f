"""The numbers of several runs by a setting that is tried, beside those by the current settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from cimemories.analysis.bump_figure import bump
from cimemories.analysis.compare_figures import Drawing
from cimemories.analysis.cube import Floats, IdentifierRule
from cimemories.analysis.flows import Flows, Labels
from cimemories.analysis.ranking import Measure, ranks, tau, tau_words, turned
from cimemories.analysis.relabel import Numbers
from cimemories.analysis.sensitivity import Setting, Study, measured
from cimemories.analysis.spoken_for import spoken_for


@dataclass(frozen=True)
class Trial:
    """frame: one row a run, the best by the current settings first: run, then for each of violation, completeness and
    balanced the number tried, `_now` and `_change`; rank, rank_now (by the measure); attributes, flows, necessary,
    retained, each with `_now`; speaks and speaks_now (of all flows of the run the share that the headline speaks for).
    tau: Kendall's tau of the two orders. turned: (passes, passed) names. now, over: the measure by the current settings
    [runs], and by the tried ones at `thresholds` [runs, T].
    """

    setting: Setting
    frame: pd.DataFrame
    tau: float
    turned: tuple[tuple[str, str], ...]
    now: Floats
    over: Floats
    thresholds: tuple[float, ...]

    @property
    def words(self) -> str:
        """What it does to the order, as a sentence without its full stop."""
        if len(self.now) < 2:
            return "One run alone has no order"
        if not self.turned:
            return "No two runs change places" if np.isnan(self.tau) or self.tau == 1 else "Runs tie that did not"
        said = "; ".join(f"{passes} passes {passed}" for passes, passed in self.turned[:3])
        more = len(self.turned) - 3
        return said + (f"; {more} more {'pairs' if more > 1 else 'pair'} change places" if more > 0 else "")

    @property
    def sentence(self) -> str:
        """The same with Kendall's tau where there is one, as a whole sentence."""
        return f"{self.words}." if np.isnan(self.tau) else f"{self.words}: {tau_words(self.tau)}."


def flows_of(flows: Flows, found: Study) -> list[int]:
    """How many flows each run has, spoken for or not: [runs]."""
    return [spoken_for(flows, subject.scope).pairs for subject in found.subjects]


def trial(
    found: Study,
    setting: Setting,
    names: Sequence[str],
    measure: Measure,
    pairs: Sequence[int],
    now: Sequence[Numbers] | None = None,
) -> Trial:
    """Try a setting on all runs. names, pairs (flows of each, for the share that is spoken for): [runs]. now: the
    numbers by the current settings where they are at hand. Raises ValueError for a setting that is no rule."""
    here = tuple(now) if now is not None else found.at(found.base)
    thresholds = tuple(sorted({*found.thresholds, setting.threshold}))
    over = found.over(setting, thresholds)
    place = thresholds.index(setting.threshold)
    then = tuple(item.at(place) for item in over)
    before, after = (measured(item, measure)[:, 0] for item in (here, then))
    first, second = ranks(before, measure), ranks(after, measure)
    columns: dict[str, object] = {"run": list(names), "rank_now": first, "rank": second}
    for each in Measure:
        old, new = (measured(item, each)[:, 0] for item in (here, then))
        columns |= {str(each): new, f"{each}_now": old, f"{each}_change": new - old}
    for name in ("attributes", "flows", "necessary", "retained"):
        columns |= {name: [int(getattr(item, name)[0]) for item in then]}
        columns |= {f"{name}_now": [int(getattr(item, name)[0]) for item in here]}
    for name, items in (("speaks", then), ("speaks_now", here)):
        columns[name] = [
            (int(item.flows[0]) + int(item.necessary[0])) / all_ if all_ else float("nan")
            for item, all_ in zip(items, pairs, strict=True)
        ]
    frame = pd.DataFrame(columns).sort_values(["rank_now", "run"], na_position="last", kind="stable")
    return Trial(
        setting,
        frame.reset_index(drop=True),
        tau(first, second),
        tuple((names[a], names[b]) for a, b in turned(before, after, measure)),
        before,
        measured(over, measure),
        thresholds,
    )


def order_drawing(found: Study, tried: Trial, names: Sequence[str], measure: Measure) -> Drawing | None:
    """The order over all thresholds by the priors and the identifier rule that are tried; None without any number."""
    base = found.base
    return bump(
        tried.now,
        tried.over,
        tried.thresholds,
        names,
        measure,
        base.threshold,
        tried.setting.threshold,
        under_words(base, tried.setting, found.votes.keys),
    )


def under_words(base: Setting, setting: Setting, keys: Sequence[str]) -> str:
    """', with priors a 0.5, b 0.5': in what a setting differs from the current one, its threshold aside."""
    said = ""
    if setting.priors != base.priors:
        shares = ", ".join(f"{key} {prior:.2f}" for key, prior in zip(keys, setting.priors, strict=True))
        said += f", with priors {shares}"
    if setting.identifiers != base.identifiers:
        said += f", identifiers by the rule '{setting.identifiers}'"
    if setting.labels != base.labels:
        said += ", by the consensus alone" if setting.labels == Labels.CONSENSUS else ", decisions before the consensus"
    return said


def setting_of(
    found: Study, threshold: float | None, weights: Sequence[int] | None, identifiers: IdentifierRule
) -> Setting:
    """The current settings with these in their place: weights of the personas, of which only the proportions count,
    None where they are left as they are. Raises ValueError for weights that are all 0 or not one a persona."""
    priors = found.base.priors
    if weights is not None:
        if len(weights) != len(priors) or sum(weights) <= 0 or min(weights) < 0:
            raise ValueError("the weights of the personas must be one each, not below 0, and not all 0")
        priors = tuple(weight / sum(weights) for weight in weights)
    at = found.base.threshold if threshold is None else threshold
    return Setting(at, priors, found.base.labels, identifiers)
