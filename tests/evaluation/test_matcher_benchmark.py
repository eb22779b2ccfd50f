"""The matcher on hand-checked pairs: benchmarks/matcher_pairs.json, by benchmarks/matcher.py."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

from cimemories.formats.official import read_profiles

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "benchmarks" / "matcher.py"
OFFICIAL = ROOT.parent / "shared" / "data" / "official-profiles-10.json"
needs_official = pytest.mark.skipif(not OFFICIAL.exists(), reason=f"the released profiles are not at {OFFICIAL}")

spec = importlib.util.spec_from_file_location("matcher_benchmark", SCRIPT)
assert spec is not None and spec.loader is not None
benchmark = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = benchmark  # dataclasses look their module up
spec.loader.exec_module(benchmark)

PRECISION, RECALL = 0.97, 0.75


def test_the_matcher_is_right_on_the_letters_to_the_demo() -> None:
    result = benchmark.measured(benchmark.letters())
    assert result.pairs > 70 and result.revealed > 50
    assert result.precision[0] >= PRECISION and result.recall[0] >= RECALL


@needs_official
def test_the_matcher_is_right_on_the_letters_to_the_released_profiles() -> None:
    letters = [letter for letter in benchmark.letters(OFFICIAL) if letter.id.startswith("o")]
    result = benchmark.measured(letters)
    assert result.pairs >= 400
    assert result.precision[0] >= PRECISION and result.recall[0] >= RECALL


@needs_official
def test_the_set_holds_no_text_of_the_released_profiles() -> None:
    profiles = read_profiles(OFFICIAL).profiles
    for row in json.loads(benchmark.PAIRS.read_text("utf-8"))["letters"]:
        if row["profiles"] == "official":
            source = benchmark.source_text(profiles[row["profile"]])
            words = [word for piece in row["text"] if isinstance(piece, str) for word in re.findall(r"\w+", piece)]
            assert not [word for word in words if len(word) > 3 and word in source]


def test_every_pair_has_one_answer_about_an_attribute_of_its_profile() -> None:
    rows = json.loads(benchmark.PAIRS.read_text("utf-8"))["letters"]
    assert sum(len(row[label]) for row in rows for label in ("full", "partial", "none")) >= 400
    for letter in benchmark.letters():
        decided = [*letter.full, *letter.partial, *letter.none]
        assert len(decided) == len(set(decided))
        assert max(decided) < len(letter.profile.attributes)


def test_a_letter_is_restored_from_its_profile_and_its_own_words() -> None:
    profile = read_profiles(benchmark.DEMO).profiles[0]
    source = benchmark.source_text(profile)
    text = f"Dear Sir,\n\n{profile.attributes[7].statement} Zounds: {profile.attributes[20].statement}\n"
    pieces = benchmark.encoded(text, source)
    assert benchmark.decoded(json.loads(json.dumps(pieces)), source) == text
    assert not any(isinstance(piece, str) and profile.attributes[7].statement in piece for piece in pieces)
