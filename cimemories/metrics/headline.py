"""The headline numbers of a run, with what they rest on, ready to be printed or written as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from cimemories.flows.arrays import Floats, IdentifierRule, axes, mean_or_nan
from cimemories.flows.flows import Flows, cached
from cimemories.flows.labels import consensus_labels
from cimemories.flows.scope import Combine, Labels, Scope, judge_title, resolve_scope
from cimemories.labels.votes import WHOLE
from cimemories.llm.endpoint import is_assistant
from cimemories.metrics import sentences
from cimemories.metrics.blocks import counted_numbers
from cimemories.metrics.violation import LeakRate, balanced
from cimemories.metrics.warnings import (
    TaskCheck,
    coverage_warning,
    family_warning,
    is_covered,
    reading_n,
    scope_warnings,
    task_check,
)
from cimemories.model import Channel, WorkKind
from cimemories.store import datasets, judgements, runs, work
from cimemories.store.engine import Store
from cimemories.text import count, simulated_text


@dataclass(frozen=True)
class ProfileNumbers:
    name: str
    violation: dict[int, float]
    completeness: float
    retained: int
    discarded: int


@dataclass(frozen=True)
class JudgeQuotes:
    """A judge whose claims are counted: its full claims in the run, and how many have a quote that is not there."""

    judge: str
    claims: int
    ungrounded: int

    @property
    def share(self) -> float:
        """Ungrounded over all full claims; nan where it makes none."""
        return self.ungrounded / self.claims if self.claims else math.nan


@dataclass(frozen=True)
class Spread:
    """Standard deviations over profiles (n - 1 below the line), as the paper's Table 1 gives them; nan with fewer than
    two profiles. violation: of Violation@n at the n that the headline is read at."""

    violation: float
    completeness: float


@dataclass(frozen=True)
class Headline:
    """Violation@n for n = 1..N, completeness and ambiguous exposure of one run. Shares are 0 to 1, nan where undefined.

    violation: at n > supported_n it is read of some flows at fewer samples, so it is too low; what may be said of it
    then is violation_bounds, by n the lowest and highest it can be whatever the missing messages say. supported_n: None
    where nothing inappropriate is judged. unjudged: retained contexts of profiles without a judged message.

    coverage: judged responses (by every judge that is counted) over planned ones. retained, discarded: (profile,
    context) pairs with a judged message. flows: pairs behind the violation figure (inappropriate, counted, judged).
    missing: (stage, status, cause, count), each message once, by the judges that are counted. quotes: one a judge.
    does_task: by `task_check`; None where none was asked for. too_few: pairs without a label since some persona lost
    too many votes. conveying: (profile, context) pairs that completeness is a mean of. warnings: what speaks against
    taking the numbers at face value (`scope_warnings`).
    """

    scope: Scope
    rule: IdentifierRule
    profiles: int
    coverage: float
    judged: int
    violation: dict[int, float]
    completeness: float
    ambiguous_exposure: float
    retained: int
    discarded: int
    flows: int
    attributes: int
    per_profile: tuple[ProfileNumbers, ...]
    leak_rate: LeakRate
    spread: Spread
    missing: tuple[tuple[str, str, str, int], ...]
    violation_bounds: dict[int, tuple[float, float]]
    supported_n: int | None
    unjudged: int
    quotes: tuple[JudgeQuotes, ...] = ()
    does_task: TaskCheck | None = None
    warnings: tuple[str, ...] = ()
    too_few: int = 0
    conveying: int = 0

    @property
    def covered(self) -> bool:
        """True if enough is judged for the numbers to stand as those of the run."""
        return is_covered(self.judged, self.scope.run.expected)

    @property
    def n(self) -> int:
        """Number of samples at which violation is read (`reading_n`)."""
        return reading_n(self.judged, self.scope.run.expected, self.scope.run.samples, self.supported_n)

    @property
    def balanced(self) -> float:
        """Return the harmonic mean of 1 - V@n, at the n of the headline, and completeness."""
        return balanced(self.violation[self.n], self.completeness)

    def reads(self, n: int) -> bool:
        """Return whether Violation@n stands as a number; if not, only its bounds do."""
        return self.covered or n <= self.n

    @property
    def coverage_text(self) -> str:
        """Effect of missing messages on violation, in words; '' if nothing inappropriate is judged."""
        if self.supported_n is None:
            return ""
        run, most, at = self.scope.run, self.scope.run.samples, self.violation[self.n]
        bounds = self.violation_bounds[most]
        return sentences.missing_messages(self.judged, run.expected, self.n, most, at, bounds, self.unjudged)

    @property
    def contexts_text(self) -> str:
        """Contexts that completeness rests on: in a reduced memory not every one held a necessary attribute."""
        of = "" if self.conveying == self.retained else f"{self.conveying:,} of "
        return f"{of}{count(self.retained, 'retained context')}"

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks that a reader needs before quoting a number."""
        notes = [self.coverage_text] if self.coverage_text else []
        if self.scope.labelling is None:
            notes.append("the dataset has no labels, so violation and completeness are undefined: label it first")
        elif not self.judged:
            notes.append("no message is judged, so the numbers are undefined")
        elif not self.retained:
            notes.append(
                "no judged context has both a necessary and an inappropriate attribute, so the numbers are undefined"
            )
        elif np.isnan(self.completeness):
            notes.append("no judged message held an attribute that is necessary, so completeness is undefined")
        elif np.isnan(self.violation[1]):
            notes.append("no judged message held an inappropriate attribute that counts, so violation is undefined")
        if self.too_few:
            have = "has" if self.too_few == 1 else "have"
            notes.append(f"{count(self.too_few, 'pair')} {have} too few counted votes for a label: in no number")
        if not self.coverage_text and (covered := coverage_warning(self.judged, self.scope.run.expected)):
            notes.append(covered)
        if self.does_task is not None and self.does_task.note:
            notes.append(self.does_task.note)
        notes += self.how_counted
        if self.scope.labels == Labels.CONSENSUS or self.scope.rule is not None:
            notes.append(f"labels: {self.scope.labels_text}")
        if self.scope.verdicts == "people":
            notes.append("where people have audited a claim, their verdict replaces the judge's")
        if 0 < self.profiles < 5:
            notes.append(f"{count(self.profiles, 'profile')}: the numbers describe these attributes, not users")
        warning = self.scope.labelling and family_warning(self.scope.labelling.model, self.scope.run.model)
        if warning:
            notes.append(warning)
        notes += self.warnings
        if self.scope.simulated:
            notes.append(f"{simulated_text(self.scope.simulated)}; says nothing about any real model")
        return tuple(notes)

    @property
    def how_counted(self) -> list[str]:
        """Remarks where the numbers are not those of the whole memory, by all claims of one judge on messages."""
        notes = []
        if self.scope.run.composition != WHOLE:
            notes.append(f"the assistant's memory was {self.scope.run.composition}, not all memory statements")
        if self.scope.run.counts_whole_profiles:
            notes.append("attributes that were not in memory count as not revealed, as in the authors' code")
        if self.scope.combine != "one":
            notes.append(f"an attribute counts as revealed by {self.scope.judge_text}")
        if self.scope.grounded:
            lost, claims = sum(q.ungrounded for q in self.quotes), sum(q.claims for q in self.quotes)
            notes.append(f"claims whose quote is not in the text are left out: {lost:,} of {claims:,} full claims")
        if self.scope.channel != Channel.MESSAGE:
            notes.append(f"these are numbers of the {self.scope.channel.in_words}, not of the messages")
        elif is_assistant(self.scope.run.endpoint) and self.scope.combine != Combine.SENT:
            notes.append("what the assistant's tool calls reveal is not counted here")
        return notes


