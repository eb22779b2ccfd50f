"""The leaderboard in the form of the paper's Table 1: one line a run, with spread, intervals, and what it rests on.

    GPT-5     violation@5 25.1 % +- 3.0 [22.4, 27.9]    completeness 51.0 % +- 2.1 [49.2, 52.8]    published 25.1 % ...

Constant strategies stand beside it, and what the paper states of the same model, marked as published.

Runs are ranked where they can be: with full coverage, by the same judge and with the same memory, at one n that all of
them support, on the flows that all of them judged. Violation@n grows with n, so a run read at fewer samples would seem
to leak less. Every other run stands below, with the reason; so does one that covers much less than the others, which
would make of all their numbers those of its few contexts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pandas as pd
import sqlalchemy as sa

from cimemories.answer import Answer, Column, Table, in_math
from cimemories.compare.baselines import Baseline, run_baselines
from cimemories.compare.common_flows import common_parts, left_of_each
from cimemories.compare.ranking import (
    ANY_SIZE,
    DECIMALS,
    LeastSize,
    common_samples,
    memory_text,
    ranked_group,
    why_not_ranked,
)
from cimemories.evaluation.costs import Cost, cost_of
from cimemories.evaluation.spec import RunSpec, differences, names
from cimemories.flows.arrays import IdentifierRule, mean_or_nan
from cimemories.flows.flows import Flows
from cimemories.flows.labels import default_labelling
from cimemories.flows.processes import each_block
from cimemories.flows.scope import (
    Combine,
    Scope,
    messages_first,
    parts_of,
    resolve_scope,
    simulated_parts,
    with_recent_decisions,
)
from cimemories.metrics.blocks import Counted, counted_numbers, judged_digest
from cimemories.metrics.headline import Headline, deviation, headline
from cimemories.metrics.intervals import intervals
from cimemories.metrics.uncertainty import LEAST_USERS, Interval
from cimemories.metrics.warnings import (
    COVERAGE_WARNING,
    comparison_warnings,
    coverage_warning,
    settings_table,
    task_check,
)
from cimemories.seeds.published import Figure, Published, PublishedMeasure, load_published
from cimemories.store import audits, datasets, judgements, runs, work
from cimemories.store.engine import Store, StoreError
from cimemories.store.judgements import JudgeRow
from cimemories.store.runs import RunRow
from cimemories.store.tables import run_judge
from cimemories.text import count, lies_between, listed, markdown_escaped, percent, sentence, simulated_text

# ---- run table: runs, their progress, and their numbers by their first judge


@dataclass(frozen=True)
class RunLine:
    """One run in the table. Shares are 0 to 1, nan where they are undefined or nothing is judged yet.

    violation: Violation@n at n samples, all of the run's where enough of it is judged (Headline.n). does_task: share of
    the checked messages that do their task. judges: names, in the order of the run. counted: whether its numbers are
    there; not while the run is at work, nor where only known ones were asked for. simulated: `simulated_parts`.
    """

    run: RunRow
    dataset: str
    memory: str
    mitigation: str | None
    judges: tuple[str, ...]
    violation: Interval
    completeness: Interval
    does_task: float
    cost: Cost
    n: int
    counted: bool
    simulated: tuple[str, ...]

    @property
    def covered(self) -> bool:
        """True if enough is judged for its numbers to be compared."""
        return (self.run.coverage or 0.0) >= COVERAGE_WARNING


_Numbers = tuple[Interval, Interval, float, int]  # violation, completeness, share that does its task, n: see RunLine
_NONE = Interval(math.nan, math.nan, math.nan, 0)
MOST_LINES = 5_000  # whose numbers are cached
MANY = 10  # runs above which a table may lack the decisions of the last moment
MOST_UNCHOSEN = 30  # runs that a page ranks unasked: a run takes 0.1 s or more, and each new judgement counts it again
_JUDGE_COUNTS = sa.select(run_judge.c.run, sa.func.count().label("judges")).group_by(run_judge.c.run)


def run_lines(flows: Flows, rows: Sequence[RunRow], *, cached_only: bool = False) -> list[RunLine]:
    """Return a line for each of these runs, in their order. Numbers of a run are cached under every version that can
    change them, so that a table of many runs is read from memory, on whichever page. cached_only: nothing is counted
    that was not before, and such a line is without its numbers."""
    with flows.store.read() as connection:
        named = {row.id: row for row in datasets.all_rows(connection)}
        judge_counts: dict[str, int] = {row.run: row.judges for row in connection.execute(_JUDGE_COUNTS)}
    labelled = {i: default_labelling(flows.store, i) for i in {row.dataset for row in rows}}
    lines = []
    for row in rows:
        labels, data, spec = labelled[row.dataset], named.get(row.dataset), RunSpec.of(row.manifest)
        version = (
            row.id,
            row.revision,
            row.judged,
            sum(row.judgements.values()),
            judge_counts.get(row.id, 0),
            (labels.id, labels.revision) if labels else None,
            data.revision if data else 0,
        )
        judges = flows.cached(("table judges", row.id, judge_counts.get(row.id, 0)), partial(_judges, flows, row))
        # The numbers of a run at work change with every answer: they are counted once it rests.
        counted = row.status not in work.ACTIVE and (not cached_only or flows.knows(("table", *version)))
        numbers: _Numbers = _NONE, _NONE, math.nan, row.samples
        if counted:
            numbers = flows.cached(("table", *version), partial(_numbers, flows, row), most=MOST_LINES)
        violation, completeness, does_task, n = numbers
        cost = flows.cached(("table cost", *version), partial(cost_of, flows.store, row.id), most=MOST_LINES)
        lines.append(
            RunLine(
                run=row,
                dataset=data.name if data else "",
                memory=memory_text(row),
                mitigation=row.manifest.mitigation.kind if spec.applies("mitigation") else None,
                judges=tuple(judge.name for judge in judges),
                violation=violation,
                completeness=completeness,
                does_task=does_task,
                cost=cost,
                n=n,
                counted=counted,
                simulated=simulated_parts(row, labels),
            )
        )
    return lines


def unusual(lines: Sequence[RunLine]) -> dict[str, tuple[str, ...]]:
    """Return, by run, in what its experiment differs from the usual: from the plain prompt, memory and model, and from
    the judge and the number of samples that most of these runs have (the newest, where as many have another)."""
    if not lines:
        return {}
    judge = Counter(_first(line) for line in lines).most_common(1)[0][0]
    samples = Counter(line.run.samples for line in lines).most_common(1)[0][0]
    apart = {}
    for line in lines:
        level = line.run.prompt_level
        traits = [f"prompt {text}" if text == level else text for text in RunSpec.of_row(line.run).traits]
        traits += [count(line.run.samples, "sample")] if line.run.samples != samples else []
        traits += [f"judge {_first(line)}"] if line.judges and _first(line) != judge else []
        apart[line.run.id] = tuple(traits)
    return apart


def _first(line: RunLine) -> str:
    return line.judges[0] if line.judges else ""


def _judges(flows: Flows, row: RunRow) -> list[JudgeRow]:
    with flows.store.read() as connection:
        return judgements.of_run(connection, row.id)


def _numbers(flows: Flows, row: RunRow) -> _Numbers:
    with flows.store.read() as connection:
        check = task_check(connection, row)
    task = check.share if check else math.nan
    if not row.judged:
        return _NONE, _NONE, task, row.samples
    try:
        scope = resolve_scope(flows.store, row.id)
        numbers = headline(flows, scope)
        bounds = intervals(flows, scope, ns=(numbers.n,))
    except StoreError:  # it was deleted a moment ago
        return _NONE, _NONE, math.nan, row.samples
    return bounds.violation[numbers.n], bounds.completeness, task, numbers.n


# ---- leaderboard


@dataclass(frozen=True)
class Line:
    """One run. n: samples that violation and the balanced score are read at, at most as many as the run has, or
    supports where it lacks messages. counted: the counts behind violation and all other numbers of the line: the whole
    run's, or those of the flows that all ranked runs judged (Leaderboard.cut); `numbers` are the whole run's in either
    case. outside: why it has no rank, '' where it has one; small: whether it covers less than ranked runs do; rank: 1
    for the best balanced score, ties share the better one, None without one."""

    numbers: Headline
    n: int
    violation: Interval
    completeness: Interval
    balanced: Interval
    counted: Counted
    outside: str = ""
    small: bool = False
    rank: int | None = None

    @property
    def scope(self) -> Scope:
        return self.numbers.scope

    @property
    def run(self) -> RunRow:
        return self.scope.run

    @property
    def simulated(self) -> tuple[str, ...]:
        return self.scope.simulated

    @property
    def violation_spread(self) -> float:
        """Standard deviation over profiles (n - 1 below the line); nan with fewer than two."""
        return deviation(self.counted.violation[self.n])

    @property
    def completeness_spread(self) -> float:
        return deviation(self.counted.complete)

    @property
    def published(self) -> Published | None:
        """Return the paper's entry on this model; None for a simulated run, which says nothing of the model whose name
        it bears, and for models that the paper gives no number of."""
        return None if self.run.simulated else load_published().model(self.run.model)

    @property
    def places(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the ids of the profiles and contexts that the numbers are of."""
        return self.counted.profiles, self.counted.contexts

    @property
    def retained(self) -> int:
        """(profile, context) pairs that the numbers are of."""
        return int(self.counted.retained.sum())

    @property
    def size_text(self) -> str:
        """'3 profiles, 147 retained contexts', of the whole run."""
        return f"{count(self.numbers.profiles, 'profile')}, {count(self.numbers.retained, 'retained context')}"

    def bounds(self, n: int) -> tuple[float, float]:
        """Return the lowest and highest that Violation@n can be, whatever the missing messages say."""
        return mean_or_nan(self.counted.low[n]), mean_or_nan(self.counted.high[n])

    @property
    def covered(self) -> bool:
        """True if enough is judged for the numbers to stand without a warning."""
        return self.numbers.covered

    @property
    def warning(self) -> str:
        """Warning that its coverage is too low; '' if it is not."""
        return coverage_warning(self.numbers.judged, self.run.expected) or ""

    def stated(self, measure: PublishedMeasure) -> Figure | None:
        """Return the paper's figure: violation at this very n, or completeness; None where it states none."""
        if self.published is None:
            return None
        return self.published.figure(measure, self.n if measure == PublishedMeasure.VIOLATION else None)

    def as_json(self) -> str:
        """Return the id of the run: in an answer a line is named by it, and its row has the numbers."""
        return self.run.id

    def as_record(self) -> dict[str, object]:
        """Return one row for tables and files; shares 0 to 1, nan where undefined."""
        least, most = self.bounds(self.run.samples)
        rate, labelling = self.counted.leak_rate, self.scope.labelling
        outside = f"not ranked: {self.warning or self.outside}" if self.outside else ""
        return {
            "run": self.run.id,
            "name": self.run.name,
            "model": self.run.model,
            "simulated": bool(self.simulated),
            "simulated_parts": ", ".join(self.simulated),
            "rank": self.rank or math.nan,
            "not_ranked": self.outside,
            "n": self.n,
            "supported_n": self.numbers.supported_n or math.nan,
            **self.violation.columns("violation"),
            "violation_sd": self.violation_spread,
            "violation_least": least,
            "violation_most": most,
            **self.completeness.columns("completeness"),
            "completeness_sd": self.completeness_spread,
            **self.balanced.columns("balanced"),
            "leak_rate": rate.micro,
            "leak_rate_macro": rate.macro,
            "reveals": rate.reveals,
            "exposures": rate.draws,
            "coverage": self.numbers.coverage,
            "judged": self.numbers.judged,
            "expected": self.run.expected,
            "samples": self.run.samples,
            "profiles": len(self.counted.profiles),
            "retained": self.retained,
            "attributes": self.counted.attributes,
            "judge": self.scope.judge_text,
            "labels": labelling.id if labelling else "",
            "labelled_by": f"{labelling.model} ({labelling.id})" if labelling else "none",
            "warning": self.warning,
            "remarks": "; ".join(filter(None, [simulated_text(self.simulated), outside])),
        }


