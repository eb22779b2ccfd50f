"""Sections with results: labels, judges, coverage, identifiers; headline, comparison, groups, heatmaps, accumulation,
examples. Tables are those of answers (answers/)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

import pandas as pd

from cimemories import extras
from cimemories.answer import Column, Listing, Table
from cimemories.answers import metrics as question
from cimemories.answers.accumulation import CURVES
from cimemories.answers.consensus import shares
from cimemories.answers.heatmap import heatmap
from cimemories.answers.judges import judges_together
from cimemories.charts import comparison as charts
from cimemories.charts.lines import Line as Curve
from cimemories.charts.lines import mean_line, shade
from cimemories.charts.theme import DASHES, GREY, RUN_COLOURS
from cimemories.compare import leaderboard
from cimemories.compare.baselines import run_dropped
from cimemories.compare.difference import against, joined, takeaway
from cimemories.compare.leaderboard import Line
from cimemories.compare.norms import per_norm
from cimemories.flows.arrays import IdentifierRule
from cimemories.flows.scope import parts_of
from cimemories.labels.votes import GroupBy
from cimemories.leaks.examples import Examples as LeakExamples
from cimemories.leaks.examples import examples as all_examples
from cimemories.leaks.gallery import SEVERITY
from cimemories.leaks.table import leak_rows
from cimemories.metrics import sentences
from cimemories.metrics.accumulation import Accumulation, accumulation, baseline, effort
from cimemories.metrics.corrections import corrections
from cimemories.metrics.headline import headline
from cimemories.metrics.intervals import intervals, rate_intervals
from cimemories.metrics.places import By
from cimemories.metrics.power import POWER, pilot
from cimemories.metrics.recalled.split import recalled_numbers
from cimemories.metrics.separation import most_violated_group
from cimemories.model import Label
from cimemories.report import figures
from cimemories.report.document import (
    SIMULATED,
    Basis,
    Block,
    Examples,
    Figure,
    Heading,
    LabelFacts,
    Points,
    Section,
    Shown,
    Text,
    all_label_facts,
    facts,
    shown,
    uncounted_labels,
)
from cimemories.store.engine import StoreError
from cimemories.text import count, listed, sentence

RUN = {"run": Column("text", "Run")}
MOST_PROFILES = 1_000  # that a table lists
# As many as fit on a page.
GROUP_COLUMNS = (
    *("group", "violation", "attributes", "inappropriate_flows", "completeness", "necessary_flows", "coverage"),
)
EXAMPLES = 6  # of leaks, of all runs together
IN_ABSTRACT = ("about any real model", "describe these attributes, not users")  # ends of remarks that it has too
STEPS = (1, 2, 5, 10, 20, 30, 40)  # numbers of tasks that the table of accumulation gives


def each_run(basis: Basis, ask: Callable[[Line, str], list[Block]]) -> list[Block]:
    """Return what is asked of each run and its name, under a heading where there are several; nothing of a run without
    an answer."""
    blocks: list[Block] = []
    for line in basis.lines:
        answered = ask(line, basis.run_names[line.run.id])
        blocks += [Heading(basis.marked_names[line.run.id])] if answered and basis.several else []
        blocks += answered
    return blocks


# ---- what the results rest on: labels, judges, what is missing, and which attributes only sign


def labels_section(basis: Basis) -> Section:
    """Return the labelled pairs: on how many the personas agree, overall and by domain, the rule, the personas,
    decisions."""
    all_facts = all_label_facts(basis.flows, basis.scopes)
    if uncounted := uncounted_labels(basis.flows, basis.scopes):
        return Section("labels", "Labels", (Text(uncounted), *_norms(basis)))
    if not all_facts:
        text = "The dataset has no labels, so violation and completeness are undefined."
        return Section("labels", "Labels", (Text(text),))
    blocks: list[Block] = []
    for item in all_facts:
        blocks += [Heading(item.row.id)] if len(all_facts) > 1 else []
        blocks += _labelling(item)
    for place in extras.panels("report").values():
        blocks += extras.load(place)(basis)
    blocks += _norms(basis)
    return Section("labels", "Labels and the consensus of the personas", tuple(blocks))


def _labelling(of: LabelFacts) -> list[Block]:
    row, simulated, counted = of.row, ("labels",) * of.row.simulated, of.survival
    decided = counted.decisions.pairs
    order = "go before the consensus" if of.before else "are left out of these numbers"
    pairs = {
        "Labelling": row.id,
        "Voted by": f"{row.model}{SIMULATED if simulated else ''}",
        "Draws a persona": "–" if row.imported else str(row.draws),
        "Ballots counted": "imported as shares, without ballots"
        if row.imported
        else f"{of.ballots:,} of {row.expected:,}",
        "Ballots missing": f"{sum(number for *_, number in of.missing):,}",
        "Rule": f"{counted.rule.name}: {counted.rule.text}",
        "Decisions of people": f"{count(decided, 'pair')}; they {order}" if decided else "none",
    }
    result, ambiguous = shares(counted, row), counted.ambiguous
    summary = [result.sentence, "The headline covers those in retained contexts."]
    if decided and of.before:
        *clear, ambiguous = counted.effective
        summary.append(f"With the decisions of people {count(sum(clear), 'pair')} have a label.")
    summary.append(f"Ambiguous, and in neither violation nor completeness, are {count(ambiguous)}.")
    missing = [{"status": status, "cause": cause, "count": number} for status, cause, number in of.missing]
    ballots = {name: question.MISSING[name] for name in ("status", "cause")} | {"count": Column("count", "Ballots")}
    tables = (
        shown(result.by[GroupBy.DOMAIN], simulated=simulated),
        shown(result.dissent, simulated=simulated),
        shown(Listing(missing, ballots, "Ballots that are missing")),
    )
    blocks = (Text(" ".join(summary)), facts(f"The labelling {row.id}", pairs))
    return [*blocks, *(item for item in tables if not item.table.empty)]


def _norms(basis: Basis) -> list[Block]:
    """Each run's score by the norm of one persona at a time."""
    blocks: list[Block] = []
    for line in basis.lines:
        scores = question.by_norm(per_norm(basis.flows, line.scope, basis.rule))
        if scores and len(scores.scores.frame) > 1:
            caption = f"{basis.run_names[line.run.id]}: scores by the norm of one persona alone, with 95 % intervals"
            blocks += [Text(scores.sentence), shown(scores.scores, caption, simulated=line.simulated, folded=True)]
    return blocks


