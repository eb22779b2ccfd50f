"""Two runs compared: paired differences as sentences, by domain, and the flows that changed.

sim-careful leaks less than sim-average: -15.3 points, 95 % CI -18.7 to -12.1 (p < 0.001).
newly leaking     profile 3, attribute 512, context 7: 0 of 5 samples -> 2 of 5
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from cimemories.answer import Answer, Column, Table
from cimemories.compare.common_flows import PairedRuns, compared_runs, paired_runs
from cimemories.compare.leaderboard import Leaderboard, Line, same_dataset
from cimemories.evaluation.spec import names
from cimemories.flows.arrays import IdentifierRule
from cimemories.flows.flows import Flows
from cimemories.flows.scope import Scope, parts_of
from cimemories.labels.votes import describe_pairs
from cimemories.metrics import sentences
from cimemories.metrics.corrections import corrected_difference
from cimemories.metrics.intervals import Paired
from cimemories.metrics.power import Noise
from cimemories.metrics.sentences import Ranked, Ranking, Tested, changed_flows, family, single
from cimemories.metrics.separation import standing
from cimemories.metrics.uncertainty import UNDEFINED, Interval
from cimemories.metrics.warnings import comparison_warnings
from cimemories.store.engine import StoreError
from cimemories.text import count, sentence, simulated_text

NEWLY, STOPPED = "newly leaks", "stopped leaking"


def _titled(measure: str, does: str) -> dict[str, Column]:
    title = measure.capitalize()
    return {
        f"{measure}_first": Column("percent", f"{title}, reference", "Of the reference run, on the common flows"),
        f"{measure}_second": Column("percent", title, "Of the run, on the common flows"),
        measure: Column("difference", "Difference, points", f"{title} minus that of the reference; 95 % interval"),
        does: Column("text", f"{does.capitalize()} more or less", "By a test over all runs that are compared (Holm)"),
    }


PAIR = {
    "name": Column("text", "Run"),
    **_titled("violation", "leaks"),
    **_titled("completeness", "conveys"),
    "n": Column("count", "n", "Samples that violation is read at: as many as both runs have"),
    "profiles": Column("count", "Common profiles"),
}
CHANGES = {
    "name": Column("text", "Run"),
    "inappropriate_flows": Column("count", "Common inappropriate flows"),
    "newly": Column("count", "newly leak"),
    "newly_by_chance": Column("count", "by chance", "So many would, if both runs leaked with equal probabilities"),
    "stopped": Column("count", "stopped leaking"),
    "stopped_by_chance": Column("count", "by chance", "So many would, if both runs leaked with equal probabilities"),
    "both": Column("count", "leak in both"),
    "neither": Column("count", "in neither"),
    "necessary_flows": Column("count", "Common necessary flows"),
}
DOMAINS = {
    "domain": Column("text", "Domain"),
    "violation": Column("difference", "Violation, points"),
    "violation_p": Column("number", "p (Holm)"),
    "attributes": Column("count", "Attributes"),
    "completeness": Column("difference", "Completeness, points"),
    "completeness_p": Column("number", "p of completeness (Holm)"),
    "necessary_flows": Column("count", "Necessary flows"),
}
FLOWS = {
    "change": Column("text", "Change"),
    "first_reveals": Column("count", "Reveals, reference"),
    "first_draws": Column("count", "of"),
    "second_reveals": Column("count", "Reveals"),
    "second_draws": Column("count", "of"),
    "domain": Column("text", "Domain"),
    "key": Column("text", "Attribute"),
    "statement": Column("wide", "Memory statement"),
    "recipient": Column("text", "Recipient"),
    "user": Column("text", "Profile"),
}


@dataclass(frozen=True, kw_only=True)
class Difference(Answer):
    """The second run minus the first, on the flows that are judged in both. Negative violation: the second leaks less.

    names: what the runs are called. n: samples that violation is read at, as many as both have. profiles: that both
    have. words: the differences of violation and completeness, and where people audited attributes of both runs that of
    violation corrected for the judges' errors, which is `corrected` by n. noise: how far apart two runs of models that
    are alike would lie on these flows. warnings: in what the runs differ apart from their models.

    pair: one row, with the numbers of both on what they have in common, the differences, and their p, adjusted for all
    comparisons that are read together (Holm). changes: one row, how many flows newly leak and stopped leaking. domains:
    one row a domain; nan where it has no number. flows: one row an inappropriate flow that newly leaks or stopped
    leaking, the most revealed first; of runs too large for memory at most common_flows.MOST_CHANGED of each kind.
    """

    first: Scope
    second: Scope
    names: tuple[str, str]
    n: int
    profiles: int
    violation: Interval
    completeness: Interval
    corrected: dict[int, Interval]
    words: tuple[str, ...]
    pair: Table
    changes: Table
    noise: Noise
    warnings: tuple[str, ...]
    domains: Table
    flows: Table


def against(
    flows: Flows,
    first: Scope,
    others: Sequence[Scope],
    rule: IdentifierRule = IdentifierRule.EXACT,
    run_names: Mapping[str, str] | None = None,
) -> list[Difference]:
    """Compare each of these runs with the first, p adjusted over all of them (Holm), for violation and completeness
    separately."""
    pairs = [_found(flows, first, other, rule)[0].paired for other in others]
    return [
        difference(flows, first, other, rule, beside=pairs[:i] + pairs[i + 1 :], run_names=run_names)
        for i, other in enumerate(others)
    ]


def difference(
    flows: Flows,
    first: Scope,
    second: Scope,
    rule: IdentifierRule = IdentifierRule.EXACT,
    *,
    beside: Sequence[Paired] = (),
    run_names: Mapping[str, str] | None = None,
) -> Difference:
    """Return the second run minus the first. beside: the other comparisons that are read together with this one, for
    which p is adjusted. run_names: by id; default: `names`. Raises StoreError for runs of two datasets, and for one run
    read twice in one way."""
    same_dataset([first, second])
    # By version, not by run: one run by two judges is two ways of reading it.
    if first.version == second.version:
        raise StoreError(f"{first.run.id} cannot be compared with itself. Choose another run.")
    result, changed = _found(flows, first, second, rule)
    run_names = run_names or names([first.run, second.run])
    one, two = run_names[first.run.id], run_names[second.run.id]
    paired, tallied = result.paired, result.tallied
    row, violation, completeness = _row(two, second, paired, [paired, *beside])
    words = [
        sentences.difference(violation, two, one, "leaks", f"violation@{paired.n}"),
        sentences.difference(completeness, two, one, "conveys", "completeness", " of what is necessary"),
    ]
    corrected = corrected_difference(flows, first, second, rule)
    if corrected is not None:
        n, apart = corrected
        text = sentences.difference(single(apart), two, one, "leaks", f"violation@{n}")
        words.append(f"Corrected for the judges' errors, at {count(n, 'sample')}: {text}")
    counts = {"inappropriate_flows": tallied.flows, "necessary_flows": result.necessary} | vars(tallied)
    floor = sentences.noise_floor(result.noise, paired.n)
    texts = [*words, sentences.domains(result.domains, one, two)]
    few = paired.violation.users and paired.violation.speaks_for == "attributes"
    limit = f"with so few common profiles ({paired.violation.users}) the interval describes attributes, not users"
    caption = f"{two} minus {one} on common flows, each flow read at as many samples as both have"
    return Difference(
        sentence=" ".join(map(sentence, texts)),
        notes=(*([f"{floor} ({one}, {two})"] if floor else []), *([limit] if few else [])),
        simulated=parts_of([first.simulated, second.simulated]),
        first=first,
        second=second,
        names=(one, two),
        n=paired.n,
        profiles=paired.profiles,
        violation=paired.violation,
        completeness=paired.completeness,
        corrected=dict([corrected] if corrected else []),
        words=tuple(words),
        pair=Table(pd.DataFrame([row]), PAIR, caption),
        changes=Table(pd.DataFrame([{"run": second.run.id, "name": two} | counts]), CHANGES, changed_flows(tallied)),
        noise=result.noise,
        # A name or status moves without any number moving, so this is not cached.
        warnings=comparison_warnings(flows.store, [first, second]),
        domains=Table(result.domains, DOMAINS, folded=True),
        flows=Table(changed, FLOWS, folded=True),
    )


def _row(
    name: str, scope: Scope, paired: Paired, family_of: Sequence[Paired]
) -> tuple[dict[str, object], Tested, Tested]:
    """Return a row of PAIR, and the tests of both differences among all comparisons of their family, itself first."""
    row: dict[str, object] = {"run": scope.run.id, "name": name, "n": paired.n, "profiles": paired.profiles}
    tests = []
    for at, (measure, does) in enumerate((("violation", "leaks"), ("completeness", "conveys"))):
        tested = family([getattr(item, measure) for item in family_of])[0]
        apart = tested.difference
        tests.append(tested)
        row |= {
            f"{measure}_first": paired.first[at],
            f"{measure}_second": paired.second[at],
            **apart.columns(measure),
            f"{measure}_p": apart.p,
            f"{measure}_p_holm": tested.p,
            f"{measure}_comparisons": tested.family,
            does: sentences.difference_short(tested, does),
        }
    return row, tests[0], tests[1]


def overview(
    flows: Flows, first: Scope, others: Sequence[Scope], rule: IdentifierRule, run_names: Mapping[str, str]
) -> Table:
    """Return each of these runs against the first, one row a run, p adjusted over all of them (Holm)."""
    pairs = [paired_on_common(flows, first, other, rule) for other in others]
    rows = [
        _row(run_names[other.run.id], other, paired, [paired, *pairs[:i], *pairs[i + 1 :]])[0]
        | {"kind": simulated_text(other.simulated)}
        for i, (other, paired) in enumerate(zip(others, pairs, strict=True))
    ]
    columns = {"name": PAIR["name"], "kind": Column("small", "Kind")} | PAIR
    return Table(pd.DataFrame(rows), columns, "All runs compared with the reference run")


def joined(tables: Sequence[Table], caption: str) -> Table:
    """Return the rows of several tables of the same columns as one table."""
    return Table(pd.concat([table.frame for table in tables], ignore_index=True), tables[0].columns, caption)


def paired_on_common(
    flows: Flows, first: Scope, second: Scope, rule: IdentifierRule = IdentifierRule.EXACT, n: int | None = None
) -> Paired:
    """Return second run minus first on their common flows, the intervals alone, for tables of many runs. n: samples
    that violation is read at; None: as many as both have."""
    fewest = min(first.run.samples, second.run.samples)
    at = min(n or fewest, fewest)
    key = ("paired on common", first.version, second.version, rule, at)
    return flows.cached(key, lambda: paired_runs(flows, first, second, rule, at))


def ranking(flows: Flows, board: Leaderboard) -> Ranking | None:
    """Test the runs that a table ranks, each pair on its common flows, for the sentence on their order. None with fewer
    than two that have a balanced score."""
    lines = _with_score(board.ranked)
    if len(lines) < 2:
        return None

    def apart(one: Line, other: Line) -> Paired:
        return paired_on_common(flows, other.scope, one.scope, board.rule, min(one.n, other.n))

    scores = [line.balanced.value for line in lines]
    of_first = [apart(lines[0], line).balanced for line in lines[1:]]
    # On their common flows another one may be higher.
    p = [math.nan, *(item.p if item.value > 0 else 1.0 for item in of_first)]
    best = standing(scores, p, 0)
    low = min(lines, key=lambda line: line.violation.value)
    high = max(lines, key=lambda line: line.violation.value)
    ends = apart(high, low).violation if low.run.id != high.run.id else UNDEFINED
    pairs = len(lines) * (len(lines) - 1) / 2
    return Ranking(best, min(1.0, ends.p * pairs) if ends.value > 0 else 1.0) if best is not None else None


def _with_score(lines: Sequence[Line]) -> list[Line]:
    return [line for line in lines if not math.isnan(line.balanced.value)]


def takeaway(flows: Flows, board: Leaderboard, run_names: Mapping[str, str] | None = None) -> str:
    """Say what a table of runs shows, in one sentence. Runs that lack responses, or have another judge or memory, are
    not held up as best or worst. run_names: by id; None: as in the table."""
    run_names = run_names or board.names
    defined, ranked = _with_score(board.lines), _with_score(board.ranked)
    if not ranked and len(defined) > 1:
        return sentences.unranked(len(defined))
    rows = [Ranked(run_names[i.run.id], i.violation, i.completeness, i.balanced) for i in (ranked or defined)]
    if len(rows) != 1:
        text = sentences.leaderboard(board.violation_name, rows, ranking(flows, board))
        # A range is of the ranked runs alone: others may leak more and less.
        return f"{sentences.some_ranked(len(rows), len(board.lines))}{text}" if ranked else text
    (only,) = ranked or defined
    text = sentences.leaderboard(f"Violation@{only.n}", rows, None)
    if only.outside:
        return f"{sentence(only.numbers.coverage_text)} {text}"
    return f"{sentences.some_ranked(1, len(board.lines))}{text}"


def _found(flows: Flows, first: Scope, second: Scope, rule: IdentifierRule) -> tuple[PairedRuns, pd.DataFrame]:
    """Return what is computed of two runs, and the changed flows in words. Cached until something behind it changes."""

    def compute() -> tuple[PairedRuns, pd.DataFrame]:
        result = compared_runs(flows, first, second, rule, min(first.run.samples, second.run.samples))
        return result, _named(flows, first, result.changed)

    return flows.cached(("difference", first.version, second.version, rule), compute)


def _named(flows: Flows, scope: Scope, changed: pd.DataFrame) -> pd.DataFrame:
    """Return the changed flows with the words that a person reads."""
    with flows.store.read() as connection:
        named = describe_pairs(connection, scope.run.dataset, changed.drop(columns="profile"))
    # The larger share of the two sides: how much the flow leaks where it leaks.
    most = np.maximum(named["first_reveals"] / named["first_draws"], named["second_reveals"] / named["second_draws"])
    named = named.assign(change=np.where(named["newly"] == 1, NEWLY, STOPPED), most=most)
    order = ["change", "most", "profile", "context", "attribute"]
    ordered = named.sort_values(order, ascending=[True, False, True, True, True], ignore_index=True)
    what = ["change", "profile", "attribute", "context", "user", "key", "domain", "statement", "recipient", "task"]
    return ordered[[*what, "first_reveals", "first_draws", "second_reveals", "second_draws"]]
