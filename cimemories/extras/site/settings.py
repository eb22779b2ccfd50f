"""The numbers of every run under every setting that a reader of a published site can choose: the share of votes that a
label needs, the personas whose votes count, and the judge.

    thresholds  51 %, 52 %, ... 100 %, and the current one
    personas    all by their priors, all alike, each alone, all but each
    judges      that of the runs, and every other or combination that one of them has

These are some hundred settings a judge with a few numbers a run, so all of them are computed here (`Study.over`, 50
thresholds at once) and a page looks them up: no formula is written twice, and a page shows Python's numbers digit by
digit. Ten runs take some 150 kB. Other priors would be endless; the app has sliders."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cimemories.compare.leaderboard import leaderboard
from cimemories.compare.ranking import Measure, order_change, order_text, ranks, swaps, tau, turned
from cimemories.compare.relabel import Numbers
from cimemories.compare.study import Study, left_out, measure_values, ranked_study
from cimemories.flows.arrays import Floats
from cimemories.flows.flows import Flows
from cimemories.flows.scope import Combine, Scope, judge_title, messages_first, resolve_scope
from cimemories.report.document import Basis
from cimemories.store import judgements
from cimemories.store.engine import StoreError
from cimemories.text import exact_percent, percent

OTHER_RUNS = "These are not the runs of the published order"
COUNTS = ("attributes", "flows", "retained")  # of relabel.Numbers


@dataclass(frozen=True)
class Personas:
    """A choice of the personas whose votes count. priors: in the order of the labelling's personas, adding up to 1."""

    name: str
    priors: tuple[float, ...]


@dataclass(frozen=True)
class Judged:
    """The runs by one choice of judge. n: samples that violation is read at. ids: of the ranked runs, or of the first
    if none is ranked; outside: why runs have no rank, by id. numbers: [personas][runs of ids], each at every threshold.
    order: a sentence for each choice of personas on the order of the runs over the thresholds; changes:
    [personas][thresholds], the effect of the setting on the published order, both without a full stop."""

    name: str
    n: int
    ids: tuple[str, ...]
    outside: dict[str, str]
    numbers: tuple[tuple[Numbers, ...], ...]
    order: tuple[str, ...]
    changes: tuple[tuple[str, ...], ...]

    def ranks(self, personas: int) -> Floats:
        """Return the rank of each run by its balanced score: [ranked runs, thresholds], nan without one."""
        return ranks(measure_values(self.numbers[personas], Measure.BALANCED), Measure.BALANCED)


@dataclass(frozen=True)
class Settings:
    """All settings. threshold: the position of the current one; the current personas and judge are the first."""

    thresholds: tuple[float, ...]
    threshold: int
    personas: tuple[Personas, ...]
    judges: tuple[Judged, ...]
    keys: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        """Return every number in full, for scripts: shares 0 to 1, null if undefined."""
        return {
            "thresholds": list(self.thresholds),
            "personas": [
                {"name": item.name, "priors": dict(zip(self.keys, item.priors, strict=True))} for item in self.personas
            ],
            "published": {"threshold": self.thresholds[self.threshold], "personas": 0, "judge": 0},
            "judges": [
                {
                    "name": judged.name,
                    "n": judged.n,
                    "not_ranked": judged.outside,
                    "by_personas": [
                        {
                            run: {
                                **{str(m): _full(measure_values([item], m)[0]) for m in Measure},
                                **{name: getattr(item, name).tolist() for name in COUNTS},
                                "rank": _full(place),
                            }
                            for run, item, place in zip(judged.ids, items, judged.ranks(personas), strict=True)
                        }
                        for personas, items in enumerate(judged.numbers)
                    ],
                }
                for judged in self.judges
            ],
        }

    def shown(self) -> dict[str, object]:
        """Return the settings as a page shows them: percentages in tenths, rounded like `text.percent`, so that a
        script rounds nothing; every text once."""
        texts: dict[str, int] = {}

        def text(sentence: str) -> int:
            return texts.setdefault(sentence, len(texts))

        judges = [
            {
                "name": judged.name,
                "n": judged.n,
                "runs": judged.ids,
                "outside": judged.outside,
                "order": judged.order,
                "changes": [[text(change) for change in row] for row in judged.changes],
                "numbers": [
                    [
                        [
                            *(_tenths(measure_values([item], m)[0]) for m in Measure),
                            *(getattr(item, name).tolist() for name in COUNTS),
                            [None if math.isnan(own) else int(own) for own in place],
                        ]
                        for item, place in zip(items, judged.ranks(personas), strict=True)
                    ]
                    for personas, items in enumerate(judged.numbers)
                ],
            }
            for judged in self.judges
        ]
        return {
            "thresholds": [exact_percent(value) for value in self.thresholds],
            "threshold": self.threshold,
            "personas": [item.name for item in self.personas],
            "columns": [*map(str, Measure), *COUNTS, "rank"],
            "judges": judges,
            "texts": list(texts),
        }


