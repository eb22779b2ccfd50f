"""The leaderboard as words: cells for people, and whole tables in Markdown and LaTeX for papers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from cimemories.analysis.baselines import Baseline
from cimemories.analysis.card import escaped
from cimemories.analysis.intervals import Interval
from cimemories.analysis.leaderboard import Leaderboard, Line, names
from cimemories.seeds.published import Figure, Measure, load_published

UNDEFINED = "–"
SPREAD = "± is the standard deviation over profiles, brackets are 95 % intervals (profiles drawn, then what they hold)."


@dataclass(frozen=True)
class Row:
    """One row in words. kind: 'run', 'baseline' or 'published'; cells: as many as `header` has."""

    kind: str
    cells: tuple[str, ...]


def percent(share: float) -> str:
    """0.1237 as '12.4 %'; a dash where it is undefined."""
    return UNDEFINED if math.isnan(share) else f"{100 * share:.1f} %"


def bounds(interval: Interval) -> str:
    """'[10.1, 14.9]' in percent; empty where there is none."""
    return "" if math.isnan(interval.low) else f"[{100 * interval.low:.1f}, {100 * interval.high:.1f}]"


def measured(interval: Interval, spread: float = math.nan) -> str:
    """'12.4 % ± 3.1 [10.1, 14.9]'; the spread only where there is one."""
    if math.isnan(interval.value):
        return UNDEFINED
    apart = "" if math.isnan(spread) else f"± {100 * spread:.1f}"
    return " ".join(part for part in (percent(interval.value), apart, bounds(interval)) if part)


def header(board: Leaderboard) -> tuple[str, ...]:
    """What the columns are called."""
    numbers = (board.violation_name, "Completeness", "Balanced score", "Leak rate", "Coverage")
    return ("Model", *numbers, "Samples", "Judge", "Labels", "Memory", "Prompt", "Remarks")


def rows(board: Leaderboard) -> list[Row]:
    """Every run with the paper's figures of the same model below it, then the constant strategies."""
    found: list[Row] = []
    called = names(board.lines)
    for line in board.lines:
        found.append(_run(line, called[line.run.id]))
        if (stated := _published(line)) is not None:
            found.append(stated)
    return found + [_constant(item) for item in board.constants]


def notes(board: Leaderboard) -> list[str]:
    """What has to stand under the table."""
    users = {line.completeness.users for line in board.lines}
    found = [SPREAD]
    if any(0 < number < 5 for number in users):
        found.append("With fewer than 5 profiles an interval describes attributes, not users.")
    if board.n is None:
        found.append("N is the number of samples of each run.")
    if any(line.published for line in board.lines):
        paper = load_published().paper
        found.append(f"Published: stated in the text of the paper ({paper.link}), on {paper.setting}.")
    found += [f"{text[:1].upper()}{text[1:]}." for text in board.warnings]
    if board.simulated:
        found.append("Simulated rows show how the tool works and say nothing about any real model.")
    return found


def markdown(board: Leaderboard) -> str:
    """The whole table with its notes, as Markdown."""
    head = header(board)
    lines = [_joined(head), _joined(["---", *["---:"] * 5, "---:", *["---"] * 5])]
    lines += [_joined([escaped(cell) for cell in row.cells]) for row in rows(board)]
    return "\n".join([*lines, "", *(f"- {escaped(text)}" for text in notes(board)), ""])


def latex(board: Leaderboard) -> str:
    """The whole table with its notes, as LaTeX for the package booktabs."""
    frame = pd.DataFrame([row.cells for row in rows(board)], columns=list(header(board)))
    plain = frame.map(lambda cell: " ".join(str(cell).split()))
    table = plain.to_latex(index=False, escape=True, column_format="lrrrrrrlllll")
    said = pd.Series(notes(board)).to_frame().to_latex(index=False, header=False, escape=True).splitlines()
    kept = [line.removesuffix(r"\\").strip() for line in said if line.endswith(r"\\")]
    return f"{_in_math(table)}\n" + "".join(f"% {_in_math(line)}\n" for line in kept)


def takeaway(board: Leaderboard) -> str:
    """What the table says, in one sentence, computed from it."""
    called = names(board.lines)
    defined = [line for line in board.lines if not math.isnan(line.balanced.value)]
    if not defined:
        return "No run has both a violation and a completeness yet."
    # What rests on a part of its responses is not held up as best or worst where others are whole.
    ranked = [line for line in defined if line.covered] or defined
    name, best = board.violation_name, ranked[0]
    if len(ranked) == 1:
        complete = percent(best.completeness.value)
        return f"{called[best.run.id]}: {name} {percent(best.violation.value)}, completeness {complete}."
    low = min(ranked, key=lambda line: line.violation.value)
    high = max(ranked, key=lambda line: line.violation.value)
    if percent(low.violation.value) == percent(high.violation.value):
        said = f"{name} is {percent(low.violation.value)} in all {len(ranked)} runs"
        if percent(ranked[-1].balanced.value) == percent(best.balanced.value):
            return f"{said}, the balanced score {percent(best.balanced.value)}."
        return f"{said}; {called[best.run.id]} has the best balanced score, {percent(best.balanced.value)}."
    return (
        f"{name} runs from {percent(low.violation.value)} ({called[low.run.id]}) to {percent(high.violation.value)} "
        f"({called[high.run.id]}); {called[best.run.id]} has the best balanced score, {percent(best.balanced.value)}."
    )


def _run(line: Line, name: str) -> Row:
    labels = line.scope.labelling
    parts = line.scope.simulated
    remarks = ([f"simulated {' and '.join(parts)}"] if parts else []) + ([line.warning] if line.warning else [])
    return Row(
        "run",
        (
            name,
            measured(line.violation, line.violation_spread),
            measured(line.completeness, line.completeness_spread),
            measured(line.balanced),
            percent(line.numbers.leak_rate.micro),
            percent(line.numbers.coverage),
            str(line.run.samples) if line.n == line.run.samples else f"{line.n} of {line.run.samples}",
            line.scope.judge_words,
            f"{labels.model} ({labels.id})" if labels else "none",
            str(line.as_record()["memory"]),
            line.run.prompt_level,
            "; ".join(remarks),
        ),
    )


def _published(line: Line) -> Row | None:
    violation, complete = line.stated(Measure.VIOLATION), line.stated(Measure.COMPLETENESS)
    if line.published is None or (violation is None and complete is None):
        return None
    cells = [f"{line.published.name}, published", _stated(violation), _stated(complete), *[""] * 8]
    about = "; ".join(f"{f.about}: {f.where}" for f in (violation, complete) if f is not None)
    return Row("published", (*cells, about))


def _stated(figure: Figure | None) -> str:
    return "" if figure is None else figure.words


def _constant(item: Baseline) -> Row:
    numbers = [percent(value) for value in (item.violation, item.completeness, item.balanced)]
    return Row("baseline", (item.name, *numbers, *[""] * 7, "constant strategy"))


def _joined(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _in_math(text: str) -> str:
    return text.replace("±", r"$\pm$").replace(UNDEFINED, "--")
