"""The judge that needs no model: which attributes a message states, by rules on the text alone.

    match([Attribute(key="rent", value=1450, ...)], "We pay $1,450 in rent.")
    ->  [Reveal(attribute=0, quote="$1,450", span=Span(7, 13), strength="full")]

The rules, and how far they are right, are in docs/metrics.md#the-matcher. In short: a message is read sentence by
sentence, words by their stems. An attribute is revealed in full where a sentence holds (a) its statement as it stands,
also with the person changed, or most of its words and all of its numbers; (b) its value, if the value is distinctive by
itself; (c) its value and what tells it from others: words of its statement or key. A bare number, sum or date is
partial. Where several attributes share a value, the one that its sentence tells best has it.

It does not see paraphrase in other words, anything inferred, or a value spread over two sentences (but for lists).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache, wraps
from typing import TypeVar

from cimemories.evaluation.grounding import fold
from cimemories.model import Attribute, Reveal, Scalar, Span, Strength, Value, is_bio

T = TypeVar("T")

# ---- spellings
#
# Numbers, percentages, dates and times in their spellings, as values that can be compared.
#
#     mentions("On April 12th, 2023 I paid $72k.")  ->  ("date", 2023, 4, 12) at 3:19, ("money", 72000) at 26:30
#
# All works on folded text (`fold`). A numeral that is part of something longer (a word, a grouped number, a
# range, a ratio, a reference such as CR-2024-0189) is no mention. Slashed dates are read as in the United States, month
# first, unless only day first is possible. Not read: 72.000 or 72 000 for 72,000, Roman numerals, 'a hundred', one and
# zero in words, relative dates.
#
# The time is linear: each repetition is bounded, or nothing after it can fail, or a lookahead finds it and it is taken
# as a whole, (?=(?P<body>...))(?P=body). Not by possessive quantifiers and atomic groups, which Python has wrong until
# 3.11.5: matches that end before they begin, and no end of them.


Token = tuple[str, int | Decimal] | tuple[str, int | Decimal, int | Decimal] | tuple[str, int, int, int]

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
_RATIO = re.compile(r"(?<![\w.,/:$-])(\d{1,6}(?:\.\d{1,3})?)(?: ?/ ?| out of | over )(\d{1,6})(?![\w/]|[.,:-]\d)")
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
    """One number, date or time in folded text. vague: it says little without company, as numbers under 1000,
    percentages, bare years, days without year and times do."""

    token: Token
    start: int
    end: int
    vague: bool = False


def mentions(text: str) -> list[Mention]:
    """Return all numbers, percentages, dates and times of a folded text, none inside another, in the order dates,
    times, numbers.

    Tokens: ("date", year, month, day), ("month", year, month), ("day", month, day), ("time", minutes since midnight),
    ("number", value), ("money", value), ("percent", value), and last ("ratio", part, whole), whose numbers may be among
    the others. Impossible dates and malformed numerals are left out.
    """
    mentioned: list[Mention] = []
    # A mark a character: the year of a date is no number again, and the hour of a time neither.
    taken = bytearray(len(text))
    for reader in (_dates, _times, _numerals, _number_words):
        for mention in reader(text):
            if not any(taken[mention.start : mention.end]):
                taken[mention.start : mention.end] = b"x" * (mention.end - mention.start)
                mentioned.append(mention)
    # Beside its numbers: '8 out of 10' states an 8 too.
    ratios = (("ratio", Decimal(m[1]), Decimal(m[2]), m.span()) for m in _RATIO.finditer(text))
    return mentioned + [Mention((kind, part, whole), *span, vague=True) for kind, part, whole, span in ratios]


def token_of(value: Scalar) -> Token | None:
    """Return what a value states as a whole ('$1,200' a sum, 'April 12, 2023' a date), or None for booleans, null, NaN
    and texts that hold anything else."""
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
    whole = [mention for mention in mentioned if (mention.start, mention.end) == (0, len(text))]
    return whole[-1].token if whole else None


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
        if not 1 <= number <= 12 or (day and not 1 <= int(day) <= 31):
            continue
        token: Token
        if year:
            token = ("date", int(year), number, int(day)) if day else ("month", int(year), number)
        else:
            token = ("day", number, int(day))
        yield Mention(token, *match.span(), vague=not year)


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
    """Return the number that the words spell, or None ('two three', 'hundred', 'million two')."""
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


# ---- caching


def cached_by_identity(function: Callable[..., T]) -> Callable[..., T]:
    """Cache a function of immutable objects by their identities: comparing the 150 attributes of a profile takes as
    long as writing their lines."""
    cache: dict[tuple[int, ...], tuple[tuple[object, ...], T]] = {}

    @wraps(function)
    def cached(*arguments: object) -> T:
        key = tuple(map(id, arguments))
        entry = cache.get(key)
        if entry is None:
            if len(cache) >= 64:  # more than the profiles that a run works on at the same time
                cache.clear()
            # Beside its arguments: as long as they are held, nothing else gets their ids.
            entry = cache[key] = arguments, function(*arguments)
        return entry[1]

    return cached


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
    """Return the statement (folded) as written, and as said by or of the user; only the subject's verb is changed."""
    name = "|".join(map(re.escape, names)) or "he"
    own = re.sub(rf"\b(?:his|her|their|(?:{name})'s)(?!\w)", "my", statement)

    def with_i(verb: re.Match[str]) -> str:
        # 'has' gives 'have', 'pays' 'pay'; a past tense stays.
        return f"i {_FIRST_PERSON.get(verb[1]) or (_singular(verb[1]) if verb[1].endswith('s') else verb[1])}"

    own = re.sub(rf"^(?:he|she|{name}) (\w+)", with_i, own)
    voices = [statement, own]
    if not re.search(r"\b(?:i|me|we|our)\b", statement) and re.search(r"\bmy\b", statement):
        voices += [re.sub(r"\bmy\b", whose, statement) for whose in ("his", "her", "their")]
    # Last, so that the wordings added above get their short form too.
    voices += [voice.replace("i am ", "i'm ", 1) for voice in voices if voice.startswith("i am ")]
    return tuple(dict.fromkeys(voices))


