"""The commands consensus (once survival), rules, rule and agreement: the analysis's numbers, clear errors."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner
from worlds import add_dataset, add_labels

from cimemories.agreement.models import agreement
from cimemories.cli import cli
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.labels.survival import survival
from cimemories.store import labellings
from cimemories.store.engine import Store, StoreError

X, N, A = INAPPROPRIATE, NECESSARY, AMBIGUOUS
LABELS = [[[X, N, A], [A, X, A], [N, A, X]]]
DATA = ("-d", "small world")


def run(store: Store, *arguments: str) -> str:
    """The standard output of a command on SQLite; what it raises is raised."""
    result = CliRunner().invoke(cli, [*arguments, "-w", str(store.workspace)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_commands_tell_what_the_analysis_says(sqlite_store: Store) -> None:
    data = add_dataset(sqlite_store, profiles=1, attributes=3, contexts=3)
    first = add_labels(sqlite_store, data.id, LABELS)
    second = add_labels(sqlite_store, data.id, [[[N, N, A], *LABELS[0][1:]]], name="two")
    printed = json.loads(run(sqlite_store, "consensus", *DATA, "--labelling", first, "--json"))
    assert printed["shares"]["survival"] == survival(sqlite_store, first).share
    assert sum(row["pairs"] for row in printed["shares"]["by"]["domain"]) == printed["shares"]["labelled"] == 9
    attributes = printed["contexts"]["table2"][1]
    assert (attributes["published"], attributes["source"]) == ("about 147", "arXiv 2511.14937, Table 2")
    [both] = json.loads(run(sqlite_store, "labellings", "agreement", *DATA, "--json"))["compared"]
    assert (both["kappa"], len(both["differing"])) == (agreement(sqlite_store, first, second).kappa, 1)
    assert "55.6 % of 9 labelled pairs have a consensus" in run(sqlite_store, "consensus", *DATA)
    assert "test-voter" in run(sqlite_store, "labellings", "agreement", *DATA)


def test_a_rule_is_tried_saved_used_left_and_deleted(sqlite_store: Store) -> None:
    data = add_dataset(sqlite_store, profiles=1, attributes=3, contexts=3)
    labelling = add_labels(sqlite_store, data.id, LABELS)
    wanted = (*DATA, "--name", "loud", "--threshold", "0.7")
    loud = ("--priors", "fundamentalist=0.1, pragmatic=0.1,unconcerned=0.8")
    dry = json.loads(run(sqlite_store, "rules", "save", *wanted, *loud, "--dry-run", "--json"))
    assert (dry["saved"], dry["changed"], dry["survival_after"]) == (False, 4, 1.0)

    def listed() -> dict[str, bool]:
        return {r["name"]: r["current"] for r in json.loads(run(sqlite_store, "rules", *DATA, "--json"))}

    assert listed() == {labellings.PAPER_RULE: True}
    run(sqlite_store, "rules", "save", *wanted, *loud, "--use", "--annotator", "Ada")
    assert listed() == {labellings.PAPER_RULE: False, "loud": True}
    assert survival(sqlite_store, labelling).share == 1
    run(sqlite_store, "rules", "use", *DATA, "--name", "paper")
    assert survival(sqlite_store, labelling).ambiguous == 4
    run(sqlite_store, "rules", "delete", *DATA, "--name", "loud")
    assert listed() == {labellings.PAPER_RULE: True}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("use",), "no rule named 'x'"),
        (("delete",), "no rule named 'x'"),
        (("save", "--threshold", "0.4"), "above 0.5"),
        (("save", "--threshold", "0.9", "--priors", "a"), "KEY=NUMBER"),
        (("save", "--threshold", "0.9", "--priors", "a=1"), "each of fundamentalist"),
        (("save", "--threshold", "0.9", "--priors", "a=0.5,a=0.5"), "named before"),
        (("save", "--threshold", "0.9", "-L", "labelling-gone"), "no labelling"),
    ],
)
def test_a_command_that_makes_no_sense_says_why_and_saves_nothing(
    sqlite_store: Store, arguments: tuple[str, ...], message: str
) -> None:
    data = add_dataset(sqlite_store, profiles=1, attributes=3, contexts=3)
    add_labels(sqlite_store, data.id, LABELS)
    with pytest.raises(StoreError, match=message):
        run(sqlite_store, "rules", *arguments, *DATA, "--name", "x")
    with sqlite_store.read() as connection:
        assert labellings.all_rules(connection, data.id) == []