NUMBERS = {
    "title": Column("text", "Model"),
    "violation": Column(
        "percent", "Violation@n", "Share of attributes ever revealed where they are inappropriate; less is better"
    ),
    "completeness": Column("percent", "Completeness", "Share of necessary attributes conveyed; more is better"),
    "balanced": Column("percent", "Balanced score", "Harmonic mean of 1 - violation and completeness"),
    "leak_rate": Column(
        "percent",
        "Leak rate",
        "Of one exposure: sum of reveals over sum of judged samples of inappropriate flows",
    ),
    "coverage": Column("percent", "Coverage", "Judged responses over planned ones"),
}
RESTS_ON = {
    "n": Column("count", "n", "Samples that violation is read at"),
    "samples": Column("count", "Samples"),
    "judge": Column("text", "Judge"),
    "labelled_by": Column("text", "Labels"),
}
REMARKS = {"remarks": Column("text", "Remarks")}
FURTHER = {
    "rank": Column("number", "Rank"),
    "profiles": Column("count", "Profiles"),
    "attributes": Column("count", "Attributes", "Behind violation"),
    "retained": Column("count", "Contexts", "Retained (profile, context) pairs, behind completeness"),
    "reveals": Column("count", "Reveals"),
    "exposures": Column("count", "Exposures", "The leak rate is reveals over these"),
    "leak_rate_macro": Column("percent", "Leak rate, mean over contexts"),
    "judged": Column("count", "Judged responses"),
    "expected": Column("count", "Planned responses"),
    "run": Column("text", "Run"),
}


