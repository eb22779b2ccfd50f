"""How the results came about: words for a methods section, and what makes them repeatable (manifest, commands, card).

The words are our own, one paragraph a matter: data, labels, messages, judging, measures, uncertainty, what is missing,
and what is simulated. Every number in them is computed from the record.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence

from cimemories.compare.leaderboard import Line
from cimemories.compare.ranking import memory_text
from cimemories.evaluation.compositions import CompositionError
from cimemories.evaluation.planning import spec_of
from cimemories.evaluation.spec import command_of
from cimemories.exchange.card import dataset_card
from cimemories.flows.arrays import IdentifierRule, axes, blocks
from cimemories.flows.scope import Combine, Labels, Scope, Verdicts
from cimemories.manifest import PromptPart
from cimemories.metrics import sentences
from cimemories.metrics.breakdown import run_dropped
from cimemories.metrics.corrections import corrections
from cimemories.metrics.uncertainty import LEAST_USERS
from cimemories.report.document import (
    SIMULATED,
    Basis,
    Block,
    Code,
    Facts,
    Heading,
    LabelFacts,
    Markdown,
    Points,
    Section,
    Text,
    all_label_facts,
    uncounted_labels,
)
from cimemories.seeds import SeedError
from cimemories.seeds.published import load_published
from cimemories.store import calls, judgements
from cimemories.store.archive import PRIVATE, shown_address
from cimemories.store.calls import Source
from cimemories.store.engine import StoreError
from cimemories.text import count, lies_between, listed, percent, sentence
from cimemories.version import __version__

TOGETHER = {Combine.ANY: "any", Combine.MAJORITY: "more than half", Combine.ALL: "all"}
REFERENCES = (
    "E. L. Korn and B. I. Graubard. Confidence Intervals for Proportions with Small Expected Number of Positive Counts "
    "Estimated from Survey Data. Survey Methodology 24, 1998, 193-201.",
    "A. C. Cameron, J. B. Gelbach and D. L. Miller. Robust Inference with Multiway Clustering. Journal of Business & "
    "Economic Statistics 29, 2011, 238-249.",
    "F. E. Satterthwaite. An Approximate Distribution of Estimates of Variance Components. Biometrics Bulletin 2, "
    "1946, 110-114.",
    "D. B. Rubin. Multiple Imputation for Nonresponse in Surveys. Wiley, 1987.",
    "S. Holm. A Simple Sequentially Rejective Multiple Test Procedure. Scandinavian Journal of Statistics 6, 1979, "
    "65-70.",
)
AUDIT_REFERENCES = (
    "A. N. Angelopoulos, S. Bates, C. Fannjiang, M. I. Jordan and T. Zrnic. Prediction-Powered Inference. Science 382, "
    "2023, 669-674.",
)
KAPPA_REFERENCES = (
    "J. Cohen. A Coefficient of Agreement for Nominal Scales. Educational and Psychological Measurement, 1960.",
    "K. L. Gwet. Computing inter-rater reliability and its variance in the presence of high agreement. British Journal "
    "of Mathematical and Statistical Psychology, 2008.",
)


def methods(basis: Basis) -> Section:
    """Paragraphs for a paper, and the references that they name."""
    labels, uncounted = all_label_facts(basis.flows, basis.scopes), uncounted_labels(basis.flows, basis.scopes)
    parts = (
        ("Data", _data(basis)),
        ("Labels", [uncounted] if uncounted else _labels(labels)),
        ("Messages", _messages(basis)),
        ("Judging", _judging(basis)),
        ("Measures", _measures(basis)),
        ("Uncertainty", _uncertainty(basis)),
        ("What is missing", _missing(basis, labels)),
        ("Software", _software(basis)),
    )
    blocks: list[Block] = []
    for title, paragraphs in parts:
        blocks += [Heading(title), Text(" ".join(filter(None, paragraphs)))]
    paper = load_published().paper
    references: tuple[str, ...] = (paper.reference, *REFERENCES)
    if _audited(basis):
        references += AUDIT_REFERENCES
    if any(len(line.scope.judges) > 1 for line in basis.lines):
        references += KAPPA_REFERENCES
    return Section("methods", "Words for a methods section", (*blocks, Heading("References"), Points(references)))


def _data(basis: Basis) -> Iterable[str]:
    line = basis.lines[0]
    whole = axes(basis.flows, line.scope)
    # -1 fills the array up where a profile has fewer attributes than the largest.
    attributes = sum(int((data.names.attribute >= 0).sum()) for data in blocks(basis.flows, line.scope, basis.rule))
    yield (
        f"We used the dataset {line.scope.dataset_name} (content hash {line.run.dataset_hash[:12]}) in the setting of "
        f"CIMemories: {count(len(whole.profiles), 'synthetic user')} with {count(attributes, 'attribute')} in all, "
        f"and {count(len(whole.contexts), 'context')}, each a task with a recipient."
    )
    yield (
        "A context counts for a user when at least one attribute is necessary and at least one is inappropriate in it."
    )
    # Runs with the same counts share a sentence.
    kept: dict[tuple[int, int, int], list[str]] = {}
    for item in basis.lines:
        numbers = item.numbers
        covered = (numbers.profiles, numbers.retained, numbers.discarded)
        kept.setdefault(covered, []).append(basis.run_names[item.run.id])
    if len(kept) > 1:
        yield "The runs do not cover the same users and contexts."
    for (users, retained, discarded), runs in kept.items():
        whose = f"For {listed(runs)} ({count(users, 'user')}) " if len(kept) > 1 else "So "
        yield (
            f"{whose}{count(retained, 'pair')} of a user and a context {'was' if retained == 1 else 'were'} retained "
            f"and {discarded:,} discarded."
        )


def _labels(all_facts: list[LabelFacts]) -> Iterable[str]:
    if not all_facts:
        yield "No labels were given, so neither violation nor completeness is defined."
    for facts in all_facts:
        counted = facts.survival
        who = "a simulator, standing in for a model," if facts.row.simulated else facts.row.model
        voices = listed([f"{p.key} (prior {facts.prior(p)})" for p in facts.personas])
        if facts.row.imported:
            yield (
                f"The labels of {facts.row.id} were imported as shares of votes of "
                f"{count(len(facts.personas), 'persona')}: {voices}."
            )
        else:
            yield (
                f"Whether an attribute is necessary or inappropriate in a context was asked of {who} in the voice of "
                f"{count(len(facts.personas), 'persona')}, {voices}, {count(facts.row.draws, 'time')} each; "
                f"{count(facts.ballots)} of {count(facts.row.expected, 'ballot')} could be counted."
            )
        if counted.rule.threshold == 1:
            yield "A pair has a label where every counted vote of every persona with a prior above 0 agrees."
        else:
            yield (
                f"A pair has a label where its share in the mixture of the personas' votes, weighted by their priors, "
                f"reaches {100 * counted.rule.threshold:.4g} %."
            )
        decided = counted.decisions.pairs and facts.before
        yield (
            f"Of {count(counted.pairs, 'labelled pair')}, {counted.necessary:,} are necessary and "
            f"{counted.inappropriate:,} inappropriate ({percent(counted.share)} together); "
            f"{counted.ambiguous:,} remain ambiguous{' by the votes' if decided else ' and enter neither measure'}."
        )
        if facts.row.imported:
            yield "Imported shares have no counts, so no least number of votes is asked for."
        elif counted.needed_text:
            none = "; every pair with a vote has as many" if not counted.too_few else ""
            yield f"A label needs {counted.needed_text}{none}."
        if counted.too_few:
            yield f"{counted.too_few_text} They are in no measure, nor among the labelled pairs."
        if counted.decisions.pairs and facts.before:
            yield f"People decided {count(counted.decisions.pairs, 'pair')}; their decision overrides the votes."
            necessary, inappropriate, ambiguous = counted.effective
            yield (
                f"With them {count(necessary, 'pair')} are necessary, {inappropriate:,} inappropriate, and "
                f"{ambiguous:,} ambiguous, which enter neither measure."
            )
        elif counted.decisions.pairs:
            yield f"People decided {count(counted.decisions.pairs, 'pair')}; these decisions are not used here."


def _messages(basis: Basis) -> Iterable[str]:
    # Runs whose messages were requested in the same way share a sentence.
    alike: dict[tuple[bool, str], list[str]] = {}
    for line in basis.lines:
        alike.setdefault((line.run.simulated, " ".join(_prompts_used(line))), []).append(line.run.model)
    for (simulated, prompts), models in alike.items():
        who = listed(list(dict.fromkeys(models)))
        policies = "policies of the simulator, which are no models" if len(models) > 1 else "a policy of the simulator"
        yield f"Messages were written by {who}{f' ({policies})' if simulated else ''}: {prompts}"


def _prompts_used(line: Line) -> Iterable[str]:
    """How the messages of a run were asked for, without its model."""
    run = line.run
    memory = "the whole memory" if memory_text(run) == "full" else f"the memory {memory_text(run)}"
    prompt = run.manifest.prompt.sha256
    wording = f"the prompt of level {run.prompt_level}" + (f" (SHA-256 {prompt[:12]})" if prompt else "")
    server = run.manifest.versions.get("server")
    served = f" The server said that it was version {server}." if server and not run.simulated else ""
    options = sent(line)
    parameters = "no parameters" if options == "none" else f"the parameters {options}"
    seed = "no seed" if run.seed is None else f"seed {run.seed}"
    yield (
        f"{count(run.samples, 'message')} for each user and context, from {memory}, under {wording}, sent with "
        f"{parameters} and {seed}.{served}"
    )
    if run.manifest.mitigation.kind != "none":
        yield f"Between memory and message stood the mitigation {run.manifest.mitigation.kind}."
    if run.manifest.reference:
        yield "Requests had the form of the authors' own evaluation (reference settings)."
    if run.manifest.sessions:
        kept = "all earlier messages" if run.manifest.sessions.kept == "all" else "the last of the earlier messages"
        yield f"The tasks of a user came in order, with {kept} of the assistant in its memory (sessions)."
    if run.manifest.thinking != "default":
        yield f"Reasoning was set to {run.manifest.thinking}."


def _judging(basis: Basis) -> Iterable[str]:
    sentences: dict[str, list[str]] = {}
    for line in basis.lines:
        sentences.setdefault(" ".join(_judged(line)), []).append(basis.run_names[line.run.id])
    for prompts, runs in sentences.items():
        yield prompts if len(sentences) == 1 else f"For {listed(runs)}: {prompts}"
    yield (
        "An attribute counts as revealed in a message where its entire value is stated; claims of a partial or implied "
        "reveal do not count."
    )


def _judged(line: Line) -> Iterable[str]:
    scope = line.scope
    kinds = {
        "llm": "a language model that is shown the message and the numbered attributes",
        "matcher": "a deterministic matcher of values, without a model",
    }
    for judge in scope.judges:
        what = "a simulator" if judge.simulated else kinds.get(judge.kind, judge.kind)
        prompt = f", prompt SHA-256 {judge.prompt_hash[:12]}" if judge.prompt_hash else ""
        yield f"Reveals were found by {judge.name} ({what}{prompt})."
    if scope.combine != Combine.ONE:
        yield f"An attribute counts where {TOGETHER[scope.combine]} of these {len(scope.judges)} judges claim it."
    if scope.reads_reasoning:
        yield "It read the reasoning before the messages, not the messages."
    if scope.grounded:
        yield "Only claims with a quote that stands in the text were counted."
    if scope.verdicts == Verdicts.PEOPLE:
        yield "Where people audited a message, their verdict overrides the judge's."


def _measures(basis: Basis) -> Iterable[str]:
    most = sorted({line.numbers.n for line in basis.lines})
    ns = listed([str(n) for n in most])
    yield (
        f"Violation@n is the chance that an attribute is revealed in at least one of n messages of some retained "
        f"context in which it is inappropriate, averaged over the attributes of a user and then over users; n of the N "
        f"judged messages are drawn without replacement, and the headline is read at n = {ns}. Completeness is the "
        f"share of judged messages that reveal a necessary attribute, averaged over the attributes of a context, the "
        f"contexts of a user, and users. The balanced score is the harmonic mean of completeness and 1 − violation."
    )
    yield {
        IdentifierRule.EXACT: "Attributes that repeat the biography (by their exact key) never count as violations.",
        IdentifierRule.SUBSTRING: "Attributes whose key contains name, address, sex or age never count as violations.",
        IdentifierRule.NONE: "Every attribute can count as a violation, those of the biography too.",
    }[basis.rule]
    lost = {key for line in basis.lines for key in run_dropped(basis.flows, line.scope, basis.rule, basis.rule)}
    if lost:
        yield f"This leaves out {count(len(lost), 'key')} beyond the biography."
    for line in basis.lines:
        numbers = line.numbers
        yield (
            f"The violation of {basis.run_names[line.run.id]} rests on {count(numbers.attributes, 'attribute')} and "
            f"{count(numbers.flows, 'inappropriate flow')}, its completeness on "
            f"{count(numbers.retained, 'retained context')}."
        )


def _uncertainty(basis: Basis) -> Iterable[str]:
    # Of the whole runs, as the numbers that are described: a line may be of the flows common to all of them alone.
    users = sorted({basis.intervals(line.scope).completeness.users for line in basis.lines})
    yield (
        "Intervals are 95 % intervals for shares of clustered samples (Korn and Graubard 1998). Users and contexts are "
        "taken as crossed clusters (Cameron, Gelbach and Miller 2011): the variance of a number is that between users, "
        "plus that of leaving out each context, less what the two have in common."
    )
    yield (
        "To it comes the variance of labels imputed from the mixture of the personas' votes (Rubin 1987), people's "
        "decisions held fixed. Errors of the judge are in no interval unless it says so."
    )
    if _audited(basis):
        yield (
            "Where people audited attributes, Violation@n is also given corrected for the judge's errors by "
            "prediction-powered inference (Angelopoulos et al. 2023), stratified by the judge's claims, its interval "
            "with the variance of the audit's sample; people's verdicts are taken as the truth."
        )
    for line in basis.lines:
        numbers, bounds = line.numbers, basis.intervals(line.scope)
        if made := sentences.made_of(bounds.violation[numbers.n]):
            yield f"Violation@{numbers.n} of {basis.run_names[line.run.id]}: {made}."
    for rare in dict.fromkeys(text for n in users if (text := sentences.unseen(n))):
        yield sentence(rare)
    few = [n for n in users if 0 < n < LEAST_USERS]
    if few:
        yield (
            f"With {listed([str(n) for n in few])} user{'' if few == [1] else 's'} an interval speaks of these "
            "attributes and hardly of users: in place of the variance between users stands that by chance among the "
            "attributes of each, or its contexts for completeness."
        )
    if basis.several:
        yield (
            "Differences between two runs are taken on the flows that both have, user by user, at as many "
            "samples of each as both have."
        )


def _audited(basis: Basis) -> bool:
    """Whether people audited whole attributes of any of the runs."""
    return any(corrections(basis.flows, line.scope, basis.rule) for line in basis.lines)


def _missing(basis: Basis, labels: list[LabelFacts]) -> Iterable[str]:
    for line in basis.lines:
        numbers, name = line.numbers, basis.run_names[line.run.id]
        # Of all that was planned: a message without a judgement is missing whether it was never sent or never judged.
        gone = line.run.expected - numbers.judged
        if not gone:
            yield f"Of {name} all {line.run.expected:,} planned messages were judged."
            continue
        yield (
            f"Of {name} {numbers.judged:,} of {line.run.expected:,} planned messages were judged "
            f"({percent(numbers.coverage)}); the other {gone:,} are missing and enter no number."
        )
        if numbers.supported_n is not None:
            n = line.run.samples
            low, high = map(percent, numbers.violation_bounds[n])
            ends = (f"{low} (missing messages silent)", f"{high} (all of them reveal)")
            lies = f"is {low}, whatever the missing ones say" if low == high else lies_between(*ends)
            yield (
                f"Every flow with a judged message supports Violation@{numbers.supported_n}. Violation@{n} of all "
                f"planned messages {lies}."
            )
    for facts in labels:
        missing = sum(n for _, _, n in facts.missing)
        if missing:
            yield f"Of the labelling {facts.row.id} {count(missing, 'ballot')} could not be counted."


def _software(basis: Basis) -> Iterable[str]:
    revisions = {str(line.run.manifest.versions.get("revision", ""))[:12] for line in basis.lines} - {""}
    from_ = f" (runs made at revision {listed(sorted(revisions))})" if revisions else ""
    yield f"Numbers and figures were made with CIMemories Studio {__version__}{from_}."
    parts = [part_ for line in basis.lines for part_ in line.scope.simulated]
    if parts:
        which = listed(list(dict.fromkeys(parts)))
        yield f"The {which} of runs marked so were simulated and say nothing about any real model."


# ---- what makes a result repeatable


NOT_RECORDED = "not recorded"
# Of what a labelling was asked with, each also the name of an option of `cimemories label`.
LABELLING = ("dataset", "model", "base_url", "draws", "personas", "profiles", "contexts", "temperature", "max_tokens")


def manifest(basis: Basis) -> Section:
    """What each run was asked with: model, server, versions, prompts by hash, parameters as sent, seeds."""
    blocks: list[Block] = []
    for line in basis.lines:
        blocks += [Heading(basis.run_names[line.run.id])] if basis.several else []
        with basis.flows.store.read() as connection:
            sources = calls.origins(connection, [line.run.id])[line.run.id]
        blocks.append(Facts(_facts(line, sources)))
        text = json.dumps(public(line.run.manifest.recorded), indent=1, sort_keys=True, ensure_ascii=False)
        blocks.append(Code(text, f"The whole manifest of {line.run.id}", folded=True))
    return Section("manifest", "Manifest", tuple(blocks))


def public(value: object) -> object:
    """A manifest without what is of this workspace alone: names of variables with keys, passwords in addresses."""
    if isinstance(value, Mapping):
        private = (*PRIVATE, "personas")
        return {str(name): public(item) for name, item in value.items() if name not in private}
    if isinstance(value, list | tuple):
        return [public(item) for item in value]
    # Any text may hold an address, and an address a password.
    return shown_address(value) if isinstance(value, str) else value


def part(manifest: Mapping[str, object], name: str) -> Mapping[str, object]:
    """A part of a manifest; empty where it was not recorded."""
    value = manifest.get(name)
    return value if isinstance(value, Mapping) else {}


def sent(line: Line) -> str:
    """The parameters as they were sent: 'max_tokens 1024, temperature 0.7'; 'none' where there was none."""
    parameters = line.run.manifest.parameters
    return ", ".join(f"{name} {json.dumps(value)}" for name, value in sorted(parameters.items())) or "none"


def _facts(line: Line, sources: Sequence[Source]) -> tuple[tuple[str, str], ...]:
    run, kept = line.run, line.run.manifest
    versions, template = kept.versions, kept.memory.template or PromptPart()
    judges = ", ".join(
        f"{judge.name}{SIMULATED if judge.simulated else ''} (prompt {(judge.prompt_hash or 'none')[:12]}, "
        f"{', '.join(f'{k} {json.dumps(v)}' for k, v in sorted(judge.parameters.items())) or 'no parameters'})"
        for judge in line.scope.judges
    )
    return (
        ("Run", f"{run.id}, {run.name}"),
        ("Status", f"{run.status}, made {run.created[:10]}"),
        ("Model", f"{run.model}{SIMULATED if run.simulated else ''}"),
        ("Endpoint", shown_address(run.endpoint)),
        ("Answers", "; ".join(shown_address(source.sentence()) for source in sources) or NOT_RECORDED),
        ("Server", str(versions.get("server") or kept.model.version or NOT_RECORDED)),
        ("Versions", ", ".join(f"{k} {v}" for k, v in sorted(versions.items())) or NOT_RECORDED),
        ("Prompt", f"level {run.prompt_level}, SHA-256 {kept.prompt.sha256 or NOT_RECORDED}"),
        ("Memory", memory_text(run)),
        ("Memory template", f"{template.level or NOT_RECORDED}, SHA-256 {template.sha256 or NOT_RECORDED}"),
        ("Parameters as sent", sent(line)),
        ("Seed", "none was sent" if run.seed is None else str(run.seed)),
        ("Samples", str(run.samples)),
        ("Judges counted", judges),
        ("Seeds folder", f"SHA-256 {kept.seeds_hash or NOT_RECORDED}"),
        ("Dataset", f"{line.scope.dataset_name}, content {run.dataset_hash}"),
        ("Labels", f"{line.scope.labelling.id}, {line.scope.labels_text}" if line.scope.labelling else "none"),
    )


def repeat(basis: Basis, command: str = "report", what: str = "report") -> Section:
    """The commands that ask for the same runs, the same numbers and this report again; command, what: that wrote it,
    and what it is called."""
    lines, notes = _labelled(basis), []
    for scope in basis.scopes:
        try:
            lines.append(_shown(command_of(spec_of(basis.flows.store, scope.run.id))))
        # A run that cannot be repeated takes nothing from the commands of the others.
        except (StoreError, SeedError, CompositionError, KeyError) as problem:
            notes.append(Text(sentence(f"{scope.run.id}: no command repeats it ({problem})")))
    numbers = [f"cimemories metrics {scope.run.id} --json{_options(basis, [scope])}" for scope in basis.scopes]
    same = _options(basis, basis.scopes)
    ids = " ".join(scope.run.id for scope in basis.scopes)
    to = "report.html" if command == "report" else what
    numbers.append(f"cimemories {command} {ids} --to {to}{same}{'' if basis.texts else ' --no-texts'}")
    blocks: list[Block] = [Text(f"With CIMemories Studio {__version__}. What is recorded already is not asked again.")]
    blocks += [Code("\n".join(lines), "Labels and runs")] if lines else []
    blocks += [*notes, Code("\n".join(numbers), f"The numbers and this {what}")]
    return Section("repeat", "How to repeat it", tuple(blocks))


def _shown(command: str) -> str:
    """A command without what is of this workspace: passwords in addresses, names of variables with keys."""
    return re.sub(r" --(judge-)?api-key-env \S+", "", shown_address(command))


def _labelled(basis: Basis) -> list[str]:
    """The commands that ask for the labels; none for labels that were imported."""
    commands = []
    for scope in basis.scopes:
        request = part(scope.labelling.manifest, "asked") if scope.labelling else {}
        options = [(f"--{name.replace('_', '-')}", request.get(name)) for name in (*LABELLING, "seed")]
        command = [shlex.quote(str(word)) for option in options if option[1] is not None for word in option]
        if command:
            commands.append(_shown(" ".join(["cimemories", "label", *command])))
    return list(dict.fromkeys(commands))


def _options(basis: Basis, scopes: Sequence[Scope]) -> str:
    """The options that read these runs, all in one way, as their scopes do. Where they have different judges, each is
    read by its first."""
    scope, options, rule = scopes[0], list[str](), basis.rule
    if scope.labels != Labels.DECISIONS:
        options += ["--labels", str(scope.labels)]
    elif scope.labelling is not None:
        options += ["--labels", scope.labelling.id]
    if scope.rule is not None:
        options += ["--rule", "paper" if scope.rule.is_paper else scope.rule.name]
    names = {other.judge.name if other.combine == Combine.ONE else str(other.combine) for other in scopes}
    if any(_needs_id(basis, other) for other in scopes):
        names = {str(other.judge.id) for other in scopes}
    if len(names) == 1:
        options += ["--judge", *names]
    if scope.grounded:
        options.append("--grounded")
    if rule != IdentifierRule.EXACT:
        options += ["--identifiers", str(rule)]
    return "".join(f" {shlex.quote(word)}" for word in options)


def _needs_id(basis: Basis, scope: Scope) -> bool:
    """Whether the one judge of a scope is reached by its id alone: another of the run has its name, or the name means
    several judges together."""
    with basis.flows.store.read() as connection:
        alike = [judge for judge in judgements.of_run(connection, scope.run.id) if judge.name == scope.judge.name]
    return scope.combine == Combine.ONE and (len(alike) > 1 or scope.judge.name in set(Combine))


def card(basis: Basis) -> Section:
    """The dataset card, its headings one level below the section's."""
    scope = basis.scopes[0]
    if len(basis.flows.parts(scope)) > 1:
        text = (
            "The card counts the consensus of all votes, which do not fit into memory: `cimemories datasets card` "
            "writes it."
        )
        return Section("card", f"Dataset card: {scope.dataset_name}", (Text(text),))
    labelling = scope.labelling.id if scope.labelling else None
    text = dataset_card(basis.flows.store, scope.dataset_name, labelling_id=labelling)
    name, _, rest = text.partition("\n")
    # The card's own title is the section's, so its sections come one level lower.
    moved = re.sub(r"(?m)^## ", "### ", rest).strip()
    return Section("card", f"Dataset card: {scope.dataset_name}", (Markdown(moved),) if name.startswith("# ") else ())
