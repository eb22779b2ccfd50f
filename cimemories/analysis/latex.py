"""Text as LaTeX that reads the same and compiles in any engine: what comes out is printable ASCII.

Characters that LaTeX gives a meaning become commands, letters with an accent the accent's command, common signs their
own commands. Anything else (Greek, Chinese, emoji) becomes \\ciother{1F600}: its definition, which stands before an
exported table, prints the character where the engine knows Unicode, and [U+1F600] where it does not.
"""

from __future__ import annotations

import re
import string
import unicodedata

# Stands once before a text that has been escaped.
OTHER = (
    r"\providecommand{\ciother}[1]{\ifdefined\XeTeXrevision\symbol{\"#1}\else"
    r"\ifdefined\directlua\symbol{\"#1}\else[U+#1]\fi\fi}"
).replace(r"\"", '"')
_COMMANDS = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\char34{}",  # its own command is not there in every font encoding
    "`": r"\textasciigrave{}",
    "[": "{[}",  # at the start of a row or argument these would be an option
    "]": "{]}",
    "*": "{*}",
    "\N{NO-BREAK SPACE}": "~",
    "\N{LEFT SINGLE QUOTATION MARK}": r"\textquoteleft{}",
    "\N{RIGHT SINGLE QUOTATION MARK}": r"\textquoteright{}",
    "\N{LEFT DOUBLE QUOTATION MARK}": r"\textquotedblleft{}",
    "\N{RIGHT DOUBLE QUOTATION MARK}": r"\textquotedblright{}",
    "\N{HYPHEN}": "-",
    "\N{NON-BREAKING HYPHEN}": r"\mbox{-}",
    "\N{EN DASH}": r"\textendash{}",
    "\N{EM DASH}": r"\textemdash{}",
    "\N{HORIZONTAL ELLIPSIS}": r"\ldots{}",
    "\N{BULLET}": r"\textbullet{}",
    "\N{DEGREE SIGN}": r"\textdegree{}",
    "\N{POUND SIGN}": r"\pounds{}",
    "\N{EURO SIGN}": r"\texteuro{}",
    "\N{SECTION SIGN}": r"\S{}",
    "\N{COPYRIGHT SIGN}": r"\copyright{}",
    "\N{LATIN SMALL LETTER SHARP S}": r"\ss{}",
    "\N{LATIN SMALL LETTER AE}": r"\ae{}",
    "\N{LATIN CAPITAL LETTER AE}": r"\AE{}",
    "\N{LATIN SMALL LETTER O WITH STROKE}": r"\o{}",
    "\N{LATIN CAPITAL LETTER O WITH STROKE}": r"\O{}",
    "\N{LATIN SMALL LETTER L WITH STROKE}": r"\l{}",
    "\N{LATIN CAPITAL LETTER L WITH STROKE}": r"\L{}",
}
_ACCENTS = {
    "\N{COMBINING GRAVE ACCENT}": "`",
    "\N{COMBINING ACUTE ACCENT}": "'",
    "\N{COMBINING CIRCUMFLEX ACCENT}": "^",
    "\N{COMBINING TILDE}": "~",
    "\N{COMBINING DIAERESIS}": '"',
    "\N{COMBINING MACRON}": "=",
    "\N{COMBINING DOT ABOVE}": ".",
    "\N{COMBINING CARON}": "v",
    "\N{COMBINING DOUBLE ACUTE ACCENT}": "H",
    "\N{COMBINING BREVE}": "u",
    "\N{COMBINING RING ABOVE}": "r",
    "\N{COMBINING CEDILLA}": "c",
}
_PLAIN = frozenset(string.ascii_letters + string.digits + " .,:;!?()/+=@-'")
_JOINED = re.compile(r"([-,'])(?=\1)")  # two in a row become one sign: a dash, a quotation mark


def escaped(text: object) -> str:
    """A text for the inside of a paragraph or table cell: one line, white space and what cannot be seen as one space.
    OTHER has to stand before it; LaTeX of before 2020 also needs the package textcomp."""
    # A line break of any kind would end a paragraph, a control character the compilation.
    line = re.sub(r"[\s\x00-\x1f\x7f-\x9f\ud800-\udfff]+", _space, unicodedata.normalize("NFC", str(text))).strip(" ")
    return "".join(_escaped(character) for character in _JOINED.sub("\\1\0", line)).replace("\0", "{}")


def _space(found: re.Match[str]) -> str:
    return "\N{NO-BREAK SPACE}" if set(found[0]) == {"\N{NO-BREAK SPACE}"} else " "


def _escaped(character: str) -> str:
    if character in _PLAIN or character == "\0":
        return character
    if character in _COMMANDS:
        return _COMMANDS[character]
    base, *accents = list(unicodedata.normalize("NFD", character))
    if len(accents) == 1 and accents[0] in _ACCENTS and base in string.ascii_letters:
        letter = {"i": r"\i", "j": r"\j"}.get(base, base)
        return rf"\{_ACCENTS[accents[0]]}{{{letter}}}"
    return rf"\ciother{{{ord(character):04X}}}"
