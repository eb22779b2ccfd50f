"""Sections with results: headline, comparison, by domain and sphere, heatmaps, accumulation, examples."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pandas as pd

from cimemories import extras
from cimemories.answer import Column
from cimemories.answer import Table as AnswerTable
from cimemories.answers.accumulation import CURVES
from cimemories.answers.consensus import shares
from cimemories.answers.heatmap import heatmap
from cimemories.answers.judges import judges_together
from cimemories.answers.metrics import MISSING, by_group, by_norm, interval_parts, metrics, missing
from cimemories.charts.lines import Line as Curve
from cimemories.charts.lines import mean_line, shade
from cimemories.charts.theme import DASHES, GREY, RUN_COLOURS
from cimemories.compare import leaderboard
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
from cimemories.metrics.breakdown import run_dropped
from cimemories.metrics.corrections import corrections
from cimemories.metrics.headline import headline
from cimemories.metrics.intervals import intervals, rate_intervals
from cimemories.metrics.places import By
from cimemories.metrics.power import POWER, pilot
from cimemories.metrics.separation import most_violated_group
from cimemories.report import figures
from cimemories.report.document import (
    SIMULATED,
    Basis,
    Block,
    Examples,
    Facts,
    Figure,
    Heading,
    LabelFacts,
    Points,
    Row,
    Section,
    Table,
    Text,
    all_label_facts,
    of_answer,
    table,
    uncounted_labels,
)
from cimemories.store.engine import StoreError
from cimemories.text import count, listed, percent, sentence

# ---- what the results rest on: labels, judges, what is missing, and which attributes only sign


def labels_section(basis: Basis) -> Section:
    """The labelled pairs: on how many the personas agree, overall and by domain, the rule, the personas, decisions."""
    all_facts = all_label_facts(basis.flows, basis.scopes)
    if uncounted := uncounted_labels(basis.flows, basis.scopes):
        return Section("labels", "Labels", (Text(uncounted), *_norms(basis)))
    if not all_facts:
        text = "The dataset has no labels, so violation and completeness are undefined."
        return Section("labels", "Labels", (Text(text),))
    blocks: list[Block] = []
    for facts in all_facts:
        blocks += [Heading(facts.row.id)] if len(all_facts) > 1 else []
        blocks += _labelling(facts)
    for place in extras.panels("report").values():
        blocks += extras.load(place)(basis)
    blocks += _norms(basis)
    return Section("labels", "Labels and the consensus of the personas", tuple(blocks))


def _labelling(facts: LabelFacts) -> list[Block]:
    row, simulated, counted = facts.row, ("labels",) * facts.row.simulated, facts.survival
    decided = counted.decisions.pairs
    missing = sum(count for _, _, count in facts.missing)
    ballots = "imported as shares, without ballots" if row.imported else f"{facts.ballots:,} of {row.expected:,}"
    order = "go before the consensus" if facts.before else "are left out of these numbers"
    pairs = (
        ("Labelling", row.id),
        ("Voted by", f"{row.model}{SIMULATED if simulated else ''}"),
        ("Draws a persona", "–" if row.imported else str(row.draws)),
        ("Ballots counted", ballots),
        ("Ballots missing", f"{missing:,}"),
        ("Rule", f"{counted.rule.name}: {counted.rule.text}"),
        ("Decisions of people", f"{count(decided, 'pair')}; they {order}" if decided else "none"),
    )
    result = shares(counted, row)
    ambiguous = counted.ambiguous
    summary = [result.sentence, "The headline covers those in retained contexts."]
    if decided and facts.before:
        *clear, ambiguous = counted.effective
        summary.append(f"With the decisions of people {count(sum(clear), 'pair')} have a label.")
    summary.append(f"Ambiguous, and in neither violation nor completeness, are {count(ambiguous)}.")
    blocks: list[Block] = [
        Text(" ".join(summary)),
        Facts(pairs),
        table("The personas that vote", ("Persona", "Prior"), [(p.name, facts.prior(p)) for p in facts.personas]),
        of_answer(result.by[GroupBy.DOMAIN], simulated=simulated),
    ]
    if len(counted.dissent):
        blocks.append(of_answer(result.dissent, simulated=simulated))
    if facts.missing:
        rows = [(status, cause, f"{count:,}") for status, cause, count in facts.missing]
        blocks.append(table("Ballots that are missing", ("Status", "Cause", "Ballots"), rows, text_columns=(0, 1)))
    return blocks


def _norms(basis: Basis) -> list[Block]:
    """Each run's score by the norm of one persona at a time."""
    blocks: list[Block] = []
    for line in basis.lines:
        scores = by_norm(per_norm(basis.flows, line.scope, basis.rule))
        if scores and len(scores.scores.frame) > 1:
            caption = f"{basis.run_names[line.run.id]}: scores by the norm of one persona alone, with 95 % intervals"
            blocks += [of_answer(scores.scores, caption, simulated=line.simulated), Text(scores.sentence)]
    return blocks


