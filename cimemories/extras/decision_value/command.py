"""The command `review uncertainty`."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from cimemories.cli.options import Dataset, Printing, word_of
from cimemories.cli.review import review


@review.command("uncertainty")
def review_uncertainty(
    dataset: Dataset,
    printing: Printing,
    target: Annotated[
        str, Option(help="What decisions make less uncertain: violation, completeness or order.")
    ] = "violation",
    run: Annotated[
        list[str] | None, Option("--run", help="For this run; for the order, repeat it. Default: the newest judged.")
    ] = None,
    width: Annotated[float, Option(min=0.01, help="Wanted label uncertainty, +- points.")] = 1.0,
    seed: Annotated[int, Option(min=0, help="Seed of the random share of the queue.")] = 0,
) -> None:
    """Show how uncertain the labels leave a number, and whether labelling may stop.

    Also how many more decisions a wanted width takes, and how far people agree with the consensus on the random share.

    Example: cimemories review uncertainty official --width 0.5
    """
    from cimemories.extras.decision_value.answer import uncertainty
    from cimemories.extras.decision_value.value import Aim, Target

    aim = Aim(word_of(Target, target, "target"), tuple(run or ()))
    printing.answer(uncertainty(printing.record, dataset, aim, width / 100, seed))
