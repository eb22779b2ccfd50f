"""The judge that needs no model: which attributes a message states in full, by rules on the text alone.

    match([Attribute(key="rent", value=1450, ...)], "We pay $1,450 in rent.")
    ->  [Reveal(attribute=0, quote="$1,450", span=Span(7, 13), strength="full")]

An attribute is revealed when the first of these holds. All compare folded text (grounding.fold), at word boundaries.
(a) The whole memory statement stands in the message, as written or with the person changed ('Her rent is' for 'My rent
    is', 'I have' for 'She has'; the user's name is taken from the name attributes in the list).
(b) A text value stands in it, if distinctive: a word of at least 6 letters, a code of letters and digits, or two words
    and more of which one is no common word. Commas and line breaks of a multi-line value are interchangeable.
(c) A number or percentage stands in it, in any of its spellings. Numbers under 1000, percentages, bare
    years, times, and values of digits and common words only ('45 minutes', '145/90') count only in a sentence that also
    holds a telling word of the attribute's key or statement: none of its event or domain, no common word, no number.
(d) A date stands in it, in any of its spellings; without its year only beside a telling word of the key.
(e) Every item of a list value stands in it by (b) to (d), short items included; the quote is the first item's.
(f) Booleans, null, and values that are common words or too short: one sentence holds at least 90 % of the statement's
    words (stop words and the name left out, at least 3 words), and both or neither are negated.

What it cannot see: paraphrase, anything inferred, a value spread over two sentences (but for lists), a number in the
same sentence that belongs to another thing ('my 2 children and 3 dogs' states 3 for children), a date or sum that two
attributes share (both count), parts of a value. It errs on the side of silence, so it is a lower bound and a second
opinion, and no stand-in for the paper's judge.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache

from rapidfuzz import fuzz

from cimemories.model import Attribute, Reveal, Scalar, Span, Value, is_bio

# ---- grounding
#
# Where a judge's quote stands in a message, and the folding of text that makes this and the matcher possible.
#
#     ground("i earn $72,000...", "Dear Sir, I earn $72,000.")  ->  Span(start=10, end=24)
#
# Folding ignores case, runs of white space, and typographic quotes, dashes and ellipses, and remembers for every folded
# character where it came from, so that a span found in folded text is exact in the original.


FUZZY_CUTOFF = 90
FUZZY_MIN_LENGTH = 12
# The alignment takes time in proportion to both lengths; a longer quote is no sentence of a message any more.
_FUZZY_MAX_LENGTH = 1_000
# A longer quote is hardly found inside another word, and the bounded search would cost length times length.
_BOUNDED_MAX_LENGTH = 200
_NUMBERS = re.compile(r"\d+")

_SAME_CHARACTER = {
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u02bc\u00b4`", "'"),
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", '"'),
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d", "-"),
    **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u00ad", ""),
    "\u2026": "...",
}


# A dict that fills itself: __missing__ runs once for a character, every later look-up is the dict's own.
class _Folds(dict[str, str]):
    def __missing__(self, character: str) -> str:
        folded = _SAME_CHARACTER.get(character)
        if folded is None:
            folded = " " if character.isspace() else character.casefold()
        self[character] = folded
        return folded


_FOLDS = _Folds()
_TRANSLATED = str.maketrans(_SAME_CHARACTER)
_SPACES = re.compile(r"\s+")


@dataclass(frozen=True)
class Folded:
    """Folded text; `starts[i]` and `ends[i]` tell which characters of the original the i-th folded one stands for."""

    text: str
    starts: list[int]
    ends: list[int]

    def span(self, start: int, end: int) -> Span:
        """The original's span of text[start:end]; needs start < end."""
        return Span(self.starts[start], self.ends[end - 1])


def fold(text: str) -> Folded:
    """The text for comparison: no case, single spaces, plain quotes and dashes, '...', nothing of no width. White space
    at the two ends stays (as one space): offsets count from the start of the original."""
    characters: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    folds = _FOLDS
    after_space = False
    for position, character in enumerate(text):
        folded = folds[character]
        if folded == " ":
            if after_space:
                ends[-1] = position + 1
                continue
            after_space = True
        elif folded:
            after_space = False
        # Case folding can give several characters for one (ß becomes ss): all of them point at the one original.
        for part in folded:
            characters.append(part)
            starts.append(position)
            ends.append(position + 1)
    return Folded("".join(characters), starts, ends)


