"""Section of a report on runs behind a gate or a memory system: what was stored, recalled and said."""

from __future__ import annotations

from cimemories.compare.leaderboard import Line
from cimemories.metrics import sentences
from cimemories.metrics.heatmap import By
from cimemories.metrics.recalled.groups import recalled_by
from cimemories.metrics.recalled.split import OUTCOMES, RecalledNumbers, recalled_numbers
from cimemories.model import Label
from cimemories.report import figures
from cimemories.report.document import Basis, Block, Heading, Section, Table, Text, table
from cimemories.text import percent, sentence

NAMES = tuple(sentences.OUTCOME_NAMES[outcome].capitalize() for outcome in OUTCOMES)


def recalled(basis: Basis) -> Section | None:
    """Both headline numbers by their parts, and by domain what became of the judged samples. None where every prompt
    held all that is stored."""
    blocks: list[Block] = []
    for line in basis.lines:
        numbers = recalled_numbers(basis.flows, line.scope, line.numbers.n, basis.rule)
        if numbers is not None:
            blocks += _run(basis, line, numbers)
    if not blocks:
        return None
    text = (
        "Of what the assistant stores, a gate or a memory system chose what reached each prompt. What was not recalled "
        "was held back, or lost, by it; what was recalled and not said, by the model. The denominators are those of "
        "what is stored; labels are taken as given in these intervals."
    )
    return Section("recalled", "Stored, recalled, said", (Text(text), *blocks))


def _run(basis: Basis, line: Line, numbers: RecalledNumbers) -> list[Block]:
    name = basis.run_names[line.run.id]
    blocks: list[Block] = [Heading(name)] if basis.several else []
    blocks.append(Text(sentence(sentences.recalled(name, numbers))))
    if unknown := sentences.ungrounded(numbers):
        blocks.append(Text(sentence(unknown)))
    blocks.append(_split(name, line, numbers))
    for label in (Label.INAPPROPRIATE, Label.NECESSARY):
        whole = recalled_by(basis.flows, line.scope, By.DOMAIN, basis.rule)
        frame = whole[whole["label"] == str(label)].reset_index(drop=True)
        figure = figures.recalled(frame, label, numbers, name, line.run.id, simulated=line.simulated)
        if figure is None:
            continue
        rows = [
            (row["place"], percent(row["exposure"]), *(f"{row[part]:,}" for part in ("draws", *OUTCOMES)))
            for row in frame.to_dict("records")
        ]
        caption = f"Judged samples of {label} attributes of {name}, by domain"
        columns = ("Domain", "Recalled", "Judged samples", *NAMES)
        blocks += [figure, table(caption, columns, rows, simulated=line.simulated, folded=True)]
    return blocks


def _split(name: str, line: Line, numbers: RecalledNumbers) -> Table:
    rows = []
    for number, split in (
        (f"Violation@{numbers.n}", numbers.violation[numbers.n]),
        ("Completeness", numbers.completeness),
    ):
        known = split.intervals or {}
        texts = [
            sentences.bounds_text(known[outcome]) if outcome in known else percent(getattr(split, outcome))
            for outcome in OUTCOMES
        ]
        rows.append((number, *texts))
    caption = f"{name} by parts that add up to 100 %: what is said is the number itself"
    return table(caption, ("Number", *NAMES), rows, simulated=line.simulated)