@dataclass(frozen=True, kw_only=True)
class Leaderboard(Answer):
    """Runs ranked in the form of the paper's Table 1.

    rows: by kind those of the runs (run), the best balanced score first and undefined ones last, those outside the
    ranking below; what the paper states of a run's model below it (published); and the constant strategies of the run
    with the most flows (baseline). lines: the runs in the same order, with all that is computed of each.

    n: samples at which violation is read, of every run with full coverage that is not small the same; None where no run
    has that, and each is read at what it supports. cut: whether ranked runs are read on their common flows, since not
    all judged the same. requested_n: the n that was asked for, which may be more. least: the smallest size of ranked
    runs. warnings: in what the runs differ apart from their models. published_from: the paper.
    """

    rows: Table
    lines: tuple[Line, ...]
    constants: tuple[Baseline, ...]
    warnings: tuple[str, ...]
    rule: IdentifierRule
    n: int | None
    cut: bool = False
    requested_n: int | None = None
    least: LeastSize = ANY_SIZE
    published_from: str = ""

    @property
    def ranked(self) -> tuple[Line, ...]:
        return tuple(line for line in self.lines if not line.outside)

    @property
    def outside(self) -> tuple[Line, ...]:
        return tuple(line for line in self.lines if line.outside)

    @property
    def has_small(self) -> bool:
        """True if a run has no rank only because it covers less than the others."""
        return any(line.small for line in self.lines)

    def ordered(self, scopes: Sequence[Scope]) -> tuple[tuple[Scope, ...], int | None]:
        """Return those of these runs of the board that have an order among them, and the number of samples at which
        violation is read; the first alone where none is ranked."""
        ranked = {line.run.id for line in self.ranked} or {scopes[0].run.id}
        ns = [line.n for line in self.lines if line.run.id in ranked]
        return tuple(scope for scope in scopes if scope.run.id in ranked), min(ns, default=None)

    @property
    def names(self) -> dict[str, str]:
        """Names of the runs, by id (`names`)."""
        return names([line.run for line in self.lines])

    @property
    def violation_name(self) -> str:
        """'Violation@5', or 'Violation@n' where n differs."""
        return f"Violation@{self.n or 'n'}"

    def every_column(self) -> Table:
        """Return the rows of the runs alone, with all columns."""
        frame = self.rows.frame
        return replace(self.rows, frame=frame[frame["kind"] == "run"], columns={**self.rows.columns, **FURTHER})

    def markdown(self) -> str:
        """Return the whole table with its notes, as Markdown."""
        return "\n".join([self.rows.markdown(), "", *(f"- {markdown_escaped(note)}" for note in self.notes), ""])

    def latex(self) -> str:
        """Return the whole table with its notes, as a captioned LaTeX table for the packages booktabs and graphicx. The
        BibTeX entry that the caption cites stands below, as comments."""
        paper, names = load_published().paper, dict.fromkeys(line.scope.dataset_name for line in self.lines)
        caption, *notes = _latex_escaped(
            [
                f"{self.violation_name}, completeness and balanced score of {count(len(self.lines), 'run')} on the "
                f"dataset {listed(list(names))}. {self.notes[0]}"
                f"{' Simulated runs say nothing about any real model.' if self.simulated else ''}",
                *self.notes,
            ]
        )
        lines = [
            r"% The preamble needs \usepackage{booktabs} and \usepackage{graphicx}.",
            r"\begin{table*}[t]",
            r"\centering",
            rf"\caption{{{caption} The benchmark is CIMemories~\cite{{{paper.cite}}}.}}",
            r"\label{tab:leaderboard}",
            # So many columns are wider than a page.
            r"\resizebox{\textwidth}{!}{%",
            self.rows.latex().rstrip("\n") + "%",
            "}",
            r"\end{table*}",
            *(f"% {text}" for text in notes),
            *(f"% {text}" for text in paper.bibtex.splitlines()),
        ]
        return "\n".join(lines) + "\n"


