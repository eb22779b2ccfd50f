"""What must hold between the rows of a bundle, checked before anything is written; tables come in their order.

A row that does not fit is a sentence without the file's name, e.g. "persona 4 is none of the labelling's".
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pydantic_core import PydanticCustomError

from cimemories.formats.labelled import TOLERANCE
from cimemories.formats.official import MOST_PROFILES, checked_value, forbidden, shown, too_long
from cimemories.model import DOMAINS, GENERAL, LONGEST_NAME, LONGEST_STATEMENT, Label, canonical_domain, canonical_event
from cimemories.store import calls, labellings
from cimemories.store.archive import LETTERS, NO_VOTE, request_of
from cimemories.store.engine import StoreError, content_hash
from cimemories.store.labellings import IMPORTED
from cimemories.store.work import ENDED

BALLOTS = ("owed", "ok", "failed", "truncated", "unparsed")
CALLS = ("generate", "label", "respond", "judge")
# What may be longer than a statement; the statement itself is looked at with the name of its attribute.
_LONG = ("statement", "response", "reasoning", "error", "before", "after", "verdicts")
_VERDICTS = {*LETTERS.values(), NO_VOTE}
_OLDEST = 150  # years
_SUPERSEDES = "supersedes must be the number of another decision of the same annotator on the same pair"
Row = dict[str, Any]


class Misfit(ValueError):
    """A row that cannot be; the message says why."""


class Check:
    """Knows of the tables before what later ones refer to."""

    def __init__(self) -> None:
        self.attributes: list[int] = []  # how many each profile has
        self.contexts: set[tuple[str, str]] = set()
        self.tested: set[tuple[int, int]] = set()
        self.priors: list[float] = []
        self.personas: set[str] = set()
        self.labellings: list[Row] = []
        self.requests: list[tuple[str, str]] = []
        self.calls: dict[str, bool] = {}
        self.decisions: list[tuple[object, ...]] = []
        self.uids: set[str] = set()
        # Decisions further down that are superseded: one that was merged in later can be older.
        self._awaited: dict[int, tuple[object, ...]] = {}
        self.rules: dict[str, bool] = {}
        self._keys: set[str] = set()
        self._before: tuple[int, ...] = ()

    def row(self, table: str, number: int, row: Row) -> None:
        """Raises Misfit where the row does not fit to those before. `number` counts the rows of its table from 0."""
        if number == 0:
            self._before = ()
        # Before the table's own checks, which look at texts by pattern and hash.
        for name, text in row.items():
            if isinstance(text, str) and len(text) > LONGEST_STATEMENT and name not in _LONG:
                raise Misfit(f"{name} {too_long(len(text), LONGEST_STATEMENT)}")
        if "number" in row and table != "attributes" and row["number"] != number:
            raise Misfit(f"number must be {number}, as rows are numbered in their order, and is {row['number']}")
        # By name, as ast.NodeVisitor does it; tables that are not read (labels) have none.
        check: Callable[[Row], None] | None = getattr(self, f"check_{table}", None)
        if check is not None:
            check(row)

    def check_profiles(self, row: Row) -> None:
        for name in ("name", "sex", "address"):
            _written(row, name)
        if not 0 <= row["age"] <= _OLDEST:
            raise Misfit(f"age must be a number of years from 0 to {_OLDEST}")
        self._ascending((row["ordinal"],), strictly=True)
        self.attributes.append(0)
        if len(self.attributes) > MOST_PROFILES:
            raise Misfit(f"more than {MOST_PROFILES:,} profiles")

    def check_attributes(self, row: Row) -> None:
        profile = self._in(row, "profile", len(self.attributes))
        self._ascending((profile, row["ordinal"]), strictly=True)
        if self.attributes[profile] == 0:
            self._keys = set()
        if row["number"] != self.attributes[profile]:
            raise Misfit(f"number must be {self.attributes[profile]}, as attributes of a profile are numbered from 0")
        _written(row, "key")
        try:
            _written(row, "statement", LONGEST_STATEMENT)
        except Misfit as misfit:
            raise Misfit(f"profile {profile}, attribute '{shown(row['key'])}': {misfit}") from None
        if row["key"] in self._keys:
            raise Misfit(f"key '{shown(row['key'])}' appears twice in profile {profile}")
        self._keys.add(row["key"])
        if row["domain"] not in (*DOMAINS, GENERAL) or row["domain"] != canonical_domain(row["domain"]):
            raise Misfit(f"domain '{shown(row['domain'])}' is not one of {', '.join((*DOMAINS, GENERAL))}")
        _written(row, "event")
        if not canonical_event(row["event"]):
            raise Misfit("event is blank; write the life event or 'general'")
        try:
            checked_value(row["value"])
        except PydanticCustomError as error:
            raise Misfit(f"profile {profile}, attribute '{shown(row['key'])}': value {error.message()}") from None
        self.attributes[profile] += 1

    def check_contexts(self, row: Row) -> None:
        _written(row, "task")
        _written(row, "recipient")
        self._ascending((row["ordinal"],), strictly=False)
        pair = (row["task"], row["recipient"])
        if pair in self.contexts:
            raise Misfit(f"task '{shown(pair[0])}' with recipient '{shown(pair[1])}' appears twice")
        self.contexts.add(pair)

    def check_profile_contexts(self, row: Row) -> None:
        pair = self._pair(row)
        self._ascending((pair[0], row["ordinal"]), strictly=False)
        if pair in self.tested:
            raise Misfit("the same profile and context stand twice")
        self.tested.add(pair)

    def check_personas(self, row: Row) -> None:
        content = content_hash([row[name] for name in ("pack", "key", "name", "prior", "description")])
        if content in self.personas:
            raise Misfit("the same persona appears twice")
        if not 0 <= row["prior"] <= 1:
            raise Misfit("prior must be a share from 0 to 1")
        self.personas.add(content)
        self.priors.append(row["prior"])

    def check_generations(self, row: Row) -> None:
        if row["status"] not in ENDED:
            raise Misfit(f"status '{shown(row['status'])}' is not one of {', '.join(ENDED)}")
        if not isinstance(row["manifest"], dict):
            raise Misfit("manifest must be an object")

    def check_labellings(self, row: Row) -> None:
        self.check_generations(row)
        voters = row["personas"]
        if not isinstance(voters, list) or not voters or len({str(v) for v in voters}) < len(voters):
            raise Misfit("personas must be a list of numbers, each once")
        for voter in voters:
            if isinstance(voter, bool) or not isinstance(voter, int) or not 0 <= voter < len(self.priors):
                raise Misfit(f"persona {shown(voter)} is not in the table of personas")
        total = sum(self.priors[voter] for voter in voters)
        # Priors come as decimal fractions, whose binary sum is rarely 1 exactly.
        if abs(total - 1) > labellings.PRIOR_TOLERANCE:
            raise Misfit(f"the priors of its personas must add up to 1, and add up to {total:.6g}")
        if row["draws"] < 0:
            raise Misfit("draws must not be below 0")
        self.labellings.append(row)

    def check_requests(self, row: Row) -> None:
        try:
            item = request_of(row["body"])
            body = calls.request_body(item)
            good = all(isinstance(text, str) for message in item.messages for text in message)
        except (KeyError, TypeError, ValueError, AttributeError):
            good = False
        if not good or content_hash(body) != content_hash(row["body"]):
            raise Misfit("body is no request to a model: it needs model and messages, each with role and content")
        self.requests.append((content_hash(body), item.model))

    def check_calls(self, row: Row) -> None:
        number = self._in(row, "request", len(self.requests))
        self._ascending((number,), strictly=False)
        base, model = self.requests[number]
        server = [] if row["server"] is None else [row["server"]]
        # Recorded answers are served by key: a forged one would put an answer under somebody's future request.
        if row["key"] != content_hash([base, row["draw"], row["simulated"], *server]):
            raise Misfit("key is not that of its request, draw, simulated mark and server")
        if row["key"] in self.calls:
            raise Misfit("the same call appears twice")
        if row["model"] != model:
            raise Misfit("model is not the one of its request")
        if row["kind"] not in CALLS:
            raise Misfit(f"kind '{shown(row['kind'])}' is not one of {', '.join(CALLS)}")
        # An answer may have one: why it holds no message although text came back.
        if row["status"] != calls.OK and row["error"] is None:
            raise Misfit("a failed call has no error")
        self.calls[row["key"]] = row["simulated"]

    def check_ballots(self, row: Row) -> None:
        labelling = self._voted(row, ("context", "persona", "draw"), imported=False)
        if row["status"] not in BALLOTS:
            raise Misfit(f"status '{shown(row['status'])}' is not one of {', '.join(BALLOTS)}")
        if min(row["draw"], row["conflicts"], row["unknown"]) < 0:
            raise Misfit("draw, conflicts and unknown must not be below 0")
        key, letters = row["call"], row["verdicts"]
        if key is not None and self.calls and key not in self.calls:
            raise Misfit(f"call '{shown(key, 40)}' is not in the table of calls")
        if key is not None and self.calls.get(key, labelling["simulated"]) != labelling["simulated"]:
            raise Misfit("its call and its labelling do not agree on whether a simulator answered")
        if letters is None:
            return
        if row["status"] != "ok":
            raise Misfit("only a ballot that is ok has verdicts")
        if len(letters) != self.attributes[row["profile"]] or not _VERDICTS.issuperset(letters):
            raise Misfit(
                f"verdicts must have one of {''.join(sorted(_VERDICTS))} for each of the "
                f"{self.attributes[row['profile']]} attributes"
            )

    def check_shares(self, row: Row) -> None:
        self._voted(row, ("context", "attribute", "persona"), imported=True)
        self._in(row, "attribute", self.attributes[row["profile"]])
        shares = [row[name] for name in ("necessary", "inappropriate", "abstain")]
        if not all(0 <= share <= 1 for share in shares) or abs(sum(shares) - 1) > TOLERANCE:
            raise Misfit("the shares must lie from 0 to 1 and add up to 1")

    def _voted(self, row: Row, further: tuple[str, ...], *, imported: bool) -> Row:
        labelling = self.labellings[self._in(row, "labelling", len(self.labellings))]
        self._check_tested(row)
        if row["persona"] not in labelling["personas"]:
            raise Misfit(f"persona {row['persona']} is none of the labelling's")
        if (labelling["endpoint"] == IMPORTED) != imported:
            raise Misfit("an imported labelling has shares and no ballots, any other ballots and no shares")
        self._ascending((row["labelling"], row["profile"], *(row[name] for name in further)), strictly=True)
        return labelling

    def check_decisions(self, row: Row) -> None:
        profile = self._in(row, "profile", len(self.attributes))
        self._in(row, "attribute", self.attributes[profile])
        self._check_tested(row)
        if row["label"] is not None and row["label"] not in list(Label):
            raise Misfit(f"label '{shown(row['label'])}' is not one of {', '.join(Label)}")
        if row["uid"] is not None and (not row["uid"].strip() or row["uid"] in self.uids):
            raise Misfit("uid must be no blank text, and each stands once")
        self.uids.update([row["uid"]] if row["uid"] is not None else ())
        this = (profile, row["attribute"], row["context"], row["annotator"])
        number, other = len(self.decisions), row["supersedes"]
        if other is not None:
            # A decision may supersede one further down: what it must be is noted, and checked when it comes.
            known = self.decisions[other] if 0 <= other < number else self._awaited.setdefault(other, this)
            if other < 0 or other == number or known != this:
                raise Misfit(_SUPERSEDES)
        if self._awaited.pop(number, this) != this:
            raise Misfit(f"a decision before it says that it supersedes this one, and {_SUPERSEDES}")
        self.decisions.append(this)

    def unfinished(self) -> str:
        """What is still missing when all rows were seen, as a sentence; '' where nothing is."""
        if not self._awaited:
            return ""
        return f"has no row {min(self._awaited) + 1}, which a decision supersedes: {_SUPERSEDES}"

    def check_rules(self, row: Row) -> None:
        _written(row, "name")
        try:
            labellings.check_rule(row["threshold"], *labellings.rule_numbers(row["priors"]))
        except (StoreError, ValueError) as error:
            raise Misfit(str(error).rstrip(".")) from None
        if row["name"] in self.rules or (row["current"] and any(self.rules.values())):
            raise Misfit("each name stands once, and at most one rule is current")
        self.rules[row["name"]] = row["current"]

    def check_edits(self, row: Row) -> None:
        if row["kind"] not in ("attribute", "context", "bio") or row["action"] not in ("add", "change", "remove"):
            raise Misfit("kind must be attribute, context or bio, and action add, change or remove")
        for side in ("before", "after"):
            try:
                good = row[side] is None or isinstance(json.loads(row[side]), dict)
            except (ValueError, RecursionError):
                good = False
            if not good:
                raise Misfit(f"{side} must be the text of a JSON object")

    def _pair(self, row: Row) -> tuple[int, int]:
        return self._in(row, "profile", len(self.attributes)), self._in(row, "context", len(self.contexts))

    def _check_tested(self, row: Row) -> None:
        profile, context = pair = self._pair(row)
        if pair not in self.tested:
            raise Misfit(f"profile {profile} is not tested in context {context}")

    def _in(self, row: Row, name: str, size: int) -> int:
        value: int = row[name]
        if not 0 <= value < size:
            raise Misfit(f"{name} {value} is not there; its table has {size} rows")
        return value

    def _ascending(self, position: tuple[int, ...], *, strictly: bool) -> None:
        # In order, repetitions are neighbours: nothing of the rows before has to be kept to see one.
        if position < self._before or (strictly and position == self._before):
            raise Misfit("rows must stand in the order of what they refer to, each once")
        self._before = position


def _written(row: Row, name: str, longest: int = LONGEST_NAME) -> None:
    if len(row[name]) > longest:
        raise Misfit(f"{name} {too_long(len(row[name]), longest)}")
    if not row[name].strip() or forbidden(row[name]):
        raise Misfit(f"{name} is blank or holds control characters")
    if name == "key" and "".join(row[name].splitlines()) != row[name]:
        raise Misfit("key holds a line break")