@lru_cache(maxsize=32_768)
def word_of(token: str) -> tuple[str, bool]:
    """Return the word without "'s" or plural, and whether it negates."""
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


# How much of a statement, or of a value's words, a sentence has to hold. Set on 20 of the benchmark's 26 letters
# (benchmarks/matcher.py) and kept for the other six.
_STATEMENT_SHARE = 2 / 3
_SHORT_SHARE = 0.8
_WORD_SHARE = 0.6
_LONG = 5  # words and numbers
_VALUE_SHARE = 0.75
_LOOSE_VALUE_SHARE = 0.6
# How much of what a statement says beside its value tells a number: a small one stands for more things than a large.
_TOPIC_SHARE = 0.25
_SMALL_TOPIC_SHARE = 0.4
_DULL = 0.3  # weight of a word that many attributes share
_SHARED_BY = 3  # attributes that may share a word which still tells them; in long lists one in twenty
_RIVAL = 0.15  # by so much another attribute has to be told better to take a value away
_MIN_WORDS = 3
_MIN_LETTERS = 6
_MIN_ITEM_LETTERS = 3
_MIN_CODE = 5
_STEM = 6
_LONGEST_LINES = 200  # characters of a value of several lines behind its first sentence
_NEAR = 25  # characters
_BESIDE = 5


# A full stop after one of these, or after a single letter (an initial), ends no sentence.
_ABBREVIATION = re.compile(r"(?:^|\W)(?:dr|mr|mrs|ms|prof|st|jr|sr|apt|no|inc|vs|esq|e\.g|i\.e|[a-z])\.$")
_BREAK = re.compile(r"(?<=[.!?])[\"'\u2019\u201d)\]]?\s+|[\r\n]\s*")
_SUFFIX = re.compile(r"(?:ations?|at(?:es?|ed|ing)|ions?|ments?|ings?|ed|ly|ers?|al)$")
_ASIDE = re.compile(r"\([^()]*\)|^(?:yes|no),? ")