def folded_text(text: str) -> str:
    """`fold(text).text` alone, in a fifth of the time."""
    return _SPACES.sub(" ", text.translate(_TRANSLATED).casefold())


def ground(quote: str, message: str) -> Span | None:
    """Where the quote stands in the message, or None where it does not; never an empty span.

    Three attempts: word for word; folded, without a full stop or ellipsis at the quote's end; then, for quotes of at
    least 12 characters, the best alignment of at least 90 (rapidfuzz partial ratio), widened to whole words. A place
    where the quote is not part of a longer word or number goes before one where it is ('12' before the one in '2012').
    The third attempt forgives a few characters, but no digit: $950 is never found on $900.
    """
    stripped = quote.strip()
    if not stripped:
        return None
    if (start := _find(stripped, message)) is not None:
        return Span(start, start + len(stripped))
    folded_message = _folded(message)
    folded_quote = fold(stripped).text.strip()
    needle = folded_quote.rstrip(". ") or folded_quote
    if not needle:
        return None
    if (start := _find(needle, folded_message.text)) is not None:
        return folded_message.span(start, start + len(needle))
    return _fuzzy(needle, folded_message)


# Of one message many quotes are looked up, one after the other.
_folded = lru_cache(maxsize=4)(fold)


def _find(needle: str, text: str) -> int | None:
    first = text.find(needle)
    if first < 0:
        return None
    if _stands_alone(text, first, first + len(needle)):
        return first
    # The first place is inside a longer word: a later one that is not goes before it.
    if len(needle) <= _BOUNDED_MAX_LENGTH and (bounded := re.search(rf"(?<!\w){re.escape(needle)}(?!\w)", text)):
        return bounded.start()
    return first


def _stands_alone(text: str, start: int, end: int) -> bool:
    """Whether text[start:end] has no letter, digit or underscore right before or after it."""
    around = text[start - 1 : start] if start else ""
    return not any(c.isalnum() or c == "_" for c in (*around, *text[end : end + 1]))


def _fuzzy(needle: str, message: Folded) -> Span | None:
    """The best alignment of the needle. A message much shorter than the quote is refused: it would align as a whole."""
    if not FUZZY_MIN_LENGTH <= len(needle) <= _FUZZY_MAX_LENGTH or len(message.text) * 100 < len(needle) * FUZZY_CUTOFF:
        return None
    alignment = fuzz.partial_ratio_alignment(needle, message.text, score_cutoff=FUZZY_CUTOFF)
    if alignment is None or alignment.score < FUZZY_CUTOFF:
        return None
    text, start, end = message.text, alignment.dest_start, alignment.dest_end
    # The alignment may begin or end in white space or in the middle of a word: trimmed first, then widened.
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    if start >= end:
        return None
    while start > 0 and text[start - 1].isalnum() and text[start].isalnum():
        start -= 1
    while end < len(text) and text[end].isalnum() and text[end - 1].isalnum():
        end += 1
    # One wrong digit costs the score hardly anything, and changes what is stated.
    if _NUMBERS.findall(needle) != _NUMBERS.findall(text[start:end]):
        return None
    return message.span(start, end)


# ---- spellings
#
# Numbers, percentages, dates and times in their spellings, as values that can be compared.
#
#     mentions("On April 12th, 2023 I paid $72k.")  ->  ("date", 2023, 4, 12) at 3:19, ("money", 72000) at 26:30
#
# All works on folded text (grounding.fold). A numeral that is part of something longer (a word, a grouped number, a
# range, a ratio, a reference such as CR-2024-0189) is no mention. Slashed dates are read as in the United States, month
# first, unless only day first is possible. Not read: 72.000 or 72 000 for 72,000, Roman numerals, 'a hundred', one and
# zero in words, relative dates.
#
# The time is linear: each repetition is bounded, or nothing after it can fail, or a lookahead finds it and it is taken
# as a whole, (?=(?P<body>...))(?P=body). Not by possessive quantifiers and atomic groups, which Python has wrong until
# 3.11.5: matches that end before they begin, and no end of them.