def judges_section(basis: Basis) -> Section:
    """Return the judges of each run, how many of their quotes stand in the text, how far they agree, and what
    audits of attributes found."""

    def of_run(line: Line, name: str) -> list[Block]:
        result = judges_together(basis.flows, line.run.id, grounded=line.scope.grounded, labels=line.scope)
        simulated = line.simulated or result.simulated
        tables = [item for item in (result.judges, result.pairs) if not item.empty]
        items = corrections(basis.flows, line.scope, basis.rule).values()
        audited = [sentence(text) for item in items for text in item.texts]
        blocks: list[Block] = [Text(sentence(f"Reveals as judged by {line.scope.judge_text}"))]
        blocks += [shown(item, f"{item.caption} of {name}", simulated=simulated) for item in tables]
        blocks.append(Points(tuple(map(sentence, result.notes))))
        return blocks + ([Heading("Audited by people"), Points(tuple(audited))] if audited else [])

    return Section("judges", "Judges", tuple(each_run(basis, of_run)))


def coverage_section(basis: Basis) -> Section:
    """List what is missing of every run, by stage and cause; a failed call is no zero."""
    names, simulated = basis.run_names, basis.board.simulated
    judged = [
        {"run": names[line.run.id], "planned": line.run.expected, "judged": line.numbers.judged}
        | {"coverage": line.numbers.coverage}
        for line in basis.lines
    ]
    columns = RUN | {"planned": Column("count", "Planned"), "judged": Column("count", "Judged")}
    columns |= {"coverage": Column("percent", "Coverage")}
    causes = [question.missing(line.numbers).frame.assign(run=names[line.run.id]) for line in basis.lines]
    missing = Table(pd.concat(causes), RUN | question.MISSING, "What is missing")
    blocks: list[Block] = [shown(Listing(judged, columns, "Responses judged, by run"), simulated=simulated)]
    blocks.append(Text("Nothing is missing.") if missing.empty else shown(missing, simulated=simulated))
    blocks.append(Text("What is missing enters no number as a zero: it is in no denominator."))
    return Section("coverage", "Coverage and failures", tuple(blocks))