# Said for one another in nearly every message.
_KIN = {"husband": "spouse", "wife": "spouse", "kid": "child"}
_Weights = Callable[[frozenset[str]], dict[str, float]]


@lru_cache(maxsize=32_768)
def stem_of(token: str) -> str:
    """Return what the forms of a word share: 'certified' and 'certification' give 'certif'. At most six letters."""
    word = word_of(token)[0]
    word = _KIN.get(word, word)
    root = _SUFFIX.sub("", _SUFFIX.sub("", word))
    if len(root) < 4:
        root = word[:5]
    root = root.rstrip("e")
    # 'planning' gives 'plann', and 'process' keeps both.
    return (root[:-1] if len(root) > 4 and root[-1] == root[-2] and root[-1] not in "sl" else root)[:_STEM]


def stems(text: str) -> frozenset[str]:
    """Return the stems of the words of a folded text, without stop words, negations and numbers."""
    tokens = TOKEN.findall(text)
    return frozenset(
        stem_of(token)
        for token in tokens
        if (word := word_of(token))[0] not in STOP and not word[1] and not token.isdecimal()
    )


_COMMON_STEMS = frozenset(map(stem_of, COMMON))


_Forms = tuple[Token, ...]  # of a number, date or time that has to be stated in any of them
_Found = tuple[Strength, int, int, frozenset[int]]  # how far a value is stated, its span, and the places of a claim


@dataclass(frozen=True)
class _Value:
    """The pattern to find of a value, or of one item of a list.

    phrase: its text; standalone: it identifies the attribute without another word of it. numbers: those in it, with
    dates and times. stems: its other words with their weights.
    """

    phrase: str = ""
    standalone: bool = False
    pattern: re.Pattern[str] | None = None
    numbers: tuple[_Forms, ...] = ()
    stems: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class _Plan:
    """The patterns to look for, for one attribute. topic, key: the words of statement and key that are none of the
    value's, with their weights; statement, statement_numbers: the words and numbers of the whole statement."""

    statements: tuple[str, ...]
    values: tuple[_Value, ...]
    topic: Mapping[str, float]
    key: Mapping[str, float]
    statement: Mapping[str, float]
    statement_numbers: tuple[_Forms, ...]
    negated: bool


@dataclass(frozen=True)
class _Claim:
    """An attribute found in a sentence. coverage: the share of its statement that the sentence holds; places: where its
    numbers and phrases begin, which a better told attribute takes from it."""

    attribute: int
    coverage: float
    strength: Strength
    start: int
    end: int
    places: frozenset[int] = frozenset()


class _Sentence:
    """The words and numbers of a sentence, with their places."""

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end
        self.stems: dict[str, tuple[int, int]] = {}  # where the first such word stands
        self.mentions: dict[Token, Mention] = {}
        self.negations: list[int] = []

    def share(self, weights: Mapping[str, float]) -> float:
        """Return the weight of those of the words that stand in the sentence, over that of all; 0 for none."""
        total = sum(weights.values())
        return sum(w for stem, w in weights.items() if stem in self.stems) / total if total else 0.0

    def telling(self, weights: Mapping[str, float]) -> bool:
        """Return whether one of the words that few attributes share stands in the sentence."""
        return any(w == 1 and stem in self.stems for stem, w in weights.items())

    def negates(self, start: int, end: int) -> bool:
        """Return whether a negation stands in this part of the sentence or right before it."""
        return any(start - _NEAR <= negation < end for negation in self.negations)

    def span(self, stems: Iterable[str]) -> tuple[int, int]:
        """Return the part of the sentence from the first to the last of these words, all of which stand in it."""
        places = [self.stems[stem] for stem in stems]
        return min(start for start, _ in places), max(end for _, end in places)

    def beside(self, place: Mention, weights: Mapping[str, float]) -> bool:
        """Return whether one of the words stands right before or after the mention, but for a short word between."""
        near = (self.stems[stem] for stem in weights if stem in self.stems)
        return any(0 <= place.start - end <= _BESIDE or 0 <= start - place.end <= _BESIDE for start, end in near)

    def mention(self, forms: _Forms) -> Mention | None:
        return next((self.mentions[form] for form in forms if form in self.mentions), None)


