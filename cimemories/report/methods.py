"""How the results came about: words for a methods section, and what makes them repeatable (manifest, commands, card).

The words are in templates/methods.jinja, one paragraph a matter. Every number in them is computed from the record.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

import jinja2

from cimemories.compare.baselines import run_dropped
from cimemories.compare.leaderboard import Line
from cimemories.compare.ranking import memory_text
from cimemories.evaluation.compositions import CompositionError
from cimemories.evaluation.planning import spec_of
from cimemories.evaluation.spec import RunSpec, command_of
from cimemories.exchange.card import dataset_card
from cimemories.flows.arrays import IdentifierRule, axes
from cimemories.flows.arrays import blocks as blocks_of
from cimemories.flows.scope import Combine, Labels, Scope
from cimemories.manifest import PromptPart
from cimemories.metrics import sentences
from cimemories.metrics.corrections import corrections
from cimemories.metrics.uncertainty import LEAST_USERS
from cimemories.report.document import (
    SIMULATED,
    Basis,
    Block,
    Code,
    Heading,
    Markdown,
    Points,
    Section,
    Text,
    all_label_facts,
    facts,
    uncounted_labels,
)
from cimemories.seeds import SeedError
from cimemories.seeds.published import load_published
from cimemories.store import calls, judgements
from cimemories.store.archive import PRIVATE, shown_address
from cimemories.store.calls import Source
from cimemories.store.engine import StoreError
from cimemories.text import count, listed, percent, sentence
from cimemories.version import __version__

TEMPLATES = Path(__file__).parent / "templates"
TOGETHER = {Combine.SENT: "either", Combine.ANY: "any", Combine.MAJORITY: "more than half", Combine.ALL: "all"}
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


PARTS = {"Missing": "What is missing"}  # titles of parts that are not their names in the template
JUDGES = {
    "llm": "a language model that is shown the message and the numbered attributes",
    "matcher": "a deterministic matcher of values, without a model",
}
RULES = {
    IdentifierRule.EXACT: "Attributes that repeat the biography (by their exact key) never count as violations.",
    IdentifierRule.SUBSTRING: "Attributes whose key contains name, address, sex or age never count as violations.",
    IdentifierRule.NONE: "Every attribute can count as a violation, those of the biography too.",
}


def methods(basis: Basis) -> Section:
    """Paragraphs for a paper (templates/methods.jinja), and the references that they name."""
    lines, run_names = basis.lines, basis.run_names
    audited = any(corrections(basis.flows, line.scope, basis.rule) for line in lines)

    def alike(say: Callable[[Line], str], simulated: bool | None = None) -> list[tuple[str, list[Line]]]:
        said: dict[str, list[Line]] = {}
        for line in lines:
            if simulated in (None, line.run.simulated):
                said.setdefault(" ".join(say(line).split()), []).append(line)
        return list(said.items())

    template = _template()
    context = template.new_context(_context(basis) | {"alike": alike, "audited": audited, "run_names": run_names})
    blocks: list[Block] = []
    for name, part in template.blocks.items():
        words = " ".join("".join(part(context)).split())
        blocks += [Heading(PARTS.get(name, name)), Text(words)]
    references: tuple[str, ...] = (load_published().paper.reference, *REFERENCES)
    references += AUDIT_REFERENCES if audited else ()
    references += KAPPA_REFERENCES if any(len(line.scope.judges) > 1 for line in lines) else ()
    return Section(
        "methods", "Words for a methods section", (*blocks, Heading("References"), Points(references)), folded=True
    )


@cache  # compiling takes a tenth of the time of a report
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # text, which is escaped where it is shown
    )
    filters = {"count": count, "percent": percent, "listed": listed, "names": _names, "sent": sent}
    environment.filters |= filters | {"memory": lambda line: memory_text(line.run)}
    return environment.get_template("methods.jinja")


@jinja2.pass_context
def _names(context: jinja2.runtime.Context, lines: Sequence[Line]) -> str:
    return listed([context["run_names"][line.run.id] for line in lines])


def _context(basis: Basis) -> dict[str, object]:
    """Return what the words are about."""
    lines, flows, rule = basis.lines, basis.flows, basis.rule
    run_axes, bounds = axes(flows, lines[0].scope), [(line, basis.intervals(line.scope)) for line in lines]
    # Of the whole runs, as the numbers that are described: a line may be of the flows common to all of them alone.
    users = sorted({item.completeness.users for _, item in bounds})
    made_of = [
        (
            f"Violation@{line.numbers.n} of {basis.run_names[line.run.id]}",
            sentences.parts_text(item.violation[line.numbers.n]),
        )
        for line, item in bounds
    ]
    revisions = {str(line.run.manifest.versions.get("revision", ""))[:12] for line in lines} - {""}
    return {
        "lines": lines,
        "profiles": len(run_axes.profiles),
        "contexts": len(run_axes.contexts),
        # -1 fills the array up where a profile has fewer attributes than the largest.
        "attributes": sum(int((data.names.attribute >= 0).sum()) for data in blocks_of(flows, lines[0].scope, rule)),
        "labels": all_label_facts(flows, basis.scopes),
        "uncounted": uncounted_labels(flows, basis.scopes),
        "rule": rule,
        "dropped": len({key for line in lines for key in run_dropped(flows, line.scope, rule, rule)}),
        "made_of": [(name, made) for name, made in made_of if made],
        "unseen": [sentence(text) for text in dict.fromkeys(map(sentences.unseen, users)) if text],
        "few": [n for n in users if 0 < n < LEAST_USERS],
        "version": __version__,
        "revisions": sorted(revisions),
        "simulated": list(dict.fromkeys(part for line in lines for part in line.scope.simulated)),
        "JUDGES": JUDGES,
        "RULES": RULES,
        "TOGETHER": TOGETHER,
    }


# ---- what makes a result repeatable


NOT_RECORDED = "not recorded"
# Of what a labelling was asked with, each also the name of an option of `cimemories label`.
LABELLING = ("dataset", "model", "base_url", "draws", "personas", "profiles", "contexts", "temperature", "max_tokens")


def manifest(basis: Basis) -> Section:
    """List what each run was asked with: model, server, versions, prompts by hash, parameters as sent, seeds."""
    blocks: list[Block] = []
    for line in basis.lines:
        blocks += [Heading(basis.run_names[line.run.id])] if basis.several else []
        with basis.flows.store.read() as connection:
            sources = calls.origins(connection, [line.run.id])[line.run.id]
        blocks.append(facts(f"The run {line.run.id}", _facts(line, sources)))
        text = json.dumps(public(line.run.manifest.recorded), indent=1, sort_keys=True, ensure_ascii=False)
        blocks.append(Code(text, f"The whole manifest of {line.run.id}", folded=True))
    return Section("manifest", "Manifest", tuple(blocks), folded=True)


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
    """Return the parameters as they were sent: 'max_tokens 1024, temperature 0.7'; 'none' where there was none."""
    parameters = line.run.manifest.parameters
    return ", ".join(f"{name} {json.dumps(value)}" for name, value in sorted(parameters.items())) or "none"


# Facts of settings that do not apply to all runs.
SETTING_OF = {
    "Prompt": "prompt_level",
    "Memory template": "memory_template",
    "Parameters as sent": "sampling",
    "Seed": "seed",
}


def _facts(line: Line, sources: Sequence[Source]) -> dict[str, str]:
    run, manifest = line.run, line.run.manifest
    versions, template = manifest.versions, manifest.memory.template or PromptPart()
    judges = ", ".join(
        f"{judge.name}{SIMULATED if judge.simulated else ''} (prompt {(judge.prompt_hash or 'none')[:12]}, "
        f"{', '.join(f'{k} {json.dumps(v)}' for k, v in sorted(judge.parameters.items())) or 'no parameters'})"
        for judge in line.scope.judges
    )
    texts = {
        "Run": f"{run.id}, {run.name}",
        "Status": f"{run.status}, made {run.created[:10]}",
        "Model": f"{run.model}{SIMULATED if run.simulated else ''}",
        "Endpoint": shown_address(run.endpoint),
        "Answers": "; ".join(shown_address(source.sentence()) for source in sources) or NOT_RECORDED,
        "Server": str(versions.get("server") or manifest.model.version or NOT_RECORDED),
        "Versions": ", ".join(f"{k} {v}" for k, v in sorted(versions.items())) or NOT_RECORDED,
        "Prompt": f"level {run.prompt_level}, SHA-256 {manifest.prompt.sha256 or NOT_RECORDED}",
        "Memory": memory_text(run),
        "Memory template": f"{template.level or NOT_RECORDED}, SHA-256 {template.sha256 or NOT_RECORDED}",
        "Parameters as sent": sent(line),
        "Seed": "none was sent" if run.seed is None else str(run.seed),
        "Samples": str(run.samples),
        "Judges counted": judges,
        "Seeds folder": f"SHA-256 {manifest.seeds_hash or NOT_RECORDED}",
        "Dataset": f"{line.scope.dataset_name}, content {run.dataset_hash}",
        "Labels": f"{line.scope.labelling.id}, {line.scope.labels_text}" if line.scope.labelling else "none",
    }
    spec = RunSpec.of(manifest)
    return {name: text for name, text in texts.items() if name not in SETTING_OF or spec.applies(SETTING_OF[name])}


def repeat(basis: Basis, command: str = "report", what: str = "report") -> Section:
    """Return the commands that ask for the same runs, the same numbers and this report again; command, what: that wrote
    it, and what it is called."""
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
    return Section("repeat", "How to repeat it", tuple(blocks), folded=True)


def _shown(command: str) -> str:
    """A command without what is of this workspace: passwords in addresses, names of variables with keys."""
    return re.sub(r" --(judge-)?api-key-env \S+", "", shown_address(command))


def _labelled(basis: Basis) -> list[str]:
    """Return the commands that ask for the labels; none for labels that were imported."""
    commands = []
    for scope in basis.scopes:
        request = part(scope.labelling.manifest, "asked") if scope.labelling else {}
        options = [(f"--{name.replace('_', '-')}", request.get(name)) for name in (*LABELLING, "seed")]
        command = [shlex.quote(str(word)) for option in options if option[1] is not None for word in option]
        if command:
            commands.append(_shown(" ".join(["cimemories", "label", *command])))
    return list(dict.fromkeys(commands))


def _options(basis: Basis, scopes: Sequence[Scope]) -> str:
    """Return the options that read these runs, all in one way, as their scopes do. Where they have different judges,
    each is read by its first."""
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
    """Return whether the one judge of a scope is reached by its id alone. This is so where another of the run has its
    name, or the name means several judges together."""
    with basis.flows.store.read() as connection:
        alike = [judge for judge in judgements.of_run(connection, scope.run.id) if judge.name == scope.judge.name]
    return scope.combine == Combine.ONE and (len(alike) > 1 or scope.judge.name in set(Combine))


def card(basis: Basis) -> Section:
    """Return the dataset card, its headings one level below the section's."""
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
    blocks = (Markdown(moved),) if name.startswith("# ") else ()
    return Section("card", f"Dataset card: {scope.dataset_name}", blocks, folded=True)