def headline(
    flows: Flows, scope: Scope, rule: IdentifierRule = IdentifierRule.EXACT, *, warned: bool = True
) -> Headline:
    """Return all headline numbers of a run, by docs/metrics.md. warned: whether to add its warnings, which are gathered
    on every call."""
    # A status moves without any number moving, so what is cached may have been asked under an older one.
    warnings = scope_warnings(flows, scope) if warned else ()
    return replace(_headline(flows, scope, rule), scope=scope, warnings=warnings)


@cached
def _headline(flows: Flows, scope: Scope, rule: IdentifierRule) -> Headline:
    run, most = scope.run, scope.run.samples
    counted, record = counted_numbers(flows, scope, rule), _record(flows, scope)
    supported = counted.supported_n(most)
    by_n, complete = counted.violation, counted.complete
    by_all = {n: mean_or_nan(values) for n, values in by_n.items()}
    retained, discarded = counted.retained.tolist(), counted.discarded.tolist()
    shares = np.column_stack([*by_n.values(), complete]).tolist()
    reveals, draws = counted.ambiguous
    return Headline(
        scope=scope,
        rule=rule,
        profiles=len(record.names),
        coverage=record.judged / run.expected if run.expected else math.nan,
        judged=record.judged,
        violation=by_all,
        completeness=mean_or_nan(complete),
        ambiguous_exposure=reveals / draws if draws else math.nan,
        retained=sum(retained),
        discarded=sum(discarded),
        flows=counted.flows,
        attributes=counted.attributes,
        leak_rate=counted.leak_rate,
        spread=Spread(deviation(by_n[reading_n(record.judged, run.expected, most, supported)]), deviation(complete)),
        per_profile=tuple(
            ProfileNumbers(name, dict(zip(by_n, share, strict=False)), share[-1], retained[i], discarded[i])
            # strict=False: the row's last number is completeness, which has no n.
            for i, (name, share) in enumerate(zip(record.names, shares, strict=True))
        ),
        missing=record.missing,
        violation_bounds={n: counted.bounds(n) for n in by_all},
        supported_n=supported,
        unjudged=counted.unjudged,
        quotes=tuple(JudgeQuotes(judge_title(j, scope.judges), *record.grounding[j.id]) for j in scope.judges),
        does_task=record.check,
        too_few=counted.too_few,
        conveying=counted.conveying,
    )