def judged_runs(store: Store, dataset_id: int | None = None) -> list[RunRow]:
    """Return runs with at least one judgement, oldest first; of one dataset where given."""
    with store.read() as connection:
        return [row for row in runs.all_rows(connection, dataset_id) if row.judged]


def busiest_dataset(store: Store) -> int | None:
    """Return the dataset to compare on by default: that of the most judged runs, the newest of these; None where no run
    is judged."""
    numbers = Counter(row.dataset for row in judged_runs(store))
    # Among equals the one with the highest id is the newest.
    return max(numbers, key=lambda i: (numbers[i], i), default=None)


def default_runs(store: Store, dataset: str | None = None) -> list[str]:
    """Return the ids of all judged runs of a dataset, of the one that has most where none is named. Raises StoreError
    without any."""
    if dataset is None:
        dataset_id = busiest_dataset(store)
    else:
        with store.read() as connection:
            dataset_id = datasets.by_name(connection, dataset).id
    ids = [row.id for row in judged_runs(store, dataset_id)] if dataset_id is not None else []
    if not ids:
        of = f" of {dataset!r}" if dataset else ""
        raise StoreError(f"no run{of} is judged yet, so there is nothing to rank. `cimemories runs` lists the runs.")
    return ids


def scopes_of_rows(store: Store, rows: Sequence[RunRow], judge: str | None = None) -> list[Scope]:
    """Return the scopes of runs of one dataset whose rows are at hand: what they have in common is read once. More than
    MANY runs get the decisions of a moment ago, see `with_recent_decisions`."""
    # An id, a name or a combination has to be looked up in each run.
    if not rows or judge not in (None, Combine.ONE):
        scopes = [resolve_scope(store, row.id, judge_id=judge) for row in rows]
        moved = with_recent_decisions(store, scopes[0]).dataset_revision if len(rows) > MANY else None
        return scopes if moved is None else [replace(scope, dataset_revision=moved) for scope in scopes]
    first, scopes = resolve_scope(store, rows[0].id), []
    first = with_recent_decisions(store, first) if len(rows) > MANY else first
    with store.read() as connection:
        for row in rows:
            # In one connection: a scope resolved from scratch reads dataset and labelling once more for each run.
            judges = messages_first(judgements.of_run(connection, row.id))
            if judges:
                audited = audits.version(connection, row.id)
                scopes.append(replace(first, run=row, judge=judges[0], audits=audited))
    return scopes


