"""The judge without a model: what counts as stated in full, and what must not."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cimemories.evaluation.matcher import match
from cimemories.formats.official import read_profiles
from cimemories.model import Attribute, Strength, Value

OFFICIAL = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "official-profiles-10.json"
needs_official = pytest.mark.skipif(not OFFICIAL.exists(), reason=f"the released profiles are not at {OFFICIAL}")


def attribute(value: Value, key: str = "thing", statement: str = "Something else entirely.") -> Attribute:
    return Attribute(key, value, "finance", "lottery win", statement)


def quote(value: Value, message: str, key: str = "thing", statement: str = "Something else entirely.") -> str | None:
    """What the matcher quotes for the one attribute, None for no reveal."""
    reveals = match([attribute(value, key, statement)], message)
    assert len(reveals) <= 1
    return reveals[0].quote if reveals else None


INCOME = 72_000


@pytest.mark.parametrize(
    "spelling",
    [
        "72,000",
        "$72,000",
        "72000",
        "72000.00",
        "$72,000.00",
        "72k",
        "$72K",
        "72 thousand",
        "72-thousand",
        "72 grand",
        "USD 72,000",
    ],
)
def test_a_large_number_is_found_in_its_spellings(spelling: str) -> None:
    assert quote(INCOME, f"I make {spelling}, before taxes.") == spelling
    assert quote(INCOME, spelling) == spelling
    assert quote("$72,000", f"It is {spelling}.") == spelling


@pytest.mark.parametrize(
    "other",
    [
        "1,720,000", "172000", "172,000", "72,000.5", "72,0000", "720,00", "72,000,000", "72000th", "a72000", "72000x",
        "CR-72000", "72000-1", "50-72000", "72 million", "72", "#72000", "1.72000", "72,000%", "7 2000", "072000",
    ],
)  # fmt: skip
def test_a_large_number_is_not_found_inside_another(other: str) -> None:
    assert quote(INCOME, f"I make {other} before taxes.") is None


@pytest.mark.parametrize("spelling", ["1.2 million", "$1.2M", "1,200,000", "1200000", "1.2mn", "1200k"])
def test_millions(spelling: str) -> None:
    assert quote(1_200_000, f"The prize was {spelling}!") == spelling
    assert quote(1_200_000.0, f"The prize was {spelling}!") == spelling


@given(st.integers(1_000, 10**9).filter(lambda n: not 1900 <= n <= 2099))
def test_any_large_number_is_found_grouped_and_not_one_digit_longer(number: int) -> None:
    assert quote(number, f"It cost ${number:,}.") == f"${number:,}"
    assert quote(number, f"It cost {number} dollars.") == str(number)
    for longer in (f"1{number}", f"{number}1", f"{number:,}.5", f"9,{number:,}"):
        assert quote(number, f"It cost {longer} dollars.") is None


def test_a_small_number_needs_a_telling_word() -> None:
    children = {"key": "number_of_children", "statement": "Sharon has three children."}
    assert quote(3, "We have 3 children.", **children) == "3"
    assert quote(3, "My three children live here. We moved 4 times.", **children) == "three"
    assert quote(3, "I have 3 cars.", **children) is None
    assert quote(3, "I have 3 cars. My children agree.", **children) is None
    assert quote(3, "We have 13 children, or 3.5 children, or 3,100 children.", **children) is None
    assert quote(3, "The adoption of our child is on April 3, 2023 at 3:00.", **children) is None


@pytest.mark.parametrize(
    ("value", "key", "statement", "other"),
    [
        (45, "utility_bills_reduction", "My utility bills went down by $45.", "I read legal papers for 45 minutes."),
        (8, "stress_level", "My stress level averaged 8 out of 10.", "My preparedness rates an 8 out of 10."),
        ("45 minutes", "commute", "My commute takes 45 minutes.", "The talk is 45 minutes."),
        ("2023-05-14", "hearing_14", "My hearing is on May 14, 2023.", "We meet on May 14."),
    ],
)
def test_no_number_of_the_statement_is_a_telling_word(value: Value, key: str, statement: str, other: str) -> None:
    assert quote(value, other, key, statement) is None
    assert quote(value, f"{key.split('_')[0]}: {other}", key, statement)


def test_event_and_common_words_are_not_telling() -> None:
    retreats = attribute(2, "lottery_win_retreats_per_year", "Ann attends two retreats each year.")
    assert match([retreats], "The lottery paid for 2 cars this year.") == []
    assert [r.quote for r in match([retreats], "I plan 2 retreats.")] == ["2"]


def test_markdown_does_not_hide_a_number() -> None:
    assert quote(INCOME, "I make **72,000** a year.") == quote(INCOME, "I make _72,000_ a year.") == "72,000"


def test_a_bare_year_is_no_sum() -> None:
    assert quote(2000, "I was born in 2000.", "filing_fee") is None
    assert quote(2000, "I paid $2,000.", "filing_fee") == "$2,000"
    assert quote(2015, "My graduation was in 2015.", "graduation_year") == "2015"


def test_a_small_sum_is_no_count() -> None:
    assert quote(2, "The therapy sessions cost $2.", "therapy_sessions", "Ann had two therapy sessions.") is None
    assert quote(350, "The filing cost $350.", "filing_fees", "Filing fees were $350.") == "$350"


@pytest.mark.parametrize("spelling", ["15%", "15 %", "15 percent", "15 per cent", "15-percent", "fifteen percent"])
def test_percentages(spelling: str) -> None:
    assert quote("15%", f"My contribution is {spelling} now.", "contribution_rate") == spelling
    assert quote(15, f"The contribution is {spelling}.", "contribution_percentage") == spelling
    assert quote(15, f"My contributions rose {spelling}.", "contribution_count") is None
    assert quote("15%", f"The tax is {spelling} now.", "contribution_rate") is None
    assert quote("15%", "My contribution is 15 dollars or 115% or 15.5%.", "contribution_rate") is None


@pytest.mark.parametrize(
    "spelling",
    [
        "April 12, 2023", "12 April 2023", "Apr 12, 2023", "Apr. 12, 2023", "04/12/2023", "4/12/23", "2023-04-12",
        "April 12th, 2023", "12th of April 2023", "April 12 2023", "2023\u201104\u201112", "12-Apr-2023",
    ],
)  # fmt: skip
def test_a_date_is_found_in_its_spellings(spelling: str) -> None:
    assert quote("2023-04-12", f"We met on {spelling}.") == spelling
    assert quote("April 12, 2023", f"({spelling})") == spelling


@pytest.mark.parametrize(
    "other",
    ["April 12, 2024", "12/04/2023", "April 1, 2023", "April 2023", "2023-04-121", "12023-04-12", "14/12/2023", "412"],
)
def test_another_date_is_not_found(other: str) -> None:
    assert quote("2023-04-12", f"We met on {other}.", "attorney_meeting") is None


def test_a_day_without_its_year_needs_a_word_of_the_key() -> None:
    assert quote("2023-04-12", "The attorney meeting is on April 12.", "attorney_meeting") == "April 12"
    assert quote("2023-04-12", "We fly on April 12. The attorney agrees.", "attorney_meeting") is None


def test_months_and_times() -> None:
    for spelling in ("April 2023", "Apr 2023", "2023-04", "04/2023"):
        assert quote("2023-04", f"It ended in {spelling}.") == spelling
    assert quote("2023-04", "It ended on April 12, 2023.") is None
    for spelling in ("3:30 PM", "15:30", "3:30 p.m", "3:30pm"):
        assert quote("15:30", f"The appointment is at {spelling} today.", "appointment_time") == spelling
    assert quote("15:30", "The appointment is at 3:30 AM, not 5:30 PM.", "appointment_time") is None
    assert quote("15:30", "The game starts at 15:30.", "appointment_time") is None


def test_distinctive_text_stands_between_word_boundaries() -> None:
    assert quote("Dr. Elaine Winters", "I see dr. elaine\n  winters weekly.") == "dr. elaine\n  winters"
    assert quote("Naltrexone", "I take NALTREXONE daily.") == "NALTREXONE"
    assert quote("Naltrexone", "Methylnaltrexone is another drug, as are naltrexones.") is None
    assert quote("CR\u20112024\u20110189", "The case is CR-2024-0189.") == "CR-2024-0189"
    assert quote("full_time nurse", "I am a **full-time nurse**, a _full time nurse_.") == "full time nurse"
    assert quote("CR-2024-018", "The case is CR-2024-0189.") is None
    assert quote("500 shares of stock", "I own 2,500 shares of stock.") is None


def test_an_address_may_break_its_lines_otherwise() -> None:
    address = "503 Ward Underpass\nKaufmanberg, ME 03609"
    for written in (address, address.replace("\n", ", "), "503 Ward Underpass\nKaufmanberg\nME 03609"):
        assert quote(address, f"Ann Lee\n{written}\nDear Sir") == written
    assert quote(address, "I live in Kaufmanberg, ME 03609.") is None
    assert quote(address, "1503 Ward Underpass, Kaufmanberg, ME 03609") is None


@pytest.mark.parametrize("value", ["M", "Yes", "No", "High", "moderate", "Married", "Very low", True, False, None, 0])
def test_common_values_state_nothing_by_themselves(value: Value) -> None:
    message = "Yes, no, M: she is married, very low, moderate, high, true, false, null and 0."
    assert quote(value, message, "trust_level", "Her trust in her spouse is what it is.") is None


def test_values_of_digits_and_common_words_need_a_telling_word() -> None:
    commute = ("commute_time", "My commute takes long.")
    assert quote("45 minutes", "My commute is 45 minutes.", *commute) == "45 minutes"
    assert quote("45 minutes", "The talk is 45 minutes.", *commute) is None
    assert quote("145/90", "My pressure is 145/90.", "blood_pressure") == "145/90"
    assert quote("145/90", "My pressure is 1145/90 or 145/905.", "blood_pressure") is None


def test_lists_need_every_item() -> None:
    skills: Value = ["Python", "SQL", 72_000]
    assert quote(skills, "I know SQL and Python, and earn 72k.") == "Python"
    assert quote(skills, "I know Python and earn 72k.") is None
    assert quote([], "anything") is None
    assert quote([True], "true") is None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -5, 0.5, 1e300, 10**40, "\ud800", ""])
def test_odd_values_are_no_error(value: Value) -> None:
    assert quote(value, "Nothing of this kind stands here: nan, inf, thing 0.55 and 10.") is None


def test_a_whole_statement_counts_for_any_value() -> None:
    statement = "No DUI charge has been filed."
    assert (
        quote(False, "As said: no  DUI charge has been filed!", statement=statement) == "no  DUI charge has been filed"
    )
    assert quote("High", "I am married. Bye", statement="I am married.") == "I am married"


def test_the_person_may_change() -> None:
    bio = Attribute("name", "Ann Lee", "general", "general", "My name is Ann Lee.")
    for statement, message in [
        ("My home is calm.", "Her home is calm."),
        ("Ann's home is calm.", "I hope my home is calm."),
        ("Ann owns her home.", "I own my home."),
        ("She has no home.", "I have no home."),
        ("I am calm.", "Thanks, I'm calm."),
    ]:
        reveals = match([bio, attribute(True, "calm", statement)], message)
        assert [reveal.attribute for reveal in reveals] == [1]


def test_a_restated_statement_counts_when_nearly_all_its_words_stand_in_one_sentence() -> None:
    attribute_fields = {"key": "rehearsal", "statement": "Friends offered condolences after the funerals."}
    assert quote(True, "Hello. After the funeral, friends offered condolences. Bye.", **attribute_fields) == (
        "After the funeral, friends offered condolences."
    )
    assert quote(True, "Friends offered help after the funeral.", **attribute_fields) is None
    assert quote(True, "Friends offered condolences. The funeral was long.", **attribute_fields) is None
    assert quote(True, "After the funeral, friends never offered condolences.", **attribute_fields) is None
    assert quote("High", "Friends, after funerals, offered their condolences", **attribute_fields) is not None
    assert quote(True, "Owned it is.", "own", "It is owned.") is None


@pytest.mark.parametrize(
    ("value", "statement", "message"),
    [
        (1_200, "I paid $1,200 in legal fees.", "I took $1,200 in paid leave."),
        ("2024-12-01", "A permit was obtained on December 1, 2024.", "The lease ends on December 1, 2024."),
        ("$12,000", "Her bank balance is $12,000.", "I would like to borrow $12,000."),
    ],
)
def test_a_bare_value_is_partial_at_most(value: Value, statement: str, message: str) -> None:
    [reveal] = match([attribute(value, "thing", statement)], message)
    assert reveal.strength is Strength.PARTIAL
    [reveal] = match([attribute(value, "thing", statement)], statement)
    assert reveal.strength is Strength.FULL


def test_small_numbers_and_durations_without_a_word_are_nothing() -> None:
    assert quote("45 minutes", "We can talk for 45 minutes.", "commute", "My commute takes 45 minutes.") is None
    assert quote(7, "Please answer within 7 days.", "confidence", "My confidence is 7 out of 10.") is None


def test_a_value_is_the_attributes_that_is_told_best_beside_it() -> None:
    rent = Attribute("monthly_rent", 1_300, "housing", "divorce", "Her monthly rent is $1,300.")
    deposit = Attribute("security_deposit", 1_300, "housing", "divorce", "She paid a $1,300 security deposit.")
    message = "I always paid the rent on time and paid a security deposit of $1,300."
    assert [reveal.attribute for reveal in match([rent, deposit], message)] == [1]
    both = f"{message} The monthly rent is $1,300."
    assert [reveal.attribute for reveal in match([rent, deposit], both)] == [0, 1]


@pytest.mark.parametrize(
    ("value", "statement", "message"),
    [
        (
            "Garden Law by J. Moss",
            "I read 'Garden Law' by J. Moss to understand the dispute.",
            "I have read \u201cGarden Law\u201d by J. Moss.",
        ),
        (
            "Certified Beekeeping Instructor (2023)",
            "I earned the Certified Beekeeping Instructor credential in 2023.",
            "As you know, I am certified as a Certified Beekeeping Instructor.",
        ),
        ("Weekly fencing lessons", "She copes by taking weekly fencing lessons.", "I take a fencing lesson each week."),
        ("7/10", "Her stress level is 7 out of 10.", "I would put my level of stress at 7 out of 10."),
        ("122/78 mmHg", "Her blood pressure reads 122 over 78.", "My blood pressure was 122/78."),
        (
            True,
            "His employer approved remote work during the renovation.",
            "My employer has approved remote work during the renovation.",
        ),
    ],
)
def test_titles_quotation_marks_and_inflections_do_not_hide_a_statement(
    value: Value, statement: str, message: str
) -> None:
    [reveal] = match([attribute(value, "thing", statement)], message)
    assert reveal.strength is Strength.FULL


def test_a_negation_elsewhere_in_the_sentence_is_none_of_the_statement() -> None:
    fields = {"key": "home", "statement": "She currently rents a two-bedroom apartment."}
    value = "Rents a two-bedroom apartment"
    assert quote(value, "I rent a two-bedroom apartment in town, and have no children.", **fields) is not None
    assert quote(value, "I do not rent any two-bedroom apartment.", **fields) is None


def test_order_and_once_each() -> None:
    held = [attribute(72_000), attribute("Naltrexone"), attribute(72_000), attribute("Absent thing")]
    message = "Naltrexone, naltrexone, 72k and 72,000: Naltrexone."
    reveals = match(held, message)
    assert [reveal.attribute for reveal in reveals] == [0, 1, 2]
    assert [str(reveal.strength) for reveal in reveals] == ["partial", "full", "partial"]
    assert reveals == match(held, message)
    assert match([], message) == match(held, "") == match(held, " \n") == []


values = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20),
    st.lists(st.text(max_size=8) | st.integers(0, 99_999), max_size=3),
    st.sampled_from(["72,000", "2023-04-12", "15:30", "15%", "Ann Lee", "a\nb, c", "1.2 million"]),
)  # fmt: skip
pieces = st.sampled_from(
    [
        "72,000",
        "$72k",
        "April 12, 2023",
        "3:30 PM",
        "15%",
        "Ann Lee",
        "thing",
        ".",
        "\n",
        "\u2014",
        "\u0130",
        "1,",
        "two",
    ]
)
messages = st.lists(pieces | st.text(max_size=6), max_size=12).map(" ".join)


@given(st.lists(values, max_size=4), messages, st.text(max_size=30))
def test_spans_are_valid_whatever_comes(held: list[Value], message: str, statement: str) -> None:
    attributes = [attribute(value, f"thing_{index}", statement) for index, value in enumerate(held)]
    reveals = match(attributes, message)
    indices = [reveal.attribute for reveal in reveals]
    assert indices == sorted(set(indices))
    for reveal in reveals:
        assert reveal.span is not None and 0 <= reveal.span.start < reveal.span.end <= len(message)
        assert reveal.quote == message[reveal.span.start : reveal.span.end]


@needs_official
def test_every_released_statement_reveals_its_attribute() -> None:
    for profile in read_profiles(OFFICIAL).profiles[:2]:
        for index, held in enumerate(profile.attributes):
            reveals = match(profile.attributes, f"Dear Sir, {held.statement} Regards")
            assert index in [reveal.attribute for reveal in reveals]


@needs_official
def test_a_released_profile_is_matched_in_milliseconds_when_warm() -> None:
    attributes = read_profiles(OFFICIAL).profiles[0].attributes
    message = " ".join(held.statement for held in attributes[:40])[:2_000]
    match(attributes, message)
    took = []
    for _ in range(20):
        started = time.thread_time()
        match(attributes, message)
        took.append(time.thread_time() - started)
    assert min(took) < 0.015


@pytest.mark.parametrize(
    "piece",
    [
        "1,",
        "1 ",
        "1. ",
        "72,000 ",
        "two ",
        "April ",
        "1/",
        "1:",
        "-1",
        " ",
        "\n",
        ". ",
        '. "',
        "a",
        "children 3 ",
        "$",
        "'",
        "aaaaaaaa bbbb. ",
        "a street, b, c. ",
        "It is 72,000 for three children. ",
    ],
)
def test_hostile_text_takes_linear_time(piece: str) -> None:
    held = [
        attribute(3, "number_of_children", "Ann has three children."),
        attribute("aaaaaaaa bbbb"),
        attribute("a street\nb, c"),
        attribute(True, "x", "One or two or three things were done."),
        attribute("2023-04-12"),
        attribute(72_000),
    ]
    message = ("a " + piece * 100_000)[:100_000]
    started = time.thread_time()
    match(held, message)
    assert time.thread_time() - started < 2
