"""Requests that share a long beginning: one of them is asked alone first, and nothing is lost or held up by it."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import pytest
from evaluating import add, assert_whole, row_of
from executing import eventually
from hostile import IncomingRequest, Reply, completion, error, hostile_server, texts_of
from hypothesis import given
from hypothesis import strategies as st
from worlds import make_profile

from cimemories.evaluation import planning, runs
from cimemories.llm import worker
from cimemories.llm.executor import AHEAD, LONG, Openings, opening_of
from cimemories.store import work
from cimemories.store.engine import Store

CONTEXTS, SAMPLES = 5, 2


def people(store: Store, profiles: int) -> None:
    """Profiles whose memories alone are long enough to be waited for."""
    made = [make_profile(number, 40, CONTEXTS) for number in range(profiles)]
    long = [
        replace(
            one, attributes=tuple(replace(a, statement=f"{a.statement} {'and so on ' * 12}") for a in one.attributes)
        )
        for one in made
    ]
    add(store, long, "world")


def spec(url: str, judge: planning.JudgeSpec) -> planning.RunSpec:
    return planning.RunSpec(
        dataset="world", model="m", base_url=url, samples=SAMPLES, seed=0, timeout=20.0, judges=(judge,)
    )


def beginning(request: IncomingRequest) -> str:
    """The memories that a request begins with, whoever asks: first lines of both prompts differ by the profile's."""
    return f"{request.body['model']} {request.body['messages'][0]['content'][: LONG + 500]}"


def answering(request: IncomingRequest) -> Reply:
    return completion('{"revealed": []}') if request.body["model"] == "judge" else texts_of(request)


class Watched:
    """Answers, and notes which requests came before the first of their beginning had been answered."""

    def __init__(self, spoil: Callable[[IncomingRequest], Reply | None] = lambda _: None) -> None:
        self.spoil, self.lock = spoil, threading.Lock()
        self.begun: dict[str, int] = {}
        self.answered: set[str] = set()
        self.early: list[IncomingRequest] = []
        self.openers_at_once = self.most_openers = 0

    def __call__(self, request: IncomingRequest) -> Reply:
        own = beginning(request)
        with self.lock:
            first = own not in self.begun
            self.begun[own] = self.begun.get(own, 0) + 1
            if not first and own not in self.answered:
                self.early.append(request)
            self.openers_at_once += first
            self.most_openers = max(self.most_openers, self.openers_at_once)
        if first:
            threading.Event().wait(0.15)
        with self.lock:
            self.answered.add(own)
            self.openers_at_once -= first
        return self.spoil(request) or answering(request)


def test_the_first_request_of_a_profile_is_asked_alone_and_profiles_do_not_wait_for_each_other(store: Store) -> None:
    people(store, 3)
    watched = Watched()
    with hostile_server(watched, ("m", "judge")) as server:
        run_id = planning.plan(
            store, spec(server.url, planning.JudgeSpec(kind="llm", model="judge", base_url=server.url))
        )
        runs.execute(store, run_id, concurrency=8)
    assert watched.early == []
    assert len(watched.begun) == 6, "three profiles, each read by the model and by the judge"
    assert watched.most_openers == 3
    assert_whole(store, run_id, 3 * CONTEXTS * SAMPLES)
    assert row_of(store, run_id).judged == 3 * CONTEXTS * SAMPLES


def test_a_judge_does_not_wait_for_another_that_reads_the_same(
    store: Store, beside: Callable[..., Future[object]]
) -> None:
    people(store, 1)
    release = threading.Event()

    def slow(request: IncomingRequest) -> Reply:
        if request.body["model"] == "slow":
            release.wait(20)
        if request.body["model"] != "m":
            return completion('{"revealed": []}')
        digest = zlib.crc32(request.body["messages"][0]["content"].encode())  # so that no two messages are one request
        return completion(*(f"{digest} {sample}" for sample in range(request.n)))

    with hostile_server(slow, ("m", "slow", "judge")) as server:
        judges = [planning.JudgeSpec(kind="llm", model=name, base_url=server.url) for name in ("slow", "judge")]
        run_spec = planning.RunSpec(
            dataset="world", model="m", base_url=server.url, samples=SAMPLES, judges=(judges[0], *tuple(judges[1:]))
        )
        run_id = planning.plan(store, run_spec)
        working = beside(runs.execute, store, run_id, concurrency=8)
        try:
            other = lambda: sum(a.body["model"] == "judge" for a in server.chats)  # noqa: E731
            assert eventually(lambda: other() == CONTEXTS * SAMPLES)
        finally:
            release.set()
        working.result(timeout=20)


