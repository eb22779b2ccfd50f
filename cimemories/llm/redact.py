"""Keys taken out of whatever is written down or said: errors, logs, and the text of servers that echo what they got.

A key that a text cuts through is found by its parts: every stretch of `least` characters of it that stands in the text
goes. So is one that was escaped on its way, as JSON, as an address or as Python's bytes do it.
"""

from __future__ import annotations

import json
import logging
import re
from urllib.parse import quote

PLACEHOLDER = "[key]"
IN_ERRORS = 6
IN_ANSWERS = 12  # a model's own words stay what they are: only what no text shares with a key by chance is taken out
LOGGERS = (
    "openai",
    "openai._base_client",
    "openai._response",
    "openai._legacy_response",
    "httpx2",
    "httpcore2",
    "httpcore2.connection",
    "httpcore2.http11",
    "httpcore2.http2",
    "httpcore2.proxy",
    "httpcore2.socks",
)


class Redactor:
    """Takes one key out of texts; does nothing where there is none."""

    def __init__(self, key: str | None) -> None:
        spellings = {key, json.dumps(key)[1:-1], quote(key, safe=""), repr(key)[1:-1]} if key else set()
        self._spellings = sorted(spellings, key=lambda text: (-len(text), text))

    def error(self, text: str) -> str:
        """A text about something that went wrong. A short key goes where it stands as a whole."""
        return self._without(text, IN_ERRORS)

    def answer(self, text: str) -> str:
        """A text that a model is said to have written. A key that is too short to tell from a word stays."""
        return self._without(text, IN_ANSWERS, whole=False)

    def _without(self, text: str, least: int, *, whole: bool = True) -> str:
        for spelling in self._spellings:
            if whole:
                text = text.replace(spelling, PLACEHOLDER)
            for start in range(len(spelling) - least + 1):
                part = spelling[start : start + least]
                if part in text and part not in PLACEHOLDER:
                    text = _without_stretches(text, spelling, least)
                    break
        return text


def _without_stretches(text: str, key: str, least: int) -> str:
    """Text without every stretch of at least so many characters that it shares with the key."""
    parts = {key[start : start + least] for start in range(len(key) - least + 1)}
    found = re.compile("|".join(f"(?=({re.escape(part)}))" for part in sorted(parts)))
    kept: list[str] = []
    end = 0
    for hit in found.finditer(text):
        if hit.start() > end or not kept:
            kept += [text[end : hit.start()], PLACEHOLDER]
        end = max(end, hit.start() + least)
    return "".join([*kept, text[end:]])


class _LogFilter(logging.Filter):
    """Takes all keys that this process uses out of what the libraries below log, where somebody lets them."""

    def __init__(self) -> None:
        super().__init__()
        self.redactors: dict[str, Redactor] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        for redactor in self.redactors.values():
            text = redactor.error(text)
        record.msg, record.args = text, ()
        return True


_filter = _LogFilter()


def guard_logs(key: str) -> None:
    """From now on nothing that the HTTP libraries log holds this key, at whatever level."""
    _filter.redactors.setdefault(key, Redactor(key))
    for name in LOGGERS:
        logging.getLogger(name).addFilter(_filter)
