"""Sections that make a result repeatable: manifest, commands, dataset card."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence

from cimemories import __version__
from cimemories.compare.leaderboard import Line, memory_text
from cimemories.evaluation.repeat import command_of, spec_of
from cimemories.evaluation.respond import CompositionError
from cimemories.exchange.card import dataset_card
from cimemories.flows.arrays import IdentifierRule
from cimemories.flows.scope import Combine, Labels, Scope
from cimemories.manifest import PromptPart
from cimemories.report.document import SIMULATED, Basis, Block, Code, Facts, Heading, Markdown, Section, Text
from cimemories.seeds import SeedError
from cimemories.store import calls
from cimemories.store.archive import PRIVATE, shown_address
from cimemories.store.calls import Source
from cimemories.store.engine import StoreError
from cimemories.text import sentence

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
        ("Answers", "; ".join(shown_address(source.words()) for source in sources) or NOT_RECORDED),
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


def repeat(basis: Basis) -> Section:
    """The commands that ask for the same runs, the same numbers and this report again."""
    lines, notes = _labelled(basis), []
    for scope in basis.scopes:
        try:
            lines.append(_shown(command_of(spec_of(basis.flows.store, scope.run.id))))
        # A run that cannot be repeated takes nothing from the commands of the others.
        except (StoreError, SeedError, CompositionError, KeyError) as problem:
            notes.append(Text(sentence(f"{scope.run.id}: no command repeats it ({problem})")))
    numbers = [f"cimemories metrics {scope.run.id} --json{_options([scope], basis.rule)}" for scope in basis.scopes]
    same = _options(basis.scopes, basis.rule)
    ids = " ".join(scope.run.id for scope in basis.scopes)
    numbers.append(f"cimemories report {ids} --to report.html{same}{'' if basis.texts else ' --no-texts'}")
    blocks: list[Block] = [Text(f"With CIMemories Studio {__version__}. What is recorded already is not asked again.")]
    blocks += [Code("\n".join(lines), "Labels and runs")] if lines else []
    blocks += [*notes, Code("\n".join(numbers), "The numbers and this report")]
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


def _options(scopes: Sequence[Scope], rule: IdentifierRule) -> str:
    """The options that read these runs, all in one way, as their scopes do. Where their judges have different names,
    each is read by its first."""
    scope, options = scopes[0], list[str]()
    if scope.labels != Labels.DECISIONS:
        options += ["--labels", str(scope.labels)]
    elif scope.labelling is not None:
        options += ["--labels", scope.labelling.id]
    if scope.rule is not None:
        options += ["--rule", "paper" if scope.rule.is_paper else scope.rule.name]
    run_names = {other.judge.name if other.combine == Combine.ONE else str(other.combine) for other in scopes}
    if len(run_names) == 1:
        options += ["--judge", *run_names]
    if scope.grounded:
        options.append("--grounded")
    if rule != IdentifierRule.EXACT:
        options += ["--identifiers", str(rule)]
    return "".join(f" {shlex.quote(word)}" for word in options)


def card(basis: Basis) -> Section:
    """The dataset card, its headings one level below the section's."""
    scope = basis.scopes[0]
    labelling = scope.labelling.id if scope.labelling else None
    text = dataset_card(basis.flows.store, scope.dataset_name, labelling_id=labelling)
    name, _, rest = text.partition("\n")
    # The card's own title is the section's, so its sections come one level lower.
    moved = re.sub(r"(?m)^## ", "### ", rest).strip()
    return Section("card", f"Dataset card: {scope.dataset_name}", (Markdown(moved),) if name.startswith("# ") else ())
