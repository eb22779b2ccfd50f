"""Names and times that the record gives out."""

from __future__ import annotations

import hashlib
import json
import secrets
from datetime import UTC, datetime


def new_id(kind: str) -> str:
    """A short id that no other workspace has given out either, e.g. 'run-3f9a1c2e'."""
    return f"{kind}-{secrets.token_hex(4)}"


def now() -> str:
    """The time in UTC as ISO 8601 text, to the millisecond; sorts as text."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def canonical_json(value: object) -> str:
    """One text for one value: keys sorted, no spaces, characters as they are."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def content_hash(value: object) -> str:
    """SHA-256 (first 32 hex digits, 128 bits) of a value's canonical JSON."""
    return text_hash(canonical_json(value))


def text_hash(text: str) -> str:
    """The same of a text that is canonical JSON already."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
