"""Section of a report on runs behind a gate or a memory system: what was stored, recalled and said."""

from __future__ import annotations

from dataclasses import replace

from cimemories.answers import metrics as question
from cimemories.answers.metrics import Recalled
from cimemories.compare.leaderboard import Line
from cimemories.metrics.recalled.split import RecalledNumbers, recalled_numbers
from cimemories.model import Label
from cimemories.report import figures
from cimemories.report.document import Basis, Block, Heading, Section, Text, of_answer
from cimemories.text import sentence


def recalled(basis: Basis) -> Section | None:
    """Both headline numbers by their parts, and by domain what became of the judged samples. None where every prompt
    held all that is stored."""
    blocks: list[Block] = []
    for line in basis.lines:
        numbers = recalled_numbers(basis.flows, line.scope, line.numbers.n, basis.rule)
        answer = question.recalled(basis.flows, line.scope, basis.rule, line.numbers.n)
        if numbers is not None and answer is not None:
            blocks += _run(basis, line, answer, numbers)
    if not blocks:
        return None
    text = (
        "Of what the assistant stores, a gate or a memory system chose what reached each prompt. What was not recalled "
        "was held back, or lost, by it; what was recalled and not said, by the model. The denominators are those of "
        "what is stored; labels are taken as given in these intervals."
    )
    return Section("recalled", "Stored, recalled, said", (Text(text), *blocks))


def _run(basis: Basis, line: Line, answer: Recalled, numbers: RecalledNumbers) -> list[Block]:
    name = basis.run_names[line.run.id]
    blocks: list[Block] = [Heading(name)] if basis.several else []
    blocks += [Text(sentence(text)) for text in (answer.sentence, *answer.notes)]
    blocks.append(of_answer(answer.splits, f"{name}: {answer.splits.caption}", simulated=line.simulated))
    places = answer.by_domain
    for label in (Label.INAPPROPRIATE, Label.NECESSARY):
        frame = places.frame[places.frame["label"] == str(label)].reset_index(drop=True)
        figure = figures.recalled(frame, label, numbers, name, line.run.id, simulated=line.simulated)
        if figure is not None:
            caption = f"Judged samples of {label} attributes of {name}, by domain"
            shown = of_answer(replace(places, frame=frame), caption, simulated=line.simulated, folded=True)
            blocks += [figure, shown]
    return blocks