def identifiers_section(basis: Basis) -> Section:
    """Return the identifier rules side by side, and what the substring rule leaves out beyond the biography."""
    rows, lost = [], set[str]()
    for line in basis.lines:
        for rule in IdentifierRule:
            bounds = intervals(basis.flows, line.scope, rule).violation[line.numbers.n]
            row = {"run": basis.run_names[line.run.id], "rule": str(rule), "used": rule == basis.rule}
            row |= bounds.columns("violation")
            rows.append(row | {"attributes": headline(basis.flows, line.scope, rule).attributes})
        lost |= set(run_dropped(basis.flows, line.scope, basis.rule, IdentifierRule.SUBSTRING))
    text = (
        "A message has to be signed, so attributes that repeat the biography never count as violations. The rule "
        "“exact” goes by the very key; “substring” drops every key that contains name, address, sex or age, as the "
        "authors' script does; “none” drops nothing."
    )
    columns = RUN | {"rule": Column("text", "Rule")}
    columns |= {"violation": Column("percent", "Violation at the headline's samples")}
    columns |= {"attributes": Column("count", "Attributes"), "used": Column("flag", "Used here")}
    table = shown(Listing(rows, columns, "Violation under each identifier rule"), simulated=basis.board.simulated)
    keys = f"leave out {count(len(lost), 'key')}:" if lost else "leave out nothing of these runs."
    blocks: list[Block] = [Text(text), table, Text(f"Beyond the biography the substring rule would {keys}")]
    blocks += [Points(tuple(sorted(lost)))] if lost else []
    return Section("identifiers", "Identifier rule", tuple(blocks), folded=True)


# ---- results


def picture(basis: Basis) -> list[Figure]:
    """Draw the numbers of a run, or two of each of several, with their intervals; nothing where none is defined."""
    if basis.several:
        title = takeaway(basis.flows, basis.board, basis.run_names)
        return figures.runs(basis.board, basis.run_names, title)
    (line,) = basis.lines
    name, bounds = basis.run_names[line.run.id], basis.intervals(line.scope)
    return figures.violations(line, bounds, name, effort(basis.flows, line.scope))


def headline_section(basis: Basis) -> Section:
    """Return the table of the paper's form with what is published, every number of every run, and what speaks against
    them."""
    board = basis.board
    warnings = set(map(sentence, board.warnings))
    said = tuple(f"{text}." for text in IN_ABSTRACT)
    notes = Points(tuple(t for t in map(sentence, board.notes) if t not in warnings and not t.endswith(said)))

    def of_run(line: Line, name: str) -> list[Block]:
        numbers, bounds = line.numbers, basis.intervals(line.scope)
        table = question.metrics(basis.flows, line.scope, basis.rule).numbers
        blocks: list[Block] = [Text(sentence(numbers.coverage_text))] if numbers.coverage_text else []
        blocks.append(shown(table, f"Numbers of {name}, run {line.run.id}", simulated=line.simulated, folded=True))
        parts = question.interval_parts(numbers.n, bounds)
        blocks.append(shown(parts, f"{name}: {parts.caption}", simulated=line.simulated, folded=True))
        with suppress(StoreError):  # of fewer than LEAST_USERS profiles nothing is known
            as_pilot = pilot(basis.flows, line.scope, rule=basis.rule)
            size = as_pilot.size if as_pilot.first_of is None else replace(as_pilot.size, profiles=numbers.profiles)
            blocks.append(Text(sentences.plan(as_pilot.row(size), POWER, "this run itself")))
        left = (text for text in numbers.notes if text != numbers.coverage_text and not text.endswith(IN_ABSTRACT))
        remarks = tuple(map(sentence, left))
        return [*blocks, *([Points(remarks, warning=True)] if remarks else [])]

    blocks = (*_leaderboard(basis), notes, *each_run(basis, of_run))
    return Section("headline", "Headline numbers", blocks)


