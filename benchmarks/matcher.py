"""How far the matcher is right: precision and recall of its full reveals on letters that a person or model has read.

    python benchmarks/matcher.py                                   the letters to the demo's profiles
    python benchmarks/matcher.py --official data_openai_gpt-oss-120b.json      those to the released profiles as well
    python benchmarks/matcher.py --official ... --errors           and what it gets wrong
    python benchmarks/matcher.py --official ... --encode letter.txt --profile 3     a new letter, as the set keeps it

The set is benchmarks/matcher_pairs.json (docs/metrics.md#the-matcher). One letter of it:

    {"id": "o1", "profiles": "official", "profile": 0, "context": 0, "set": "development", "sha256": "5d0c...",
     "text": ["Dear Loan Officer, ... and my ", [312, 336], " before taxes ..."],
     "full": [0, 2, 5], "partial": [], "none": [53, 142]}

Attributes are positions in the profile. The released profiles are CC BY-NC and not part of this project, so a letter to
one of them is kept as what is our own, with the start and end of what it shares with `source_text` of its profile.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from cimemories.evaluation.matcher import match
from cimemories.extras.why.why import wilson
from cimemories.formats.official import read_profiles
from cimemories.model import Profile, Strength, is_bio

ROOT = Path(__file__).resolve().parents[1]
PAIRS = ROOT / "benchmarks" / "matcher_pairs.json"
DEMO = ROOT / "data" / "demo" / "profiles.json"
Piece = str | tuple[int, int]


@dataclass(frozen=True)
class Letter:
    """One letter with what was decided of its pairs: positions of attributes by how far the letter reveals them."""

    id: str
    profile: Profile
    held_out: bool
    text: str
    full: frozenset[int]
    partial: frozenset[int]
    none: frozenset[int]


@dataclass(frozen=True)
class Result:
    """What the matcher claims in full, against what was decided. errors: (letter, attribute, 'claimed' or 'missed')."""

    pairs: int
    claimed: int
    revealed: int
    right: int
    errors: tuple[tuple[Letter, int, str], ...]

    @property
    def precision(self) -> tuple[float, float, float]:
        return self.right / self.claimed, *wilson(self.right, self.claimed)

    @property
    def recall(self) -> tuple[float, float, float]:
        return self.right / self.revealed, *wilson(self.right, self.revealed)


def source_text(profile: Profile) -> str:
    """Return all that a letter may share with a profile: statements, values, and dates as people write them."""
    texts: list[str] = []
    for attribute in profile.attributes:
        value = str(attribute.value)
        texts += [attribute.statement, value]
        texts += [f"{date.fromisoformat(day):%B %-d, %Y}" for day in re.findall(r"\d{4}-\d\d-\d\d", value)]
    return "\n".join(texts)


def encoded(text: str, source: str) -> list[Piece]:
    """Return a letter as its own words and the places of what it shares with the source: whole words, longest first."""
    pieces: list[Piece] = []
    tokens = re.findall(r"\w+|\W", text)
    at = 0
    while at < len(tokens):
        end, run = at, ""
        while end < len(tokens) and run + tokens[end] in source:
            run, end = run + tokens[end], end + 1
        if len(run) > 3 or run.isdigit():
            start = source.index(run)
            pieces.append((start, start + len(run)))
            at = end
        else:
            own = pieces.pop() if pieces and isinstance(pieces[-1], str) else ""
            pieces.append(f"{own}{tokens[at]}")
            at += 1
    return pieces


def decoded(pieces: Iterable[Any], source: str) -> str:
    return "".join(piece if isinstance(piece, str) else source[piece[0] : piece[1]] for piece in pieces)


def letters(official: Path | None = None) -> list[Letter]:
    """Return the letters of the set: of the demo's profiles, and of the released ones where their file is given. Raises
    ValueError where that file is another one."""
    profiles: Mapping[str, Sequence[Profile]] = {
        name: read_profiles(file).profiles for name, file in (("demo", DEMO), ("official", official)) if file
    }
    found = []
    for row in json.loads(PAIRS.read_text("utf-8"))["letters"]:
        if row["profiles"] not in profiles:
            continue
        profile = profiles[row["profiles"]][row["profile"]]
        text = decoded(row["text"], source_text(profile))
        if hashlib.sha256(text.encode()).hexdigest() != row["sha256"]:
            raise ValueError(f"letter {row['id']} does not fit profile {row['profile']} of the {row['profiles']} file")
        labels = (frozenset(row[label]) for label in ("full", "partial", "none"))
        found.append(Letter(row["id"], profile, row["set"] == "held out", text, *labels))
    return found


def measured(some: Sequence[Letter]) -> Result:
    """Compare the matcher's full claims with what was decided, on these letters."""
    claimed = revealed = right = pairs = 0
    errors: list[tuple[Letter, int, str]] = []
    for letter in some:
        decided = letter.full | letter.partial | letter.none
        reveals = match(letter.profile.attributes, letter.text)
        full = {item.attribute for item in reveals if item.strength == Strength.FULL}
        # Identifiers are in no pair. Any other claim outside the pairs is an error: nothing revealed was left out.
        full -= {n for n, item in enumerate(letter.profile.attributes) if is_bio(item.key, item.domain)}
        pairs, claimed, revealed = pairs + len(decided), claimed + len(full), revealed + len(letter.full)
        right += len(full & letter.full)
        errors += [(letter, attribute, "claimed") for attribute in sorted(full - letter.full)]
        errors += [(letter, attribute, "missed") for attribute in sorted(letter.full - full)]
    return Result(pairs, claimed, revealed, right, tuple(errors))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--official", type=Path, help="the released profiles (CC BY-NC)")
    parser.add_argument("--errors", action="store_true", help="list what the matcher gets wrong")
    parser.add_argument("--encode", type=Path, help="a letter to one of the released profiles")
    parser.add_argument("--profile", type=int, default=0, help="its position in their file, from 0")
    options = parser.parse_args()
    if options.encode and options.official:
        text = options.encode.read_text("utf-8")
        profile = read_profiles(options.official).profiles[options.profile]
        digest = hashlib.sha256(text.encode()).hexdigest()
        print(json.dumps({"sha256": digest, "text": encoded(text, source_text(profile))}, ensure_ascii=False))
        return
    every = letters(options.official)
    groups = {
        "all": every,
        "development": [letter for letter in every if not letter.held_out],
        "held out": [letter for letter in every if letter.held_out],
    }
    for name, some in groups.items():
        if not some:
            continue
        result = measured(some)
        shares = [
            f"{title} {value:.3f} [{low:.3f}, {high:.3f}] ({result.right} of {of})"
            for title, (value, low, high), of in (
                ("precision", result.precision, result.claimed),
                ("recall", result.recall, result.revealed),
            )
        ]
        print(f"{name:<12} {len(some):>3} letters {result.pairs:>4} pairs  {'  '.join(shares)}")
    if options.errors:
        for letter, attribute, error in measured(every).errors:
            print(f"{letter.id:>4} {error:<8} {letter.profile.attributes[attribute].statement}")
    if options.official is None:
        print("letters to the released profiles are left out: give their file as --official", file=sys.stderr)


if __name__ == "__main__":
    main()
