"""Reasons not to take a run's numbers at face value, and not to compare runs as they stand.

Models of one family (told from their names by seeds/models.yaml) tend to judge alike: labels or judgements by a model
of the family under test may make that family look better than it is. A message that does not do its task reveals
nothing and must not score as private. And messages may be missing, judges may disagree, or runs may differ in more than
their model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import median

import sqlalchemy as sa

from cimemories import seeds
from cimemories.agreement.judges import JudgePair, judges_agreement
from cimemories.answer import Column, Listing, Table
from cimemories.evaluation.spec import RunSpec, names
from cimemories.flows.arrays import IdentifierRule
from cimemories.flows.flows import Flows, shared_flows
from cimemories.flows.labels import default_labelling
from cimemories.flows.scope import Scope, judge_title, resolve_scope
from cimemories.manifest import SessionsPart
from cimemories.model import Channel
from cimemories.seeds.presets import FILE, FamilyEntry, ModelsFile
from cimemories.seeds.prompts import FROM_SEEDS, levels, prompt_path
from cimemories.seeds.reading import SEEDS, SeedError, read, refuse_repeats
from cimemories.store import calls, judgements, labellings, runs
from cimemories.store.calls import PromptSize
from cimemories.store.engine import Store, StoreError
from cimemories.store.judgements import JudgeRow
from cimemories.store.runs import RunRow
from cimemories.text import count, decimal, listed, percent


@dataclass(frozen=True)
class FamilyCheck:
    """A run beside the labelling that its numbers rest on. shared: the families that both models are of."""

    run_id: str
    run_name: str
    model: str
    labeller: str
    families: tuple[str, ...]
    labeller_families: tuple[str, ...]
    warning: str | None


@lru_cache(maxsize=4)
def load_families(path: Path | None = None) -> tuple[FamilyEntry, ...]:
    """Return the families of seeds/models.yaml, in the file's order. Raises SeedError where it does not fit."""
    path = path or SEEDS / FILE
    entries = read(path, ModelsFile).families
    refuse_repeats(path, "family", [entry.name for entry in entries])
    return entries


def families(model: str, path: Path | None = None) -> tuple[str, ...]:
    """Return the families that a model's name indicates, in the file's order; empty if it indicates none. A distilled
    model may be of two: 'DeepSeek-R1-Distill-Qwen-7B'. Raises SeedError where the seeds file does not fit."""
    return tuple(
        family.name
        for family in load_families(path)
        if any(_occurs(word, model, family.excepted) for word in family.words)
    )


def family_warning(labeller: str, model: str) -> str | None:
    """Say why the labels of one model should not be used to test another, in one sentence; None if they may. Two models
    of unknown family warn only where their names are the same."""
    return _same_family(labeller, model, "the labelling model")


def _same_family(judging: str, model: str, role: str) -> str | None:
    # Seeds are edited by hand: an error in them replaces the warning, and takes no number away.
    try:
        shared = [name for name in families(judging) if name in families(model)]
    except SeedError as problem:
        return f"whether {role} and the model under test are from one family is not known ({problem})"
    if judging.casefold() == model.casefold():
        return f"{role}, {judging}, is the model under test itself"
    if shared:
        return f"{role}, {judging}, is from the same family as the model under test ({' and '.join(shared)})"
    return None


def labeller_warning(store: Store, run_id: str) -> str | None:
    """Return the warning for a run and the labelling that numbers rest on; None where there is no reason, or no
    labelling. Raises StoreError for a run that is not there."""
    with store.read() as connection:
        run = runs.by_id(connection, run_id)
    row = default_labelling(store, run.dataset)
    return None if row is None else family_warning(row.model, run.model)


def family_warnings(store: Store, labelling_id: str) -> list[FamilyCheck]:
    """Check every run on the dataset of a labelling against the model that labelled, those to be warned of first.
    Raises StoreError for an unknown labelling, SeedError where the seeds file does not fit."""
    with store.read() as connection:
        row = next((row for row in labellings.all_rows(connection) if row.id == labelling_id), None)
        every = runs.all_rows(connection)
    if row is None:
        raise StoreError(f"there is no labelling '{labelling_id}'. `cimemories labellings` lists what is there.")
    checks = [
        FamilyCheck(
            run_id=run.id,
            run_name=run.name,
            model=run.model,
            labeller=row.model,
            families=families(run.model),
            labeller_families=families(row.model),
            warning=family_warning(row.model, run.model),
        )
        for run in every
        if run.dataset == row.dataset
    ]
    return sorted(checks, key=lambda item: item.warning is None)


