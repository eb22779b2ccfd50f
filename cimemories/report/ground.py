"""Sections on what the results rest on: labels, judges, what is missing, and which attributes only sign."""

from __future__ import annotations

from cimemories.analysis.baselines import dropped
from cimemories.analysis.cube import IdentifierRule, cube
from cimemories.analysis.headline import headline
from cimemories.analysis.judges_agreement import judges_agreement
from cimemories.analysis.kappa import Figure as Statistic
from cimemories.analysis.leaderboard_text import percent
from cimemories.report.basis import SIMULATED, Basis, sentence, several, table
from cimemories.report.document import Block, Facts, Heading, Points, Section, Text
from cimemories.report.label_facts import LabelFacts, all_label_facts


def labels(made: Basis) -> Section:
    """What became of the labelled pairs: survival overall and by domain, the rule, the personas, decisions."""
    found = all_label_facts(made.flows, made.scopes)
    if not found:
        said = "The dataset has no labels, so violation and completeness are undefined."
        return Section("labels", "Labels", (Text(said),))
    blocks: list[Block] = []
    for facts in found:
        blocks += [Heading(facts.row.id)] if len(found) > 1 else []
        blocks += _labelling(facts)
    return Section("labels", "Labels and what share of them survives", tuple(blocks))


def _labelling(facts: LabelFacts) -> list[Block]:
    row, simulated = facts.row, facts.row.simulated
    missing = sum(count for _, _, count in facts.missing)
    ballots = "imported as shares, without ballots" if row.imported else f"{facts.ballots:,} of {row.expected:,}"
    order = "go before the consensus" if facts.before else "are left out of these numbers"
    pairs = (
        ("Labelling", row.id),
        ("Voted by", f"{row.model}{SIMULATED if simulated else ''}"),
        ("Draws a persona", "–" if row.imported else str(row.draws)),
        ("Ballots counted", ballots),
        ("Ballots missing", f"{missing:,}"),
        ("Rule", f"{facts.rule.name}: {facts.rule.words}"),
        ("Decisions of people", f"{facts.decided:,} pairs; they {order}" if facts.decided else "none"),
    )
    personas = table(
        "The personas that vote",
        ("Persona", "Prior"),
        [(p.name, f"{facts.rule.prior_by_key.get(p.key, p.prior):.4g}") for p in facts.personas],
    )
    domains: list[tuple[str, ...]] = [
        (
            str(item["name"]).replace("_", " "),
            f"{item['pairs']:,}",
            percent(item["survival"]),
            f"{item['necessary']:,}",
            f"{item['inappropriate']:,}",
            f"{item['ambiguous']:,}",
        )
        for item in facts.domains.to_dict("records")
    ]
    whole = (facts.pairs, facts.necessary, facts.inappropriate, facts.ambiguous)
    cells = [f"{n:,}" for n in whole]
    domains.append(("all", cells[0], percent(facts.share), *cells[1:]))
    columns = ("Domain", "Labelled pairs", "Survive", "necessary", "inappropriate", "ambiguous")
    people = f" and for the {facts.decided:,} that people decided" if facts.decided and facts.before else ""
    said = (
        f"Of {facts.pairs:,} labelled pairs of an attribute and a context {percent(facts.share)} have a label that is "
        f"agreed on; the headline speaks for these{people}. Ambiguous, and in neither violation "
        f"nor completeness, are {facts.ambiguous:,}."
    )
    found: list[Block] = [
        Text(said),
        Facts(pairs),
        personas,
        table("Survival of labels by domain", columns, domains, simulated=simulated),
    ]
    if len(facts.dissent):
        rows = [
            (f"{item['who']} {item['how']}".strip(), f"{item['pairs']:,}", percent(item["share"]))
            for item in facts.dissent.to_dict("records")
        ]
        caption = "Who stands in the way of a label that is agreed on"
        found.append(table(caption, ("Persona", "Pairs", "of the ambiguous"), rows, simulated=simulated))
    if facts.missing:
        rows_ = [(status, cause, f"{count:,}") for status, cause, count in facts.missing]
        found.append(table("Ballots that are missing", ("Status", "Cause", "Ballots"), rows_, words=(0, 1)))
    return found