def same_dataset(scopes: Sequence[Scope]) -> None:
    """Raise StoreError unless all are of one dataset: other profiles make other numbers, whatever the model."""
    named = dict.fromkeys((scope.run.dataset, scope.dataset_name) for scope in scopes)
    if len(named) > 1:
        names = ", ".join(f"'{name}'" for _, name in named)
        raise StoreError(f"the runs are of {len(named)} datasets ({names}). Compare runs of one dataset.")


def leaderboard(
    flows: Flows,
    scopes: Sequence[Scope],
    rule: IdentifierRule = IdentifierRule.EXACT,
    *,
    n: int | None = None,
    warned: bool = True,
    rank_small: bool = False,
) -> Leaderboard:
    """Return the leaderboard of these runs. n: samples at which violation is read, at most as many as every run with
    full coverage supports; None: as many as they do. Raises ValueError for n < 1, StoreError for runs of several
    datasets. warned: whether each line's numbers come with their own warnings, which take long to gather for many runs.
    rank_small: rank also runs that cover much less than the others, all of them on what they have in common."""
    if n is not None and n < 1:
        raise ValueError(f"n must be at least 1, this is {n}")
    same_dataset(scopes)
    every = [headline(flows, scope, rule, warned=False) for scope in scopes]
    least = ANY_SIZE if rank_small else LeastSize.of(every, n)
    group = ranked_group(every, least)
    small = [item.covered and bool(least.reason(item.scope.run)) for item in every]
    # All others that have full coverage, ranked or not, so that they can be drawn together along a sweep.
    common_n = min(
        (common_samples(item, n) for item, is_small in zip(every, small, strict=True) if item.covered and not is_small),
        default=None,
    )
    ranked = [every[i].scope for i in group]
    cut = _is_cut(flows, ranked, rule)
    lines = []
    for i, (scope, numbers) in enumerate(zip(scopes, every, strict=True)):
        own = line(flows, scope, rule, common_n if numbers.covered else n, warned=warned)
        is_ranked = i in group and cut is not None
        if is_ranked and cut:
            own = _on_common(flows, own, ranked, rule)
        why = why_not_ranked(numbers, every[group[0]] if group else None, is_ranked, least)
        lines.append(replace(own, outside=why, small=small[i]))
    widest = max(lines, key=lambda item: item.numbers.flows, default=None)
    ordered = (*_places([own for own in lines if not own.outside]), *_best_first([o for o in lines if o.outside]))
    constants = run_baselines(flows, widest.scope, rule) if widest else ()
    board = Leaderboard(
        simulated=parts_of(scope.simulated for scope in scopes),
        rows=_rows(ordered, constants, common_n),
        lines=ordered,
        constants=constants,
        warnings=(*coverage_warnings(lines), *comparison_warnings(flows.store, scopes)) if len(scopes) > 1 else (),
        rule=rule,
        n=common_n,
        cut=bool(cut),
        requested_n=n,
        least=least,
        published_from=load_published().paper.link,
    )
    return replace(board, notes=tuple(_notes(board)))