@lru_cache(maxsize=4096)
def _occurs(word: str, name: str, excepted: tuple[str, ...]) -> bool:
    """Return whether a word stands in a name other than as a part of an excepted one."""
    rest = name
    # Excepted names are blanked first, so that a word inside one of them is not found.
    for other in excepted:
        rest = _pattern(other).sub(" ", rest)
    return _pattern(word).search(rest) is not None


@lru_cache(maxsize=512)
def _pattern(word: str) -> re.Pattern[str]:
    """Return a pattern that finds a word. A letter before or after makes it another word; so does a digit beside a
    digit. A digit after letters is a version: qwen3, gemma2."""
    before = "(?<![a-z0-9])" if word[0].isdigit() else "(?<![a-z])"
    after = "(?![a-z0-9])" if word[-1].isdigit() else "(?![a-z])"
    return re.compile(f"{before}{re.escape(word)}{after}", re.IGNORECASE)


YES, PARTLY, NO = "yes", "partly", "no"
WORRYING = 0.05  # share of the checked messages above which a headline warns


@dataclass(frozen=True)
class TaskCheck:
    """Verdicts of one checker on the answered messages of a run. yes, partly, no: messages by verdict; answered: all
    that came back whole, whether checked or not. Responses that are missing are in none of them."""

    checker: JudgeRow
    yes: int
    partly: int
    no: int
    answered: int

    @property
    def checked(self) -> int:
        return self.yes + self.partly + self.no

    @property
    def unchecked(self) -> int:
        return self.answered - self.checked

    @property
    def share(self) -> float:
        """Messages that do the task, partly included, over checked ones; nan where none is checked."""
        return (self.yes + self.partly) / self.checked if self.checked else float("nan")

    @property
    def name(self) -> str:
        return judge_title(self.checker)

    def as_json(self) -> dict[str, object]:
        counts = {"yes": self.yes, "partly": self.partly, "no": self.no, "not_checked": self.unchecked}
        return {"checker": self.name, "share": self.share, **counts}

    @property
    def note(self) -> str | None:
        """Remark for the reader; None where hardly any message misses its task."""
        if self.checked and self.no > WORRYING * self.checked:
            return (
                f"{self.no} of {self.checked} messages do not do their task (checked by {self.name}); an empty message "
                "or a refusal reveals nothing"
            )
        return None


def task_checks(connection: sa.Connection, run: RunRow) -> tuple[TaskCheck, ...]:
    """Return the task checks of a run, one a checker, in the order of the run; empty where none was asked for."""
    checkers = judgements.checkers_of_run(connection, run.id)
    if not checkers:
        return ()
    counts: dict[tuple[int, str], int] = {}
    for row in judgements.task_verdicts(connection, run.id, [c.id for c in checkers]).mappings():
        counts[int(row["judge"]), str(row["verdict"])] = int(row["messages"])
    answered = run.responses.get("ok", 0)
    return tuple(
        TaskCheck(
            checker=checker,
            yes=counts.get((checker.id, YES), 0),
            partly=counts.get((checker.id, PARTLY), 0),
            no=counts.get((checker.id, NO), 0),
            answered=answered,
        )
        for checker in checkers
    )


def task_check(connection: sa.Connection, run: RunRow) -> TaskCheck | None:
    """Return the task check that is reported of a run: among those that have checked a message, if any has, a model's
    before that by rules, which know the plainest cases only; the first of equals. None where none was asked for."""
    checks = task_checks(connection, run)
    return min(checks, key=lambda check: (not check.checked, check.checker.kind == RULES), default=None)


COVERAGE_WARNING = 0.99
RULES = "check-rules"
KAPPA_WARNING = 0.6
UNRECORDED = "not recorded"


def run_warnings(store: Store, run_id: str) -> tuple[str, ...]:
    """Return the warnings about a run's numbers, by its first judge; empty where there are none. Raises StoreError for
    a run that is not there."""
    with store.read() as connection:
        run = runs.by_id(connection, run_id)
        if not judgements.of_run(connection, run_id):
            return ("the run has no judge, so what its messages reveal is not known",)
    scope = resolve_scope(store, run_id)
    covered = coverage_warning(run.judged, run.expected)
    mixed = _mixed(store, run_id)
    return tuple(text for text in (covered, mixed) if text) + scope_warnings(shared_flows(store), scope)


def _mixed(store: Store, run_id: str) -> str | None:
    """Return the warning where a run's messages were written by servers that are not known to be the same."""
    with store.read() as connection:
        sources = calls.origins(connection, [run_id])[run_id]
        written = [source for source in sources if source.kind in ("respond", "rewrite")]
        names = list(dict.fromkeys(source.server for source in written))
        # Servers that people said are the same count as one.
        same = calls.declared_same(connection, names[0]).servers if names else ()
    if all(name in same for name in names[1:]):
        return None
    return f"its messages were written by {len(names)} servers: {'; '.join(source.sentence() for source in written)}"