def judges(made: Basis) -> Section:
    """The judges of each run, how many of their quotes stand in the text, and how far they agree."""
    blocks: list[Block] = []
    for line in made.lines:
        name = made.called[line.run.id]
        blocks += [Heading(name)] if made.several else []
        blocks.append(Text(sentence(f"Counted is the word of {line.scope.judge_words}")))
        found = judges_agreement(made.flows, line.run.id, grounded=line.scope.grounded)
        rows = [
            (
                item.title + (SIMULATED if item.judge.simulated else ""),
                item.judge.kind,
                item.judge.channel,
                f"{item.judged:,}",
                f"{item.claims:,}",
                f"{item.ungrounded:,}",
                percent(item.ungrounded_share),
                (item.judge.prompt_hash or "–")[:12],
            )
            for item in found.judges
        ]
        columns = ("Judge", "Kind", "Reads", "Judged", "Full claims", "Quote not in the text", "Share", "Prompt")
        simulated = line.simulated or any(item.judge.simulated for item in found.judges)
        caption = f"Judges of {name}"
        blocks.append(table(caption, columns, rows, simulated=simulated, words=(0, 1, 2, 7)))
        pairs = [
            (
                f"{pair.first.title} and {pair.second.title}",
                f"{pair.messages:,}",
                f"{pair.places:,}",
                f"{pair.table[1][1]:,}",
                f"{pair.table[1][0]:,}",
                f"{pair.table[0][1]:,}",
                _statistic(pair.agreement),
                _statistic(pair.kappa),
                _statistic(pair.ac1),
            )
            for pair in found.pairs
        ]
        if pairs:
            heads = ("Judges", "Messages", "Places", "Revealed by both", "first alone", "second alone", "Agreement")
            caption = f"Agreement of the judges of {name}"
            blocks.append(table(caption, (*heads, "Cohen's kappa", "Gwet's AC1"), pairs, simulated=simulated))
        else:
            blocks.append(Text("One judge alone reads these texts, so there is no agreement of judges to report."))
    return Section("judges", "Judges", tuple(blocks))


def _statistic(found: Statistic) -> str:
    return f"undefined: {found.why}" if found.value is None else f"{found.value:.3f}"


def coverage(made: Basis) -> Section:
    """What is missing of every run, by stage and cause; a failed call is no zero."""
    rows, causes = [], []
    for line in made.lines:
        numbers, name = line.numbers, made.called[line.run.id]
        rows.append((name, f"{line.run.expected:,}", f"{numbers.judged:,}", percent(numbers.coverage)))
        causes += [(name, stage, status, cause, f"{count:,}") for stage, status, cause, count in numbers.missing]
    simulated = made.board.simulated
    caption, columns = "Responses judged, by run", ("Run", "Planned", "Judged", "Coverage")
    blocks: list[Block] = [table(caption, columns, rows, simulated=simulated)]
    if causes:
        heads = ("Run", "Stage", "Status", "Cause", "Count")
        blocks.append(table("What is missing", heads, causes, simulated=simulated, words=(0, 1, 2, 3)))
    else:
        blocks.append(Text("No call is recorded as failed."))
    blocks.append(Text("What is missing enters no number as a zero: it is in no denominator."))
    return Section("coverage", "Coverage and failures", tuple(blocks))


def identifiers(made: Basis) -> Section:
    """The identifier rules side by side, and what the substring rule leaves out beyond the biography."""
    rows, lost = [], list[str]()
    for line in made.lines:
        n = line.run.samples
        for rule in IdentifierRule:
            found = headline(made.flows, line.scope, rule)
            used = "used here" if rule == made.rule else ""
            name = made.called[line.run.id]
            rows.append((name, str(rule), percent(found.violation[n]), f"{found.attributes:,}", used))
        lost += dropped(cube(made.flows, line.scope, made.rule), IdentifierRule.SUBSTRING)
    said = (
        "A message has to be signed, so attributes that repeat the biography never count as violations. The rule "
        "“exact” goes by the very key; “substring” drops every key that contains name, address, sex or age, as the "
        "authors' script does; “none” drops nothing."
    )
    columns = ("Run", "Rule", "Violation at all samples", "attributes", "")
    caption = "Violation under each identifier rule"
    blocks: list[Block] = [Text(said), table(caption, columns, rows, simulated=made.board.simulated, words=(0, 1, 4))]
    keys = sorted(set(lost))
    if keys:
        blocks.append(Text(f"Beyond the biography the substring rule would leave out {several(len(keys), 'key')}:"))
        blocks.append(Points(tuple(keys)))
    else:
        blocks.append(Text("Beyond the biography the substring rule would leave out nothing of these runs."))
    return Section("identifiers", "Identifier rule", tuple(blocks))