def test_where_the_first_request_fails_the_others_go_on(store: Store) -> None:
    people(store, 1)
    seen: set[str] = set()

    def spoil(request: IncomingRequest) -> Reply | None:
        first = beginning(request) not in seen
        seen.add(beginning(request))
        return error(400, "no") if first else None

    with hostile_server(Watched(spoil), ("m",)) as server:
        run_id = planning.plan(store, spec(server.url, planning.JudgeSpec(kind="matcher", model="", base_url="")))
        runs.execute(store, run_id, concurrency=4)
    assert row_of(store, run_id).responses == {"ok": (CONTEXTS - 1) * SAMPLES, "failed": SAMPLES}


@pytest.fixture
def beside() -> Iterator[Callable[..., Future[object]]]:
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit


def test_pausing_leaves_those_that_wait_owed_and_resuming_asks_for_them(
    store: Store, beside: Callable[..., Future[object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "HEARTBEAT_SECONDS", 0.05)
    people(store, 1)
    release = threading.Event()

    def waits(request: IncomingRequest) -> Reply:
        release.wait(20)
        return texts_of(request)

    with hostile_server(waits, ("m",)) as server:
        run_id = planning.plan(store, spec(server.url, planning.JudgeSpec(kind="matcher", model="", base_url="")))
        working = beside(runs.execute, store, run_id, concurrency=4)
        try:
            assert eventually(lambda: server.under_way == 1)
            with store.write() as connection:
                work.request_pause(connection, run_id)
            assert not eventually(working.done, 0.3), "the call in flight is waited for"
        finally:
            release.set()
        working.result(timeout=20)
        assert len(server.chats) == 1
        assert row_of(store, run_id).responses == {"ok": SAMPLES, "owed": (CONTEXTS - 1) * SAMPLES}
        runs.execute(store, run_id, concurrency=4)
    assert_whole(store, run_id, CONTEXTS * SAMPLES)
    assert len(server.chats) == CONTEXTS


def test_what_the_record_holds_is_served_without_waiting(store: Store) -> None:
    people(store, 1)
    with hostile_server(answering, ("m",)) as server:
        for _ in range(2):
            run_id = planning.plan(store, spec(server.url, planning.JudgeSpec(kind="matcher", model="", base_url="")))
            runs.execute(store, run_id, concurrency=4)
    assert len(server.chats) == CONTEXTS
    assert_whole(store, run_id, CONTEXTS * SAMPLES)


@given(st.lists(st.sampled_from("abc"), max_size=60), st.randoms(use_true_random=False), st.integers(1, 6))
def test_everyone_goes_once_in_the_order_of_coming_and_only_after_their_opening(
    openings: list[str], random: object, places: int
) -> None:
    """Requests come and come back in any order: none is lost, none goes before its opening has been read."""
    held: Openings[tuple[str, int]] = Openings(places)
    coming = [(name, number) for number, name in enumerate(openings)]
    flying: list[tuple[str, int]] = []
    gone: list[tuple[str, int]] = []
    read: set[str] = set()

    def start(item: tuple[str, int]) -> None:
        assert item[0] in read or all(item[0] != other for other, _ in gone)
        flying.append(item)
        gone.append(item)

    while coming or flying or held.ready:
        held.start_ready(places - len(flying), start)
        while coming and len(flying) < places and not held.full:
            item = coming.pop(0)
            if not held.must_wait(item[0], item):
                start(item)
        if flying:
            back = flying.pop(random.randrange(len(flying)))  # type: ignore[attr-defined]
            read.add(back[0])
            held.has_read(back[0])
        assert len(flying) <= places
    assert sorted(gone, key=lambda item: item[1]) == [(name, number) for number, name in enumerate(openings)]
    for name in set(openings):
        numbers = [number for other, number in gone if other == name]
        assert numbers == sorted(numbers)


def test_no_more_wait_than_a_few_for_each_place() -> None:
    held: Openings[int] = Openings(2)
    assert not held.must_wait("a", 0)
    for number in range(2 * AHEAD):
        assert not held.full
        assert held.must_wait("a", number)
    assert held.full


def test_an_opening_is_what_texts_share_and_short_ones_have_none() -> None:
    memories = "- a memory\n" * 500
    one, other = (opening_of(f"Notes\n{memories}\nWrite to {who}", memories) for who in ("a landlord", "a friend"))
    assert one == other is not None
    assert opening_of(f"Other\n{memories}\nWrite", memories) != one
    assert opening_of("Notes\n- a memory\nWrite", "- a memory\n") is None
    assert opening_of("x" * LONG, "not there") is None