def _leaderboard(basis: Basis) -> list[Shown]:
    """Return the table of the paper's form in two, so that it fits on a page: numbers, and what they rest on."""
    board, frame = basis.board, basis.board.rows.frame.copy()
    scopes = {scope.run.id: scope for scope in basis.scopes}
    # On common flows the leak rate is another one than the whole run's, which alone has an interval.
    cut = {line.run.id for line in board.ranked} if board.cut else set()
    for at, run_id in frame.loc[frame["kind"] == "run", "run"].items():
        frame.loc[at, "title"] = basis.marked_names[run_id]
        if run_id not in cut:
            rate = rate_intervals(basis.flows, scopes[run_id], basis.rule)[0]
            frame.loc[at, ["leak_rate_low", "leak_rate_high"]] = rate.low, rate.high
    caption = "Runs, the highest balanced score first" if basis.several else "The run"
    # They may have a higher score: of fewer samples, or of what few messages say.
    caption += ", those without a rank last" if basis.several and board.outside else ""
    caption += ", beside what the paper states of the same model, and constant strategies"
    columns, measured = board.rows.columns, frame[frame["kind"] != "baseline"]
    rests_on = {name: column for name, column in columns.items() if name == "title" or name not in leaderboard.NUMBERS}
    numbers = Table(frame, {name: columns[name] for name in leaderboard.NUMBERS}, caption)
    return [
        shown(numbers, simulated=board.simulated),
        shown(Table(measured, rests_on, "What they rest on"), simulated=board.simulated, folded=True),
    ]


def comparison(basis: Basis) -> Section | None:
    """Return the plane of all runs and each compared with the first on common flows. None for one run alone."""
    if not basis.several:
        return None
    board, run_names, blocks = basis.board, basis.run_names, list[Block]()
    settings = leaderboard.settings_apart(basis.flows.store, board, basis.scopes)
    if not settings.empty:
        blocks.append(shown(settings, f"{settings.caption}: a difference may come from there"))
    # A plane of one run shows nothing.
    if sum(not math.isnan(line.balanced.value) for line in board.lines) > 1:
        blocks += figures.figures_of(charts.plane(board, run_names), "figure-plane", simulated=board.simulated)
    first, *others = basis.scopes
    differences = against(basis.flows, first, others, basis.rule, run_names)
    blocks.append(Points(tuple(text for item in differences for text in item.words)))
    # On common flows: where a run lost messages these are not its numbers above.
    pairs = joined([item.pair for item in differences], f"Each run minus {run_names[first.run.id]}, on common flows")
    blocks.append(shown(pairs, simulated=board.simulated, folded=True))
    for item in differences:
        if len(differences) == 1:
            blocks += figures.figures_of(charts.domains(item), "figure-difference", simulated=item.simulated)
        blocks.append(shown(item.domains, f"{' minus '.join(item.names[::-1])}, by domain", simulated=item.simulated))
    caption = f"Flows that change, against {run_names[first.run.id]}"
    changes = joined([item.changes for item in differences], caption)
    return Section("comparison", "Comparison", (*blocks, shown(changes, simulated=board.simulated, folded=True)))


def breakdowns(basis: Basis) -> Section:
    """By information domain, by sphere of the recipient, and by profile."""

    def by_group(line: Line, name: str, by: By) -> list[Block]:
        n = line.numbers.n
        table = question.by_group(basis.flows, line.scope, by, n, basis.rule, intervals=True)
        frame, every = table.frame, len(table.frame)
        if by == By.PROFILE and every > MOST_PROFILES:
            frame = frame.sort_values("violation", ascending=False, kind="stable").head(MOST_PROFILES)
        if frame.empty or (by == By.SPHERE and set(frame["group"]) <= {""}):
            return []
        names = [str(group).replace("_", " ") or "(none)" for group in frame["group"]]
        # Names of users are texts too.
        if by == By.PROFILE and not basis.texts:
            names = [f"profile {i + 1}" for i in range(len(frame))]
        frame, blocks = frame.assign(group=names), list[Block]()
        if by != By.PROFILE:
            most = most_violated_group(basis.flows, line.scope, by, n, basis.rule)
            figure = figures.groups(frame, most, str(by), n, name, line)
            blocks += figure if by == By.DOMAIN else [Text(sentence(item.title)) for item in figure]
        caption = f"{name} by {by}, with 95 % intervals of each {by} alone"
        caption += f": the {len(frame):,} of {every:,} with the highest violation" if len(frame) < every else ""
        columns = {name: column for name, column in table.columns.items() if name in GROUP_COLUMNS}
        groups = replace(table, frame=frame, columns=columns)
        return [*blocks, shown(groups, caption, simulated=line.simulated, folded=bool(blocks))]

    def of_run(line: Line, name: str) -> list[Block]:
        return [block for by in (By.DOMAIN, By.SPHERE, By.PROFILE) for block in by_group(line, name, by)]

    return Section("groups", "By domain, sphere and profile", tuple(each_run(basis, of_run)))