class _Message:
    """A message made ready once for all attributes: folded, cut into sentences, its words and numbers indexed."""

    def __init__(self, message: str) -> None:
        self.folded = fold(message)
        self.text = _plain(self.folded.text)
        self.starts = self._sentences(message)
        ends = [*self.starts[1:], len(self.text)]
        self.sentences = [
            _Sentence(start, start + len(self.text[start:end].rstrip()))
            for start, end in zip(self.starts, ends, strict=True)
        ]
        for token in TOKEN.finditer(self.text):
            sentence = self.sentence_at(token.start())
            word, negation = word_of(token[0])
            if negation:
                sentence.negations.append(token.start())
            elif word not in STOP:
                sentence.stems.setdefault(stem_of(token[0]), token.span())
        for mention in mentions(self.text):
            self.sentence_at(mention.start).mentions.setdefault(mention.token, mention)
        # By word and number, the sentences that hold it: an attribute is looked for in few of them.
        self.holding: dict[str | Token, list[int]] = defaultdict(list)
        for number, sentence in enumerate(self.sentences):
            for held in (*sentence.stems, *sentence.mentions):
                self.holding[held].append(number)

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

    def sentence_at(self, position: int) -> _Sentence:
        return self.sentences[bisect_right(self.starts, position) - 1]

    def sentences_with(self, weights: Mapping[str, float], least: float) -> set[int]:
        """Return the sentences that hold at least this share of the words, by weight."""
        held: dict[int, float] = defaultdict(float)
        for stem, weight in weights.items():
            for number in self.holding.get(stem, ()):
                held[number] += weight
        least *= sum(weights.values())
        return {number for number, weight in held.items() if weight >= least - 1e-9}

    def places(self, phrase: str, first: int = 0, last: int | None = None) -> Iterator[tuple[int, int]]:
        """Yield where the phrase stands as whole words and numbers, beginning from first to before last: '500 shares'
        does not stand in '2,500 shares'."""
        stop = len(self.text) if last is None else last + len(phrase) - 1
        start = self.text.find(phrase, first, stop)
        while start >= 0:
            end = start + len(phrase)
            if _bounded(self.text, start, end):
                yield start, end
            # One further, not behind the phrase: places may overlap, and only one of them stand alone.
            start = self.text.find(phrase, start + 1, stop)


def match(attributes: Sequence[Attribute], message: str) -> list[Reveal]:
    """Return the attributes that the message states, each once, in the order of the list, with the exact span. Strength
    full, or partial for a bare value. The same input gives the same output; nothing is raised."""
    if not message.strip() or not attributes:
        return []
    prepared = _Message(message)
    plans = _plans(*attributes)
    claims = [claim for number, plan in enumerate(plans) for claim in _claims(number, plan, prepared)]
    at: dict[int, list[_Claim]] = defaultdict(list)
    for claim in claims:
        for place in claim.places:
            at[place].append(claim)
    best: dict[int, _Claim] = {}
    for claim in claims:
        if any(_takes(rival, claim, plans) for place in claim.places for rival in at[place]):
            continue
        # Of an attribute the first claim, but one in full goes before a partial one.
        first = best.setdefault(claim.attribute, claim)
        if first.strength == Strength.PARTIAL and claim.strength == Strength.FULL:
            best[claim.attribute] = claim
    reveals = []
    for claim in best.values():
        span: Span = prepared.folded.span(claim.start, claim.end)
        reveals.append(Reveal(claim.attribute, message[span.start : span.end], span, claim.strength))
    return reveals