def is_covered(judged: int, expected: int) -> bool:
    """Return whether so many judged of the planned responses are enough; also where none is planned."""
    return not expected or judged / expected >= COVERAGE_WARNING


def reading_n(judged: int, expected: int, samples: int, supported: int | None) -> int:
    """Return the samples that violation is read at: all planned ones under full coverage, else `supported`."""
    return samples if supported is None or is_covered(judged, expected) else supported


def coverage_warning(judged: int, expected: int) -> str | None:
    """Return the warning below COVERAGE_WARNING; None above it, and for a run that plans nothing."""
    if is_covered(judged, expected):
        return None
    covered = percent(judged / expected)
    return f"only {covered} of the planned messages are judged; the others are missing, not free of leaks"


def scope_warnings(flows: Flows, scope: Scope) -> tuple[str, ...]:
    """Return the warnings about one way of counting, coverage aside: judges of the family under test, a judge's prompt
    that is not today's, claims that could not be used, judges that disagree, and reasoning that was not shown."""
    warnings: list[str | None] = [*_as_served(flows, scope.run)]
    warnings += [judge_family_warning(judge, scope.run.model) for judge in scope.judges]
    with flows.store.read() as connection:
        warnings += [_wording(connection, judge) for judge in scope.judges]
        warnings.append(_hidden(connection, scope))
        judges = len(judgements.of_run(connection, scope.run.id))
    warnings += [_dropped(flows, scope, judge) for judge in scope.judges]
    # A single judge has no other to agree with: its claims need not be read.
    pairs = judges_agreement(flows, scope.run.id, grounded=scope.grounded).pairs if judges > 1 else ()
    ids = set(scope.judge_ids)
    # Pairs without a judge that is counted say nothing of these numbers.
    warnings.append(_disagreement([pair for pair in pairs if ids & {pair.first.judge.id, pair.second.judge.id}]))
    # Several judges may bring the same sentence: it is said once.
    return tuple(dict.fromkeys(text for text in warnings if text))


PROMPTS_READ = 200  # of each kind: their sizes differ by context and profile, not by call
LONG_PROMPT = 2_000  # characters, about 500 tokens: a shorter prompt fits everywhere
CHARACTERS_A_TOKEN = 4.0  # of English, in the tokenizers of today's models; a little more or less in each
FEWEST_TOKENS = 8.0  # characters a token that no tokenizer reaches on sentences
SAME_COUNT, SPREAD = 5, 40  # so many prompts, so many characters apart, do not share a count of tokens by chance


def _as_served(flows: Flows, run: RunRow) -> tuple[str, ...]:
    """Return the warnings where another model answered than was asked, or a server read a part of the prompts."""

    def read() -> tuple[str, ...]:
        with flows.store.read() as connection:
            others = [item.sentence() for item in calls.stand_ins(connection, run.id)]
            sizes = {
                (kind, model): of_model
                for kind in ("respond", "gate", "rewrite", "judge")
                for model, of_model in calls.prompt_sizes(connection, run.id, kind, PROMPTS_READ).items()
            }
        cut = [unread_warning(kind, model, of_model) for (kind, model), of_model in sizes.items()]
        return (*others, *(text for text in cut if text))

    return flows.cached(("as served", run.id, run.revision), read)


def unread_warning(kind: str, model: str, sizes: Sequence[PromptSize]) -> str | None:
    """Return the warning where a server cut prompts silently, by the tokens that it counted; None where nothing shows
    it. Servers that do so (a small `num_ctx`, a shifted context) answer as if nothing had happened."""
    long = [size for size in sizes if size.characters >= LONG_PROMPT]
    if not long:
        return None
    most = max(size.tokens for size in long)
    at_most = [size.characters for size in long if size.tokens == most]
    level = len(set(at_most)) >= SAME_COUNT and max(at_most) - min(at_most) >= SPREAD and len(at_most) > len(long) / 2
    ratio = median(size.characters / size.tokens for size in long)
    if not level and ratio < FEWEST_TOKENS:
        return None
    tokens = most if level else round(median(size.tokens for size in long))
    sent = round((median(at_most) if level else median(size.characters for size in long)) / CHARACTERS_A_TOKEN, -2)
    what = "leak" if kind == "respond" else "find" if kind == "judge" else "use"
    return (
        f"the server of {model} read about {tokens:,} tokens of {sent:,.0f} in a {calls.PROMPTS[kind]}: what the model "
        f"did not read it cannot {what}. Raise its context length, then run again"
    )


