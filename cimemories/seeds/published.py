"""The figures that the paper's text states about models, read from seeds/published.yaml and checked.

    - {measure: violation, n: 5, value: 0.251, printed: 25.1%, where: Abstract, beside: leaderboard, about: ...}

They are the paper's, not measured here: wherever one is shown it is marked as published, with its section.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from cimemories.seeds import SEEDS
from cimemories.seeds.reading import Line, Seed, SeedError, read, refuse_repeats
from cimemories.text import listed

FILE = "published.yaml"
ROUNDED = 0.0005  # a figure is printed with one decimal of a percent at most
Share = Annotated[float, Field(ge=0, le=1, strict=True)]
Samples = Annotated[int, Field(ge=1, le=100, strict=True)]
# The date of a build, as makers append it: -2025-08-07, -20250807.
_DATE = re.compile(r"[-_@]?20\d\d[-_]?\d\d[-_]?\d\d$")
_PRINTED = re.compile(r"(\d+(?:\.\d+)?) ?%")


class PublishedMeasure(StrEnum):
    """The measure of a figure, by the paper's Definitions 3.1 and 3.2."""

    VIOLATION = "violation"
    COMPLETENESS = "completeness"


class Beside(StrEnum):
    """The number of ours that a figure can be compared with."""

    LEADERBOARD = "leaderboard"
    ACCUMULATION = "accumulation"
    HEATMAP = "heatmap"


class Axis(StrEnum):
    """The axis that the paper varies in Figures 4 and 5."""

    SIZE = "size"
    REASONING = "reasoning"
    PROMPT = "prompt"
    MEMORY = "memory"


class Figure(Seed):
    """One figure of one model. value: a share, 0 to 1. n: samples, of a violation. tasks: after so many; None: all of
    the setting. domain, context: of a cell of Figure 3."""

    measure: PublishedMeasure
    value: Share
    printed: Line
    where: Line
    about: Line
    beside: Beside
    n: Samples | None = None
    tasks: Samples | None = None
    domain: Line | None = None
    context: Line | None = None
    also: Line | None = None

    @model_validator(mode="after")
    def _is_of_one_thing(self) -> Figure:
        if (self.n is None) != (self.measure == PublishedMeasure.COMPLETENESS):
            raise ValueError("a violation needs n, the number of samples, and completeness has none")
        if (self.domain is None) != (self.context is None) or (self.domain is None) != (self.beside != Beside.HEATMAP):
            raise ValueError("domain and context go together, with a figure beside a heatmap and with no other")
        if (self.tasks is None) != (self.beside != Beside.ACCUMULATION):
            raise ValueError("tasks goes with a figure beside the accumulation curve, and with no other")
        percent = _PRINTED.fullmatch(self.printed)
        if percent is None or abs(float(percent[1]) / 100 - self.value) > ROUNDED:
            raise ValueError(f"the paper prints {self.printed}, which is not the value {self.value}")
        return self

    @property
    def text(self) -> str:
        """'25.1 % (Abstract)'."""
        return f"{100 * self.value:.1f} % ({self.where})"


class Published(Seed):
    """A model of the paper with the figures stated about it."""

    name: Line
    aliases: tuple[Line, ...] = ()
    figures: tuple[Figure, ...] = Field(min_length=1)

    def figure(self, measure: PublishedMeasure, n: int | None = None) -> Figure | None:
        """Return the figure for a leaderboard; None where the paper's text has none at this n."""
        fitting = (f for f in self.figures if f.beside == Beside.LEADERBOARD and f.measure == measure and f.n == n)
        return next(fitting, None)


class Range(Seed):
    """A figure about all models together: from low to high, shares of 0 to 1; equal where one number is given."""

    measure: PublishedMeasure
    low: Share
    high: Share
    printed: tuple[Line, ...] = Field(min_length=1, max_length=2)
    where: Line
    about: Line
    n: Samples | None = None

    @model_validator(mode="after")
    def _is_upright(self) -> Range:
        if self.low > self.high:
            raise ValueError("low is above high")
        return self


class Trend(Seed):
    """The trend in Figure 4 or 5, which the text describes without numbers."""

    axis: Axis
    model: Line
    where: Line
    about: Line


class Paper(Seed):
    """The source of the figures. authors: given names, then the family name. cite: the key of its BibTeX entry."""

    title: Line
    authors: tuple[Line, ...] = Field(min_length=1)
    year: int
    cite: Line
    link: Line
    setting: Line

    @property
    def reference(self) -> str:
        """Return the paper in a list of references."""
        initials = [f"{' '.join(f'{name[0]}.' for name in given)} {family}" for *given, family in self._names]
        return f"{listed(initials)}. {self.title}. arXiv {self.number}, {self.year}. {self.link}."

    @property
    def bibtex(self) -> str:
        """Return the paper as a BibTeX entry, in the form of the authors' own."""
        authors = " and ".join(f"{family}, {' '.join(given)}" for *given, family in self._names)
        fields = {
            "title": self.title,
            "author": authors,
            "year": self.year,
            "eprint": self.number,
            "archivePrefix": "arXiv",
            "url": self.link,
        }
        return "\n".join([f"@misc{{{self.cite},", *(f"  {k} = {{{v}}}," for k, v in fields.items()), "}"])

    @property
    def number(self) -> str:
        """Return its number at arXiv."""
        return self.link.rpartition("/")[2]

    @property
    def _names(self) -> list[list[str]]:
        return [author.split() for author in self.authors]


class PublishedFile(Seed):
    """seeds/published.yaml as a whole."""

    paper: Paper
    models: tuple[Published, ...] = Field(min_length=1)
    all_models: tuple[Range, ...] = ()
    trends: tuple[Trend, ...] = ()

    def model(self, name: str) -> Published | None:
        """Return the paper's figures for the model that a server serves under this name; None where there are none."""
        name = normal(name)
        return next((m for m in self.models if name in map(normal, (m.name, *m.aliases))), None)

    def trend(self, axis: Axis) -> Trend | None:
        """Return the paper's sentence on an axis; None where there is none."""
        return next((trend for trend in self.trends if trend.axis == axis), None)


@lru_cache(maxsize=4)
def load_published(path: Path | None = None) -> PublishedFile:
    """Return the published figures. Raises SeedError where the file does not fit, or a name stands for two models."""
    path = path or SEEDS / FILE
    file = read(path, PublishedFile)
    for model in file.models:
        if not all(normal(name) for name in (model.name, *model.aliases)):
            raise SeedError(f"{path}: models: a name or alias of '{model.name}' has neither letters nor digits")
    refuse_repeats(path, "model", [n for m in file.models for n in {normal(name) for name in (m.name, *m.aliases)}])
    refuse_repeats(path, "trend", [trend.axis for trend in file.trends])
    return file


def normal(name: str) -> str:
    """Return a model's name without its maker, a date at its end, case and punctuation: 'openai/GPT-5-2025-08-07' is
    'gpt5'. A full stop between digits stays, since it tells 2.5 from 25."""
    bare = _DATE.sub("", name.strip().rsplit("/", 1)[-1].casefold())
    return re.sub(r"[^a-z0-9.]|(?<!\d)\.|\.(?!\d)", "", bare)