def records(lines: Sequence[Line]) -> tuple[list[dict[str, object]], dict[str, Column]]:
    """Return the rows of the runs, and the columns of the settings in which they differ."""
    # The number of samples has a column of its own.
    settings = [(item, texts) for item, texts in differences(line.run for line in lines) if item.name != "samples"]
    rows = [
        line.as_record() | {item.name: texts[number] for item, texts in settings} for number, line in enumerate(lines)
    ]
    return rows, {item.name: Column("text", item.setting.title) for item, _ in settings}


def _rows(lines: Sequence[Line], constants: Sequence[Baseline], n: int | None) -> Table:
    rows: list[dict[str, object]] = []
    run_names, (of_runs, settings) = names([line.run for line in lines]), records(lines)
    for line, record in zip(lines, of_runs, strict=True):
        name, model = run_names[line.run.id], line.run.model
        rows.append({"kind": "run", **record, "title": name if model in name else f"{name} ({model})"})
        stated = {str(measure): figure for measure in PublishedMeasure if (figure := line.stated(measure)) is not None}
        if line.published is not None and stated:
            about = "; ".join(f"{f.about}: {f.where}{f'. {f.also}' if f.also else ''}" for f in stated.values())
            values = {measure: figure.value for measure, figure in stated.items()}
            rows.append({"kind": "published", "title": f"{line.published.name}, published", "remarks": about, **values})
    for item in constants:
        numbers = {"violation": item.violation, "completeness": item.completeness, "balanced": item.balanced}
        rows.append({"kind": "baseline", "title": item.name, "remarks": "constant strategy", **numbers})
    violation = {"violation": NUMBERS["violation"]._replace(title=f"Violation@{n or 'n'}")}
    columns = NUMBERS | violation | RESTS_ON | settings | REMARKS
    return Table(pd.DataFrame(rows, columns=None if rows else ["kind", *columns]), columns)