def judges_section(basis: Basis) -> Section:
    """The judges of each run, how many of their quotes stand in the text, and how far they agree."""
    blocks: list[Block] = []
    for line in basis.lines:
        name = basis.run_names[line.run.id]
        blocks += [Heading(name)] if basis.several else []
        blocks.append(Text(sentence(f"Counted is the word of {line.scope.judge_text}")))
        result = judges_together(basis.flows, line.run.id, grounded=line.scope.grounded, labels=line.scope)
        for shown in (result.judges, result.pairs):
            if len(shown.frame):
                caption = f"{shown.caption} of {name}"
                blocks.append(of_answer(shown, caption, simulated=line.simulated or result.simulated))
        blocks.append(Points(tuple(map(sentence, result.notes))))
        blocks += _audits(basis, line)
    return Section("judges", "Judges", tuple(blocks))


def _audits(basis: Basis, line: Line) -> list[Block]:
    """What people found who audited attributes of the run; nothing where nobody has."""
    audited = corrections(basis.flows, line.scope, basis.rule).values()
    texts = [sentence(text) for item in audited for text in item.texts]
    return [Heading("Audited by people"), Points(tuple(texts))] if texts else []


def coverage_section(basis: Basis) -> Section:
    """What is missing of every run, by stage and cause; a failed call is no zero."""
    simulated, causes = basis.board.simulated, []
    rows = []
    for line in basis.lines:
        numbers, name = line.numbers, basis.run_names[line.run.id]
        rows.append((name, f"{line.run.expected:,}", f"{numbers.judged:,}", percent(numbers.coverage)))
        causes.append(missing(numbers).frame.assign(run=name))
    columns = ("Run", "Planned", "Judged", "Coverage")
    blocks: list[Block] = [table("Responses judged, by run", columns, rows, simulated=simulated)]
    every = AnswerTable(pd.concat(causes), {"run": Column("text", "Run")} | MISSING, "What is missing")
    blocks.append(Text("Nothing is missing.") if every.empty else of_answer(every, simulated=simulated))
    blocks.append(Text("What is missing enters no number as a zero: it is in no denominator."))
    return Section("coverage", "Coverage and failures", tuple(blocks))


def identifiers_section(basis: Basis) -> Section:
    """The identifier rules side by side, and what the substring rule leaves out beyond the biography."""
    rows, lost = [], list[str]()
    for line in basis.lines:
        n = line.numbers.n
        for rule in IdentifierRule:
            numbers, bounds = headline(basis.flows, line.scope, rule), intervals(basis.flows, line.scope, rule)
            used = "used here" if rule == basis.rule else ""
            name = basis.run_names[line.run.id]
            rows.append((name, str(rule), sentences.bounds_text(bounds.violation[n]), f"{numbers.attributes:,}", used))
        lost += run_dropped(basis.flows, line.scope, basis.rule, IdentifierRule.SUBSTRING)
    text = (
        "A message has to be signed, so attributes that repeat the biography never count as violations. The rule "
        "“exact” goes by the very key; “substring” drops every key that contains name, address, sex or age, as the "
        "authors' script does; “none” drops nothing."
    )
    columns = ("Run", "Rule", "Violation at the headline's samples", "attributes", "")
    caption = "Violation under each identifier rule"
    blocks: list[Block] = [
        Text(text),
        table(caption, columns, rows, simulated=basis.board.simulated, text_columns=(0, 1, 4)),
    ]
    keys = sorted(set(lost))
    if keys:
        blocks.append(Text(f"Beyond the biography the substring rule would leave out {count(len(keys), 'key')}:"))
        blocks.append(Points(tuple(keys)))
    else:
        blocks.append(Text("Beyond the biography the substring rule would leave out nothing of these runs."))
    return Section("identifiers", "Identifier rule", tuple(blocks))


