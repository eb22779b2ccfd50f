"""Where a quote stands in a message: exact offsets, and no place for what is not there."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cimemories.evaluation.grounding import fold, folded_text, ground
from cimemories.model import Span

MESSAGE = "Dear Sir,\n\nI earn\u202f$72,000 \u2014 \u201cnet\u201d.  My  rent\u2026 isn\u2019t high. Regards, Ann"


def grounded(quote: str, message: str = MESSAGE) -> str | None:
    span = ground(quote, message)
    return None if span is None else message[span.start : span.end]


def test_a_quote_word_for_word_is_found_exactly() -> None:
    assert ground("Dear Sir", MESSAGE) == Span(0, 8)
    assert ground("  Regards, Ann \n", MESSAGE) == Span(len(MESSAGE) - 12, len(MESSAGE))


@pytest.mark.parametrize(
    ("quote", "place"),
    [
        ("i EARN $72,000", "I earn\u202f$72,000"),
        ("I earn $72,000...", "I earn\u202f$72,000"),
        ("I earn $72,000 \u2026", "I earn\u202f$72,000"),
        ('$72,000 - "net".', "$72,000 \u2014 \u201cnet\u201d."),
        ("my rent... isn't high", "My  rent\u2026 isn\u2019t high"),
        ("Sir, I earn", "Sir,\n\nI earn"),
    ],
)
def test_typography_case_and_white_space_are_forgiven(quote: str, place: str) -> None:
    passage = grounded(quote)
    assert passage is not None and passage.rstrip(".") == place.rstrip(".")


@pytest.mark.parametrize(
    "quote", ["", "   ", "\n\u00a0", "\u200b", "I earn nothing at all", "rant", "zzzzzzzzzzzzzzzzz"]
)
def test_nothing_for_what_is_not_there(quote: str) -> None:
    assert ground(quote, MESSAGE) is None
    assert ground(quote, "") is None


def test_a_near_quote_is_found_when_long_enough() -> None:
    message = "As you know, my annual income is $72,000 before taxes. Please reply."
    assert grounded("my anual income is $72,000 before taxes", message) == "my annual income is $72,000 before taxes"
    assert ground("anual inco", message) is None


def test_a_quote_much_longer_than_the_message_is_not_there() -> None:
    assert ground("my annual income is $72,000 before all taxes", "my income") is None


def test_a_whole_word_goes_before_a_part_of_one() -> None:
    assert ground("12", "In 2012 she was 12.") == Span(16, 18)
    assert ground("ANN", "Annual report by Ann") == Span(17, 20)
    assert ground("nua", "Annual") == Span(2, 5)


def test_letters_that_grow_when_folded_keep_their_offsets() -> None:
    message = "\u0130stanbul, Hauptstra\u00dfe 5, now"
    assert grounded("hauptstrasse 5", message) == "Hauptstra\u00dfe 5"
    assert grounded("hauptstras", message) == "Hauptstra\u00df"


def test_no_other_number_is_taken_for_the_quoted_one() -> None:
    message = "For the party I borrowed $900 from my sister."
    assert grounded("For the party I borowed $900 from my sister", message) == message.rstrip(".")
    assert ground("For the party I borrowed $950 from my sister", message) is None


characters = st.sampled_from(list("aAbB1 .,-'\n\u2014\u2019\u2026\u00a0\u200b\u00df\u0130\u201c$")) | st.characters()
texts = st.text(characters, max_size=60)


@given(texts, texts)
def test_spans_lie_in_the_message(quote: str, message: str) -> None:
    span = ground(quote, message)
    assert span is None or 0 <= span.start < span.end <= len(message)


@given(st.data(), texts)
def test_every_piece_of_a_message_is_grounded_in_any_case(data: st.DataObject, message: str) -> None:
    start = data.draw(st.integers(0, len(message)))
    piece = message[start : data.draw(st.integers(start, len(message)))]
    if piece.strip():
        span = ground(piece, message)
        assert span is not None and message[span.start : span.end] == piece.strip()
    respelled = piece.casefold().replace("\u2019", "'").replace("\u00a0", "  ")
    if fold(piece).text.strip(". "):
        assert ground(respelled, message) is not None


@given(texts)
def test_folding_remembers_where_all_came_from(text: str) -> None:
    folded = fold(text)
    assert len(folded.text) == len(folded.starts) == len(folded.ends)
    assert folded.starts == sorted(folded.starts) and folded.ends == sorted(folded.ends)
    assert all(0 <= start < end <= len(text) for start, end in zip(folded.starts, folded.ends, strict=True))
    assert "  " not in folded.text
    assert folded_text(text) == folded.text


@pytest.mark.parametrize(
    ("quote", "message"),
    [
        ("a" * 50_000, "a" * 100_000),
        ("lorem ipsun dolor sit amex " * 37, "lorem ipsum dolor sit amet " * 3_700),
        ("a b", "a " * 50_000),
    ],
)
def test_hostile_text_takes_no_long_time(quote: str, message: str) -> None:
    started = time.thread_time()
    ground(quote, message)
    assert time.thread_time() - started < 3