def judge_family_warning(judge: JudgeRow, model: str) -> str | None:
    """Say why a judge may be partial to the model under test; None where nothing suggests it. A simulated judge is of
    no family, since its verdicts mean nothing."""
    return None if judge.kind != "llm" or judge.simulated else _same_family(judge.model, model, "the judge")


def _wording(connection: sa.Connection, judge: JudgeRow) -> str | None:
    if judge.prompt_hash is None or judge.kind != "llm":
        return None
    try:
        current = _current_wording(prompt_path("judge").stat().st_mtime_ns)
    except (SeedError, OSError) as problem:
        return f"whether the judge's prompt is still the one in seeds is not known ({problem})"
    if judge.prompt_hash in current:
        return None
    recorded = runs.recorded_prompts(connection, judge.prompt_hash)
    if recorded is not None and recorded.source != FROM_SEEDS:
        return f"the judge {judge.name} used the prompt of {recorded.source}, not the one in seeds"
    return (
        f"the judge {judge.name} used another prompt ({judge.prompt_hash[:8]}) than the one in seeds now "
        f"({', '.join(sorted(h[:8] for h in current))}), which new runs are judged with"
    )


def _dropped(flows: Flows, scope: Scope, judge: JudgeRow) -> str | None:
    def read() -> tuple[int, int]:
        with flows.store.read() as connection:
            return judgements.dropped_claims(connection, scope.run.id, judge.id)

    # By the version of the record: it reads every judgement of a run, 0.6 ms for each thousand.
    claims, messages = flows.cached(("dropped claims", scope.run.id, scope.run.revision, judge.id), read)
    if not claims:
        return None
    return (
        f"{count(claims, 'claim')} of the judge {judge_title(judge, scope.judges)} about {count(messages, 'message')} "
        "could not be used and did not count: without an attribute of the memory, a known strength or a quote"
    )


@lru_cache(maxsize=2)
def _current_wording(_changed: int) -> frozenset[str]:
    """Return hashes of the judge's prompts in seeds, cached by the time that their file was last changed."""
    return frozenset(seeds.load_prompt("judge", level).sha256 for level in levels("judge"))


def _disagreement(pairs: Sequence[JudgePair]) -> str | None:
    """Say which pairs of judges disagree much, in one sentence."""
    texts = [
        # + 0.0 turns -0.0 into 0.0.
        f"{pair.first.title} and {pair.second.title} {decimal(pair.kappa.value)} on {pair.places:,} places "
        f"of {count(pair.messages, 'message')}"
        for pair in pairs
        if pair.kappa.value is not None and pair.kappa.value < KAPPA_WARNING
    ]
    return f"judges disagree (Cohen's kappa is under {KAPPA_WARNING}): {'; '.join(texts)}" if texts else None


def _hidden(connection: sa.Connection, scope: Scope) -> str | None:
    """Return the warning where reasoning was asked for, or is judged, and messages came without any."""
    reads = any(judge.channel == Channel.REASONING for judge in scope.judges)
    if not reads and scope.run.manifest.thinking not in ("on", "low", "medium", "high"):
        return None
    answered, hidden = judgements.reasoning_counts(connection, scope.run.id)
    if not hidden:
        return None
    end = "; they do not count in the numbers of the reasoning" if reads else ""
    none = f"{hidden:,} of {count(answered, 'message')} came without a reasoning text"
    return f"{none}: the server hides it, or there was none{end}"


def comparison_warnings(
    store: Store, compared: Sequence[str | Scope], rules: Sequence[IdentifierRule] = ()
) -> tuple[str, ...]:
    """Return `differing` as sentences with every value and its runs."""
    scopes = _scopes(store, compared)
    run_names = names([scope.run for scope in scopes])
    texts = []
    for what, values in differing(store, scopes, rules).items():
        whose: dict[str, list[str]] = {}
        for scope, value in zip(scopes, values, strict=True):
            whose.setdefault(value, []).append(run_names[scope.run.id])
        told = "; ".join(f"{value} ({listed(runs)})" for value, runs in whose.items())
        texts.append(f"the runs differ in {what}: {told}")
    return tuple(texts)