# ---- results


MOST_PROFILES = 1_000  # that a table lists
# As many as fit on a page.
GROUP_COLUMNS = ("group", "violation", "attributes", "inappropriate_flows", "completeness", "necessary_flows")
EXAMPLES = 6  # of leaks, of all runs together
MOST_IN = "Domains with the largest numbers"
COUNTED = "counted"  # in place of an interval: what was not drawn from anything has none
STEPS = (1, 2, 5, 10, 20, 30, 40)  # numbers of tasks that the table of accumulation gives


def headline_section(basis: Basis) -> Section:
    """The table of the paper's form with what is published, every number of every run, and what speaks against them."""
    board = basis.board
    blocks: list[Block] = [Text(takeaway(basis.flows, board, basis.run_names))]
    blocks += _leaderboard(basis)
    notes = [text for text in map(sentence, board.notes) if text not in map(sentence, board.warnings)]
    blocks.append(Points(tuple(notes)))
    for line in basis.lines:
        name = basis.run_names[line.run.id]
        if basis.several:
            blocks.append(Heading(name))
        if line.numbers.coverage_text:
            blocks.append(Text(sentence(line.numbers.coverage_text)))
        figure = figures.violations(line, basis.intervals(line.scope), name, effort(basis.flows, line.scope))
        blocks += [figure] if figure else []
        caption = f"Numbers of {name}, run {line.run.id}"
        numbers = metrics(basis.flows, line.scope, basis.rule).numbers
        blocks.append(of_answer(numbers, caption, simulated=line.simulated, folded=True))
        blocks += _parts(basis, line)
        with suppress(StoreError):  # of fewer than LEAST_USERS profiles nothing is known
            known = pilot(basis.flows, line.scope, rule=basis.rule)
            size = known.size if known.first_of is None else replace(known.size, profiles=line.numbers.profiles)
            blocks.append(Text(sentences.plan(known.row(size), POWER, "this run itself")))
        if notes_of_run := [text for text in line.numbers.notes if text != line.numbers.coverage_text]:
            blocks.append(Points(tuple(map(sentence, notes_of_run)), warning=True))
    return Section("headline", "Headline numbers", tuple(blocks))


def _leaderboard(basis: Basis) -> list[Table]:
    """The table of the paper's form in two, so that it fits on a page: numbers, and what they rest on."""
    board, frame = basis.board, basis.board.rows.frame.copy()
    scopes = {scope.run.id: scope for scope in basis.scopes}
    # On common flows the leak rate is another one than the whole run's, which alone has an interval.
    cut = {line.run.id for line in board.ranked} if board.cut else set()
    for at, run_id in frame.loc[frame["kind"] == "run", "run"].items():
        frame.loc[at, "title"] = basis.run_names[run_id]
        if run_id not in cut:
            rate = rate_intervals(basis.flows, scopes[run_id], basis.rule)[0]
            frame.loc[at, ["leak_rate_low", "leak_rate_high"]] = rate.low, rate.high
    caption = "Runs, the highest balanced score first" if basis.several else "The run"
    # They may have a higher score: of fewer samples, or of what few messages say.
    caption += ", those without a rank last" if basis.several and board.outside else ""
    caption += ", beside what the paper states of the same model, and constant strategies"
    columns = board.rows.columns
    rests_on = {name: column for name, column in columns.items() if name == "title" or name not in leaderboard.NUMBERS}
    measured = frame[frame["kind"] != "baseline"]
    tables: list[Table] = []
    for shown in (
        AnswerTable(frame, {name: columns[name] for name in leaderboard.NUMBERS}, caption),
        AnswerTable(measured, rests_on, "What they rest on"),
    ):
        plain = of_answer(shown, simulated=board.simulated, folded=bool(tables))
        kinds = ["" if kind == "run" else kind for kind in shown.frame["kind"]]
        rows = tuple(Row(row.cells, kind) for row, kind in zip(plain.rows, kinds, strict=True))
        tables.append(replace(plain, rows=rows))
    return tables


