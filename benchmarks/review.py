"""The review queue at the size of the released data (10 x 147 x 49 pairs) and with 1,000 profiles.

    .venv/bin/python benchmarks/review.py [--small] [--rounds 7]
    .venv/bin/python benchmarks/review.py --until WORKSPACE [--dataset demo] [--points 1] [--rounds 3]

Two workspaces are made in a temporary folder, on SQLite, rows written in bulk. The votes of the small one are rows of
the record (3 personas x 10 draws, 2.2 million votes), counting them is measured apart, since any page that shows labels
does it first; of the large one (216 million votes) only the Parquet count cache is written, and the votes of the
pairs that come first. Both have finished runs with reveals, and 20,000 decisions of three people.

Printed are medians in milliseconds of what a person waits for: the first index of a process, the next 80 pairs
(selected, handed out in a write transaction, and read for display), a filter change (select alone, each time another
filter), 5,000 decisions in batches as the page records them, and their undo; beside each the ratio to the filter
change of the small size in the same run, so that figures of another machine can be read too. What a pair is worth is
computed anew after a batch of decisions ("values after a batch").

With --until, how many decisions each order of the queue takes until the labels leave the newest judged run's
Violation@n surer than so many points, in a workspace as it is (the demo; nothing in it is changed): every decision is
the label that was drawn for its pair from the votes' mixture, another draw a round.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
import sqlalchemy as sa

from cimemories.agreement.people import people_agreement
from cimemories.extras.decision_value.effects import subject, violation_effect
from cimemories.extras.decision_value.ordering import ByValue
from cimemories.extras.decision_value.random_share import SHARE, interleaved
from cimemories.extras.decision_value.value import BATCH, Aim, Target, valued
from cimemories.flows.arrays import flow_arrays
from cimemories.flows.cache import shared_cache
from cimemories.flows.flows import shared_flows
from cimemories.flows.labels import (
    AMBIGUOUS,
    INAPPROPRIATE,
    NECESSARY,
    cache_file,
    default_labelling,
    vote_counts,
    write_cache,
)
from cimemories.flows.scope import resolve_scope
from cimemories.metrics.label_uncertainty import posterior_of
from cimemories.model import DOMAINS, Label, Persona, Verdict
from cimemories.review.index import PairIndex, pair_index
from cimemories.review.queue import Filters, Order, items, open_to, select, undecided
from cimemories.store import datasets, decisions, judgements, labellings, reviews, tables
from cimemories.store.engine import Store, now, open_store

ATTRIBUTES, CONTEXTS, DRAWS = 147, 49, 10
SHOWN, BULK, PIECE, EARLIER = 80, 5000, 1000, 20_000
PERSONAS = (
    Persona("fundamentalist", "The fundamentalist", 0.26, "You tell nothing."),
    Persona("pragmatic", "The pragmatic", 0.64, "You weigh it."),
    Persona("unconcerned", "The unconcerned", 0.10, "You tell all."),
)
VERDICTS = (str(Verdict.NECESSARY), str(Verdict.INAPPROPRIATE), str(Verdict.ABSTAIN))
STEP, MOST, MARKS = 20, 6400, (0, 200, 400, 800)  # decisions a batch, at most, and after which the width is printed
EVENTS = ("divorce", "job loss", "diagnosis")


def bulk(connection: sa.Connection, table: sa.Table, columns: Sequence[str], rows: Iterable[tuple]) -> None:
    """Rows written by the driver itself, in pieces: millions at the speed of SQLite."""
    names = ", ".join(f'"{name}"' for name in columns)
    statement = f"INSERT INTO {table.name} ({names}) VALUES ({', '.join('?' * len(columns))})"
    source = iter(rows)
    while piece := list(islice(source, 100_000)):
        connection.exec_driver_sql(statement, piece)


@dataclass
class World:
    """One workspace and the numbers that it was made of."""

    store: Store
    profiles: int
    labelling: str = ""
    votes: np.ndarray = field(default_factory=lambda: np.zeros(0))
    personas: list[int] = field(default_factory=list)
    with_votes: bool = True


def build(folder: Path, profiles: int, *, with_votes: bool, samples: int) -> World:
    """Ids are 1, 2, 3 in the order of the record throughout."""
    world = World(open_store(folder), profiles, with_votes=with_votes)
    draw = np.random.default_rng(7)
    attributes = profiles * ATTRIBUTES
    with world.store.write() as connection:
        bulk(
            connection, tables.dataset, ("id", "name", "origin", "source_hash", "created"), [(1, "b", "t", "h", now())]
        )
        bulk(
            connection,
            tables.profile,
            ("id", "dataset", "ordinal", "name", "sex", "address", "age"),
            ((p + 1, 1, p, f"Person {p}", "female", "1 Elm St", 40) for p in range(profiles)),
        )
        names = ("id", "profile", "ordinal", "key", "value", "domain", "event", "statement", "bio")
        bulk(connection, tables.attribute, names, (_attribute(i) for i in range(attributes)))
        bulk(
            connection,
            tables.context,
            ("id", "dataset", "ordinal", "task", "recipient", "sphere"),
            ((c + 1, 1, c, f"Task {c} of many words", f"Recipient {c}", f"sphere {c // 5}") for c in range(CONTEXTS)),
        )
        towards = ((p + 1, c + 1, c) for p in range(profiles) for c in range(CONTEXTS))
        bulk(connection, tables.profile_context, ("profile", "context", "ordinal"), towards)
        _labelling(connection, world)
    pairs = attributes * CONTEXTS
    # Six in ten pairs are unanimous, as in the released data; the others are divided at random.
    leaning = draw.dirichlet((0.6, 1.0, 0.8), pairs).astype(np.float32)
    world.votes = np.zeros((pairs, 3, 3), np.int16)
    for persona in range(3):
        first = draw.binomial(DRAWS, leaning[:, 0])
        second = draw.binomial(DRAWS - first, np.clip(leaning[:, 1] / np.maximum(1 - leaning[:, 0], 1e-6), 0, 1))
        world.votes[:, persona] = np.stack([first, second, DRAWS - first - second], axis=1)
    world.votes[draw.random(pairs) < 0.6] = [[0, DRAWS, 0]] * 3
    with world.store.write() as connection:
        _ballots(connection, world)
        if with_votes:
            _cast(connection, world, range(pairs))
        _runs(connection, world, samples, draw)
    if not with_votes:
        _counts(world)
    people = draw.integers(0, 3, EARLIER)
    decided = draw.choice(pairs, EARLIER, replace=False)
    with world.store.write() as connection:
        names = ("dataset", "attribute", "context", "annotator", "label", "source", "created", "uid")
        rows = (
            (
                1,
                int(at) // CONTEXTS + 1,
                int(at) % CONTEXTS + 1,
                f"Annotator {who}",
                "ambiguous",
                "single",
                now(),
                str(at),
            )
            for who, at in zip(people, decided, strict=True)
        )
        bulk(connection, tables.decision, names, rows)
        connection.execute(sa.update(tables.dataset).values(revision=EARLIER))
    return world


def _attribute(i: int) -> tuple:
    k = i % ATTRIBUTES
    text = f"Statement {k} of person {i // ATTRIBUTES} about what happened."
    domain, event = DOMAINS[k // 17 % len(DOMAINS)], EVENTS[k % 3]
    return i + 1, i // ATTRIBUTES + 1, k, f"key_{k}", f'"value {i}"', domain, event, text, False


def _labelling(connection: sa.Connection, world: World) -> None:
    world.personas = labellings.personas_of(connection, "bench", PERSONAS)
    world.labelling = labellings.add(
        connection,
        identity="bench",
        dataset_id=1,
        model="voter",
        endpoint="http://x",
        simulated=True,
        pack="bench",
        draws=DRAWS,
        manifest={"personas": world.personas},
    )
    connection.execute(sa.update(tables.labelling).values(status="finished", revision=1))


def _ballots(connection: sa.Connection, world: World) -> None:
    """Ballot ids count draws, then personas, then contexts, then profiles."""
    names = ("labelling", "profile", "context", "persona", "draw", "status")
    rows = (
        (world.labelling, p + 1, c + 1, persona, draw, "ok")
        for p in range(world.profiles)
        for c in range(CONTEXTS)
        for persona in world.personas
        for draw in range(DRAWS)
    )
    bulk(connection, tables.ballot, names, rows)


def _cast(connection: sa.Connection, world: World, positions: Iterable[int]) -> None:
    """The votes of these pairs as rows."""

    def rows() -> Iterable[tuple]:
        for at in positions:
            i, c = divmod(int(at), CONTEXTS)
            ballot = ((i // ATTRIBUTES) * CONTEXTS + c) * 3 * DRAWS
            for counts in world.votes[at].tolist():
                for verdict in (v for v, n in zip(VERDICTS, counts, strict=True) for _ in range(n)):
                    ballot += 1
                    yield ballot, i + 1, verdict

    bulk(connection, tables.vote, ("ballot", "attribute", "verdict"), rows())


def _counts(world: World) -> None:
    """The count cache as labels.vote_counts would write it."""
    pairs = np.arange(len(world.votes))
    columns = {"attribute": pairs // CONTEXTS + 1, "context": pairs % CONTEXTS + 1}
    flat = world.votes.reshape(len(pairs), 9)
    verdicts = ("necessary", "inappropriate", "abstain")
    named = {f"{p}.{v}": flat[:, 3 * p + n] for p in range(3) for n, v in enumerate(verdicts)}
    name = f"counts-{world.labelling}"
    frame = pd.DataFrame(columns | named)
    write_cache(partial(frame.to_parquet, index=False), cache_file(world.store, name, "1"), name)


def _runs(connection: sa.Connection, world: World, samples: int, draw: np.random.Generator) -> None:
    """One finished run; each judged message reveals twelve attributes, one profile's favourites more often."""
    judge = judgements.judge_id(
        connection, kind="llm", model="judge", endpoint="http://x", simulated=True, prompt_hash=None, parameters={}
    )
    columns = [c.name for c in tables.run.columns if not c.nullable and c.name != "revision"]
    values = {
        "id": "run-bench",
        "dataset": 1,
        "simulated": True,
        "samples": samples,
        "status": "finished",
        "manifest": "{}",
    }
    row = tuple(values.get(name, "x") for name in columns)
    bulk(connection, tables.run, columns, [row])
    judgements.assign(connection, "run-bench", [judge])
    messages = world.profiles * CONTEXTS * samples
    names = ("id", "run", "profile", "context", "level", "sample", "status")
    rows = (
        (m + 1, "run-bench", m // samples // CONTEXTS + 1, m // samples % CONTEXTS + 1, "full", m % samples, "ok")
        for m in range(messages)
    )
    bulk(connection, tables.response, names, rows)
    judged = ((m + 1, m + 1, judge, "ok") for m in range(messages))
    bulk(connection, tables.judgement, ("id", "response", "judge", "status"), judged)
    revealed = np.minimum(draw.exponential(25, (messages, 12)).astype(int), ATTRIBUTES - 1)
    names = ("judgement", "attribute", "quote", "grounded", "strength")
    reveals = (
        (m + 1, m // samples // CONTEXTS * ATTRIBUTES + int(k) + 1, "x", False, "full")
        for m in range(messages)
        for k in np.unique(revealed[m])
    )
    bulk(connection, tables.reveal, names, reveals)


def timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return (time.perf_counter() - start) * 1000


def changes() -> list[tuple[Filters, Order]]:
    """Filters as a person changes them, one after the other."""
    me = Filters(undecided_by="Ada")
    return [
        (me, Order.ENTROPY_RATE),
        (Filters(domain="health", undecided_by="Ada"), Order.ENTROPY_RATE),
        (Filters(domain="health", labels=("ambiguous",), undecided_by="Ada"), Order.ENTROPY),
        (Filters(labels=("ambiguous", "none"), dissenter="pragmatic"), Order.ENTROPY_RATE),
        (Filters(sphere="sphere 3", revealed=True, undecided_by="Ada"), Order.CONTEXT),
        (Filters(profile=3, event="divorce", undecided_by="Ada"), Order.ATTRIBUTE),
        (Filters(others_differ_from="Annotator 1"), Order.RANDOM),
        (Filters(flagged=False, labels=("necessary", "inappropriate")), Order.RANDOM),
    ]


def next_pairs(world: World, index: PairIndex, session: str) -> None:
    """What the page does when it needs the next pairs."""
    positions = select(world.store, index, Filters(undecided_by="Ada"), Order.ENTROPY_RATE)
    positions = open_to(world.store, index, positions, "Ada", 1)
    with world.store.write() as connection:
        given = reviews.hand_out_pairs(connection, 1, "Ada", session, index.each(positions), SHOWN)
    at = index.shape.locate([a for a, _ in given], [c for _, c in given])
    assert len(items(world.store, index, at)) == SHOWN


def decide(world: World, index: PairIndex, batch: str) -> None:
    """5,000 decisions as one batch, in the pieces that the page writes."""
    positions = select(world.store, index, Filters(labels=("ambiguous",)), Order.ENTROPY_RATE)
    pairs = index.pairs(undecided(world.store, index, positions, "Ada")[:BULK])
    for start in range(0, len(pairs), PIECE):
        new_decisions = [
            decisions.NewDecision(a, c, Label.INAPPROPRIATE, source="batch", batch=batch)
            for a, c in pairs[start : start + PIECE]
        ]
        with world.store.write() as connection:
            decisions.add_all(connection, 1, "Ada", new_decisions)


def second_opinion(world: World, index: PairIndex) -> None:
    """Somebody else's word on a fifth of the pairs that come first."""
    positions = select(world.store, index, Filters(labels=("ambiguous",)), Order.ENTROPY_RATE)[: BULK // 5]
    new_decisions = [decisions.NewDecision(a, c, Label.NECESSARY) for a, c in index.pairs(positions)]
    with world.store.write() as connection:
        decisions.add_all(connection, 1, "Bob", new_decisions)


def undo(world: World, batch: str) -> None:
    with world.store.write() as connection:
        assert decisions.undo_batch(connection, 1, "Ada", batch) == BULK


def measure(world: World, rounds: int) -> dict[str, list[float]]:
    store, timings = world.store, {}
    timings["count the votes (once a labelling)"] = [timed(lambda: vote_counts(store, world.labelling))]
    first = []
    for _ in range(min(rounds, 3)):
        shared_cache.clear(but={"_votes"})
        first.append(timed(lambda: pair_index(store, 1, world.labelling)))
    timings["first index"] = first
    timings["index again"] = [timed(lambda: pair_index(store, 1, world.labelling)) for _ in range(rounds)]
    index = pair_index(store, 1, world.labelling)
    timings["first select of each order"] = [
        timed(lambda order=order: select(store, index, Filters(undecided_by="Ada"), order)) for order in Order
    ]
    if not world.with_votes:
        with store.write() as connection:
            _cast(connection, world, select(store, index, Filters(), Order.ENTROPY_RATE)[:1000].tolist())
    selections = [(filters, order) for _ in range(rounds) for filters, order in changes()]
    timings["filter change"] = [timed(lambda a=a: select(store, index, *a)) for a in selections]
    sessions = [uuid.uuid4().hex for _ in range(rounds)]
    timings[f"next {SHOWN}, a new tab"] = [timed(lambda s=s: next_pairs(world, index, s)) for s in sessions]
    timings[f"next {SHOWN}, the same tab"] = [
        timed(lambda: next_pairs(world, index, sessions[0])) for _ in range(rounds)
    ]
    value = valued(store, index)
    assert value is not None
    anew = []
    for n in range(min(rounds, 3)):
        new_decisions = [
            decisions.NewDecision(a, c, Label.INAPPROPRIATE) for a, c in index.pairs(value.front[n * BATCH :][:BATCH])
        ]
        with store.write() as connection:
            decisions.add_all(connection, 1, "Ada", new_decisions)
        anew.append(timed(lambda: valued(store, index)))
    timings["values after a batch"] = anew
    timings["select by value, a tenth random"] = [
        timed(lambda: ByValue().select(store, index, Filters(undecided_by="Ada"))) for _ in range(rounds)
    ]
    second_opinion(world, index)
    decided, undone, after, agreed = [], [], [], []
    for n in range(min(rounds, 3)):
        decided.append(timed(lambda n=n: decide(world, index, f"batch {n}")))
        after.append(timed(lambda: select(store, index, Filters(undecided_by="Ada"), Order.ENTROPY_RATE)))
        agreed.append(timed(lambda: people_agreement(store, 1, world.labelling)))
        undone.append(timed(lambda n=n: undo(world, f"batch {n}")))
    timings[f"{BULK:,} decisions"] = decided
    timings["select right after them"] = after
    timings["undo of them"] = undone
    timings["agreement of two people"] = agreed
    return timings


def until(workspace: Path, dataset: str, points: float, rounds: int) -> None:
    """Decisions until the label uncertainty of Violation@n is below `points`, by order of the queue."""
    store = open_store(workspace)
    with store.read() as connection:
        row = datasets.by_name(connection, dataset)
    labelling = default_labelling(store, row.id)
    assert labelling is not None
    index = pair_index(store, row.id, labelling.id)
    for target in Target:
        first = timed(lambda t=target: valued(store, index, Aim(t)))
        print(f"values for {target}: {first:.0f} ms with runs and votes read")
    now = valued(store, index)
    assert now is not None
    assert index.rule is not None
    print(f"{len(index):,} pairs. {now.sentence(points / 100)} {now.beside}")
    scope = resolve_scope(store, now.aim.runs[0], labelling.id, labels="consensus")
    data = flow_arrays(shared_flows(store), scope)
    votes = posterior_of(data, vote_counts(store, labelling.id), index.rule.priors)
    of = subject([data], [1.0], now.n)
    ids = np.broadcast_arrays(data.names.attribute[:, :, None], np.array(data.contexts))
    positions = index.shape.locate(*(part.reshape(-1) for part in ids))
    cells = np.full(len(index), -1)
    cells[positions[positions >= 0]] = np.flatnonzero(positions >= 0)
    fixed = {order: select(store, index, Filters(), order) for order in (Order.ENTROPY_RATE, Order.ENTROPY)}
    print(f"decisions until below {points:g} points (half-width in points after {', '.join(map(str, MARKS))})")
    for name in ("value", "value, a tenth at random", *map(str, fixed), "random"):
        for seed in range(rounds):
            draw = np.random.default_rng(seed)
            u = draw.random(votes.necessary.shape)
            either = votes.necessary + votes.inappropriate
            truth = np.where(u < votes.necessary, NECESSARY, np.where(u < either, INAPPROPRIATE, AMBIGUOUS))
            by_hash = cells[select(store, index, Filters(), Order.RANDOM, seed)]
            order = cells[fixed[Order(name)]] if name in fixed else by_hash
            left, done, known, widths = np.ones(votes.open.size, np.bool_), 0, votes, {}
            reached, took = None, []
            while done <= MOST:
                start = time.perf_counter()
                effect = violation_effect(of, known)
                took.append((time.perf_counter() - start) * 1000)
                width = 196 * effect.variance**0.5
                widths |= {done: width} if done in MARKS else {}
                reached = done if reached is None and width < points else reached
                if reached is not None and done >= MARKS[-1]:
                    break
                if name.startswith("value"):
                    order = np.argsort(-effect.value, axis=None, kind="stable")
                order = order[(order >= 0) & left[order]]
                again = by_hash[(by_hash >= 0) & left[by_hash]]
                chosen = interleaved(order, again, SHARE * ("tenth" in name))[: STEP if done < 1000 else 10 * STEP]
                left[chosen], done = False, done + len(chosen)
                at = np.unravel_index(chosen, votes.open.shape)
                known = known.settled(at, truth[at])
            end = f"{reached:,}" if reached is not None else f"over {MOST:,}"
            path = " ".join(f"{width:.2f}" for width in widths.values())
            print(f"{name:26} {end:>10}   ({path}; {statistics.median(took):.0f} ms a batch)")
    store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--small", action="store_true", help="10 profiles only")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--until", type=Path, metavar="WORKSPACE", help="decisions until the labels are sure enough")
    parser.add_argument("--dataset", default="demo")
    parser.add_argument("--points", type=float, default=1.0)
    options = parser.parse_args()
    if options.until:
        until(options.until, options.dataset, options.points, min(options.rounds, 3))
        return
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before the start; milliseconds, medians")
    unit = None
    for profiles, with_votes, samples in ((10, True, 5), (1000, False, 1)):
        if profiles > 10 and options.small:
            break
        with tempfile.TemporaryDirectory() as folder:
            took = time.perf_counter()
            world = build(Path(folder), profiles, with_votes=with_votes, samples=samples)
            took = time.perf_counter() - took
            print(f"\n{profiles:,} profiles, {profiles * ATTRIBUTES * CONTEXTS:,} pairs (made in {took:.0f} s)")
            print(f"{'':36} {'n':>3} {'median':>9} {'worst':>9} {'ratio':>8}")
            timings = measure(world, options.rounds)
            unit = unit or statistics.median(timings["filter change"])
            for name, figures in timings.items():
                middle = statistics.median(figures)
                print(f"{name:36} {len(figures):3} {middle:9.1f} {max(figures):9.1f} {middle / unit:8.1f}")
            world.store.close()


if __name__ == "__main__":
    main()
