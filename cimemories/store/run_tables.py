"""The tables of runs beyond their responses: wording, memories, the calls behind a run, and sweeps of runs.

They hang on the same metadata as `store.tables`, which holds what they refer to.
"""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Float, ForeignKey, Index, Table, Text

from cimemories.store.tables import metadata, to, work_columns

# The wording that runs were planned with, so that resuming one never depends on a file that may have changed.
prompt = Table(
    "prompt",
    metadata,
    Column("hash", Text, primary_key=True),  # SHA-256 of the template
    Column("kind", Text, nullable=False),  # respond | judge | memory | gate | rewrite | check
    Column("level", Text, nullable=False),
    Column("template", Text, nullable=False),
    Column("answers", Text, nullable=False),  # the form of the answer: text | numbers | keys
    Column("source", Text, nullable=False),  # 'seeds', or the name of a file of prompts
    Column("created", Text, nullable=False),
)

# What an assistant holds, or was shown, in one context; a response names it by its hash.
memory = Table(
    "memory",
    metadata,
    Column("hash", Text, primary_key=True),
    to("profile"),
    Column("attributes", Text, nullable=False),  # JSON list of attribute ids, in the order of the prompt
    Index("ix_memory_profile", "profile"),
)

# Every call that a run asked or took from the record, of whatever kind: what its tokens and failures are counted from.
run_call = Table(
    "run_call",
    metadata,
    Column("run", Text, ForeignKey("run.id", ondelete="CASCADE"), primary_key=True),
    Column("call", Text, ForeignKey("call.key"), primary_key=True),
    Column("asked", Boolean),  # by this run itself, and so paid for it; false: the record had it; null: not known
    sqlite_with_rowid=False,
)

sweep = Table(
    "sweep",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    to("dataset"),
    Column("spec", Text, nullable=False),  # JSON of the file of format docs/sweeps.md
    Column("plan", Text, nullable=False),  # JSON: calls, tokens, cost and time as estimated before the start
    Column("cap", Float),  # of the cost, in the unit of the prices; null: none
    *work_columns(),
    Index("ix_sweep_dataset", "dataset"),
)

# A server that work was planned on, or that answered (store/servers.py). A call names it by its id, which is text.
server = Table(
    "server",
    metadata,
    Column("id", Text, primary_key=True),
    Column("created", Text, nullable=False),
)

# Two addresses that a person says are the same server.
same_server = Table(
    "same_server",
    metadata,
    Column("first", Text, primary_key=True),
    Column("second", Text, primary_key=True),
    Column("author", Text, nullable=False),
    Column("created", Text, nullable=False),
)