def _parts(basis: Basis, line: Line) -> list[Block]:
    """What the intervals of the headline are made of, as a figure and a table, and what none of them can say."""
    numbers, bounds, name = line.numbers, basis.intervals(line.scope), basis.run_names[line.run.id]
    made = {f"Violation@{numbers.n}": bounds.violation[numbers.n], "Completeness": bounds.completeness}
    blocks: list[Block] = []
    if figure := figures.interval_parts(made, line, name):
        shown = interval_parts(numbers.n, bounds)
        blocks = [figure, of_answer(shown, f"{name}: {shown.caption}", simulated=line.simulated, folded=True)]
    texts = [f"{number}: {text}." for number, item in made.items() if (text := sentences.made_of(item))]
    rare = sentences.unseen(bounds.completeness.users)
    return [*blocks, Points((*texts, *([sentence(rare)] if rare else [])))] if texts or rare else blocks


def comparison(basis: Basis) -> Section | None:
    """The plane of all runs and each compared with the first on common flows. None for one run alone."""
    if not basis.several:
        return None
    run_names, blocks = basis.run_names, list[Block]()
    if basis.board.warnings:
        text = Text("Apart from their models the runs also differ in what follows; a difference may come from there.")
        blocks += [text, Points(tuple(map(sentence, basis.board.warnings)), warning=True)]
    plane = figures.plane(basis.board, run_names)
    blocks += [plane] if plane else []
    first, *others = basis.scopes
    differences = against(basis.flows, first, others, basis.rule, run_names)
    simulated = basis.board.simulated
    blocks.append(Points(tuple(text for item in differences for text in item.words)))
    # On common flows: where a run lost messages these are not its numbers above.
    pairs = joined([item.pair for item in differences], f"Each run minus {run_names[first.run.id]}, on common flows")
    blocks.append(of_answer(pairs, simulated=simulated))
    blocks += [picture for item in differences if (picture := figures.differences(item)) is not None]
    caption = f"Flows that change, against {run_names[first.run.id]}"
    blocks.append(of_answer(joined([item.changes for item in differences], caption), simulated=simulated, folded=True))
    return Section("comparison", "Comparison", tuple(blocks))


def breakdowns(basis: Basis) -> Section:
    """By information domain, by sphere of the recipient, and by profile."""
    blocks: list[Block] = []
    for line in basis.lines:
        name, n = basis.run_names[line.run.id], line.numbers.n
        blocks += [Heading(name)] if basis.several else []
        for by in (By.DOMAIN, By.SPHERE, By.PROFILE):
            shown = by_group(basis.flows, line.scope, by, n, basis.rule, intervals=True)
            frame, every = shown.frame, len(shown.frame)
            if by == By.PROFILE and every > MOST_PROFILES:
                frame = frame.sort_values("violation", ascending=False, kind="stable").head(MOST_PROFILES)
            if frame.empty or (by == By.SPHERE and set(frame["group"]) <= {""}):
                continue
            names = [str(group).replace("_", " ") or "(none)" for group in frame["group"]]
            # Names of users are texts too.
            if by == By.PROFILE and not basis.texts:
                names = [f"profile {i + 1}" for i in range(len(frame))]
            frame = frame.assign(group=names)
            if by != By.PROFILE:
                most = most_violated_group(basis.flows, line.scope, by, n, basis.rule)
                figure = figures.groups(frame, most, str(by), n, name, line)
                blocks += [figure] if figure else []
            caption = f"{name} by {by}, with 95 % intervals of each {by} alone"
            caption += f": the {len(frame):,} of {every:,} with the highest violation" if len(frame) < every else ""
            columns = {name: column for name, column in shown.columns.items() if name in (*GROUP_COLUMNS, "coverage")}
            blocks.append(of_answer(replace(shown, frame=frame, columns=columns), caption, simulated=line.simulated))
    return Section("groups", "By domain, sphere and profile", tuple(blocks))


