"""What a piece of work has cost so far, and the watch that ends it at its cap.

Tokens come from the recorded calls, prices from the manifests. Where a price is missing the cost is not known, and only
its known part can be said. A call that several runs share is paid once; one that the record had before a run was
planned is behind its numbers, but was not paid for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from cimemories.access.roles import Role
from cimemories.evaluation.prices import Prices, money
from cimemories.evaluation.spec import LLM
from cimemories.llm import worker
from cimemories.llm.executor import Progress
from cimemories.manifest import RunManifest, ServerPart
from cimemories.model import WorkKind
from cimemories.store import generations, labellings, runs, work
from cimemories.store.engine import Store, StoreError
from cimemories.store.runs import ModelCalls, RunRow
from cimemories.store.team import log

# ---- costs


JUDGE_KINDS = frozenset({"judge", "check", "ground"})
MODEL, JUDGE = "model", "judge"
PriceList = Mapping[tuple[str, str], Prices]  # by (MODEL or JUDGE, name of the model)


@dataclass(frozen=True)
class StageCost:
    """The calls of one kind to one model, and their cost, or None if the price or some tokens are not known."""

    used: ModelCalls
    amount: float | None


@dataclass(frozen=True)
class Cost:
    """The cost of the calls behind a run or a sweep.

    amount: None if a price or a count of tokens is missing; known_amount: without those. paid: the part of known_amount
    spent since the run was planned, which a cap counts. unpriced: models without a price; uncounted: models whose
    server did not report all tokens. seconds: of all exchanges one after the other.
    """

    stages: tuple[StageCost, ...]
    amount: float | None
    known_amount: float
    paid: float
    currency: str
    unpriced: tuple[str, ...]
    uncounted: tuple[str, ...]
    seconds: float
    prices: PriceList
    cap: float | None

    @property
    def cap_reached(self) -> bool:
        """Return whether the cap has to be raised before the work can go on."""
        return self.cap is not None and self.paid >= self.cap

    @property
    def cannot_be_capped(self) -> str:
        """Return why no cap on it can be kept, or ''."""
        if not self.uncounted:
            return ""
        return (
            f"the server of {', '.join(self.uncounted)} does not report how many tokens it read and wrote, so what "
            "this costs is not known and no cap can be kept. Plan it again without a cap: recorded answers are used"
        )

    @property
    def above_cap_text(self) -> str:
        """Return that the cap was exceeded and why, or ''."""
        if self.cap is None or self.paid <= self.cap:
            return ""
        paid, above, cap = (money(value, self.currency) for value in (self.paid, self.paid - self.cap, self.cap))
        return f"paid {paid}, {above} above the cap of {cap}: requests already sent when a cap is reached are paid too"

    @property
    def text(self) -> str:
        """Return one amount for people, with what is missing of it."""
        if self.amount is not None:
            return money(self.amount, self.currency)
        missing = tuple(dict.fromkeys((*self.unpriced, *self.uncounted)))
        if missing and self.known_amount:
            return f"{money(self.known_amount, self.currency)} plus an unknown cost for {', '.join(missing)}"
        if self.uncounted:
            return f"{money(None, '')}: the server of {', '.join(self.uncounted)} does not report tokens"
        return money(None, "")

    @property
    def shown(self) -> str:
        """Return the amount for people; '' if nothing of it has a price."""
        return self.text if self.known_amount or not self.unpriced else ""


def role_of(kind: str) -> str:
    """Return who a call of this kind asks: the judge (judge, check, ground) or the model."""
    return JUDGE if kind in JUDGE_KINDS else MODEL


def cost_of(store: Store, work_id: str) -> Cost:
    """Return what a piece of work of any kind has cost so far; a call that runs of a sweep share counts once. Raises
    StoreError if there is none of that id."""
    kind = work.kind_of(work_id)
    with store.read() as connection:
        row, cap = work.load(connection, work_id), runs.cap_of(connection, work_id)
        used: Callable[..., list[ModelCalls]]
        if kind in (WorkKind.RUN, WorkKind.SWEEP):
            sweep = kind is WorkKind.SWEEP
            rows = runs.of_sweep(connection, work_id) if sweep else [runs.by_id(connection, work_id)]
            prices, unpriced = price_list([item.manifest for item in rows])
            used = partial(runs.calls_by_model, connection, [item.id for item in rows])
        else:
            price = curation_prices(row["manifest"])
            prices = {} if price is None else {(MODEL, row["model"]): price}
            unpriced = () if prices else (row["model"],)
            of = labellings if kind is WorkKind.LABELLING else generations
            used = partial(of.calls_by_model, connection, work_id)
        # A cap counts what was asked since the plan: answers that the record had are behind the numbers, but cost
        # nothing.
        all_calls, paid = used(), used(row["created"])

    def amount(used: ModelCalls) -> float | None:
        """Return what the reported tokens of these calls cost, or None if their model has no known price."""
        price = prices.get((role_of(used.kind), used.model))
        return None if price is None else price.cost(used.prompt_tokens, used.cached_tokens, used.completion_tokens)

    def uncounted(used: ModelCalls) -> bool:
        """Return whether these calls cost something that is in no sum: tokens that the server did not report."""
        price = prices.get((role_of(used.kind), used.model))
        return price is not None and not price.free and used.uncounted > 0

    known = sum(amount(used) or 0.0 for used in all_calls)
    unknown = tuple(dict.fromkeys((*unpriced, *(used.model for used in all_calls if amount(used) is None))))
    unreported = tuple(dict.fromkeys(used.model for used in all_calls if uncounted(used)))
    return Cost(
        stages=tuple(StageCost(used, None if uncounted(used) else amount(used)) for used in all_calls),
        amount=None if unknown or unreported else known,
        known_amount=known,
        paid=sum(amount(used) or 0.0 for used in paid),
        currency=next((p.currency for p in prices.values()), ""),
        unpriced=unknown,
        uncounted=unreported,
        seconds=sum(used.seconds for used in all_calls),
        prices=prices,
        cap=cap,
    )


def curation_prices(manifest: Mapping[str, Any]) -> Prices | None:
    """Return the prices in the manifest of a labelling or a generation, or None."""
    asked = manifest.get("asked")
    older = asked if isinstance(asked, Mapping) else {}
    # Generations had two numbers before, where 0 stood for a price that is not known.
    numbers = [older.get("price_in") or 0.0, older.get("price_out") or 0.0]
    if "prices" not in manifest and any(numbers):
        return Prices.of({"prompt": numbers[0], "cached": numbers[0], "completion": numbers[1]})
    return Prices.of(manifest.get("prices"))


def price_list(manifests: Sequence[RunManifest]) -> tuple[dict[tuple[str, str], Prices], tuple[str, ...]]:
    """Return the prices in these manifests, and the models that are asked without one."""
    models: dict[tuple[str, str], Prices | None] = {}
    for manifest in manifests:
        for role in (MODEL, JUDGE):
            for item in models_in(manifest, role):
                # The first manifest's price: a sweep has one price a model, which its file is checked for.
                models[role, item.name] = models.get((role, item.name)) or item.prices
    known = {key: prices for key, prices in models.items() if prices is not None}
    return known, tuple(dict.fromkeys(name for (_, name), prices in models.items() if prices is None))


@dataclass(frozen=True)
class AskedModel:
    """A model in a manifest, with where it was served and its part of the manifest."""

    name: str
    base_url: str
    server: ServerPart | None
    prices: Prices | None


def models_in(manifest: RunManifest, role: str) -> list[AskedModel]:
    """Return the models of a role in a manifest: the model under test and another one that its memory system asks, or
    the judges."""
    if role == JUDGE:
        judges = [judge for judge in manifest.judges if judge.kind == LLM]
        return [AskedModel(j.model, j.base_url, j.server, Prices.of(j.prices)) for j in judges]
    model, system = manifest.model, manifest.memory.system
    models = [AskedModel(model.name, model.endpoint, model, Prices.of(model.prices))]
    if system is not None and system.server is not None:
        base_url = str(system.options.get("base_url") or model.endpoint)
        models.append(
            AskedModel(str(system.options.get("model") or ""), base_url, system.server, Prices.of(system.prices))
        )
    # A memory system may ask the model under test at another address: its price is that of the model then.
    return [item for k, item in enumerate(models) if item.name and (not k or item.name != model.name)]


def writes_no_more(row: RunRow) -> bool:
    """Return whether all messages of a run are written, or came from a file."""
    return row.endpoint == runs.IMPORTED or not any(row.responses.get(status) for status in runs.RETRIABLE)


def raise_cap(store: Store, work_id: str, cap: float) -> None:
    """Give a piece of work another cap. Raises StoreError for one that is not above what has been paid, and if prices
    are missing."""
    # Not `cap <= 0`, which nan would pass.
    if not cap > 0:
        raise StoreError(f"a cap on cost must be above 0, not {cap:g}.")
    cost = cost_of(store, work_id)
    unpriced = list(cost.unpriced)
    if work.kind_of(work_id) is WorkKind.RUN:
        with store.read() as connection:
            row = runs.by_id(connection, work_id)
        # Where only judgements are owed the model's own price does not matter.
        unpriced = [model for model in unpriced if model != row.model or not writes_no_more(row)]
    if unpriced:
        raise StoreError(
            f"{work_id} has no prices for {', '.join(unpriced)}, so it cannot have a cap. Plan it again with "
            "prices: recorded answers cost nothing."
        )
    if cost.cannot_be_capped:
        raise StoreError(f"{work_id} cannot have a cap: {cost.cannot_be_capped}.")
    if cap <= cost.paid:
        raise StoreError(
            f"{work_id} has already cost {money(cost.paid, cost.currency)}, so a cap of {money(cap, cost.currency)} "
            "would stop it at once. Give a higher one."
        )
    # What is paid between the look and this write only brings the new cap nearer.
    with store.write(Role.OPERATOR) as connection:
        runs.set_cap(connection, work_id, cap)
        log.add(connection, f"{work.kind_of(work_id)}.cap_raised", work_id, cap=money(cap, cost.currency))


class CapWatch:
    """Ends work once it has paid its cap; called after each batch of outcomes. A batch is first bounded by its tokens
    at the dearest judge's price, and the record is asked only if that could reach the cap. Calls in flight are still
    paid."""

    def __init__(self, store: Store, work_id: str) -> None:
        self.store, self.work_id = store, work_id
        self.paid = self._look()
        self.counted = 0.0  # the bound of what this execution had asked when the record was last looked at

    def _look(self) -> float:
        cost = cost_of(self.store, self.work_id)
        self.cap, self.currency, self.prices = cost.cap, cost.currency, cost.prices
        self.why_not = cost.cannot_be_capped
        return cost.paid

    def __call__(self, progress: Progress) -> str | None:
        """Return why to stop, or None."""
        if self.cap is None:
            return None
        bound, missing = 0.0, False
        for kind, tally in progress.by_kind.items():
            # Progress is counted by kind, not by model: of several judges the dearest price bounds them all.
            prices = [price for (role, _), price in self.prices.items() if role == role_of(kind)]
            tokens = tally.prompt_tokens, tally.cached_tokens, tally.completion_tokens
            bound += max((price.cost(*tokens) for price in prices), default=0.0)
            # It costs something, and its tokens were not reported.
            missing |= bool(tally.uncounted) and not all(price.free for price in prices)
        # The bound grows with this execution alone: what it was at the last look is in `paid` already.
        if self.paid + bound - self.counted < self.cap and not missing:
            return None
        self.paid, self.counted = self._look(), bound
        return self.reached()

    def reached(self) -> str | None:
        """Return why nothing more may be asked, or None."""
        if self.cap is None:
            return None
        if self.why_not:
            return self.why_not
        # Reached is enough: the next call would exceed it.
        if self.paid < self.cap:
            return None
        paid, cap = money(self.paid, self.currency), money(self.cap, self.currency)
        page = "on the Runs page, or " if work.kind_of(self.work_id) in (WorkKind.RUN, WorkKind.SWEEP) else ""
        return (
            f"the cap on cost is reached ({paid} of {cap}). Raise it to continue: {page}with "
            f"`cimemories resume {self.work_id} --cap AMOUNT`"
        )


def capped(store: Store, work_id: str, *, owes: Callable[[], bool], queued: bool) -> CapWatch | None:
    """Return the watch of work that has a cap. Raises WorkError, and leaves the work interrupted, if it `owes` calls
    that may not be paid any more."""
    watch = CapWatch(store, work_id)
    # Before anything is asked: a worker looks at its cap only after the first batch of answers.
    if (reason := watch.reached()) and owes():
        worker.refuse(store, work_id, reason, queued=queued)
    return None if watch.cap is None else watch