def heatmaps(basis: Basis) -> Section | None:
    """Contexts by domains as in the paper's Figure 3, a figure and its table a run. None where no cell has a value."""

    def of_run(line: Line, name: str) -> list[Block]:
        result = heatmap(basis.flows, line.scope, By.CONTEXT, By.DOMAIN, line.numbers.n, basis.rule)
        if result.grid.empty:
            return []
        # A cell without a pair of either kind is hatched in the figure and left out here: it has no number.
        frame = result.cells.frame
        counted = replace(result.cells, frame=frame[(frame["violation_pairs"] + frame["completeness_pairs"]) > 0])
        cells = shown(counted, f"The cells of the heatmap of {name}", simulated=line.simulated)
        return [figures.heatmap(result, name), cells]

    text = (
        "A cell pools the pairs of all profiles in the contexts that they retain; a hatched cell has none, which is "
        "not 0."
    )
    blocks = each_run(basis, of_run)
    return Section("heatmaps", "Heatmaps", (Text(text), *blocks)) if blocks else None


def recalled(basis: Basis) -> Section | None:
    """Show both headline numbers of runs behind a gate or a memory system by their parts, and by domain what became of
    the judged samples. Return None where every prompt held all that is stored."""

    def of_run(line: Line, name: str) -> list[Block]:
        numbers = recalled_numbers(basis.flows, line.scope, line.numbers.n, basis.rule)
        answer = question.recalled(basis.flows, line.scope, basis.rule, line.numbers.n)
        if numbers is None or answer is None:
            return []
        blocks: list[Block] = [Text(sentence(text)) for text in (answer.sentence, *answer.notes)]
        blocks.append(shown(answer.splits, f"{name}: {answer.splits.caption}", simulated=line.simulated))
        places = answer.by_domain
        for label in (Label.INAPPROPRIATE, Label.NECESSARY):
            frame = places.frame[places.frame["label"] == str(label)].reset_index(drop=True)
            if not frame.empty:
                blocks.append(figures.recalled(frame, label, numbers, name, line))
                caption = f"Judged samples of {label} attributes of {name}, by domain"
                blocks.append(shown(replace(places, frame=frame), caption, simulated=line.simulated))
        return blocks

    text = (
        "Of what the assistant stores, a gate or a memory system chose what reached each prompt. What was not recalled "
        "was held back, or lost, by it; what was recalled and not said, by the model. The denominators are those of "
        "what is stored; labels are taken as given in these intervals."
    )
    blocks = each_run(basis, of_run)
    return Section("recalled", "Stored, recalled, said", (Text(text), *blocks)) if blocks else None


def accumulated(basis: Basis) -> Section | None:
    """Show how violations pile up over tasks, as in the paper's Figure 2. Return None where no run has a curve."""
    runs = [(line, accumulation(basis.flows, line.scope, basis.rule)) for line in basis.lines]
    runs = [(line, item) for line, item in runs if item.most > 0 and item.curves.profiles]
    if not runs:
        return None
    text = (
        "The expectation over all orders of the tasks is exact, not drawn. The denominator stays fixed: every "
        "attribute that is inappropriate in some retained context."
    )
    frames = []
    for line, item in runs:
        name, frame, ns = basis.run_names[line.run.id], item.frame(), item.curves.ns
        # The last step always: there the curve is at Violation@n.
        steps = frame["tasks"].isin([*STEPS, item.most]) & (frame["tasks"] > 0)
        frames.append(frame[steps & frame["n"].isin([ns[0], ns[-1]])].assign(run=name))
        if limit := sentences.limited(max(ns), line.run.samples, ""):
            text += f" {name} is {limit}."
    columns = RUN | {name: CURVES[name] for name in ("n", "tasks", "share")}
    caption = "Expected share of attributes revealed inappropriately after so many tasks, with 95 % bands"
    curves = Table(pd.concat(frames), columns, caption)
    simulated = parts_of(line.simulated for line, _ in runs)
    table = shown(curves, simulated=simulated, folded=True)
    return Section("accumulation", "Accumulation over tasks", (Text(text), *_curves(basis, runs, simulated), table))


