"""The judge that needs no model: which attributes a message states in full, by rules on the text alone.

    match([Attribute(key="rent", value=1450, ...)], "We pay $1,450 in rent.")
    ->  [Reveal(attribute=0, quote="$1,450", span=Span(7, 13), strength="full")]

An attribute is revealed when the first of these holds. All compare folded text (grounding.fold), at word boundaries.
(a) The whole memory statement stands in the message, as written or with the person changed ('Her rent is' for 'My rent
    is', 'I have' for 'She has'; the user's name is taken from the name attributes in the list).
(b) A text value stands in it, if distinctive: a word of at least 6 letters, a code of letters and digits, or two words
    and more of which one is no common word. Commas and line breaks of a multi-line value are interchangeable.
(c) A number or percentage stands in it, in any of its spellings (spellings.py). Numbers under 1000, percentages, bare
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
from functools import lru_cache

from cimemories.evaluation.grounding import fold
from cimemories.evaluation.spellings import SMALL, Mention, Token, mentions, token_of
from cimemories.evaluation.wording import COMMON, NEGATIONS, STOP, TOKEN, voices, word_of, words
from cimemories.model import Attribute, Reveal, Scalar, Span, Value, is_bio

_SHARE = 0.9
_MIN_WORDS = 3
_MIN_LETTERS = 6
_MIN_ITEM_LETTERS = 3
_MIN_CODE = 5


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
            self.mentions[mention.token].setdefault(self.sentence_at(mention.start), mention)

    def _sentences(self, message: str) -> list[int]:
        starts, last = [0], 0
        for found in _BREAK.finditer(message):
            before = message[max(last, found.start() - 6) : found.start()].casefold()
            if found.end() < len(message) and ("\n" in found[0] or not _ABBREVIATION.search(before)):
                last = found.end()
                starts.append(bisect_right(self.folded.starts, last - 1))
        return starts

    def sentence_at(self, position: int) -> int:
        return bisect_right(self.sentence_starts, position) - 1

    def holds_clue(self, sentence: int, clues: frozenset[str]) -> bool:
        return any(sentence in self.sentences_of[clue] for clue in clues if clue in self.sentences_of)

    def places(self, phrase: str) -> Iterator[tuple[int, int]]:
        """Where the phrase stands as whole words and numbers: '500 shares' does not stand in '2,500 shares'."""
        start = self.text.find(phrase)
        while start >= 0:
            end = start + len(phrase)
            if _bounded(self.text, start, end):
                yield start, end
            start = self.text.find(phrase, start + 1)

    def sentence_span(self, sentence: int) -> tuple[int, int]:
        start = self.sentence_starts[sentence]
        following = self.sentence_starts[sentence + 1 : sentence + 2]
        end = following[0] if following else len(self.text)
        return start, start + len(self.text[start:end].rstrip())


def match(attributes: Sequence[Attribute], message: str) -> list[Reveal]:
    """The attributes that the message states in full, each once, in the order of the list, with the exact span.

    An empty message or list gives an empty list. The same input gives the same output; nothing is raised.
    """
    if not message.strip():
        return []
    prepared = _Message(message)
    names = _names(attributes)
    reveals = []
    for index, attribute in enumerate(attributes):
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
        found = _item_place(item, plan, message)
        if found is None:
            break
        first = first or found
    else:
        if first is not None:
            return first
    return _restated(plan, message) if plan.needed else None


def _item_place(item: _Item, plan: _Plan, message: _Message) -> tuple[int, int] | None:
    for phrase in item.phrases:
        for start, end in message.places(phrase):
            if not item.needs_clue or message.holds_clue(message.sentence_at(start), plan.clues):
                return start, end
    if item.pattern is not None and (found := item.pattern.search(message.text)):
        return found.start(), found.end()
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
    dull = STOP | NEGATIONS | COMMON | known | words(event) | words(domain)
    key_clues = _lettered(words(key) - dull)
    clues = key_clues | _lettered(words(folded) - dull)
    values = _scalars(value)
    items = tuple(_item(item, f"{key.casefold()} {folded}", isinstance(value, list)) for item in values)
    findable = bool(items) and all(item.phrases or item.pattern or item.tokens for item in items)
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


def _item(value: Scalar, told: str, listed: bool) -> _Item:
    token = token_of(value)
    if token is not None:
        return _Item(tokens=_forms(token, told))
    if not isinstance(value, str):
        return _Item()
    phrase = _plain(fold(value).text).strip().rstrip(". ")
    telling = [word for word in words(phrase) if word not in STOP | NEGATIONS | COMMON]
    digits = any(character.isdigit() for character in phrase)
    letters = sum(character.isalpha() for character in phrase)
    lettered = [word for word in telling if any(character.isalpha() for character in word)]
    code = digits and letters > 0 and len(phrase) >= _MIN_CODE
    least = _MIN_ITEM_LETTERS if listed else _MIN_LETTERS
    if lettered and (" " in phrase or letters >= least or code):
        return _Item(phrases=(phrase,), pattern=_lines(value))
    return _Item(phrases=(phrase,), needs_clue=True) if digits and len(phrase) > 2 else _Item()


def _forms(token: Token, told: str) -> tuple[Token, ...]:
    """The token and what else states it, by what is told of it (key and statement, folded).

    A date may stand without its year; a number as a percentage where it is one; a sum with or without its sign, but a
    small number with a currency sign only where it is a sum.
    """
    if len(token) == 4:
        return token, ("day", token[2], token[3])
    kind, size = token[0], token[1]
    if kind == "money":
        return token, ("number", size)
    forms: list[Token] = [token]
    if kind == "number" and (not -SMALL < size < SMALL or re.search("[$\u20ac\u00a3]", told)):
        forms.append(("money", size))
    if kind == "number" and ("%" in told or "percent" in told):
        forms.append(("percent", size))
    return tuple(forms)


def _lines(value: str) -> re.Pattern[str] | None:
    parts = [re.escape(fold(part).text.strip()) for part in re.split(r"[\n,]", value) if part.strip()]
    if "\n" not in value.strip() or len(parts) < 2:
        return None
    return re.compile(r"(?<!\w)(?<!\d[.,])" + "(?: ?, ?| )".join(parts) + r"(?!\w|[.,]\d)")


def _bounded(text: str, start: int, end: int) -> bool:
    """Whether text[start:end] is no part of a longer word or number."""
    first, last = text[start], text[end - 1]
    before, after = text[max(0, start - 2) : start], text[end : end + 2]
    if (first.isalnum() and before[-1:].isalnum()) or (last.isalnum() and after[:1].isalnum()):
        return False
    if first.isdigit() and len(before) == 2 and before[1] in ".,/" and before[0].isdigit():
        return False
    return not (last.isdigit() and len(after) >= 1 and (after[0] == "%" or (after[0] in ".,/" and after[1:].isdigit())))