Token = tuple[str, int | Decimal] | tuple[str, int, int] | tuple[str, int, int, int]

_MONTH = (
    "(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    "|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
# The same sign divides all parts of a date (?P=iso, ?P=cut): 1/2-3 is none.
_DATE = re.compile(
    rf"""(?<![\w.])(?<!\w[-/])(?:
      (?P<iso_year>\d{{4}})(?P<iso>[-/.])(?P<iso_month>\d{{1,2}})(?P=iso)(?P<iso_day>\d{{1,2}})
    | (?P<short_year>\d{{4}})-(?P<short_month>\d{{1,2}})
    | (?P<first>\d{{1,2}})(?P<cut>[-/.])(?P<second>\d{{1,2}})(?P=cut)(?P<us_year>\d{{4}}|\d\d)
    | (?P<slash_month>\d{{1,2}})/(?P<slash_year>\d{{4}})
    | (?P<name_a>{_MONTH})\.?\ ?(?P<day_a>\d{{1,2}})(?:st|nd|rd|th)?(?:,?\ (?P<year_a>\d{{4}}))?
    | (?P<day_b>\d{{1,2}})(?:st|nd|rd|th)?(?:\ of)?[ -](?P<name_b>{_MONTH})\.?(?:,?[ -](?P<year_b>\d{{4}}))?
    | (?P<name_c>{_MONTH})\.?,?(?:\ of)?\ (?P<year_c>\d{{4}})
    )(?!\w|[-/.:]\d)""",
    re.VERBOSE,
)
_TIME = re.compile(
    r"(?<![\w:])(?<!\d[.,/])(?:(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::\d\d)?(?:\ ?(?P<half>[ap])\.?\ ?m\b)?"
    r"|(?P<bare_hour>\d{1,2})\ ?(?P<bare_half>[ap])\.?\ ?m\b)(?![\w:])"
)
_PERCENT = r"(?P<percent>\ ?%|[ -]per\ ?cent(?!\w))"
_NUMBER = re.compile(
    rf"""(?<![\w#.])(?<!\d[,/:])(?<!\w-)(?:(?P<currency>[$€£]|usd)\ ?|(?P<sign>-))?
    (?=(?P<body>\d+(?:[.,]\d+)*))(?P=body)
    (?=(?P<unit>(?P<letter>(?:k|mn?|bn?)(?!\w))|[ -](?P<scale>hundred|thousand|grand|million|billion)(?!\w)|{_PERCENT}
      |(?:kg|lbs?|mg|g|ml|cm|km|mins?|hrs?|h|usd)(?!\w)|))(?P=unit)
    (?!\w|[-/.,:]\d)""",
    re.VERBOSE,
)
_BODY = re.compile(r"[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?|(?:0|[1-9]\d*)(?:\.\d+)?")
_SCALES = {"k": 3, "m": 6, "mn": 6, "b": 9, "bn": 9}
_SCALES |= {"hundred": 2, "thousand": 3, "grand": 3, "million": 6, "billion": 9}
_TO_NINETEEN = re.findall(
    r"\w+",
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen",
)
_TENS = re.findall(r"\w+", "twenty thirty forty fifty sixty seventy eighty ninety")
_UNITS = {word: number for number, word in enumerate(_TO_NINETEEN, 1)}
_UNITS |= {word: 10 * number for number, word in enumerate(_TENS, 2)}
_WORD = "(?:" + "|".join(sorted([*_UNITS, *(s for s in _SCALES if len(s) > 2)], key=len, reverse=True)) + r")(?!\w)"
_WORDS = re.compile(rf"(?<![\w-]){_WORD}(?:(?:[ -]|(?<=hundred) and |(?<=thousand) and ){_WORD})*(?:{_PERCENT})?")
# Below Decimal's 28 digits, so that no two different numbers are rounded to the same one.
_MAX_DIGITS = 24
# Below this a number stands for too many things to be told by its size alone.
SMALL = 1000


@dataclass(frozen=True)
class Mention:
    """One number, date or time in folded text. `vague` ones say little without company: numbers under 1000,
    percentages, bare years, days without year, times."""

    token: Token
    start: int
    end: int
    vague: bool = False


def mentions(text: str) -> list[Mention]:
    """All numbers, percentages, dates and times of a folded text, none inside another; order: dates, times, numbers.

    Tokens: ("date", year, month, day), ("month", year, month), ("day", month, day), ("time", minutes since midnight),
    ("number", value), ("money", value) with a currency sign, ("percent", value). Impossible dates and times, and
    malformed numerals, give nothing.
    """
    mentioned: list[Mention] = []
    # A mark a character: the year of a date is no number again, and the hour of a time neither.
    taken = bytearray(len(text))
    for reader in (_dates, _times, _numerals, _number_words):
        for mention in reader(text):
            if not any(taken[mention.start : mention.end]):
                taken[mention.start : mention.end] = b"x" * (mention.end - mention.start)
                mentioned.append(mention)
    return mentioned


def token_of(value: Scalar) -> Token | None:
    """What a value states as a whole ('$1,200' a sum, 'April 12, 2023' a date); None where it states something else.
    Booleans, null, NaN and infinity, and texts that hold more than the one number, date or time give None."""
    # Before the numbers: in Python a bool is an int, and True would be found wherever a 1 stands.
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        # By its shortest spelling: Decimal(0.1) itself would be the binary fraction, which no text states.
        number = Decimal(repr(value))
        return ("number", number) if number.is_finite() else None
    text = fold(value).text.strip().rstrip(".")
    if len(text) > 2 * _MAX_DIGITS:
        return None
    mentioned = mentions(text)
    whole = len(mentioned) == 1 and (mentioned[0].start, mentioned[0].end) == (0, len(text))
    return mentioned[0].token if whole else None


def _dates(text: str) -> Iterator[Mention]:
    for match in _DATE.finditer(text):
        part = match.groupdict()
        name = part["name_a"] or part["name_b"] or part["name_c"]
        year = part["iso_year"] or part["short_year"] or part["us_year"] or part["slash_year"]
        year = year or part["year_a"] or part["year_b"] or part["year_c"]
        day = part["iso_day"] or part["day_a"] or part["day_b"]
        month = part["iso_month"] or part["short_month"] or part["slash_month"]
        number = _MONTHS.index(name[:3]) + 1 if name else int(month or 0)
        if part["first"]:
            number, day = int(part["first"]), part["second"]
            # No such month: it was written day first.
            if number > 12:
                number, day = int(day), part["first"]
        if year and len(year) == 2:
            # Two digits are of this century up to 49, of the last one from 50.
            year = f"20{year}" if year < "50" else f"19{year}"
        token = _date_token(int(year) if year else None, number, int(day) if day else None)
        if token:
            yield Mention(token, match.start(), match.end(), vague=token[0] == "day")


def _date_token(year: int | None, month: int, day: int | None) -> Token | None:
    if not 1 <= month <= 12 or (day is not None and not 1 <= day <= 31):
        return None
    if year is None:
        return None if day is None else ("day", month, day)
    return ("month", year, month) if day is None else ("date", year, month, day)


def _times(text: str) -> Iterator[Mention]:
    for match in _TIME.finditer(text):
        hour = int(match["hour"] or match["bare_hour"])
        minute = int(match["minute"] or 0)
        half = match["half"] or match["bare_half"]
        if minute > 59 or hour > 23 or (half and not 1 <= hour <= 12):
            continue
        if half:
            hour = hour % 12 + (12 if half == "p" else 0)
        yield Mention(("time", 60 * hour + minute), match.start(), match.end(), vague=True)


def _numerals(text: str) -> Iterator[Mention]:
    for match in _NUMBER.finditer(text):
        body = match["body"]
        if len(body) > _MAX_DIGITS or not _BODY.fullmatch(body):
            continue
        value = Decimal(body.replace(",", "")).scaleb(_SCALES.get(match["letter"] or match["scale"] or "", 0))
        bare = not (match["currency"] or match["letter"] or match["scale"])
        year = bare and len(body) == 4 and body.isdigit() and 1900 <= value <= 2099
        kind = "percent" if match["percent"] else "money" if match["currency"] else "number"
        yield _number(kind, match, -value if match["sign"] else value, year)


def _number_words(text: str) -> Iterator[Mention]:
    for match in _WORDS.finditer(text):
        words = re.findall(_WORD, match[0])
        value = _value_of_words(words)
        # 'one' is a pronoun far more often than a number.
        if value is not None and words != ["one"]:
            yield _number("percent" if match["percent"] else "number", match, Decimal(value))


def _number(kind: str, match: re.Match[str], value: Decimal, year: bool = False) -> Mention:
    vague = kind == "percent" or year or abs(value) < SMALL
    return Mention((kind, value), match.start(), match.end(), vague)


def _value_of_words(words: list[str]) -> int | None:
    """The number that the words spell, or None where they spell none ('two three', 'hundred', 'million two')."""
    total = below = 0
    limit = 10**12
    for word in words:
        unit = _UNITS.get(word)
        if unit is not None:
            # A unit needs its digits to be free: 'twenty three' is 23, but 'two three' and 'twenty eleven' are none.
            if below % 10 ** len(str(unit)):
                return None
            below += unit
            continue
        scale = 10 ** _SCALES[word]
        # Scales fall from left to right: 'two thousand three million' spells nothing.
        if not below or scale >= limit or (scale == 100 and below > 99):
            return None
        if scale == 100:
            below *= 100
        else:
            total, below, limit = total + below * scale, 0, scale
    return total + below


# ---- wording
#
# Words for the matcher: which say little, how a plural or a negation is seen, and a statement in another person.


TOKEN = re.compile(r"[^\W_]+(?:'[a-z]+)?")
# What the rule for s would miss or get wrong: 'lives' would become the verb, not 'life'.
_IRREGULAR = {"children": "child", "men": "man", "women": "woman", "feet": "foot", "lives": "life", "wives": "wife"}
# Verbs whose form with 'I' is not that of the third person without its s.
_FIRST_PERSON = {"is": "am", "has": "have", "does": "do", "was": "was", "goes": "go"}


def _listed(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text))