def settings(basis: Basis) -> Settings:
    """Compute all settings. Raises StoreError if nothing is labelled, or the runs rest on several labellings."""
    flows, published = basis.flows, basis.scopes
    first, reasons = _study(basis, published)
    choices = _personas(first)
    balanced = measure_values(first.at(first.base), Measure.BALANCED)[:, 0].tolist()
    now = {item.scope.run.id: value for item, value in zip(first.subjects, balanced, strict=True)}
    names = {scope.judge_text for scope in published}
    name = names.pop() if len(names) == 1 else "the judge of each run as published"
    judged = [_judged(basis, name, first, reasons, choices, now)]
    seen = {_versions(first)}
    for name, scopes in _other_judges(flows, published):
        without = {s.run.id: f"it has no judge {name}" for s in published if s.run.id not in {o.run.id for o in scopes}}
        try:
            other, reasons = _study(basis, scopes)
        except StoreError:  # nothing is judged under this name
            continue
        if _versions(other) not in seen:
            judged.append(_judged(basis, name, other, reasons | without, choices, now))
        seen.add(_versions(other))
    at = first.thresholds.index(first.base.threshold)
    return Settings(first.thresholds, at, choices, tuple(judged), first.votes.keys)


def _study(basis: Basis, scopes: Sequence[Scope]) -> tuple[Study, dict[str, str]]:
    """Return the study of the runs that the leaderboard ranks among these, and why others are not ranked, by id. If
    none is ranked, the study has the first run alone."""
    board = leaderboard(basis.flows, scopes, basis.rule, warned=False)
    return ranked_study(basis.flows, board, scopes, basis.rule), {line.run.id: line.outside for line in board.outside}


def _versions(study: Study) -> frozenset[str]:
    return frozenset(item.scope.version for item in study.subjects)


def _personas(study: Study) -> tuple[Personas, ...]:
    keys, base = study.votes.keys, study.base
    number = len(keys)
    every = [Personas("all, with their priors", base.priors)]
    if number > 1:
        every.append(Personas("all, with equal priors", (1.0 / number,) * number))
        every += [Personas(f"{key} alone", tuple(float(n == at) for n in range(number))) for at, key in enumerate(keys)]
        every += [Personas(f"all but {key}", setting.priors) for key, setting in left_out(study)]
    # Of two personas, one alone is the other left out: the first of equal choices stays.
    return tuple({item.priors: item for item in reversed(every)}.values())[::-1]


def _judged(
    basis: Basis,
    name: str,
    study: Study,
    outside: dict[str, str],
    choices: Sequence[Personas],
    published: Mapping[str, float],
) -> Judged:
    """Compute the runs by one judge. published: the published balanced score of each ranked run, by id."""
    names = [basis.run_names[item.scope.run.id] for item in study.subjects]
    base, thresholds = study.base, study.thresholds
    ids = tuple(item.scope.run.id for item in study.subjects)
    same = set(ids) == published.keys()
    # If other runs are ranked than the published ones, the order changes from this judge's own.
    now = np.array([published[run] for run in ids]) if same else measure_values(study.at(base), Measure.BALANCED)[:, 0]
    numbers, order, changes = [], [], []
    for choice in choices:
        setting = replace(base, priors=choice.priors)
        over = study.over(setting, thresholds)
        balanced = measure_values(over, Measure.BALANCED)
        numbers.append(over)
        turns = swaps(now, balanced, thresholds, base.threshold, Measure.BALANCED)
        order.append(order_text(turns, names, thresholds, Measure.BALANCED))
        changes.append(_changes(now, balanced, names) if same else (OTHER_RUNS,) * len(thresholds))
    n = max(item.n for item in study.subjects)
    return Judged(name, n, ids, outside, tuple(numbers), tuple(order), tuple(changes))


def _changes(before: Floats, after: Floats, names: Sequence[str]) -> tuple[str, ...]:
    """Say what each threshold does to an order. before: [runs]; after: [runs, thresholds]."""
    first, places = ranks(before, Measure.BALANCED), ranks(after, Measure.BALANCED)
    texts: dict[tuple[float, ...], str] = {}
    result = []
    for at, order in enumerate(map(tuple, np.nan_to_num(places.T).tolist())):
        # Thresholds with the same places have the same sentence: Kendall's tau is slow, and few orders occur.
        if order not in texts:
            passed = [(names[a], names[b]) for a, b in turned(before, after[:, at], Measure.BALANCED)]
            texts[order] = order_change(passed, len(names), tau(first, places[:, at]))
        result.append(texts[order])
    return tuple(result)


def _other_judges(flows: Flows, published: Sequence[Scope]) -> list[tuple[str, list[Scope]]]:
    """Return every other judge of messages and every combination, each with the runs that have it."""
    with flows.store.read() as connection:
        judges = {scope.run.id: messages_first(judgements.of_run(connection, scope.run.id)) for scope in published}
    of_messages = {run: [judge for judge in own if judge.channel == "message"] for run, own in judges.items()}
    choices: dict[str, list[Scope]] = {}
    for scope in published:
        own = of_messages[scope.run.id]
        for judge in own:
            choices.setdefault(judge_title(judge, own), []).append(_by(flows, scope, judge.id))
        for way in (Combine.ANY, Combine.MAJORITY, Combine.ALL) if len(own) > 1 else ():
            choices.setdefault(f"{way} of the judges", []).append(_by(flows, scope, str(way)))
    return list(choices.items())


def _by(flows: Flows, scope: Scope, judge: int | str) -> Scope:
    labelling = scope.labelling.id if scope.labelling else None
    own = resolve_scope(
        flows.store, scope.run.id, labelling, judge, scope.verdicts, grounded=scope.grounded, labels=scope.labels
    )
    return replace(own, rule=scope.rule)


def _tenths(values: Floats) -> list[int | None]:
    """Return 124 for 0.1237, rounded as by text.percent; None if undefined."""
    return [None if math.isnan(value) else int(percent(value).removesuffix(" %").replace(".", "")) for value in values]


def _full(values: Floats) -> list[float | None]:
    return [None if math.isnan(value) else float(value) for value in values]