def _curves(basis: Basis, runs: Sequence[tuple[Line, Accumulation]], simulated: tuple[str, ...]) -> list[Figure]:
    """Draw a run at few n and its independence baseline, several at all samples of each."""
    (line, item), *others = runs
    numbers = sorted({i.curves.profiles for _, i in runs})
    among = f"{numbers[0]} to " if len(numbers) > 1 else ""
    users = f"{among}{count(numbers[-1], 'profile')}; the area is a 95 % band"
    if not others:
        ns, frame = item.curves.ns, item.frame()
        few = sorted({ns[0], ns[len(ns) // 2], ns[-1]})
        lines = [
            mean_line(frame[frame["n"] == n], f"n = {n}", shade(i, len(few)), band=n == ns[-1])
            for i, n in enumerate(few)
        ]
        even, name = baseline(basis.flows, line.scope, ns[-1], basis.rule).tolist(), f"independent, n = {ns[-1]}"
        lines.append(Curve(name, range(len(even)), even, GREY, dash="dash", end=name))
        judged = effort(basis.flows, line.scope)
        title = sentences.accumulation(basis.run_names[line.run.id], item, judged, line.numbers.coverage)
        subtitle = f"{count(item.attributes, 'attribute')}, {count(item.flows, 'inappropriate flow')}, {users}"
        return figures.curves(lines, title, subtitle, simulated=simulated)
    lines, ends = [], []
    for i, (one, growth) in enumerate(runs):
        name, frame, most = basis.run_names[one.run.id], growth.frame(), max(growth.curves.ns)
        part = frame[frame["n"] == most]
        colour, dash = RUN_COLOURS[i % len(RUN_COLOURS)], DASHES[i // len(RUN_COLOURS) % len(DASHES)]
        lines.append(mean_line(part, name, colour, band=True, dash=dash))
        ends.append((name, float(part["share"].iloc[-1]), most, effort(basis.flows, one.scope)))
    subtitle = f"Each run at the most samples that it is read at, {users}"
    return figures.curves(lines, sentences.curve_ends(ends), subtitle, simulated=simulated)


def examples(basis: Basis) -> Section | None:
    """A few leaks, the severest of each domain first; only what they are about where texts are left out. None where
    nothing leaks."""
    leaks = all_examples(basis.flows, basis.scopes)
    if not leaks.number:
        return None
    blocks: list[Block] = [leak_counts(basis, leaks)]
    if not basis.texts:
        blocks.append(Text("The texts of messages and memories are left out of this report."))
        return Section("examples", "Examples of leaks", tuple(blocks))
    # Leaks come with the severest first, so the first of each domain is the one to show.
    chosen = leaks.firsts("domain", EXAMPLES)
    if len(chosen) < EXAMPLES:
        more = leaks.firsts("context", EXAMPLES - len(chosen), list(chosen["id"]))
        chosen = pd.concat([chosen, more]).sort_index()
    scopes = {scope.run.id: scope for scope in basis.scopes}
    text = (
        f"Below are {len(chosen)} of {count(leaks.number, 'flow')}, the severest of each domain, ordered by "
        f"{listed(SEVERITY)}. They show what a leak looks like, not how often it happens."
    )
    blocks += [Text(text), Examples(tuple(leak_rows(basis.flows, scopes, chosen)))]
    return Section("examples", "Examples of leaks", tuple(blocks))


def leak_counts(basis: Basis, leaks: LeakExamples) -> Shown:
    """Count the flows that each run leaks, and name the three domains with the most."""
    counts = leaks.by_run().groupby(["run", "domain"], as_index=False, sort=False)["number"].sum()
    rows = []
    for line in basis.lines:
        counted = counts[counts["run"] == line.run.id].sort_values("number", ascending=False, kind="stable")
        most = zip(counted["domain"].head(3), counted["number"].head(3), strict=True)
        domains = ", ".join(f"{str(name).replace('_', ' ')} ({n:,})" for name, n in most)
        flows = int(counted["number"].sum())
        rows.append({"run": basis.run_names[line.run.id], "flows": flows, "domains": domains or "–"})
    columns = RUN | {"flows": Column("count", "Flows")}
    columns |= {"domains": Column("text", "Domains with the largest numbers")}
    caption = "Inappropriate flows that a judge claims at least once"
    return shown(Listing(rows, columns, caption), simulated=basis.board.simulated)