def _takes(rival: _Claim, claim: _Claim, plans: Sequence[_Plan]) -> bool:
    """Return whether the rival, which is told clearly better, takes a place of the claim. Equal texts take nothing from
    each other."""
    if rival.attribute == claim.attribute or rival.coverage < claim.coverage + _RIVAL:
        return False
    texts = [tuple(value.phrase for value in plans[item.attribute].values) for item in (rival, claim)]
    return texts[0] != texts[1] or not any(texts[0])


def _claims(number: int, plan: _Plan, message: _Message) -> Iterator[_Claim]:
    for statement in plan.statements:
        for start, end in message.places(statement):
            yield _Claim(number, 1.0, Strength.FULL, start, end)
    if len(plan.values) > 1:
        # The first item's place stands for the list; items may stand in different sentences.
        items = [_item_place(value, plan, message) for value in plan.values]
        if all(items) and items[0] is not None:
            yield _Claim(number, 1.0, Strength.FULL, *items[0])
    numbers = message.sentences_with(plan.statement, _STATEMENT_SHARE)
    if len(plan.values) == 1:
        numbers |= _sentences_of(plan.values[0], message)
    for place in sorted(numbers):
        if (claim := _claim(number, plan, message.sentences[place], message)) is not None:
            yield claim


def _sentences_of(value: _Value, message: _Message) -> set[int]:
    """Return the sentences in which a value may stand."""
    if value.numbers:
        # All of its numbers have to be there; a phrase or pattern holds them too, if in another reading.
        numbers = {place for form in value.numbers[0] for place in message.holding.get(form, ())}
    else:
        numbers = message.sentences_with(value.stems, _LOOSE_VALUE_SHARE) if value.stems else set()
    if value.phrase:
        numbers |= {bisect_right(message.starts, start) - 1 for start, _ in message.places(value.phrase)}
    if value.pattern:
        numbers |= {bisect_right(message.starts, hit.start()) - 1 for hit in value.pattern.finditer(message.text)}
    return numbers


def _claim(number: int, plan: _Plan, sentence: _Sentence, message: _Message) -> _Claim | None:
    told = sentence.share(plan.statement)
    found = _value_in(plan.values[0], plan, sentence, message) if len(plan.values) == 1 else None
    if found is not None and found[0] == Strength.FULL:
        return _Claim(number, told, *found)
    stated = [sentence.mention(item) for item in plan.statement_numbers]
    words = [stem for stem in plan.statement if stem in sentence.stems]
    # Of a short statement one other word makes another statement.
    least = _STATEMENT_SHARE if len(plan.statement) + len(stated) >= _LONG else _SHORT_SHARE
    enough = len(words) >= _WORD_SHARE * len(plan.statement) and len(words) + len(stated) >= _MIN_WORDS
    if enough and told >= least and all(stated) and sentence.negates(*sentence.span(words)) == plan.negated:
        places = frozenset(mention.start for mention in stated if mention)
        return _Claim(number, told, Strength.FULL, sentence.start, sentence.end, places)
    return _Claim(number, told, *found) if found else None