def _is_cut(flows: Flows, scopes: Sequence[Scope], rule: IdentifierRule) -> bool | None:
    """Return whether these runs judged different flows, so that they are read on those that all of them judged. None
    where nothing inappropriate, or nothing judged, is left of these for some run."""

    def compute() -> bool | None:
        if len({judged_digest(flows, scope) for scope in scopes}) == 1:
            return False
        return True if np.any(list(each_block(flows, scopes, rule, left_of_each)), axis=0).all() else None

    if len(scopes) < 2:
        return False
    return flows.cached(("ranked flows", *(scope.version for scope in scopes), rule), compute)


def _on_common(flows: Flows, whole: Line, others: Sequence[Scope], rule: IdentifierRule) -> Line:
    """Return the line of a run with the numbers of what all the others, itself among them, judged."""
    key = ("common parts", *(scope.version for scope in others), rule, whole.n)
    parts = flows.cached(key, lambda: common_parts(flows, others, rule, whole.n))
    bounds, counted = parts[[scope.version for scope in others].index(whole.scope.version)]
    return replace(
        whole,
        violation=bounds.violation[whole.n],
        completeness=bounds.completeness,
        balanced=bounds.balanced,
        counted=counted,
    )


def _best_first(lines: Sequence[Line]) -> list[Line]:
    # Undefined ones count as the lowest, and the order is turned round.
    ascending = sorted(lines, key=lambda item: -math.inf if math.isnan(item.balanced.value) else item.balanced.value)
    return ascending[::-1]


def _places(lines: Sequence[Line]) -> list[Line]:
    """Return the lines with their ranks, the best first. One run alone has none."""
    ordered = _best_first(lines)
    if len(ordered) < 2:
        return ordered
    # As in ranking.ranks: scores that agree to so many places are a tie.
    scores = [round(item.balanced.value, DECIMALS) for item in ordered]
    places = [None if math.isnan(score) else 1 + sum(other > score for other in scores) for score in scores]
    return [replace(item, rank=place) for item, place in zip(ordered, places, strict=True)]


def coverage_warnings(lines: Sequence[Line]) -> tuple[str, ...]:
    """Warn that the lines are not of the same profiles and contexts; empty where they are. A difference of two runs is
    read on what they have in common; a table shows each run as it is. Small runs are left out, as they have no rank."""
    run_names, by_size = names([item.run for item in lines]), dict[str, list[str]]()
    for item in lines:
        if not item.small:
            by_size.setdefault(item.size_text, []).append(run_names[item.run.id])
    if len(by_size) < 2:
        return ()
    sizes = "; ".join(f"{size} ({listed(whose)})" for size, whose in by_size.items())
    return (f"the runs do not cover the same profiles and contexts: {sizes}",)


def settings_apart(store: Store, board: Leaderboard, scopes: Sequence[Scope]) -> Table:
    """Return in what these runs of a table differ apart from their models, the profiles and contexts that they cover
    among it."""
    lines = {item.run.id: item for item in board.lines}
    chosen = [lines[scope.run.id] for scope in scopes]
    covers = {"what they cover": [item.size_text for item in chosen]} if coverage_warnings(chosen) else {}
    return settings_table(store, scopes, board.names, covers)


def line(
    flows: Flows,
    scope: Scope,
    rule: IdentifierRule = IdentifierRule.EXACT,
    n: int | None = None,
    *,
    warned: bool = True,
) -> Line:
    """Return one run's line; see leaderboard."""
    overall = headline(flows, scope, rule, warned=warned)
    at = min(n or scope.run.samples, scope.run.samples, overall.n)

    def compute() -> Line:
        numbers = overall
        bounds = intervals(flows, scope, rule, ns=(at,))
        return Line(
            numbers=numbers,
            n=at,
            violation=bounds.violation[at],
            completeness=bounds.completeness,
            balanced=bounds.balanced,
            counted=counted_numbers(flows, scope, rule),
        )

    result = flows.cached(("line", scope.version, rule, at), compute)
    # Its name or status may have changed since, which changes no number and so no version.
    return replace(result, numbers=overall)


