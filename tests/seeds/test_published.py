"""The figures of the paper: stated where they are said to stand, refused where they do not fit, found by model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from cimemories.seeds import SEEDS
from cimemories.seeds.published import FILE, Axis, PublishedMeasure, load_published
from cimemories.seeds.reading import SeedError

PAPER = Path(__file__).resolve().parents[2].parent / "shared" / "paper" / "cimemories-paper.md"
HEADING = re.compile(r"^#* ?(?:(\d+(?:\.\d+)*) [A-Z]|(References)|(Appendix))|^-+$|^#+ (Abstract)", re.MULTILINE)


def content() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((SEEDS / FILE).read_text(encoding="utf-8"))
    return loaded


def place(text: str, where: str) -> str:
    """What stands in a section of the paper ('Section 1', 'Abstract'), or in the caption of a figure."""
    if where.startswith("Figure"):
        return next(line for line in text.splitlines() if line.startswith(f"{where}:"))
    if where == "Abstract":
        return text[text.index("Abstract") : text.index("1 Introduction")]
    number = re.escape(where.removeprefix("Section "))
    start = re.search(rf"^(?:#+ )?{number} [A-Z]", text, re.MULTILINE)
    assert start, where
    end = re.search(r"^(?:#+ )?\d+(?:\.\d+)* [A-Z]", text[start.end() :], re.MULTILINE)
    assert end, where
    return text[start.start() : start.end() + end.start()]


@pytest.mark.skipif(not PAPER.is_file(), reason="the paper is not here")
def test_every_figure_stands_where_it_is_said_to_stand() -> None:
    text = PAPER.read_text(encoding="utf-8")
    for model in load_published().models:
        for figure in model.figures:
            assert figure.printed in place(text, figure.where), (model.name, figure)
        for figure in model.figures:
            for number in re.findall(r"(Section [\d.]+) gives (\d+%)", figure.also or ""):
                assert number[1] in place(text, number[0])
    for item in load_published().all_models:
        assert all(printed in place(text, item.where) for printed in item.printed)


def test_the_benchmark_is_cited_with_all_its_authors_everywhere() -> None:
    """In the order of the authors' own BibTeX."""
    families = ["Mireshghallah", "Mangaokar", "Kokhlikyan", "Zharmagambetov", "Zaheer", "Mahloujifar", "Chaudhuri"]
    paper, root = load_published().paper, Path(__file__).resolve().parents[2]
    citation = yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))["preferred-citation"]["authors"]
    assert [author["family-names"] for author in citation] == families
    assert [f"{author['given-names']} {author['family-names']}" for author in citation] == list(paper.authors)
    assert ", ".join(families) in (root / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"[A-Z]\. (\w+)", paper.reference.split(": A Compositional")[0]) == families
    assert "author = {Mireshghallah, Niloofar and Mangaokar, Neal and" in paper.bibtex
    assert paper.bibtex.startswith("@misc{mireshghallah2025cimemories,\n")


def test_what_ships_says_something_of_every_axis() -> None:
    file = load_published()
    assert {trend.axis for trend in file.trends} == set(Axis)
    assert all(item.figure(PublishedMeasure.COMPLETENESS) or item.name == "GPT-5" for item in file.models)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpt-5", "GPT-5"),
        ("openai/GPT-5-2025-08-07", "GPT-5"),
        ("Qwen/Qwen3-32B", "Qwen-3 32B"),
        ("qwen_3_32b", "Qwen-3 32B"),
        ("gpt-4o-2024-08-06", "GPT-4o"),
        ("gpt-5-mini", None),
        ("gpt-4o-mini", None),
        ("Qwen/Qwen3-32B-FP8", None),
        ("Qwen/Qwen3-3.2B", None),
        ("", None),
    ],
)
def test_a_model_is_found_by_its_name_and_no_other_is_taken_for_it(name: str, expected: str | None) -> None:
    model = load_published().model(name)
    assert (model.name if model else None) == expected


def test_a_figure_stands_beside_ours_only_at_the_same_number_of_samples() -> None:
    model = load_published().model("gpt-5")
    assert model is not None
    at = {n: model.figure(PublishedMeasure.VIOLATION, n) for n in (1, 2, 5)}
    assert at[1] is not None
    assert at[5] is not None
    assert at[1].value < at[5].value
    assert at[2] is None


def change(path: list[Any], value: object) -> dict[str, Any]:
    whole = content()
    part = whole
    for step in path[:-1]:
        part = part[step]
    part[path[-1]] = value
    return whole


FIGURE = ["models", 0, "figures", 0]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (change([*FIGURE, "printed"], "15.8%"), "which is not the value"),
        (change([*FIGURE, "value"], 14.8), "value: must be 1 or less"),
        (change([*FIGURE, "n"], None), "a violation needs n"),
        (change([*FIGURE, "tasks"], 3), "accumulation"),
        (change([*FIGURE, "domain"], "finance"), "domain and context go together"),
        (change([*FIGURE, "source"], "my memory"), "source: is not a known field"),
        (change(["models", 1, "aliases"], ["openai/gpt_4O"]), "model given more than once"),
        (change(["models", 1, "aliases"], ["--"]), "neither letters nor digits"),
        (change(["all_models", 0, "low"], 0.9), "low is above high"),
        (change(["trends", 0, "axis"], "memory"), "trend given more than once"),
    ],
)
def test_a_file_that_does_not_fit_says_why(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    path = tmp_path / FILE
    path.write_text(yaml.safe_dump(changed), encoding="utf-8")
    with pytest.raises(SeedError, match=message):
        load_published(path)