def _value_in(value: _Value, plan: _Plan, sentence: _Sentence, message: _Message) -> _Found | None:
    """Return where and how far a sentence states a value, or None if it does not."""
    topic = max(sentence.share(plan.topic), sentence.share(plan.key))
    telling = sentence.telling(plan.topic) or sentence.telling(plan.key)
    phrase = value.phrase if value.standalone or telling else ""
    if phrase and (place := next(message.places(phrase, sentence.start, sentence.end), None)):
        return Strength.FULL, *place, frozenset({place[0]})
    # A value of several lines begins in a sentence and may end in a later one.
    if value.pattern and (hit := value.pattern.search(message.text, sentence.start, sentence.end + _LONGEST_LINES)):
        return Strength.FULL, hit.start(), hit.end(), frozenset()
    stated = [mention for item in value.numbers if (mention := sentence.mention(item))]
    if len(stated) < len(value.numbers) or not (stated or value.stems):
        return None
    share, words = sentence.share(value.stems), [stem for stem in value.stems if stem in sentence.stems]
    if not stated and not words:
        return None
    places = frozenset(mention.start for mention in stated)
    span = (stated[0].start, stated[0].end) if stated else sentence.span(words)
    full = Strength.FULL, *span, places
    if any(w == 1 for w in value.stems.values()):
        told = sum(value.stems[stem] == 1 for stem in words)
        enough = share >= (_LOOSE_VALUE_SHARE if stated or topic >= 0.5 else _VALUE_SHARE)
        known = told > 1 or (told and (stated or telling))
        if known and enough and sentence.negates(*sentence.span(words)) == plan.negated:
            return full
        return full if len(stated) > 1 and telling else None
    if not stated:
        return None
    if share == 1 and len(words) >= _MIN_WORDS:
        return full
    vague = all(mention.vague for mention in stated)
    if vague and value.stems and share < 0.5 and topic < 0.5:
        return None
    telling = telling or any(sentence.beside(mention, plan.topic) for mention in stated)
    if telling and topic >= (_SMALL_TOPIC_SHARE if vague else _TOPIC_SHARE):
        return full
    return None if vague else (Strength.PARTIAL, *span, places)


def _item_place(value: _Value, plan: _Plan, message: _Message) -> tuple[int, int] | None:
    """Find one item of a list anywhere in the message. A bare value will do: the other items tell what it is about."""
    for place in sorted(_sentences_of(value, message)):
        if (found := _value_in(value, plan, message.sentences[place], message)) is not None:
            return found[1], found[2]
    return None


def _names(attributes: Sequence[Attribute]) -> tuple[str, ...]:
    """Return the user's name as the bio attributes give it, whole and by its first word, the longer one first."""
    for attribute in attributes:
        if isinstance(attribute.value, str) and "name" in attribute.key and is_bio(attribute.key, attribute.domain):
            name = fold(attribute.value).text.strip()
            return tuple(dict.fromkeys((name, name.partition(" ")[0]))) if name else ()
    return ()


def _plain(folded: str) -> str:
    """Return folded text of the same length without underscores, which join words in values and set them off in
    Markdown."""
    return folded.replace("_", " ")