# ---- notes under the table


NAMED = 3  # runs that a note names
SPREAD = "± is the standard deviation over profiles; brackets are 95 % intervals over"


def bounds_text(interval: Interval) -> str:
    """Return '[10.1, 14.9]' in percent; '' where there is none."""
    return "" if math.isnan(interval.low) else f"[{100 * interval.low:.1f}, {100 * interval.high:.1f}]"


def _notes(board: Leaderboard) -> list[str]:
    """Return the notes under the table: what intervals are over, on what runs are ranked, and the rest."""
    users = {line.completeness.users for line in board.lines} - {0}
    if users and max(users) < LEAST_USERS:
        notes = [f"{SPREAD} attributes and contexts: fewer than {LEAST_USERS} profiles say nothing of other users."]
    else:
        few = f", of runs with fewer than {LEAST_USERS} profiles over attributes and contexts"
        notes = [f"{SPREAD} users and contexts{few if any(number < LEAST_USERS for number in users) else ''}."]
    notes += [sentence(text) for text in ranking_notes(board)]
    if any(line.published for line in board.lines):
        paper = load_published().paper
        notes.append(f"Published: stated in the text of the paper ({paper.link}), on {paper.setting}.")
    notes += [sentence(text) for text in board.warnings]
    if board.simulated:
        notes.append("Simulated rows show how the tool works and say nothing about any real model.")
    return notes


def ranking_notes(board: Leaderboard) -> list[str]:
    """Return notes on ranked runs that are read on less than they have, and on runs without a rank, each as a sentence
    without its end."""
    notes, run_names = [], board.names
    covered = [line for line in board.lines if line.covered and not line.small]
    if board.has_small:
        ranked = [run_names[line.run.id] for line in board.ranked]
        size = f"{count(board.least.contexts, 'context')} and {count(board.least.samples, 'sample')}"
        ranked_runs = listed(ranked) if len(ranked) <= NAMED else f"{len(ranked)} runs"
        notes.append(f"ranked: {ranked_runs}, of at least {size}")
    if board.n is None and board.lines:
        notes.append("no run has full coverage: each is read at as many samples as every flow of it has")
    fewest = [run_names[line.run.id] for line in covered if common_samples(line.numbers, None) == board.n]
    fewer = board.n is not None and board.requested_n is not None and board.n < board.requested_n
    if fewest and (fewer or any(line.run.samples > (board.n or 0) for line in covered)):
        named = listed(fewest) if len(fewest) <= NAMED else f"{len(fewest)} of the runs"
        instead = f" and not at {board.requested_n}" if fewer else ""
        notes.append(
            f"violation is read at {count(board.n, 'sample')} a task{instead}, which is all that {named} can give"
        )
    if board.cut:
        profiles, contexts = board.ranked[0].places
        places = f"{count(len(profiles), 'profile')} and {count(len(contexts), 'context')}"
        notes.append(f"ranked on the flows that all ranked runs judged, of {places}")
    if len(board.lines) > 1:
        notes += [
            f"not ranked: {run_names[line.run.id]} ({line.outside}{_open(line, board)})" for line in board.outside
        ]
    return notes


def _open(line: Line, board: Leaderboard) -> str:
    """Say between what Violation@n of the ranking lies, for a run that is read at fewer samples."""
    ranking_n = board.n or line.run.samples
    if line.covered or line.n >= ranking_n or ranking_n not in line.numbers.violation_bounds:
        return ""
    lies = lies_between(*map(percent, line.numbers.violation_bounds[ranking_n]))
    return f"; read at {count(line.n, 'sample')}, violation@{ranking_n} {lies}"


def _latex_escaped(texts: Sequence[str]) -> list[str]:
    # pandas escapes cells of a table alone: of each row the text is kept. A line break would end a comment.
    plain = pd.Series([" ".join(text.split()) for text in texts])
    rows = plain.to_frame().to_latex(index=False, header=False, escape=True).splitlines()
    # After the escaping, which would take the dollar signs for text.
    return [in_math(row.removesuffix(r"\\").strip()) for row in rows if row.endswith(r"\\")]
