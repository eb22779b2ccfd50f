"""The options that commands share, and what is made of their values."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cimemories.store.engine import Store, StoreError

if TYPE_CHECKING:
    from cimemories.flows.arrays import IdentifierRule
    from cimemories.flows.scope import Scope


def _allow_keys(pairs: list[str] | None) -> list[str] | None:
    if pairs:
        from cimemories.llm.endpoint import EndpointError, allow_pair

        for pair in pairs:
            try:
                allow_pair(pair)
            except EndpointError as error:
                raise typer.BadParameter(str(error)) from None
    return pairs


Workspace = Annotated[
    Path, typer.Option("--workspace", "-w", envvar="CIMEMORIES_WORKSPACE", help="Folder that holds the record.")
]


DatasetName = Annotated[
    str, typer.Option("--dataset", "-d", help="Name of the dataset; `cimemories datasets` lists them.")
]


Model = Annotated[str, typer.Option("--model", "-m", help="Name under which the server serves the model.")]


BaseUrl = Annotated[
    str, typer.Option("--base-url", help="OpenAI-compatible server, e.g. http://localhost:8000/v1, or `simulator`.")
]


KeyEnv = Annotated[str, typer.Option("--api-key-env", help="Environment variable that holds the endpoint's key.")]


AllowKeys = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-key",
        metavar="NAME=URL",
        callback=_allow_keys,
        help="Send the key in this environment variable to this server; may be repeated (docs/models.md).",
    ),
]


Profiles = Annotated[int | None, typer.Option("--profiles", min=1, help="Only the first so many profiles.")]


Contexts = Annotated[int | None, typer.Option("--contexts", min=1, help="Only the first so many contexts.")]


Concurrency = Annotated[int, typer.Option("--concurrency", min=1, max=1024, help="Requests under way at once.")]


Timeout = Annotated[float, typer.Option("--timeout", min=1, help="Seconds to wait, doubled by each retry.")]


Seed = Annotated[int | None, typer.Option("--seed", help="Seed of the first draw; left out: none is sent.")]


Temperature = Annotated[
    float | None, typer.Option("--temperature", min=0, help="Left out: the server's default for the model.")
]


TokenLimit = Annotated[
    str, typer.Option("--max-tokens", metavar="N", help="Limit of one answer in tokens; `server` sends none of ours.")
]


AllowMissing = Annotated[
    float,
    typer.Option(
        "--allow-missing",
        min=0,
        max=1,
        metavar="SHARE",
        help="Exit with 0 where at most this share of what was planned is missing, 0 to 1; else with 3.",
    ),
]


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


def token_limit(text: str, option: str = "--max-tokens") -> int | None:
    """The limit that an option gives: a number, or None for the word `server`. Raises StoreError for anything else."""
    if text == "server":
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise StoreError(f"{option} is a number of tokens, 1 or more, or the word server for no limit of ours.")
    return int(text)


Labels = Annotated[
    str | None,
    typer.Option(
        "--labels",
        help="decisions (before the consensus, the default), consensus alone, or the id of a labelling.",
    ),
]


RuleOption = Annotated[
    str | None, typer.Option("--rule", help="The rule that turns votes into labels: paper, or one of the dataset's.")
]


Identifiers = Annotated[
    str, typer.Option("--identifiers", help="Which attributes only sign: exact, substring or none.")
]


JudgeOption = Annotated[
    str | None,
    typer.Option("--judge", help="Id or name of a judge of the run, or any, majority or all of them; else the first."),
]


Grounded = Annotated[bool, typer.Option("--grounded", help="Count only claims whose quote stands in the text.")]


ByOption = Annotated[
    str | None,
    typer.Option("--by", help="Also a table by profile, domain, event, sphere, context or attribute."),
]


Samples = Annotated[int | None, typer.Option("--samples", "-n", min=1, help="n of Violation@n; else all of each run.")]


AsMarkdown = Annotated[bool, typer.Option("--markdown", help="Print the table as Markdown.")]


AsLatex = Annotated[bool, typer.Option("--latex", help="Print the table as LaTeX, for the package booktabs.")]


def identifier_rule(name: str) -> IdentifierRule:
    """The rule of that name. Raises StoreError for one that there is not."""
    from cimemories.flows.arrays import IdentifierRule

    if name not in set(IdentifierRule):
        raise StoreError(f"there is no identifier rule '{name}'. Use exact, substring or none.")
    return IdentifierRule(name)


def scope_of(
    store: Store, run_id: str, labels: str | None, judge: str | None, *, grounded: bool, rule: str | None = None
) -> Scope:
    """The scope that these options ask for: `labels` is a way of labelling or a labelling. Raises StoreError as
    analysis.scopes.scope does."""
    from cimemories.flows.scope import Labels as Against
    from cimemories.flows.scope import resolve_scope

    way = Against(labels) if labels in set(Against) else Against.DECISIONS
    labelling = None if labels in set(Against) else labels
    return resolve_scope(store, run_id, labelling, judge, grounded=grounded, labels=way, rule=rule)


Dataset = Annotated[str, typer.Argument(help="Name of the dataset; `cimemories datasets` lists them.")]


LabellingOption = Annotated[
    str | None, typer.Option("--labelling", "-L", help="Id of a labelling; the newest finished one by default.")
]


def priors_by_key(text: str) -> dict[str, float]:
    """'a=0.3,b=0.7' as numbers by key. Raises StoreError that quotes the part which is none."""
    found: dict[str, float] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        key, _, number = (piece.strip() for piece in part.partition("="))
        try:
            value = float(number)
        except ValueError:
            raise StoreError(f"--priors: '{part}' is no KEY=NUMBER, e.g. pragmatic=0.64.") from None
        if not key or key in found:
            raise StoreError(f"--priors: '{part}' names no persona, or one that was named before.")
        found[key] = value
    return found
