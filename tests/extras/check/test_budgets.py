"""The file of a check: what its sentences mean, and what is said of those that mean nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cimemories.extras.check.budgets import Budget, CheckFile, NoWorse, read_check_file
from cimemories.seeds.reading import SeedError, load_with_lines


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def read(folder: Path, text: str) -> CheckFile:
    file = folder / "privacy.yaml"
    file.write_text(text, encoding="utf-8")
    return read_check_file(file)


WHOLE = """\
budgets:
  - violation@5 at most 0.20, completeness at least 60 %
  - no worse than base line.json at 95 %
  - "completeness no worse than b.json by more than 2.5 points"
  - violation@1 at most 0 at 95 %
flows:
  - miscarriage -> landlord: never
  - health → employment:
      limit: at most 10 %
      profile: Ada
      samples: 20
  - "rent -> *: never"
  - flow: "rent -> Bank: the old one"
    limit: never
coverage: 0.9
"""


def test_sentences_mean_what_they_say(folder: Path) -> None:
    file = read(folder, WHOLE)
    base = "no worse than base line.json at 95 %"
    assert file.budgets == (
        Budget("violation@5 at most 0.20", 2, "violation", 5, 0.2, False),
        Budget("completeness at least 60 %", 2, "completeness", None, 0.6, False),
        NoWorse(f"violation {base}", 3, "violation", None, folder / "base line.json", 0.0),
        NoWorse(f"completeness {base}", 3, "completeness", None, folder / "base line.json", 0.0),
        NoWorse(
            "completeness no worse than b.json by more than 2.5 points",
            4,
            "completeness",
            None,
            folder / "b.json",
            0.025,
        ),
        Budget("violation@1 at most 0 at 95 %", 5, "violation", 1, 0.0, True),
    )
    assert [(f.attribute, f.recipient, f.limit, f.line) for f in file.flows] == [
        ("miscarriage", "landlord", 0.0, 7),
        ("health", "employment", 0.1, 8),
        ("rent", "*", 0.0, 12),
        ("rent", "Bank: the old one", 0.0, 13),
    ]
    assert (file.flows[1].profile, file.flows[1].samples, file.coverage, file.most_samples) == ("Ada", 20, 0.9, 20)
    assert file.flows[1].text == "health → employment (profile Ada): at most 10 %"
    assert read(folder, "budgets: completeness at least 1").coverage == 0.99


@given(st.integers(0, 1000).map(lambda n: n / 1000))
def test_a_share_and_its_percentage_are_one_number(tmp_path_factory: pytest.TempPathFactory, share: float) -> None:
    folder = tmp_path_factory.getbasetemp()
    file = read(folder, f"budgets: ['violation@5 at most {share}', 'violation@5 at most {100 * share:.4f} %']")
    limits = [budget.limit for budget in file.budgets if isinstance(budget, Budget)]
    assert limits == pytest.approx([share, share])


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("budgets:\n  - violation at most 0.2\n", ("line 2, budgets[0]", "such as violation@5")),
        ("budgets:\n  - a\n  - violation@5 below 0.2\n", ("line 2, budgets[0]", "line 3, budgets[1]", "write `viol")),
        ("budgets:\n  - violation@5 at least 0.2\n", ("write `violation@5 at most`",)),
        ("budgets:\n  - completeness at most 0.2\n", ("write `completeness at least`",)),
        ("budgets:\n  - violation@5 at most 20\n", ("20 is no share", "20 %")),
        ("budgets:\n  - violation@0 at most 0.2\n", ("violation@1",)),
        ("budgets:\n  - no worse than b.json at 99 %\n", ("`at 95 %`, not `at 99 %`",)),
        ("budgets:\n  - no worse than b.json by more than 101 points\n", ("at most 100",)),
        ("coverage: 1\nflows:\n  - rent: never\n", ("line 3, flows[0].flow", "`miscarriage -> landlord`")),
        ("flows:\n  - a -> b -> c: never\n", ("is no flow",)),
        ("flows:\n  - a -> b: seldom\n", ("line 2, flows[0].limit", "write `never`")),
        ("flows:\n  - a -> b: 0.1\n", ("line 2, flows[0].limit", "'0.1' is no limit", "at most 10 %")),
        ("budgets:\n  - violation@5: 0.2\n", ("line 2, budgets[0]", "write `violation@5 at most 0.20`")),
        ("flows:\n  - 5: never\n", ("line 2, flows[0].flow",)),
        ("budgets:\nflows:\n", ("asks for nothing",)),
        ("flows:\n  - a -> b\n", ("line 2", "limit: is missing")),
        ("flows:\n  a -> b: never\n", ("line 1, flows", "each line with a dash")),
        ("flows:\n  - a -> b:\n      limit: never\n      user: Ada\n", ("line 4, flows[0].user", "not a known field")),
        ("flows:\n  - a -> b: {limit: never, samples: 0}\n", ("flows[0].samples", "must be 1 or more")),
        ("coverage: 2\nbudgets: completeness at least 1\n", ("line 1, coverage",)),
        ("budget: 1\nflows:\n  - a -> b: never\n", ("line 1, budget", "not a known field")),
        ("coverage: 0.9\n", ("asks for nothing",)),
        ("", ("asks for nothing",)),
        ("- 1\n", ("line 1, the file as a whole",)),
        ("budgets: [violation@5 at most 0.2\n", ("not valid YAML", "line 2")),
        ("flows:\n  - a -> b: never\n    a -> b: never\n", ("given twice",)),
        ("flows:\n  - 'a -> b\\x1b': never\n" * 2, ("given twice",)),
        ('flows:\n  - "a -> \\u202eb": never\n', ("control characters",)),
    ],
)
def test_what_is_not_understood_names_file_line_and_what_to_write(
    folder: Path, text: str, parts: tuple[str, ...]
) -> None:
    with pytest.raises(SeedError) as caught:
        read(folder, text)
    message = str(caught.value)
    assert message.startswith(str(folder / "privacy.yaml"))
    assert all(part in message for part in parts), message
    assert "\n" not in message


def test_a_file_that_is_not_there(folder: Path) -> None:
    with pytest.raises(SeedError, match="there is no such file"):
        read_check_file(folder / "none.yaml")
    with pytest.raises(SeedError, match="a folder"):
        read_check_file(folder)


def test_lines_are_those_of_the_deepest_field_that_is_there(folder: Path) -> None:
    (folder / "f.yaml").write_text("a: 1\nb:\n  - c: 2\n    d:\n      e: 3\n  - x\n")
    content, lines = load_with_lines(folder / "f.yaml")
    assert content == {"a": 1, "b": [{"c": 2, "d": {"e": 3}}, "x"]}
    places = {("a",): 1, ("b",): 2, ("b", 0): 3, ("b", 0, "d", "e"): 5, ("b", 1): 6, ("b", 0, "tag", "d"): 4, (): 1}
    assert {place: lines(place) for place in places} == places
    assert lines(("b", 9)) == 2