def settings_table(
    store: Store, scopes: Sequence[Scope], run_names: Mapping[str, str], further: Mapping[str, Sequence[str]]
) -> Table:
    """Return in what runs differ apart from their models: one row a setting, one column for all runs that are alike in
    each of them, the most runs first. run_names: by id. further: more such settings, with the value of each run."""
    by_setting = {**differing(store, scopes), **further}
    alike: dict[tuple[str, ...], list[Scope]] = {}
    for scope, values in zip(scopes, zip(*by_setting.values(), strict=True), strict=bool(by_setting)):
        alike.setdefault(values, []).append(scope)
    # Sorting is stable: groups of one size in the order of their runs.
    groups = sorted(alike.items(), key=lambda item: -len(item[1]))
    columns = {"setting": Column("text", "Setting")}
    rows = [{"setting": _title(what)} for what in by_setting]
    for values, own in groups:
        first = own[0].run.id
        columns[first] = Column("text", run_names[first] if len(own) == 1 else count(len(own), "run"))
        for row, value in zip(rows, values, strict=True):
            row[first] = value
    return Listing(rows, columns, f"Runs differ in {count(len(rows), 'setting')} apart from their models")


def _title(what: str) -> str:
    text = what.removeprefix("the ")
    return f"{text[:1].upper()}{text[1:]}"


def differing(
    store: Store, compared: Sequence[str | Scope], rules: Sequence[IdentifierRule] = ()
) -> dict[str, list[str]]:
    """Return in what two or more runs differ apart from their models: of each such setting the value of every run.

    compared: ids of runs (taken by their first judge), or scopes. rules: the identifier rule of each, where they may
    differ. Empty where they can be compared as they stand. Raises StoreError for a run that is not there.
    """
    scopes = _scopes(store, compared)
    if rules and len(rules) != len(scopes):
        raise StoreError(f"{len(rules)} identifier rules for {len(scopes)} runs: give one for each, or none.")
    facts = [_facts(item) for item in scopes]
    for number, rule in enumerate(rules):
        facts[number]["the identifier rule"] = str(rule)
    settings = {}
    for key in dict.fromkeys(key for run_facts in facts for key in run_facts):
        # A parameter that is absent was not sent; any other fact that is absent is only not known.
        absent = "not sent" if key.startswith("parameter ") else UNRECORDED
        values = [run_facts.get(key, absent) for run_facts in facts]
        if len(set(values)) > 1:
            settings[key] = values
    return settings


def _scopes(store: Store, compared: Sequence[str | Scope]) -> list[Scope]:
    return [resolve_scope(store, item) if isinstance(item, str) else item for item in compared]


def _sessions(part: SessionsPart | None) -> str:
    if part is None:
        return "none"
    return f"{part.kept} in memory, order {part.order}" + (f", seed {part.seed}" if part.order != "fixed" else "")


# Facts of settings that an assistant may have of its own, and their text then.
SETTING_OF = {
    "the prompt": "prompt_level",
    "the mitigation": "mitigation",
    "the wording of memories": "memory_template",
    "the seed": "seed",
}
ASSISTANTS = "the assistant's own"


def _facts(scope: Scope) -> dict[str, str]:
    """Return everything about a run that its numbers depend on, apart from its model: texts by name."""
    run, manifest = scope.run, scope.run.manifest
    memory, template = manifest.memory, manifest.memory.template
    labels = scope.labelling
    facts = {
        "the source of answers": "the simulator" if run.simulated else "a real model",
        "the dataset": f"{scope.dataset_name} {run.dataset_hash[:8]}",
        "the labels": f"{labels.id} by {labels.model}" if labels else "none",
        "the prompt": f"level {run.prompt_level}, {(manifest.prompt.sha256 or UNRECORDED)[:12]}",
        "the memory": f"{run.composition}, order {memory.order}",
        "the mitigation": manifest.mitigation.kind,
        "the sessions": _sessions(manifest.sessions),
        "the number of samples": str(run.samples),
        "the seed": "none" if run.seed is None else str(run.seed),
        "the judge": scope.judge_text,
        "the judge's prompt": ", ".join(sorted((j.prompt_hash or "none")[:8] for j in scope.judges)),
        "which claims count": "grounded ones" if scope.grounded else "all full ones",
        "whose verdicts count": str(scope.verdicts),
    }
    if manifest.reference:
        facts["the wording of memories"] = f"reference settings, biography of {manifest.reference.get('source')}"
    elif template is not None:
        facts["the wording of memories"] = f"{template.level}, {template.sha256[:8]}"
    # The seed matters only where something was chosen or shuffled by it.
    if run.composition != "full" or memory.order != "fixed":
        facts["the memory"] += f", seed {memory.seed}"
    facts.update({f"parameter {name}": json.dumps(value) for name, value in manifest.parameters.items()})
    spec = RunSpec.of(manifest)
    return facts | {fact: ASSISTANTS for fact, name in SETTING_OF.items() if not spec.applies(name)}
