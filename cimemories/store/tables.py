"""The tables of the record, as SQLAlchemy Core metadata. Their names are the vocabulary of the project.

Every model answer is a `call`; `ballot`, `response` and `judgement` rows are planned beforehand as `owed` or derived
from calls; human decisions are append-only. Timestamps are ISO 8601 text in UTC by the clock of whoever writes them;
heartbeats are seconds since 1970 by the clock of the database.
"""

from __future__ import annotations

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

from cimemories.model import canonical_event

metadata = MetaData(
    # Names made by rule: a migration can name a constraint, which engines else name each in its own way.
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite numbers rows by itself only for a column declared INTEGER PRIMARY KEY.
RowId = BigInteger().with_variant(Integer, "sqlite")


class EventName(TypeDecorator[str]):
    """A life event, kept as it was spelled and read as its one spelling."""

    impl = Text
    cache_ok = True

    def process_result_value(self, value: str | None, dialect: object) -> str | None:
        return None if value is None else canonical_event(value)


def id_column() -> Column[int]:
    return Column("id", RowId, primary_key=True, autoincrement=True)


def to(target: str, name: str | None = None, *, primary_key: bool = False) -> Column[int]:
    return Column(
        name or target,
        RowId,
        ForeignKey(f"{target}.id", ondelete="CASCADE"),
        nullable=False,
        primary_key=primary_key,
    )


def work_columns() -> list[Column[object]]:
    """What all kinds of work share: where it stands, which process does it, and when it last said so (store.work)."""
    return [
        Column("status", Text, nullable=False),
        Column("error", Text),
        Column("host", Text),
        Column("pid", Integer),
        Column("process_started", Float),
        Column("heartbeat", Float),
        Column("machine", Text),  # tells machines of one name apart; null: not known
        Column("claim", Text),  # token of who claimed it; null: nobody, or before there were any
        Column("revision", Integer, nullable=False, default=0, server_default="0"),
        Column("created", Text, nullable=False),
        Column("finished", Text),
    ]


dataset = Table(
    "dataset",
    metadata,
    id_column(),
    Column("name", Text, nullable=False, unique=True),
    Column("origin", Text, nullable=False),
    Column("source_name", Text),
    Column("source_hash", Text, nullable=False),
    Column("revision", Integer, nullable=False, default=0, server_default="0"),
    Column("created", Text, nullable=False),
)

profile = Table(
    "profile",
    metadata,
    id_column(),
    to("dataset"),
    Column("ordinal", Integer, nullable=False),
    Column("name", Text, nullable=False),
    Column("sex", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("age", Integer, nullable=False),
    UniqueConstraint("dataset", "ordinal"),
)

attribute = Table(
    "attribute",
    metadata,
    id_column(),
    to("profile"),
    Column("ordinal", Integer, nullable=False),
    Column("key", Text, nullable=False),
    Column("value", Text, nullable=False),  # JSON text, so that null, 1, 1.0 and true stay what they are
    Column("domain", Text, nullable=False),
    # As the file spelled it, for export; read as the one spelling. type_coerce(attribute.c.event, Text): as it is kept.
    Column("event", EventName, nullable=False),
    Column("statement", Text, nullable=False),
    Column("bio", Boolean, nullable=False),
    UniqueConstraint("profile", "ordinal"),
    UniqueConstraint("profile", "key"),
)

context = Table(
    "context",
    metadata,
    id_column(),
    to("dataset"),
    Column("ordinal", Integer, nullable=False),
    Column("task", Text, nullable=False),
    Column("recipient", Text, nullable=False),
    Column("sphere", Text),
    UniqueConstraint("dataset", "task", "recipient"),
)

profile_context = Table(
    "profile_context",
    metadata,
    to("profile", primary_key=True),
    to("context", primary_key=True),
    Column("ordinal", Integer, nullable=False),
    # Engines make no index for a foreign key. Where the primary key begins with another column, deleting the row that
    # is referred to would go through the whole table; so with many of the indexes below.
    Index("ix_profile_context_context", "context"),
)

persona = Table(
    "persona",
    metadata,
    id_column(),
    Column("hash", Text, nullable=False, unique=True),
    Column("pack", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("prior", Float, nullable=False),
    Column("description", Text, nullable=False),
)

request = Table(
    "request",
    metadata,
    Column("hash", Text, primary_key=True),
    Column("body", Text, nullable=False),  # JSON of what is sent, apart from n and the draw's seed
)

call = Table(
    "call",
    metadata,
    Column("key", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("endpoint", Text, nullable=False),
    Column("simulated", Boolean, nullable=False),
    Column("request", Text, ForeignKey("request.hash"), nullable=False, index=True),
    Column("draw", Integer, nullable=False),
    Column("exchange", Text, nullable=False),  # draws that were one HTTP exchange share it; its tokens stand on one
    Column("status", Text, nullable=False),
    Column("error", Text),
    Column("response", Text),
    Column("reasoning", Text),
    Column("finish_reason", Text),
    Column("prompt_tokens", Integer),
    Column("cached_tokens", Integer),
    Column("completion_tokens", Integer),
    Column("seconds", Float, nullable=False),
    Column("started", Text, nullable=False),
    Column("attempts", Integer, nullable=False, default=1, server_default="1"),
    Column("server", Text),  # who answered (store/calls.py); null: recorded before servers were distinguished
    Column("fresh", Text),  # the run or sweep that drew it anew, and alone uses it
)

labelling = Table(
    "labelling",
    metadata,
    Column("id", Text, primary_key=True),
    Column("identity", Text, nullable=False, unique=True),
    to("dataset"),
    Column("model", Text, nullable=False),
    Column("endpoint", Text, nullable=False),
    Column("simulated", Boolean, nullable=False),
    Column("pack", Text, nullable=False),
    Column("draws", Integer, nullable=False),
    Column("manifest", Text, nullable=False),
    *work_columns(),
    Index("ix_labelling_dataset", "dataset"),
)

ballot = Table(
    "ballot",
    metadata,
    id_column(),
    Column("labelling", Text, ForeignKey("labelling.id", ondelete="CASCADE"), nullable=False),
    to("profile"),
    to("context"),
    to("persona"),
    Column("draw", Integer, nullable=False),
    Column("status", Text, nullable=False),
    Column("cause", Text),
    Column("conflicts", Integer, nullable=False, default=0, server_default="0"),
    Column("unknown", Integer, nullable=False, default=0, server_default="0"),
    Column("call", Text, ForeignKey("call.key")),
    # Its index, from the left, serves all that is asked of a labelling, or of one profile in it.
    UniqueConstraint("labelling", "profile", "context", "persona", "draw"),
    Index("ix_ballot_profile", "profile"),
    Index("ix_ballot_context", "context"),
)

vote = Table(
    "vote",
    metadata,
    to("ballot", primary_key=True),
    to("attribute", primary_key=True),
    Column("verdict", Text, nullable=False),
    Index("ix_vote_attribute", "attribute"),
    # A row is little more than its key: without a rowid the key's index is the table, and no row is stored twice.
    sqlite_with_rowid=False,
)

decision = Table(
    "decision",
    metadata,
    id_column(),
    to("dataset"),
    to("attribute"),
    to("context"),
    Column("annotator", Text, nullable=False),
    Column("label", Text),  # null: the annotator's earlier decision is taken back
    Column("reason", Text, nullable=False, default="", server_default=""),
    Column("seconds", Float),
    Column("source", Text, nullable=False),
    Column("batch", Text),
    Column("blind", Boolean, nullable=False, default=False, server_default="0"),
    Column("supersedes", RowId, ForeignKey("decision.id", ondelete="CASCADE")),
    Column("created", Text, nullable=False),
    Column("uid", Text),  # given by who made the event; null in those of before there were any
    Column("guideline", Text),  # hash of the guideline that stood
    Column("cause", Text),  # of an adjudication: why people had differed
    # Nulls are not equal to each other: any number of decisions may have no uid.
    Index("uq_decision_dataset_uid", "dataset", "uid", unique=True),
    Index("ix_decision_batch", "batch"),
    Index("ix_decision_dataset", "dataset"),
    # For who has decided a pair, asked for whole lists of pairs when they are handed out.
    Index("ix_decision_pair", "attribute", "context"),
)

run = Table(
    "run",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    to("dataset"),
    Column("dataset_hash", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("endpoint", Text, nullable=False),
    Column("simulated", Boolean, nullable=False),
    Column("samples", SmallInteger, nullable=False),
    Column("seed", Integer),
    Column("prompt_level", Text, nullable=False),
    Column("prompt_hash", Text, nullable=False),
    Column("composition", Text, nullable=False),
    Column("parameters", Text, nullable=False),
    Column("manifest", Text, nullable=False),
    Column("sweep", Text),  # the sweep that it is a cell of, and which one
    Column("cell", Integer),
    *work_columns(),
    Index("ix_run_dataset", "dataset"),
    Index("ix_run_sweep", "sweep"),
)

response = Table(
    "response",
    metadata,
    id_column(),
    Column("run", Text, ForeignKey("run.id", ondelete="CASCADE"), nullable=False),
    to("profile"),
    to("context"),
    Column("level", Text, nullable=False, default="full", server_default="full"),
    Column("sample", SmallInteger, nullable=False),
    Column("status", Text, nullable=False),
    Column("cause", Text),
    Column("text", Text),
    Column("reasoning", Text),
    Column("finish_reason", Text),
    Column("call", Text, ForeignKey("call.key")),
    Column("memory", Text),  # hash of what the assistant holds here; null: all attributes in their order
    Column("shown", Text),  # hash of what a gate let into the prompt; null: all of it
    Column("before", Text),  # key of the call before this one: a gate's, or the draft that was rewritten
    # Its index, from the left, serves all that is asked of a run, or of one profile in it.
    UniqueConstraint("run", "profile", "context", "level", "sample"),
    Index("ix_response_profile", "profile"),
    Index("ix_response_context", "context"),
)

judge = Table(
    "judge",
    metadata,
    id_column(),
    Column("identity", Text, nullable=False, unique=True),
    Column("kind", Text, nullable=False),  # llm | matcher; of the task check: check | check-rules
    Column("model", Text, nullable=False),
    Column("endpoint", Text, nullable=False),
    Column("simulated", Boolean, nullable=False),
    Column("prompt_hash", Text),
    Column("parameters", Text, nullable=False),
    Column("channel", Text, nullable=False, default="message", server_default="message"),  # message | reasoning
)

run_judge = Table(
    "run_judge",
    metadata,
    Column("run", Text, ForeignKey("run.id", ondelete="CASCADE"), primary_key=True),
    to("judge", primary_key=True),
    Column("ordinal", SmallInteger, nullable=False),  # 0: the judge that numbers rest on unless another is asked for
    Column("settings", Text, nullable=False, default="{}", server_default="{}"),  # JSON: where it is served, how asked
)

judgement = Table(
    "judgement",
    metadata,
    id_column(),
    to("response"),
    to("judge"),
    Column("status", Text, nullable=False),
    Column("cause", Text),
    Column("unknown", Integer, nullable=False, default=0, server_default="0"),
    Column("call", Text, ForeignKey("call.key")),
    Column("verdict", Text),  # of a task check: yes | partly | no
    # What lets a judgement be written once, and finds those of a response.
    UniqueConstraint("response", "judge"),
)

reveal = Table(
    "reveal",
    metadata,
    to("judgement", primary_key=True),
    to("attribute", primary_key=True),
    Column("quote", Text, nullable=False),
    Column("start", Integer),
    Column("end", Integer),
    Column("grounded", Boolean, nullable=False),
    Column("strength", Text, nullable=False),
    Index("ix_reveal_attribute", "attribute"),
    sqlite_with_rowid=False,
)


# ---- curation tables
#
# The tables of curation beyond votes: versions of a dataset, their history, rules, imported labels, generation.
#
# They hang on the same metadata as `store.tables`, which holds what they refer to.


# A dataset that labels or runs rest on is never changed: an edit makes its next version, which has a row here.
dataset_version = Table(
    "dataset_version",
    metadata,
    to("dataset", primary_key=True),
    Column("parent", RowId, ForeignKey("dataset.id", ondelete="SET NULL")),
    Column("version", Integer, nullable=False),
    Column("created", Text, nullable=False),
    Index("ix_dataset_version_parent", "parent"),
)

# A frozen dataset cannot be changed; the hash covers profiles, contexts, votes, decisions and rule.
freeze = Table(
    "freeze",
    metadata,
    to("dataset", primary_key=True),
    Column("hash", Text, nullable=False),
    Column("labelling", Text),
    Column("rule", Text, nullable=False),  # JSON: threshold and priors
    Column("counts", Text, nullable=False),  # JSON: what the hash covers
    Column("annotator", Text, nullable=False),
    Column("created", Text, nullable=False),
)

# Append-only: every change of a profile or of the contexts by hand, with what stood there before and after.
edit = Table(
    "edit",
    metadata,
    id_column(),
    to("dataset"),
    Column("profile", Integer),  # its ordinal, which all versions of a dataset share; null: the contexts of all
    Column("kind", Text, nullable=False),  # attribute | context | bio
    Column("action", Text, nullable=False),  # add | change | remove
    Column("before", Text),
    Column("after", Text),
    Column("annotator", Text, nullable=False),
    Column("reason", Text, nullable=False, default="", server_default=""),
    Column("created", Text, nullable=False),
    Index("ix_edit_dataset", "dataset"),
)

# A named rule for turning votes into labels; `current` on at most one of a dataset, else the paper's rule holds.
rule = Table(
    "rule",
    metadata,
    id_column(),
    to("dataset"),
    Column("name", Text, nullable=False),
    Column("threshold", Float, nullable=False),
    Column("priors", Text, nullable=False),  # JSON: persona key -> prior
    Column("current", Boolean, nullable=False),
    Column("annotator", Text, nullable=False),
    Column("created", Text, nullable=False),
    UniqueConstraint("dataset", "name"),
)

# Labels that came without votes: shares by persona as a file gave them; the endpoint of their labelling is `imported`.
imported_vote = Table(
    "imported_vote",
    metadata,
    Column("labelling", Text, ForeignKey("labelling.id", ondelete="CASCADE"), primary_key=True),
    to("attribute", primary_key=True),
    to("context", primary_key=True),
    to("persona", primary_key=True),
    Column("necessary", Float, nullable=False),
    Column("inappropriate", Float, nullable=False),
    Column("abstain", Float, nullable=False),
    Index("ix_imported_vote_attribute", "attribute"),
    Index("ix_imported_vote_context", "context"),
    sqlite_with_rowid=False,
)

# Profiles being written by a model. Its dataset is made when all parts are settled; nothing is half there before.
generation = Table(
    "generation",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),  # of the dataset to be
    Column("model", Text, nullable=False),
    Column("endpoint", Text, nullable=False),
    Column("simulated", Boolean, nullable=False),
    Column("manifest", Text, nullable=False),
    # SET NULL: the generation stays when its dataset is deleted, and can be deleted by itself then.
    Column("dataset", RowId, ForeignKey("dataset.id", ondelete="SET NULL")),
    *work_columns(),
    Index("ix_generation_dataset", "dataset"),
)

# One profile's one event: a call, and up to two more for what was rejected.
generation_part = Table(
    "generation_part",
    metadata,
    id_column(),
    Column("generation", Text, ForeignKey("generation.id", ondelete="CASCADE"), nullable=False),
    Column("profile", Integer, nullable=False),  # ordinal
    Column("position", SmallInteger, nullable=False),  # 0 the general attributes, 1.. the events in their order
    Column("event", Text, nullable=False),
    Column("attempt", SmallInteger, nullable=False, default=0, server_default="0"),
    Column("status", Text, nullable=False),
    Column("cause", Text),
    Column("attributes", Text, nullable=False, default="[]", server_default="[]"),  # JSON: accepted so far
    Column("rejected", Text, nullable=False, default="[]", server_default="[]"),  # JSON: attribute, reason, attempt
    Column("call", Text, ForeignKey("call.key")),
    UniqueConstraint("generation", "profile", "position"),
)


# ---- review tables
#
# The tables of review: guidelines, comments, marks, who works on what, slices for audits, and verdicts on judgements.
#
# They hang on the same metadata as `store.tables`. What people say is append-only; `uid` is given by whoever made the
# event (a browser, a file), so that the same event sent twice, or merged from another workspace, is one event.


# What annotators go by. A decision names the hash of the text that stood when it was made.
guideline = Table(
    "guideline",
    metadata,
    id_column(),
    Column("hash", Text, nullable=False, unique=True),
    Column("text", Text, nullable=False),
    Column("annotator", Text, nullable=False),
    Column("created", Text, nullable=False),
)

# Append-only. A row with `resolves` says that the comment it names is settled, and why.
comment = Table(
    "comment",
    metadata,
    id_column(),
    Column("uid", Text, nullable=False),
    to("dataset"),
    to("attribute"),
    to("context"),
    Column("annotator", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("resolves", RowId, ForeignKey("comment.id", ondelete="CASCADE")),
    Column("created", Text, nullable=False),
    UniqueConstraint("dataset", "uid"),
    Index("ix_comment_pair", "attribute", "context"),
)

# Append-only: what is said of a pair that is no label. The newest row of an annotator on a pair holds.
mark = Table(
    "mark",
    metadata,
    id_column(),
    Column("uid", Text, nullable=False),
    to("dataset"),
    to("attribute"),
    to("context"),
    Column("annotator", Text, nullable=False),
    Column("kind", Text, nullable=False),  # skip | flag | clear
    Column("reason", Text, nullable=False, default="", server_default=""),
    Column("seconds", Float),
    Column("created", Text, nullable=False),
    UniqueConstraint("dataset", "uid"),
    Index("ix_mark_pair", "attribute", "context"),
)

# Who has a pair on the screen or next in line; it lapses by itself, so that nobody who left blocks the others.
claim = Table(
    "claim",
    metadata,
    to("attribute", primary_key=True),
    to("context", primary_key=True),
    Column("annotator", Text, primary_key=True),
    Column("session", Text, primary_key=True),  # one browser tab
    to("dataset"),
    Column("until", Float, nullable=False),  # seconds since 1970
    # For the claims that have lapsed, which are looked for at every handing out.
    Index("ix_claim_dataset", "dataset", "until"),
    sqlite_with_rowid=False,
)

# How many people see a pair: one, but a `share` of the pairs, drawn by `seed`, is given to `people`.
review_plan = Table(
    "review_plan",
    metadata,
    to("dataset", primary_key=True),
    Column("share", Float, nullable=False),
    Column("people", Integer, nullable=False),
    Column("seed", Integer, nullable=False),
    Column("annotator", Text, nullable=False),
    Column("created", Text, nullable=False),
)

saved_view = Table(
    "saved_view",
    metadata,
    id_column(),
    Column("name", Text, nullable=False, unique=True),
    Column("page", Text, nullable=False),
    Column("query", Text, nullable=False),  # JSON: parameter -> value
    Column("annotator", Text, nullable=False),
    Column("created", Text, nullable=False),
)

# A stratified random sample, drawn once and kept: of pairs (kind labels) or of responses' attributes (judgements).
slice = Table(
    "slice",
    metadata,
    id_column(),
    to("dataset"),
    Column("kind", Text, nullable=False),  # labels | judgements
    Column("name", Text, nullable=False),
    Column("seed", Integer, nullable=False),
    Column("manifest", Text, nullable=False),  # JSON: strata with their sizes, and what it was drawn from
    Column("annotator", Text, nullable=False),
    Column("created", Text, nullable=False),
    UniqueConstraint("dataset", "name"),
)

slice_item = Table(
    "slice_item",
    metadata,
    to("slice", primary_key=True),
    Column("ordinal", Integer, primary_key=True),
    to("attribute"),
    to("context"),
    Column("response", RowId, ForeignKey("response.id", ondelete="CASCADE")),  # null in a slice of labels
    Column("stratum", Text, nullable=False),
    Column("weight", Float, nullable=False),  # how many of the population this item stands for
    Index("ix_slice_item_attribute", "attribute"),
    Index("ix_slice_item_context", "context"),
    Index("ix_slice_item_response", "response"),
    sqlite_with_rowid=False,
)

# Append-only: a person's verdict on whether a response reveals an attribute. It stands beside the judges', never over.
audit = Table(
    "audit",
    metadata,
    id_column(),
    Column("uid", Text, nullable=False),
    to("dataset"),
    to("response"),
    to("attribute"),
    Column("annotator", Text, nullable=False),
    Column("verdict", Text),  # full | partial | implied | none; null: taken back
    Column("reason", Text, nullable=False, default="", server_default=""),
    Column("seconds", Float),
    Column("blind", Boolean, nullable=False, default=False, server_default="0"),
    Column("supersedes", RowId, ForeignKey("audit.id", ondelete="CASCADE")),
    Column("created", Text, nullable=False),
    UniqueConstraint("dataset", "uid"),
    Index("ix_audit_flow", "response", "attribute"),
    Index("ix_audit_attribute", "attribute"),
)


# ---- run tables
#
# The tables of runs beyond their responses: wording, memories, the calls behind a run, and sweeps of runs.
#
# They hang on the same metadata as `store.tables`, which holds what they refer to.


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

# A server that work was planned on, or that answered (store/calls.py). A call names it by its id, which is text.
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