@cached_by_identity
def _plans(*attributes: Attribute) -> tuple[_Plan, ...]:
    """Return the plans of the attributes of one memory."""
    names = _names(attributes)
    texts = [(_key_text(a.key), _plain(fold(a.statement).text).strip().rstrip(". ")) for a in attributes]
    number_of = Counter(stem for key, statement in texts for stem in stems(key) | stems(statement))
    many = max(_SHARED_BY, len(attributes) // 20)
    shared = _COMMON_STEMS | {stem for stem, number in number_of.items() if number > many}
    names_stems = frozenset(stem_of(word) for name in names for word in TOKEN.findall(name))
    plans = []
    for attribute, (key, statement) in zip(attributes, texts, strict=True):
        # The words of event and domain stand with many attributes, and tell none of them.
        dull = shared | stems(_key_text(attribute.event)) | stems(_key_text(attribute.domain))

        def weights(words: frozenset[str], dull: frozenset[str] = dull) -> dict[str, float]:
            return {stem: _DULL if stem in dull else 1.0 for stem in sorted(words - names_stems)}

        plans.append(_plan(attribute.value, key, statement, names, weights))
    return tuple(plans)


def _key_text(key: str) -> str:
    return fold(key.replace("_", " ")).text


def _plan(value: Value, key: str, statement: str, names: tuple[str, ...], weights: _Weights) -> _Plan:
    items = value if isinstance(value, list) else [value]
    # Of a list each item has to be found, and of an object among them each field.
    scalars = [inner for item in items for inner in (item.values() if isinstance(item, dict) else (item,))]
    values = tuple(_value(item, f"{key} {statement}", weights, listed=isinstance(value, list)) for item in scalars)
    # One item that cannot be looked for leaves the whole list open: half of a list is no reveal in full.
    values = values if all(item.phrase or item.pattern or item.numbers for item in values) else ()
    own = frozenset(stem for item in values for stem in item.stems)
    in_statement = _numbers_in(statement)
    whole = weights(stems(_without(statement, in_statement)))
    return _Plan(
        statements=voices(statement, names) if " " in statement else (),
        values=values,
        topic={stem: w for stem, w in whole.items() if stem not in own} or weights(stems(key) - own),
        key={stem: w for stem, w in weights(stems(key)).items() if stem not in own},
        statement=whole,
        statement_numbers=tuple(_forms(mention.token, statement) for mention in in_statement),
        negated=any(word_of(token)[1] for token in TOKEN.findall(statement)),
    )


def _value(value: Scalar, statement: str, weights: _Weights, *, listed: bool) -> _Value:
    token = token_of(value)
    if token is not None:
        return _Value(numbers=(_forms(token, statement),))
    if not isinstance(value, str):
        return _Value()
    phrase = _ASIDE.sub("", _plain(fold(value).text).strip()).strip(" '\".;,")
    numbers = _numbers_in(phrase)
    words_of_it = {word_of(token)[0] for token in TOKEN.findall(phrase)} - STOP - NEGATIONS - COMMON
    letters = sum(character.isalpha() for character in phrase)
    digits = any(character.isdigit() for character in phrase)
    # Codes such as CR-2024-0189 need no company: hardly another text looks like them.
    code = digits and letters > 0 and len(phrase) >= _MIN_CODE
    least = _MIN_ITEM_LETTERS if listed else _MIN_LETTERS
    lettered = any(character.isalpha() for word in words_of_it for character in word)
    standalone = lettered and (" " in phrase or letters >= least or code)
    return _Value(
        phrase=phrase if standalone or (digits and len(phrase) > 2) else "",
        standalone=standalone,
        pattern=_lines(value) if standalone else None,
        numbers=tuple(_forms(mention.token, statement) for mention in numbers),
        stems=weights(stems(_without(phrase, numbers))),
    )


def _numbers_in(text: str) -> list[Mention]:
    """Return what a folded text states in numbers; of '8 out of 10' the ratio alone."""
    stated = mentions(text)
    ratios = [mention for mention in stated if mention.token[0] == "ratio"]
    return ratios + [
        mention
        for mention in stated
        if mention.token[0] != "ratio" and not any(r.start <= mention.start < r.end for r in ratios)
    ]


def _without(text: str, numbers: Sequence[Mention]) -> str:
    """Return the text with blanks in place of its numbers."""
    for mention in numbers:
        text = text[: mention.start] + " " * (mention.end - mention.start) + text[mention.end :]
    return text


def _forms(token: Token, text: str) -> _Forms:
    """Return the token and what else states it. text: key and statement, folded. A date may stand without its year, a
    number as a percentage or a sum if the text is of one, a sum without its sign."""
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
    """Return whether text[start:end] is no part of a longer word or number."""
    first, last = text[start], text[end - 1]
    before, after = text[max(0, start - 2) : start], text[end : end + 2]
    if (first.isalnum() and before[-1:].isalnum()) or (last.isalnum() and after[:1].isalnum()):
        return False
    # '500' is not in '2,500' or '1/500', and '5' not in '5%' or '5.2'.
    if first.isdigit() and len(before) == 2 and before[1] in ".,/" and before[0].isdigit():
        return False
    return not (last.isdigit() and len(after) >= 1 and (after[0] == "%" or (after[0] in ".,/" and after[1:].isdigit())))