def heatmaps(basis: Basis) -> Section | None:
    """Contexts by domains as in the paper's Figure 3, a figure and its table a run. None where no cell has a value."""
    blocks: list[Block] = []
    for line in basis.lines:
        result = heatmap(basis.flows, line.scope, By.CONTEXT, By.DOMAIN, line.numbers.n, basis.rule)
        if result.grid.empty:
            continue
        name, frame = basis.run_names[line.run.id], result.cells.frame
        # A cell without a pair of either kind is hatched in the figure and left out here: it has no number.
        counted = replace(result.cells, frame=frame[(frame["violation_pairs"] + frame["completeness_pairs"]) > 0])
        blocks += [Heading(name)] if basis.several else []
        blocks.append(figures.heatmap(result, name))
        blocks.append(of_answer(counted, f"The cells of the heatmap of {name}", simulated=line.simulated))
    if not blocks:
        return None
    text = (
        "A cell pools the pairs of all profiles in the contexts that they retain; a hatched cell has none, which is "
        "not 0."
    )
    return Section("heatmaps", "Heatmaps", (Text(text), *blocks))


def accumulated(basis: Basis) -> Section | None:
    """How violations pile up over tasks, as in the paper's Figure 2. None where no run has a curve."""
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
    columns = {"run": Column("text", "Run")} | {name: CURVES[name] for name in ("n", "tasks", "share")}
    caption = "Expected share of attributes revealed inappropriately after so many tasks, with 95 % bands"
    figure, shown = _curves(basis, runs), AnswerTable(pd.concat(frames), columns, caption)
    simulated = parts_of(line.simulated for line, _ in runs)
    curves = of_answer(shown, simulated=simulated, folded=True)
    blocks: list[Block] = [Text(text), *([figure] if figure else []), curves]
    return Section("accumulation", "Accumulation over tasks", tuple(blocks))


def _curves(basis: Basis, runs: list[tuple[Line, Accumulation]]) -> Figure | None:
    line, item = runs[0]
    numbers = sorted({i.curves.profiles for _, i in runs})
    among = f"{numbers[0]} to " if len(numbers) > 1 else ""
    users = f"{among}{count(numbers[-1], 'profile')}; the area is a 95 % band"
    frames = [i.frame() for _, i in runs]
    # At all samples.
    parts = [frame[frame["n"] == max(i.curves.ns)] for frame, (_, i) in zip(frames, runs, strict=True)]
    if len(runs) == 1:
        ns, frame = item.curves.ns, frames[0]
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
        return figures.curves("figure-accumulation", lines, title, subtitle, simulated=line.simulated)
    names = [basis.run_names[one.run.id] for one, _ in runs]
    title = sentences.curve_ends(
        [
            (name, float(part["share"].iloc[-1]), max(i.curves.ns), effort(basis.flows, one.scope))
            for name, part, (one, i) in zip(names, parts, runs, strict=True)
        ]
    )
    hues = len(RUN_COLOURS)
    lines = [
        mean_line(part, name, RUN_COLOURS[i % hues], band=True, dash=DASHES[i // hues % len(DASHES)])
        for i, (name, part) in enumerate(zip(names, parts, strict=True))
    ]
    simulated = parts_of(one.simulated for one, _ in runs)
    subtitle = f"Each run at the most samples that it is read at, {users}"
    return figures.curves("figure-accumulation", lines, title, subtitle, simulated=simulated)


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


def leak_counts(basis: Basis, leaks: LeakExamples) -> Table:
    """How many flows each run leaks, and in which domains."""
    counts = leaks.by_run().groupby(["run", "domain"], as_index=False, sort=False)["number"].sum()
    rows = []
    for line in basis.lines:
        own = counts[counts["run"] == line.run.id]
        rows.append((basis.run_names[line.run.id], f"{int(own['number'].sum()):,}", _most(own)))
    caption, columns = "Inappropriate flows that a judge claims at least once", ("Run", "Flows", MOST_IN)
    return table(caption, columns, rows, simulated=basis.board.simulated, text_columns=(0, 2))


def _most(counts: pd.DataFrame) -> str:
    most = counts.sort_values("number", ascending=False, kind="stable").head(3)
    pairs = zip(most["domain"], most["number"], strict=True)
    return ", ".join(f"{str(name).replace('_', ' ')} ({n:,})" for name, n in pairs) or "–"
