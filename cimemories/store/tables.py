"""The tables of the record, as SQLAlchemy Core metadata. Their names are the vocabulary of the project.

Every model answer is a `call`; `ballot`, `response` and `judgement` rows are planned beforehand as `owed` or derived
from calls; human decisions are append-only. Timestamps are ISO 8601 text in UTC by the clock of the writing process;
heartbeats are seconds since 1970 by the clock of the database.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)
from sqlalchemy.schema import SchemaItem
from sqlalchemy.types import TypeEngine

from cimemories.manifest import RunManifest, read_manifest
from cimemories.model import AuditVerdict, Label, Strength, canonical_event

metadata = MetaData(
    # Names made by rule: engines would otherwise name constraints each in its own way.
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


class EventName(TypeDecorator[str]):
    """A life event: stored as its file spells it, read as its one spelling."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: object) -> str | None:
        return value

    def process_result_value(self, value: str | None, dialect: object) -> str | None:
        return None if value is None else canonical_event(value)


class Json(TypeDecorator[Any]):
    """An object or list, stored as JSON. A text is taken for JSON already."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: object) -> str | None:
        # Keys keep their order: what is edited by hand must come back as it was.
        return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    def process_result_value(self, value: str | None, dialect: object) -> Any:
        return None if value is None else json.loads(value)


class Manifest(Json):
    """The manifest of a run, read into a RunManifest, which callers share."""

    cache_ok = True

    def process_result_value(self, value: str | None, dialect: object) -> RunManifest | None:
        return None if value is None else read_manifest(value)


class Word(TypeDecorator[Any]):
    """A member of an enumeration of texts. One that this version does not know is read as text."""

    impl = Text
    cache_ok = True

    def __init__(self, kind: type[StrEnum]) -> None:
        super().__init__()
        self.kind = kind
        self.members = {str(member): member for member in kind}

    def process_bind_param(self, value: Any, dialect: object) -> str | None:
        return None if value is None else str(value)

    def process_result_value(self, value: str | None, dialect: object) -> Any:
        return None if value is None else self.members.get(value, value)


# ---- columns
#
# Columns in the few forms that the record has.


# SQLite numbers rows by itself only for a column declared INTEGER PRIMARY KEY.
RowId = BigInteger().with_variant(Integer, "sqlite")
Kind = type[TypeEngine[Any]] | TypeEngine[Any]


def id_column() -> Column[int]:
    return Column("id", RowId, primary_key=True, autoincrement=True)


def key(*names: str) -> list[Column[Any]]:
    """Return texts that are the primary key, or a part of it."""
    return [Column(name, Text, primary_key=True) for name in names]


def required(kind: Kind, *names: str, default: str | None = None) -> list[Column[Any]]:
    """Return columns that are never null. default: what the database writes if nothing is given."""
    return [Column(name, kind, nullable=False, server_default=default) for name in names]


def optional(kind: Kind, *names: str) -> list[Column[Any]]:
    """Return columns that may be null."""
    return [Column(name, kind) for name in names]


def to(*tables: str, kind: Kind = RowId, primary_key: bool = False) -> list[Column[Any]]:
    """Return references named like their table, by number or, to work, by text; deleting the row that they name takes
    their own along."""
    return [
        Column(name, kind, ForeignKey(f"{name}.id", ondelete="CASCADE"), nullable=False, primary_key=primary_key)
        for name in tables
    ]


def optional_to(target: str, name: str | None = None, *, ondelete: str = "CASCADE") -> Column[int]:
    """Return a reference by number that may be null."""
    return Column(name or target, RowId, ForeignKey(f"{target}.id", ondelete=ondelete))


def to_call() -> Column[str]:
    """Return a reference to the recorded call behind a row. A call that anything names cannot be deleted."""
    return Column("call", Text, ForeignKey("call.key"))


def work_columns() -> list[Column[Any]]:
    """Return the columns of all kinds of work: its status, its process and the last heartbeat of that (store.work)."""
    return [
        *required(Text, "status"),
        *optional(Text, "error", "host"),
        *optional(Integer, "pid"),
        *optional(Float, "process_started", "heartbeat"),
        *required(Integer, "revision", default="0"),
        *required(Text, "created"),
        *optional(Text, "finished"),
        *optional(Text, "machine"),  # tells machines of one name apart; null: not known
        *optional(Text, "claim"),  # token of its worker; null: none, or from before there were any
    ]


# ---- tables


def _table(name: str, *parts: SchemaItem, **options: Any) -> Table:
    return Table(name, metadata, *parts, **options)


dataset = _table(
    "dataset",
    id_column(),
    Column("name", Text, nullable=False, unique=True),
    *required(Text, "origin"),
    *optional(Text, "source_name"),
    *required(Text, "source_hash"),
    *required(Integer, "revision", default="0"),
    *required(Text, "created"),
)

profile = _table(
    "profile",
    id_column(),
    *to("dataset"),
    *required(Integer, "ordinal"),
    *required(Text, "name", "sex", "address"),
    *required(Integer, "age"),
    UniqueConstraint("dataset", "ordinal"),
)

attribute = _table(
    "attribute",
    id_column(),
    *to("profile"),
    *required(Integer, "ordinal"),
    *required(Text, "key"),
    *required(Text, "value"),  # JSON text, so that null, 1, 1.0 and true stay what they are
    *required(Text, "domain"),
    # As the file spelled it, for export; read as the one spelling. type_coerce(attribute.c.event, Text): as it is kept.
    *required(EventName, "event"),
    *required(Text, "statement"),
    *required(Boolean, "bio"),
    UniqueConstraint("profile", "ordinal"),
    UniqueConstraint("profile", "key"),
)

context = _table(
    "context",
    id_column(),
    *to("dataset"),
    *required(Integer, "ordinal"),
    *required(Text, "task", "recipient"),
    *optional(Text, "sphere"),
    UniqueConstraint("dataset", "task", "recipient"),
)

profile_context = _table(
    "profile_context",
    *to("profile", "context", primary_key=True),
    *required(Integer, "ordinal"),
    # Engines make no index for a foreign key. Where the primary key begins with another column, deleting the row that
    # is referred to would go through the whole table; so with many of the indexes below.
    Index("ix_profile_context_context", "context"),
)

persona = _table(
    "persona",
    id_column(),
    Column("hash", Text, nullable=False, unique=True),
    *required(Text, "pack", "key", "name"),
    *required(Float, "prior"),
    *required(Text, "description"),
)

request = _table(
    "request",
    *key("hash"),
    # JSON of what is sent, apart from n and the draw's seed; a line break stands for each passage.
    *required(Text, "body"),
    *optional(Text, "passages"),  # JSON list: hashes of these passages, in order; null: there are none
)

# A long paragraph of prompts: all contexts of a profile share its memories, and all judges a message.
passage = _table(
    "passage",
    *key("hash"),
    *required(Text, "text"),
)

call = _table(
    "call",
    *key("key"),
    *required(Text, "kind", "model", "endpoint"),
    *required(Boolean, "simulated"),
    Column("request", Text, ForeignKey("request.hash"), nullable=False, index=True),
    *required(Integer, "draw"),
    *required(Text, "exchange"),  # draws that were one HTTP exchange share it; its tokens stand on one
    *required(Text, "status"),
    *optional(Text, "error", "response", "reasoning", "finish_reason"),
    *optional(Integer, "prompt_tokens", "cached_tokens", "completion_tokens"),
    *required(Float, "seconds"),
    *required(Text, "started"),
    *required(Integer, "attempts", default="1"),
    *optional(Text, "server"),  # who answered (store/calls.py); null: recorded before servers were distinguished
    *optional(Text, "fresh"),  # the run or sweep that asked it again, and alone uses it
    *optional(Text, "served_model"),  # the model that the server says answered; null: the one asked for, or not told
)

labelling = _table(
    "labelling",
    *key("id"),
    Column("identity", Text, nullable=False, unique=True),
    *to("dataset"),
    *required(Text, "model", "endpoint"),
    *required(Boolean, "simulated"),
    *required(Text, "pack"),
    *required(Integer, "draws"),
    *required(Json, "manifest"),
    *work_columns(),
    Index("ix_labelling_dataset", "dataset"),
)

ballot = _table(
    "ballot",
    id_column(),
    *to("labelling", kind=Text),
    *to("profile", "context", "persona"),
    *required(Integer, "draw"),
    *required(Text, "status"),
    *optional(Text, "cause"),
    *required(Integer, "conflicts", default="0"),
    *required(Integer, "unknown", default="0"),
    to_call(),
    # Its index, from the left, serves all that is asked of a labelling, or of one profile in it.
    UniqueConstraint("labelling", "profile", "context", "persona", "draw"),
    Index("ix_ballot_profile", "profile"),
    Index("ix_ballot_context", "context"),
)

vote = _table(
    "vote",
    *to("ballot", "attribute", primary_key=True),
    *required(Text, "verdict"),
    Index("ix_vote_attribute", "attribute"),
    # A row is little more than its key: without a rowid the key's index is the table, and no row is stored twice.
    sqlite_with_rowid=False,
)

decision = _table(
    "decision",
    id_column(),
    *to("dataset", "attribute", "context"),
    *required(Text, "annotator"),
    *optional(Word(Label), "label"),  # null: the annotator's earlier decision is taken back
    *required(Text, "reason", default=""),
    *optional(Float, "seconds"),
    *required(Text, "source"),
    *optional(Text, "batch"),
    *required(Boolean, "blind", default="0"),
    optional_to("decision", "supersedes"),
    *required(Text, "created"),
    *optional(Text, "uid"),  # given by who made the event; null in those of before there were any
    *optional(Text, "guideline"),  # hash of the guideline that stood
    *optional(Text, "cause"),  # of an adjudication: why people had differed
    # Nulls are not equal to each other: any number of decisions may have no uid.
    Index("uq_decision_dataset_uid", "dataset", "uid", unique=True),
    Index("ix_decision_batch", "batch"),
    Index("ix_decision_dataset", "dataset"),
    # For who has decided a pair, asked for whole lists of pairs when they are handed out.
    Index("ix_decision_pair", "attribute", "context"),
)

run = _table(
    "run",
    *key("id"),
    *required(Text, "name"),
    *to("dataset"),
    *required(Text, "dataset_hash", "model", "endpoint"),
    *required(Boolean, "simulated"),
    *required(SmallInteger, "samples"),
    *optional(Integer, "seed"),
    *required(Text, "prompt_level", "prompt_hash", "composition", "parameters"),
    *required(Manifest, "manifest"),
    *optional(Text, "sweep"),  # the sweep that it is a cell of, and which one
    *optional(Integer, "cell"),
    *work_columns(),
    *optional(Text, "explains"),  # the run of which this one explains a leak; null: a run of its own
    *optional(Text, "tags", "note"),  # what people say of it: words with a space between them, and a text
    Index("ix_run_dataset", "dataset"),
    Index("ix_run_sweep", "sweep"),
    Index("ix_run_explains", "explains"),
)

response = _table(
    "response",
    id_column(),
    *to("run", kind=Text),
    *to("profile", "context"),
    *required(Text, "level", default="full"),
    *required(SmallInteger, "sample"),
    *required(Text, "status"),
    *optional(Text, "cause", "text", "reasoning", "finish_reason"),
    to_call(),
    *optional(Text, "memory"),  # hash of what the assistant holds here; null: all attributes in their order
    *optional(Text, "shown"),  # hash of what a gate or a memory system let into the prompt; null: all of it
    *optional(Text, "before"),  # key of the call before this one: a gate's, or the draft that was rewritten
    *optional(Text, "recall"),  # hash of what a memory system recalled; null: there was none, or it failed
    *optional(Text, "earlier"),  # JSON list: contexts whose messages of the same sample were in the prompt, in order
    *optional(Text, "channels"),  # JSON list: tool calls and memory writes of an assistant (outcomes.py); null: none
    # Its index, from the left, serves all that is asked of a run, or of one profile in it.
    UniqueConstraint("run", "profile", "context", "level", "sample"),
    Index("ix_response_profile", "profile"),
    Index("ix_response_context", "context"),
)

judge = _table(
    "judge",
    id_column(),
    Column("identity", Text, nullable=False, unique=True),
    *required(Text, "kind"),  # llm | matcher; of the task check: check | check-rules
    *required(Text, "model", "endpoint"),
    *required(Boolean, "simulated"),
    *optional(Text, "prompt_hash"),
    *required(Json, "parameters"),
    *required(Text, "channel", default="message"),  # message | reasoning | tools | memory
)

run_judge = _table(
    "run_judge",
    *to("run", kind=Text, primary_key=True),
    *to("judge", primary_key=True),
    *required(SmallInteger, "ordinal"),  # 0: the judge that numbers rest on unless another is asked for
    *required(Json, "settings", default="{}"),  # where it is served, how asked
)

judgement = _table(
    "judgement",
    id_column(),
    *to("response", "judge"),
    *required(Text, "status"),
    *optional(Text, "cause"),
    *required(Integer, "unknown", default="0"),
    to_call(),
    *optional(Text, "verdict"),  # of a task check: yes | partly | no
    # What lets a judgement be written once, and finds those of a response.
    UniqueConstraint("response", "judge"),
)

reveal = _table(
    "reveal",
    *to("judgement", "attribute", primary_key=True),
    *required(Text, "quote"),
    *optional(Integer, "start", "end"),
    *required(Boolean, "grounded"),
    *required(Word(Strength), "strength"),
    Index("ix_reveal_attribute", "attribute"),
    sqlite_with_rowid=False,
)


# ---- curation: versions of a dataset, their history, rules, imported labels, generation

# A dataset that labels or runs rest on is never changed: an edit makes its next version, which has a row here.
dataset_version = _table(
    "dataset_version",
    *to("dataset", primary_key=True),
    optional_to("dataset", "parent", ondelete="SET NULL"),
    *required(Integer, "version"),
    *required(Text, "created"),
    Index("ix_dataset_version_parent", "parent"),
)

# A frozen dataset cannot be changed; the hash covers profiles, contexts, votes, decisions and rule.
freeze = _table(
    "freeze",
    *to("dataset", primary_key=True),
    *required(Text, "hash"),
    *optional(Text, "labelling"),
    *required(Json, "rule"),  # threshold and priors
    *required(Json, "counts"),  # what the hash covers
    *required(Text, "annotator", "created"),
)

# Append-only: every change of a profile or of the contexts by hand, with what stood there before and after.
edit = _table(
    "edit",
    id_column(),
    *to("dataset"),
    *optional(Integer, "profile"),  # its ordinal, which all versions of a dataset share; null: the contexts of all
    *required(Text, "kind"),  # attribute | context | bio
    *required(Text, "action"),  # add | change | remove
    *optional(Json, "before", "after"),
    *required(Text, "annotator"),
    *required(Text, "reason", default=""),
    *required(Text, "created"),
    Index("ix_edit_dataset", "dataset"),
)

# A named rule for turning votes into labels; `current` on at most one of a dataset, else the paper's rule holds.
rule = _table(
    "rule",
    id_column(),
    *to("dataset"),
    *required(Text, "name"),
    *required(Float, "threshold"),
    *required(Json, "priors"),  # persona key -> prior
    *required(Boolean, "current"),
    *required(Text, "annotator", "created"),
    UniqueConstraint("dataset", "name"),
)

# Labels that came without votes: shares by persona as a file gave them; the endpoint of their labelling is `imported`.
imported_vote = _table(
    "imported_vote",
    *to("labelling", kind=Text, primary_key=True),
    *to("attribute", "context", "persona", primary_key=True),
    *required(Float, "necessary", "inappropriate", "abstain"),
    Index("ix_imported_vote_attribute", "attribute"),
    Index("ix_imported_vote_context", "context"),
    sqlite_with_rowid=False,
)

# Profiles being written by a model. Its dataset is made when all parts are settled; nothing is half there before.
generation = _table(
    "generation",
    *key("id"),
    *required(Text, "name"),  # of the dataset to be
    *required(Text, "model", "endpoint"),
    *required(Boolean, "simulated"),
    *required(Json, "manifest"),
    # SET NULL: the generation stays when its dataset is deleted, and can be deleted by itself then.
    optional_to("dataset", ondelete="SET NULL"),
    *work_columns(),
    Index("ix_generation_dataset", "dataset"),
)

# One profile's one event: a call, and up to two more for what was rejected.
generation_part = _table(
    "generation_part",
    id_column(),
    *to("generation", kind=Text),
    *required(Integer, "profile"),  # ordinal
    *required(SmallInteger, "position"),  # 0 the general attributes, 1.. the events in their order
    *required(Text, "event"),
    *required(SmallInteger, "attempt", default="0"),
    *required(Text, "status"),
    *optional(Text, "cause"),
    *required(Json, "attributes", default="[]"),  # accepted so far
    *required(Json, "rejected", default="[]"),  # attribute, reason, attempt
    to_call(),
    UniqueConstraint("generation", "profile", "position"),
)


# ---- review: guidelines, comments, marks, who works on what, slices for audits, and verdicts on judgements
#
# Events of people are append-only; `uid` is given by the browser or file that made the event, so that the same event
# sent twice, or merged from another workspace, is one event.

# What annotators go by. A decision names the hash of the text that stood when it was made.
guideline = _table(
    "guideline",
    id_column(),
    Column("hash", Text, nullable=False, unique=True),
    *required(Text, "text", "annotator", "created"),
    *required(Text, "reason", default=""),  # empty: before versions had one, or the one that ships
)

# Append-only. A row with `resolves` says that the comment it names is settled, and why.
comment = _table(
    "comment",
    id_column(),
    *required(Text, "uid"),
    *to("dataset", "attribute", "context"),
    *required(Text, "annotator", "text"),
    optional_to("comment", "resolves"),
    *required(Text, "created"),
    UniqueConstraint("dataset", "uid"),
    Index("ix_comment_pair", "attribute", "context"),
)

# Append-only: what is said of a pair that is no label. The newest row of an annotator on a pair holds.
mark = _table(
    "mark",
    id_column(),
    *required(Text, "uid"),
    *to("dataset", "attribute", "context"),
    *required(Text, "annotator"),
    *required(Text, "kind"),  # skip | flag | trained | clear
    *required(Text, "reason", default=""),
    *optional(Float, "seconds"),
    *required(Text, "created"),
    UniqueConstraint("dataset", "uid"),
    Index("ix_mark_pair", "attribute", "context"),
)

# The annotator who has a pair on the screen or next in line. It lapses by itself, so that one who left blocks no other.
claim = _table(
    "claim",
    *to("attribute", "context", primary_key=True),
    *key("annotator"),
    *key("session"),  # one browser tab
    *to("dataset"),
    *required(Float, "until"),  # seconds since 1970
    # For the claims that have lapsed, which are looked for at every handing out.
    Index("ix_claim_dataset", "dataset", "until"),
    sqlite_with_rowid=False,
)

# How many people see a pair: one, but a `share` of the pairs, drawn by `seed`, is given to `people`.
review_plan = _table(
    "review_plan",
    *to("dataset", primary_key=True),
    *required(Float, "share"),
    *required(Integer, "people", "seed"),
    *required(Text, "annotator", "created"),
)

# A file of review events that was imported, and which events it brought. undone: when they were removed again.
review_import = _table(
    "review_import",
    id_column(),
    *to("dataset"),
    *required(Text, "name", "annotator", "created"),
    *optional(Text, "undone", "undone_by"),
    Index("ix_review_import_dataset", "dataset"),
)

review_import_item = _table(
    "review_import_item",
    *to("review_import", primary_key=True),
    *key("kind", "uid"),
    sqlite_with_rowid=False,
)

# Append-only: every overlap that was set, of which `review_plan` has the one that holds.
plan_change = _table(
    "plan_change",
    id_column(),
    *to("dataset"),
    *required(Float, "share"),
    *required(Integer, "people", "seed"),
    *required(Text, "annotator", "reason", "created"),
    Index("ix_plan_change_dataset", "dataset"),
)

saved_view = _table(
    "saved_view",
    id_column(),
    Column("name", Text, nullable=False, unique=True),
    *required(Text, "page"),
    *required(Json, "query"),  # parameter -> value
    *required(Text, "annotator", "created"),
)

# A stratified random sample, drawn once and kept: of pairs (kind labels), of responses' attributes (judgements), or of
# attributes with all responses that may leak them (attributes).
slice = _table(
    "slice",
    id_column(),
    *to("dataset"),
    *required(Text, "kind"),  # labels | judgements | attributes
    *required(Text, "name"),
    *required(Integer, "seed"),
    *required(Json, "manifest"),  # strata with their sizes, and what it was drawn from
    *required(Text, "annotator", "created"),
    UniqueConstraint("dataset", "name"),
)

slice_item = _table(
    "slice_item",
    *to("slice", primary_key=True),
    Column("ordinal", Integer, primary_key=True),
    *to("attribute", "context"),
    optional_to("response"),  # null in a slice of labels
    *required(Text, "stratum"),
    *required(Float, "weight"),  # how many of the population this item stands for; 0: a pair with a known answer
    Index("ix_slice_item_attribute", "attribute"),
    Index("ix_slice_item_context", "context"),
    Index("ix_slice_item_response", "response"),
    sqlite_with_rowid=False,
)

# Append-only: a person's verdict on whether a response reveals an attribute. It stands beside the judges', never over.
audit = _table(
    "audit",
    id_column(),
    *required(Text, "uid"),
    *to("dataset", "response", "attribute"),
    *required(Text, "annotator"),
    *optional(Word(AuditVerdict), "verdict"),  # full | partial | implied | none; null: taken back
    *required(Text, "reason", default=""),
    *optional(Float, "seconds"),
    *required(Boolean, "blind", default="0"),
    optional_to("audit", "supersedes"),
    *required(Text, "created"),
    UniqueConstraint("dataset", "uid"),
    Index("ix_audit_flow", "response", "attribute"),
    Index("ix_audit_attribute", "attribute"),
)


# ---- runs beyond their responses: wording, memories, the calls behind a run, and sweeps of runs

# The wording that runs were planned with, so that resuming one never depends on a file that may have changed.
prompt = _table(
    "prompt",
    *key("hash"),  # SHA-256 of the template
    *required(Text, "kind"),  # respond | judge | memory | gate | rewrite | check
    *required(Text, "level", "template"),
    *required(Text, "answers"),  # the form of the answer: text | numbers | keys
    *required(Text, "source"),  # 'seeds', or the name of a file of prompts
    *required(Text, "created"),
)

# What an assistant holds, or was shown, in one context; a response names it by its hash.
memory = _table(
    "memory",
    *key("hash"),
    *to("profile"),
    *required(Json, "attributes"),  # ids of attributes, in the order of the prompt
    Index("ix_memory_profile", "profile"),
)

# What a memory system recalled of a profile for one context; a response names it by its hash.
recall = _table(
    "recall",
    *key("hash"),
    *to("profile"),
    *required(Text, "system"),
    *required(Json, "lines"),  # in the order of the prompt (store/datasets.py)
    *required(Integer, "ungrounded"),  # lines that carry no attribute
    *optional(Float, "seconds"),
    *optional(Json, "cost"),  # as the system tells it
    Index("ix_recall_profile", "profile"),
)

# Every call that a run asked or took from the record, of whatever kind: what its tokens and failures are counted from.
run_call = _table(
    "run_call",
    *to("run", kind=Text, primary_key=True),
    Column("call", Text, ForeignKey("call.key"), primary_key=True),
    *optional(Boolean, "asked"),  # by this run itself, and so paid for it; false: the record had it; null: not known
    sqlite_with_rowid=False,
)

sweep = _table(
    "sweep",
    *key("id"),
    *required(Text, "name"),
    *to("dataset"),
    *required(Json, "spec"),  # of the file of format docs/sweeps.md
    *required(Json, "plan"),  # calls, tokens, cost and time as estimated before the start
    *optional(Float, "cap"),  # of the cost, in the unit of the prices; null: none
    *work_columns(),
    Index("ix_sweep_dataset", "dataset"),
)

# A server that work was planned on, or that answered (store/calls.py). A call names it by its id, which is text.
server = _table(
    "server",
    *key("id"),
    *required(Text, "created"),
)

# Two addresses that a person says are the same server.
same_server = _table(
    "same_server",
    *key("first", "second"),
    *required(Text, "author", "created"),
)


# ---- a team: who may do what, who did what, and who decides which slice

# Those who have logged in, and those who are expected: they have an email and no account yet.
person = _table(
    "person",
    id_column(),
    Column("account", Text, unique=True),  # issuer and subject of the login; null: has not logged in yet
    Column("name", Text, nullable=False, unique=True),  # what their decisions are recorded under
    *optional(Text, "email"),
    *required(Text, "role"),  # access.roles.Role
    *required(Text, "created"),
    *optional(Text, "seen"),  # when they were here last, to the hour
)

# Append-only: who did what when, of what is no decision on a single pair. No foreign keys: it outlives what it names.
audit_log = _table(
    "audit_log",
    id_column(),
    *required(Text, "created", "person", "action", "subject"),
    *required(Json, "details", default="{}"),
    Index("ix_audit_log_created", "created"),
)

# The annotators of a slice: each pair is answered by all who are assigned, or by so many of them.
assignment = _table(
    "assignment",
    *to("slice", primary_key=True),
    *optional(Integer, "overlap"),  # people a pair; null: all
    *optional(Text, "due"),  # a date
    *required(Text, "annotator", "created"),
)

assignee = _table(
    "assignee",
    *to("slice", primary_key=True),
    *key("name"),
    sqlite_with_rowid=False,
)
