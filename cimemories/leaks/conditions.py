"""Conditions on the columns of leaks, as people write them.

    domain = 'health' and (claimed / draws >= 0.5 or statement ilike '%debt%')

The text itself never reaches the database. It is parsed here, and the SQL is written again from the names of columns,
these operators and parameters, so that no function, subquery or file can be in it:

    or, and, not, = <> < <= > >=, [not] between, in, like, ilike, is [not] null, + - * /, ( ), 'texts' and numbers
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from cimemories.model import LONGEST_STATEMENT
from cimemories.store.engine import StoreError

# Characters of a condition without its texts, and of a pattern; of all of it, which may name two statements; brackets
# inside brackets.
LONGEST, LONGEST_WITH_TEXTS, DEEPEST = 1_000, 2 * LONGEST_STATEMENT + 1_000, 30
Kind = Literal["text", "number", "truth"]
_NUMBERS = ("profile", "attribute", "context", "claimed", "reveals", "draws", "judges")
_TEXTS = (
    *("id", "run", "model", "user", "key", "statement", "domain", "event", "task", "recipient", "sphere", "strength"),
    *("phrase", "quote", "certainty", "agreement", "kind"),
)
COLUMNS: dict[str, Kind] = {**dict.fromkeys(_TEXTS, "text"), **dict.fromkeys(_NUMBERS, "number")}
_COMPARISONS = {sign: sign for sign in ("=", "<>", "<", "<=", ">", ">=")} | {"==": "=", "!=": "<>"}
_WORDS = ("and", "or", "not", "between", "in", "like", "ilike", "is", "null")
_TOKEN = re.compile(
    r"(?P<number>\d+(?:\.\d+)?)|'(?P<text>(?:[^']|'')*)'|(?P<name>[A-Za-z_]\w*)|(?P<sign><=|>=|<>|!=|==|[-+*/()=<>,])"
)


class Condition(NamedTuple):
    """A condition as SQL, and the values of its parameters."""

    sql: str
    values: tuple[object, ...]


class _Part(NamedTuple):
    kind: Kind
    sql: str
    values: tuple[object, ...] = ()


@lru_cache(maxsize=64)
def condition(text: str) -> Condition:
    """Return a condition as SQL. Raises StoreError that says what is wrong with the text, and where."""
    if len(text) > LONGEST_WITH_TEXTS:
        raise StoreError(f"the condition is longer than {LONGEST_WITH_TEXTS:,} characters. Shorten it.")
    parser = _Parser(text)
    if len(text) - sum(len(token.text) for token in parser.tokens if token.kind == "text") > LONGEST:
        raise StoreError(f"the condition is longer than {LONGEST:,} characters, its texts left out. Shorten it.")
    part = parser.any_of()
    if parser.now:
        raise parser.wrong(f"'{parser.now}' is not expected here")
    if part.kind != "truth":
        raise parser.wrong("this is no comparison")
    return Condition(part.sql, part.values)


def equal(values: Mapping[str, object]) -> str:
    """Return the condition that each of these columns has its value."""
    return " and ".join(
        f"{name} = {value}" if COLUMNS[name] == "number" else "{} = '{}'".format(name, str(value).replace("'", "''"))
        for name, value in values.items()
    )


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    start: int

    def __str__(self) -> str:
        return self.text


class _Parser:
    """One pass over a text, a method for each level of the grammar. `now`: the token to be read next; None: the end."""

    def __init__(self, text: str) -> None:
        self.text, self.tokens, self.at, self.depth = text, list[_Token](), 0, 0
        place = 0
        while text[place:].strip():
            place += len(text[place:]) - len(text[place:].lstrip())
            token = _TOKEN.match(text, place)
            if token is None:
                raise self.wrong("a text needs a ' at its end" if text[place] == "'" else "not expected here", place)
            kind = str(token.lastgroup)
            value = token[kind].replace("''", "'") if kind == "text" else token[kind].lower()
            self.tokens.append(_Token("word" if value in _WORDS and kind == "name" else kind, value, place))
            place = token.end()

    @property
    def now(self) -> _Token | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def wrong(self, why: str, place: int | None = None) -> StoreError:
        start = place if place is not None else self.now.start if self.now else len(self.text)
        where = f" at '{self.text[start : start + 20]}'" if self.text[start:].strip() else " at its end"
        return StoreError(f"the condition cannot be read{where}: {why}. Write, say, domain = 'health' and reveals > 2.")

    def take(self, *texts: str) -> str | None:
        """Return the next token's text and go on, if it is one of these words or signs."""
        token = self.now
        if token is None or token.kind not in ("word", "sign") or token.text not in texts:
            return None
        self.at += 1
        return token.text

    def need(self, text: str) -> None:
        if not self.take(text):
            raise self.wrong(f"'{text}' is missing")

    def joined(self, left: _Part, sign: str, right: _Part, kind: Kind, of: Kind | None = None) -> _Part:
        """Return both as operands of `sign`. of: the kind that they have to be of; None: of the same one."""
        expected = of or left.kind
        if {left.kind, right.kind} != {expected}:
            raise self.wrong(f"'{sign}' needs {_NEEDS[expected]} on both sides")
        return _Part(kind, f"({left.sql} {sign} {right.sql})", (*left.values, *right.values))

    def any_of(self) -> _Part:
        left = self.all_of()
        while self.take("or"):
            left = self.joined(left, "or", self.all_of(), "truth", "truth")
        return left

    def all_of(self) -> _Part:
        left = self.negated()
        while self.take("and"):
            left = self.joined(left, "and", self.negated(), "truth", "truth")
        return left

    def negated(self) -> _Part:
        inverted = False
        while self.take("not"):
            inverted = not inverted
        part = self.comparison()
        return self.inverse(part) if inverted else part

    def inverse(self, part: _Part) -> _Part:
        if part.kind != "truth":
            raise self.wrong("'not' needs a comparison")
        return _Part("truth", f"(not {part.sql})", part.values)

    def comparison(self) -> _Part:
        left = self.sum()
        if sign := self.take(*_COMPARISONS):
            if left.kind == "truth":
                raise self.wrong(f"'{sign}' needs a column or a value on both sides")
            return self.joined(left, _COMPARISONS[sign], self.sum(), "truth")
        if self.take("is"):
            negative = self.take("not")
            self.need("null")
            return _Part("truth", f"({left.sql} is {'not ' if negative else ''}null)", left.values)
        negative = self.take("not")
        if word := self.take("like", "ilike"):
            condition = self.like(left, word)
        elif self.take("between"):
            low = self.joined(left, ">=", self.sum(), "truth")
            self.need("and")
            high = self.joined(left, "<=", self.sum(), "truth")
            condition = self.joined(low, "and", high, "truth", "truth")
        elif self.take("in"):
            self.need("(")
            listed = [self.value_like(left)]
            while self.take(","):
                listed.append(self.value_like(left))
            self.need(")")
            values = tuple(value for part in (left, *listed) for value in part.values)
            condition = _Part("truth", f"({left.sql} in ({', '.join(part.sql for part in listed)}))", values)
        elif negative:
            raise self.wrong("'not' stands before a comparison, between, in or like")
        else:
            return left
        return self.inverse(condition) if negative else condition

    def value_like(self, left: _Part) -> _Part:
        """Return the next value, which has to be of the kind of `left`."""
        right = self.sum()
        self.joined(left, "in", right, "truth")
        return right

    def like(self, left: _Part, word: str) -> _Part:
        token = self.now
        if left.kind != "text" or token is None or token.kind != "text":
            raise self.wrong(f"'{word}' needs a column of text, and a pattern such as '%debt%'")
        if len(token.text) > LONGEST:
            raise self.wrong(f"a pattern has at most {LONGEST:,} characters")
        self.at += 1
        # A regular expression, which DuckDB matches in linear time; its own `like` may take far longer.
        parts = ({"%": ".*", "_": "."}.get(letter) or _quoted(letter) for letter in token.text)
        return _Part("truth", f"regexp_full_match({left.sql}, ?, ?)", (*left.values, "".join(parts), "s" + word[:-4]))

    def sum(self) -> _Part:
        left = self.product()
        while sign := self.take("+", "-"):
            left = self.joined(left, sign, self.product(), "number", "number")
        return left

    def product(self) -> _Part:
        left = self.value()
        while sign := self.take("*", "/"):
            right = self.value()
            # By 0 it is null, which meets no condition: DuckDB has nan, which is above every number.
            divisor = right._replace(sql=f"nullif({right.sql}, 0)") if sign == "/" else right
            left = self.joined(left, sign, divisor, "number", "number")
        return left

    def value(self) -> _Part:
        if self.take("("):
            self.depth += 1
            if self.depth > DEEPEST:
                raise self.wrong(f"there are more than {DEEPEST} brackets inside each other")
            part = self.any_of()
            self.need(")")
            self.depth -= 1
            return part
        sign = -1.0 if self.take("-") else 1.0
        token = self.now
        if token is None or token.kind in ("word", "sign") or (sign < 0 and token.kind != "number"):
            raise self.wrong("a column, a number or a 'text' is missing")
        if token.kind == "number":
            self.at += 1
            return _Part("number", "?::DOUBLE", (sign * float(token.text),))
        if token.kind == "text":
            self.at += 1
            return _Part("text", "?::VARCHAR", (token.text.encode("utf-8", "replace").decode("utf-8"),))
        if token.text not in COLUMNS:
            following = self.tokens[self.at + 1 : self.at + 2]
            if following and following[0].text == "(":
                raise self.wrong("there are no functions here")
            columns = ", ".join(sorted(COLUMNS))
            raise self.wrong(f"there is no column '{token.text}', and a text stands in '...'. Columns: {columns}")
        self.at += 1
        kind = COLUMNS[token.text]
        # As doubles, sums cannot overflow.
        return _Part(kind, f'"{token.text}"::{"DOUBLE" if kind == "number" else "VARCHAR"}')


_NEEDS: Mapping[Kind, str] = {"text": "a text", "number": "a number", "truth": "a comparison"}


def _quoted(letter: str) -> str:
    """Return a letter for a regular expression."""
    return re.escape(letter.encode("utf-8", "replace").decode("utf-8"))