@dataclass(frozen=True)
class _Record:
    """Facts from the record of a run, beside its flows."""

    names: tuple[str, ...]
    missing: tuple[tuple[str, str, str, int], ...]
    judged: int
    grounding: Mapping[int, tuple[int, int]]
    check: TaskCheck | None


@cached
def _record(flows: Flows, scope: Scope) -> _Record:
    profiles = axes(flows, scope).profiles
    with flows.store.read() as connection:
        names = datasets.profile_names(connection, scope.run.dataset)
        return _Record(
            names=tuple(names[profile] for profile in profiles),
            missing=tuple(runs.failures(connection, scope.run.id, scope.judge_ids)),
            judged=judgements.judged_by_all(connection, scope.run.id, scope.judge_ids),
            grounding=judgements.grounding(connection, scope.run.id, scope.judge_ids),
            check=task_check(connection, scope.run),
        )


def deviation(values: Floats) -> float:
    """Return the standard deviation (n - 1 below the line) of the entries that are defined; nan with fewer than two."""
    defined = values[~np.isnan(values)]
    return float(defined.std(ddof=1)) if defined.size > 1 else math.nan


def warm(store: Store, work_id: str) -> None:
    """Build the cached tables that rest on work which has just ended, so that no page has to wait for them."""
    if work.kind_of(work_id) is WorkKind.RUN:
        with store.read() as connection:
            if runs.by_id(connection, work_id).explains:
                return  # its messages are of variants of one request: no flows are counted from them
        # Flows of its own: what pages need of it afterwards are the files that it writes.
        headline(Flows(store), resolve_scope(store, work_id))
    else:
        consensus_labels(store, work_id)
