"""Runs in which every text that a person or a model could have written is hostile, and the tags of a report."""

from __future__ import annotations

from dataclasses import replace

import sqlalchemy as sa
from worlds import add_labels, add_profiles, add_run, make_profile

from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.model import Context
from cimemories.store import work
from cimemories.store.engine import Store
from cimemories.store.tables import dataset, judge, reveal, run

X, N, A = INAPPROPRIATE, NECESSARY, AMBIGUOUS
LABELS = [[[X, X, N], [X, X, X], [N, N, A]]]
LEAKY = [[[1, 0, 4], [0, 2, 5], [5, 3, 0]]]
AT = "http://evil.example/"
BAD = (
    f"</style></title></svg><script src={AT}s.js></script><img src={AT}i.png onerror=alert(1)> ![x]({AT}m.png) "
    f"[link]({AT}) <a href='javascript:alert(1)'>a</a> {{{{ 7*7 }}}} {{% raw %}} | ``` ]]> & \x07 "
    f"{AT}bare www.evil.example <{AT}auto>\n# heading\n\n<details open ontoggle=alert(1)>"
)
# What a report consists of: a text that adds a tag adds one of another name, or one of these with an address.
_TAGS = (
    "html head meta title style body div b bdi header h1 h2 h3 p nav ol ul li a section main table caption thead tbody "
    "tr th td span figure figcaption svg desc rect line circle polygon polyline text dl dt dd details summary pre code "
    "blockquote mark footer strong em"
)
TAGS = set(_TAGS.split())


def build(store: Store) -> list[str]:
    """Add two runs in which every text that could have been written is hostile, and return their ids."""
    base = make_profile(0, 3, 3)
    attributes = tuple(
        replace(item, key=f"{BAD}{i}", statement=BAD, value=BAD, event=BAD) for i, item in enumerate(base.attributes)
    )
    contexts = tuple(Context(f"{i} {BAD}", f"{i} {BAD}", BAD) for i in range(3))
    person = replace(base, name=BAD, attributes=attributes, contexts=contexts)
    data = add_profiles(store, [person], "data")
    add_labels(store, data.id, LABELS)
    ids = [add_run(store, data.id, 5, LEAKY, judge="judge") for _ in range(2)]
    with store.write() as connection:
        # Names like these are refused today; a record of before may hold them.
        connection.execute(sa.update(dataset).values(name=BAD))
        connection.execute(sa.update(judge).values(model=BAD))
        connection.execute(sa.update(run).values(model=BAD, name=BAD, endpoint=BAD))
        connection.execute(sa.update(reveal).values(quote=BAD, start=None, end=None, grounded=False))
        for run_id in ids:
            work.bump(connection, run_id)
    return ids