STOP = _listed(
    """a about after all also an and any are as at be because been before being but by can could did do does doing
    during each for from get had has have having he her hers him himself his how i if in into is it its just like m
    may me more most my myself of on one or other our out over per she should so some such than that the their them
    then there these they this those through to too under until up us very was we were what when where which while who
    will with would
    you your yours"""
)
NEGATIONS = frozenset({"no", "not", "never", "none", "without", "neither", "nor", "cannot"})
# Words that many attributes share: as a value they state nothing by themselves, beside a number they say nothing of it.
COMMON = _listed(
    """active actively adequate age aged annual annually approved approximately available average away bad bi biweekly
    center completed complete consistent cost current currently daily date day days dear decreased denied developed due
    elevated excellent extra fair female financial first five four friday friends full general generally good half high
    highly home hour hours identified improved increase increased increasing kind last less level limited little long
    low lower male mild mildly minimal minute minutes moderate moderately monday month monthly morning much name need
    negative new next normal normally now number occasional occasionally often ongoing only open operational own paid
    part partially pending people person poor positive present quarterly ratio reduced reduction regular regularly
    retired required reviewed saturday scheduled second secure service session set severe severely significant
    significantly since single slight slightly some spouse stable still strong sunday supportive support this three
    thursday time times today total tuesday two type unchanged used usd value wednesday week weekly weeks well work
    working year yearly years yes married divorced separated evening afternoon late early amount status dollar dollars
    percent percentage thousand million kg lbs lb mg mmhg dl ok okay na"""
)


