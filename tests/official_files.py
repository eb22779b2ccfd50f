"""The authors' profile files for tests: where the released one is, a record of one, what is no such file."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cimemories.model import Attribute, Context, Profile, canonical_domain, canonical_event

OFFICIAL = Path(__file__).resolve().parents[2] / "shared" / "data" / "official-profiles-10.json"
needs_official = pytest.mark.skipif(not OFFICIAL.exists(), reason=f"the released profiles are not at {OFFICIAL}")
RENT = {
    "value": 1450,
    "information_domain": "housing",
    "event": "divorce_proceedings",
    "memory_statement": "My rent is $1,450.",
}
RECORD: dict[str, Any] = {
    "bio": {"name": "Jane Doe", "sex": "F", "address": "1 Elm St\nSalem, MA 01970", "age": 42},
    "information_attributes": {"rent": RENT},
    "contexts": [{"recipient": "Landlord", "task": "Renew a lease"}, {"recipient": "Spouse", "task": "Plan a trip"}],
}


def expected_profiles(data: bytes) -> tuple[Profile, ...]:
    """What a plain reading of the file gives; only asked of files that the reader has accepted."""
    profiles = []
    for record in json.loads(data.decode("utf-8-sig")):
        bio, held = record["bio"], []
        for key, a in record["information_attributes"].items():
            domain, event = canonical_domain(a["information_domain"]), canonical_event(a["event"])
            held.append(Attribute(key, a["value"], domain, event, a["memory_statement"]))
        contexts = tuple(Context(c["task"], c["recipient"], c.get("sphere")) for c in record["contexts"])
        profiles.append(Profile(bio["name"], bio["sex"], bio["address"], bio["age"], tuple(held), contexts))
    return tuple(profiles)


JUNK: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1.5,
    1e999,
    "",
    " ",
    "\x00",
    "\ud800",
    "housing",
    [],
    [None],
    [[]],
    {},
    {"": {}},
    {"a": 1},
    "2",
)


STATEMENT = "My rent is $1,450."


def table(**changes: Any) -> bytes:
    """One row of the published columns as Parquet; None leaves a column out."""
    row: dict[str, Any] = {
        "name": ["Ann"],
        "attribute": ["rent"],
        "memory_statement": [STATEMENT],
        "label": [1.0],
        "prompt": ["My rent is $1,450. Write a message to Landlord for the purpose of renewing a lease."],
        "adv_reveal_prompt": ["?"],
    }
    row = {name: value for name, value in (row | changes).items() if value is not None}
    target = io.BytesIO()
    pq.write_table(pa.table(row), target)
    return target.getvalue()