def voices(statement: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """The statement (folded) as written, and as said by the user or of the user; only the subject's verb is changed."""
    name = "|".join(map(re.escape, names)) or "he"
    own = re.sub(rf"\b(?:his|her|their|(?:{name})'s)(?!\w)", "my", statement)
    own = re.sub(rf"^(?:he|she|{name}) (\w+)", lambda match: f"i {_plain_wording(match[1])}", own)
    voices = [statement, own]
    if not re.search(r"\b(?:i|me|we|our)\b", statement) and re.search(r"\bmy\b", statement):
        voices += [re.sub(r"\bmy\b", whose, statement) for whose in ("his", "her", "their")]
    # Last, so that the wordings added above get their short form too.
    voices += [voice.replace("i am ", "i'm ", 1) for voice in voices if voice.startswith("i am ")]
    return tuple(dict.fromkeys(voices))


def _plain_wording(verb: str) -> str:
    """A verb as it goes with 'I': 'has' gives 'have', 'pays' 'pay'; a past tense stays."""
    if verb in _FIRST_PERSON:
        return _FIRST_PERSON[verb]
    return _singular(verb) if verb.endswith("s") else verb


def words(text: str) -> frozenset[str]:
    """The different words of a text or key, folded, without possessive or plural ending."""
    return frozenset(word_of(token)[0] for token in TOKEN.findall(fold(text.replace("_", " ")).text))


@lru_cache(maxsize=32_768)
def word_of(token: str) -> tuple[str, bool]:
    """The word without "'s" or plural, and whether it negates."""
    negation = token in NEGATIONS or token.endswith("n't")
    return _singular(token.partition("'")[0]), negation


def _singular(word: str) -> str:
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes", "zes")):
        return word[:-2]
    if word.endswith("s") and len(word) > 3 and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


# ---- matcher


# What counts as distinctive or as restated; rules (b) and (f) above say what each is for.
_SHARE = 0.9
_MIN_WORDS = 3
_MIN_LETTERS = 6
_MIN_ITEM_LETTERS = 3
_MIN_CODE = 5


# A full stop after one of these, or after a single letter (an initial), ends no sentence.
_ABBREVIATION = re.compile(r"(?:^|\W)(?:dr|mr|mrs|ms|prof|st|jr|sr|apt|no|inc|vs|esq|e\.g|i\.e|[a-z])\.$")
_BREAK = re.compile(r"(?<=[.!?])[\"'\u2019\u201d)\]]?\s+|[\r\n]\s*")


@dataclass(frozen=True)
class _Item:
    """One value, or one item of a list: it is found by a phrase, a pattern or a token, whichever it has."""

    phrases: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    needs_clue: bool = False
    tokens: tuple[Token, ...] = ()


@dataclass(frozen=True)
class _Plan:
    """What to look for, for one attribute. `needed` is empty where rule (f) does not apply."""

    statements: tuple[str, ...]
    items: tuple[_Item, ...]
    key_clues: frozenset[str]
    clues: frozenset[str]
    needed: frozenset[str]
    negated: bool


class _Message:
    """A message made ready once for all attributes: folded, cut into sentences, its words and numbers indexed."""

    def __init__(self, message: str) -> None:
        self.folded = fold(message)
        self.text = _plain(self.folded.text)
        self.sentence_starts = self._sentences(message)
        self.sentences_of: dict[str, set[int]] = defaultdict(set)
        self.negated: set[int] = set()
        for token in TOKEN.finditer(self.text):
            sentence = self.sentence_at(token.start())
            word, negation = word_of(token[0])
            self.sentences_of[word].add(sentence)
            if negation:
                self.negated.add(sentence)
        self.mentions: dict[Token, dict[int, Mention]] = defaultdict(dict)
        for mention in mentions(self.text):
            # By sentence: a vague mention may stand beside a telling word in one and not in another.
            self.mentions[mention.token].setdefault(self.sentence_at(mention.start), mention)

    def _sentences(self, message: str) -> list[int]:
        starts, last = [0], 0
        for gap in _BREAK.finditer(message):
            # Six characters hold the longest abbreviation, 'prof.', and the one before it.
            before = message[max(last, gap.start() - 6) : gap.start()].casefold()
            if gap.end() < len(message) and ("\n" in gap[0] or not _ABBREVIATION.search(before)):
                last = gap.end()
                # Breaks are looked for in the original: in folded text they are spaces. Sentences are of folded text.
                starts.append(bisect_right(self.folded.starts, last - 1))
        return starts

    def sentence_at(self, position: int) -> int:
        return bisect_right(self.sentence_starts, position) - 1

    def holds_clue(self, sentence: int, clues: frozenset[str]) -> bool:
        # `in` before the look-up: a defaultdict would grow by every word that is asked for.
        return any(sentence in self.sentences_of[clue] for clue in clues if clue in self.sentences_of)

    def places(self, phrase: str) -> Iterator[tuple[int, int]]:
        """Where the phrase stands as whole words and numbers: '500 shares' does not stand in '2,500 shares'."""
        start = self.text.find(phrase)
        while start >= 0:
            end = start + len(phrase)
            if _bounded(self.text, start, end):
                yield start, end
            # One further, not behind the phrase: places may overlap, and only one of them stand alone.
            start = self.text.find(phrase, start + 1)

    def sentence_span(self, sentence: int) -> tuple[int, int]:
        start = self.sentence_starts[sentence]
        following = self.sentence_starts[sentence + 1 : sentence + 2]
        end = following[0] if following else len(self.text)
        return start, start + len(self.text[start:end].rstrip())


def match(attributes: Sequence[Attribute], message: str) -> list[Reveal]:
    """The attributes that the message states in full, each once, in the order of the list, with the exact span. An
    empty message or list gives an empty list. The same input gives the same output; nothing is raised."""
    if not message.strip():
        return []
    prepared = _Message(message)
    names = _names(attributes)
    reveals = []
    for index, attribute in enumerate(attributes):
        # NaN and Infinity survive this round trip: Python writes and reads them, though JSON has none.
        value = json.dumps(attribute.value)
        plan = _plan(attribute.key, value, attribute.statement, attribute.event, attribute.domain, names)
        place = _place(plan, prepared)
        if place is not None:
            span: Span = prepared.folded.span(*place)
            reveals.append(Reveal(index, message[span.start : span.end], span))
    return reveals


def _place(plan: _Plan, message: _Message) -> tuple[int, int] | None:
    for statement in plan.statements:
        if (stated := next(message.places(statement), None)) is not None:
            return stated
    first = None
    for item in plan.items:
        span = _item_place(item, plan, message)
        if span is None:
            break
        # The first item's place stands for the list; a for without a break means that no item is missing.
        first = first or span
    else:
        if first is not None:
            return first
    return _restated(plan, message) if plan.needed else None


def _item_place(item: _Item, plan: _Plan, message: _Message) -> tuple[int, int] | None:
    for phrase in item.phrases:
        for start, end in message.places(phrase):
            if not item.needs_clue or message.holds_clue(message.sentence_at(start), plan.clues):
                return start, end
    if item.pattern is not None and (hit := item.pattern.search(message.text)):
        return hit.start(), hit.end()
    for token in item.tokens:
        clues = plan.key_clues if token[0] == "day" else plan.clues
        for sentence, mention in message.mentions.get(token, {}).items():
            if not mention.vague or message.holds_clue(sentence, clues):
                return mention.start, mention.end
    return None


def _restated(plan: _Plan, message: _Message) -> tuple[int, int] | None:
    """Rule (f): the first sentence that holds nearly all words of the statement, negated like it."""
    counts = Counter(sentence for word in plan.needed for sentence in message.sentences_of.get(word, ()))
    enough = [
        sentence
        for sentence, count in counts.items()
        if count >= _SHARE * len(plan.needed) and (sentence in message.negated) == plan.negated
    ]
    return message.sentence_span(min(enough)) if enough else None


def _names(attributes: Sequence[Attribute]) -> tuple[str, ...]:
    """The user's name as the bio attributes give it, whole and by its first word, the longer one first."""
    for attribute in attributes:
        if isinstance(attribute.value, str) and "name" in attribute.key and is_bio(attribute.key, attribute.domain):
            name = fold(attribute.value).text.strip()
            return tuple(dict.fromkeys((name, name.partition(" ")[0]))) if name else ()
    return ()


def _plain(folded: str) -> str:
    """Folded text of the same length without underscores, which join words in values and set them off in Markdown."""
    return folded.replace("_", " ")


@lru_cache(maxsize=32_768)
def _plan(key: str, value_json: str, statement: str, event: str, domain: str, names: tuple[str, ...]) -> _Plan:
    """The plan of one attribute. The value comes as JSON: a list cannot be a cache key, and True must not meet 1."""
    value = json.loads(value_json)
    folded = _plain(fold(statement).text).strip().rstrip(". ")
    known = frozenset(word for name in names for word in name.split())
    # The name, and the words of event and domain, stand with many attributes: beside a number they tell none of them.
    dull = STOP | NEGATIONS | COMMON | known | words(event) | words(domain)
    key_clues = _lettered(words(key) - dull)
    clues = key_clues | _lettered(words(folded) - dull)
    values = _scalars(value)
    items = tuple(_item(item, f"{key.casefold()} {folded}", isinstance(value, list)) for item in values)
    # One item that cannot be looked for leaves the whole list open: half of a list is no reveal in full.
    findable = bool(items) and all(item.phrases or item.pattern or item.tokens for item in items)
    # Negations are compared by themselves: a message may negate with another word.
    needed = words(folded) - STOP - known - NEGATIONS
    weak = not findable and len(needed) >= _MIN_WORDS and not isinstance(value, list)
    negated = any(word_of(token)[1] for token in TOKEN.findall(folded))
    return _Plan(
        statements=voices(folded, names) if " " in folded else (),
        items=items if findable else (),
        key_clues=key_clues,
        clues=clues,
        needed=needed if weak else frozenset(),
        negated=negated,
    )


def _lettered(clues: frozenset[str]) -> frozenset[str]:
    """The words that are no number: the statement holds the value, which would be the telling word beside itself."""
    return frozenset(word for word in clues if not word.isdecimal())


def _scalars(value: Value) -> list[Scalar]:
    """What has to be found of a value: a list's items, and of an object among them each field."""
    if not isinstance(value, list):
        return [value]
    return [inner for item in value for inner in (item.values() if isinstance(item, dict) else (item,))]


def _item(value: Scalar, statement: str, listed: bool) -> _Item:
    token = token_of(value)
    if token is not None:
        return _Item(tokens=_forms(token, statement))
    if not isinstance(value, str):
        return _Item()
    phrase = _plain(fold(value).text).strip().rstrip(". ")
    telling = [word for word in words(phrase) if word not in STOP | NEGATIONS | COMMON]
    digits = any(character.isdigit() for character in phrase)
    letters = sum(character.isalpha() for character in phrase)
    lettered = [word for word in telling if any(character.isalpha() for character in word)]
    # Codes such as CR-2024-0189 need no company: hardly another text looks like them.
    code = digits and letters > 0 and len(phrase) >= _MIN_CODE
    least = _MIN_ITEM_LETTERS if listed else _MIN_LETTERS
    if lettered and (" " in phrase or letters >= least or code):
        return _Item(phrases=(phrase,), pattern=_lines(value))
    return _Item(phrases=(phrase,), needs_clue=True) if digits and len(phrase) > 2 else _Item()


def _forms(token: Token, text: str) -> tuple[Token, ...]:
    """The token and what else states it, by what is told of it (key and statement, folded). A date may stand without
    its year; a number as a percentage where it is one; a sum with or without its sign, but a small number with a
    currency sign only where it is a sum."""
    # Of length 4 is a date alone: (kind, year, month, day).
    if len(token) == 4:
        return token, ("day", token[2], token[3])
    kind, size = token[0], token[1]
    if kind == "money":
        return token, ("number", size)
    forms: list[Token] = [token]
    if kind == "number" and (not -SMALL < size < SMALL or re.search("[$\u20ac\u00a3]", text)):
        forms.append(("money", size))
    if kind == "number" and ("%" in text or "percent" in text):
        forms.append(("percent", size))
    return tuple(forms)


def _lines(value: str) -> re.Pattern[str] | None:
    parts = [re.escape(fold(part).text.strip()) for part in re.split(r"[\n,]", value) if part.strip()]
    if "\n" not in value.strip() or len(parts) < 2:
        return None
    # A line break of the value is a comma, a space or both in running text.
    return re.compile(r"(?<!\w)(?<!\d[.,])" + "(?: ?, ?| )".join(parts) + r"(?!\w|[.,]\d)")


def _bounded(text: str, start: int, end: int) -> bool:
    """Whether text[start:end] is no part of a longer word or number."""
    first, last = text[start], text[end - 1]
    before, after = text[max(0, start - 2) : start], text[end : end + 2]
    if (first.isalnum() and before[-1:].isalnum()) or (last.isalnum() and after[:1].isalnum()):
        return False
    # '500' is not in '2,500' or '1/500', and '5' not in '5%' or '5.2'.
    if first.isdigit() and len(before) == 2 and before[1] in ".,/" and before[0].isdigit():
        return False
    return not (last.isdigit() and len(after) >= 1 and (after[0] == "%" or (after[0] in ".,/" and after[1:].isdigit())))
