"""Memory products, tried against their real packages: skipped where these are not installed (docs/memory.md)."""

from __future__ import annotations

import json
import os
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from evaluating import add_labelled, simulated, small_profiles

from cimemories.evaluation import planning, runs
from cimemories.evaluation.compositions import CompositionError, read_composition
from cimemories.evaluation.estimates import estimate
from cimemories.extras.memory_products import graphiti as graphs
from cimemories.labels.whatif import effective_labels
from cimemories.memory.retrieval import AT_ONCE
from cimemories.memory.systems import MemorySystemError, Recalled, read_system
from cimemories.model import Profile
from cimemories.simulator.server import running_simulator
from cimemories.store import runs as store_runs
from cimemories.store.engine import Store
from cimemories.store.tables import call, recall, response, run_call

mem0 = pytest.mark.skipif(find_spec("mem0") is None, reason="mem0ai is not installed")
letta = pytest.mark.skipif(find_spec("letta_client") is None, reason="letta-client is not installed")
graphiti = pytest.mark.skipif(
    None in map(find_spec, ("graphiti_core", "kuzu", "httpx")), reason="graphiti-core, kuzu or httpx is not installed"
)


def recalled(label: str, profile: Profile) -> list[Recalled]:
    system = read_system(label).make()
    with pytest.raises(StopIteration):
        next(system.ingest(profile))  # without a model it asks nothing
    return [system.recall(context, context.task) for context in profile.contexts]


@pytest.mark.skipif(find_spec("mem0") is not None, reason="mem0ai is installed")
def test_without_its_package_mem0_says_what_to_install() -> None:
    with pytest.raises(MemorySystemError, match="pip install cimemories-studio 'mem0ai"):
        read_system("system:mem0:k=5")


@mem0
def test_mem0_recalls_what_the_same_vectors_find_and_opens_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refused)
    (profile,) = small_profiles(1, 4)
    ours = recalled("system:embedding:k=1000,order=score", profile)
    theirs = recalled("system:mem0:k=5,order=score,threshold=0.0", profile)
    again = recalled("system:mem0:k=5,order=profile,threshold=0.0", profile)
    for all_scored, five, in_order in zip(ours, theirs, again, strict=True):
        score = {line.attributes: line.score or 0.0 for line in all_scored.lines}
        best = sorted(score.values(), reverse=True)[:5]
        assert [score[tuple(line.attributes or ())] for line in five.lines] == pytest.approx(best, abs=1e-4)
        positions = [position for line in in_order.lines for position in line.attributes or ()]
        assert positions == sorted(positions) and len(positions) == 5
        for line in five.lines:
            (position,) = line.attributes or ()
            assert line.text == profile.attributes[position].statement


@mem0
def test_mem0_holds_back_what_scores_below_its_threshold() -> None:
    (profile,) = small_profiles(1, 4)
    for some in recalled("system:mem0:k=50,threshold=0.1", profile):
        assert len(some.lines) < 50 and all((line.score or 0) >= 0.1 for line in some.lines)


@mem0
def test_a_run_through_mem0_records_its_calls_for_vectors(store: Store) -> None:
    add_labelled(store, 1, 2)
    with running_simulator() as url:
        memory = f"system:mem0:k=5,threshold=0.0,model=sim-judge,base_url={url}"
        run_id = planning.plan(store, simulated(memory=memory), find_labels=effective_labels)
        runs.execute(store, run_id)
    with store.read() as connection:
        row = store_runs.by_id(connection, run_id)
        statuses = connection.execute(sa.select(response.c.status).where(response.c.run == run_id)).scalars().all()
        lines = list(connection.scalars(sa.select(recall.c.lines)))
        asked = sa.select(sa.func.count()).select_from(run_call.join(call, run_call.c.call == call.c.key))
        asked = asked.where(run_call.c.run == run_id, call.c.kind == "embedding")
        vectors = connection.execute(asked).scalar_one()
    assert statuses and set(statuses) == {"ok"}
    assert lines and all(len(some) == 5 and all(line["attributes"] for line in some) for some in lines)
    (profile,) = small_profiles(1, 2)
    assert vectors == -(-(len(profile.attributes) + len(profile.contexts)) // AT_ONCE)
    assert row.manifest.memory.system is not None and "mem0ai" in row.manifest.memory.system.version


# ---- Letta


class LettaServer:
    """What of a Letta server 0.16.8 the adapter uses: archives and their passages, by the paths that letta-client asks.
    A search orders by words in common and gives 0 as every score, as that server does on PostgreSQL. broken: a path of
    which every request is refused; keep: how many results of a search are sent; said: what stands in for a passage."""

    def __init__(self, url: str) -> None:
        self.url, self.broken, self.keep, self.said = url, "", 100, ""
        self.archives: dict[str, list[dict[str, Any]]] = {}
        self.asked: list[str] = []
        self.made = 0

    def answer(self, method: str, path: str, body: Any) -> tuple[int, object]:
        self.asked.append(f"{method} {path}")
        if self.broken and path.endswith(self.broken):
            return 400, {"detail": "not now"}
        if (method, path) == ("POST", "/v1/archives/"):
            self.made += 1
            archive = f"archive-{self.made}"
            self.archives[archive] = []
            return 200, {"id": archive, "name": body["name"], "created_at": "2026-01-01T00:00:00Z"}
        if added := re.fullmatch(r"/v1/archives/([^/]+)/passages/batch", path):
            passages = [{**passage, "archive_id": added[1]} for passage in body["passages"]]
            self.archives[added[1]] += passages
            return 200, passages
        if (method, path) == ("POST", "/v1/passages/search"):
            words = set(body["query"].split())
            held = sorted(self.archives[body["archive_id"]], key=lambda p: -len(words & set(p["text"].split())))
            found = [{"passage": {**p, "text": self.said or p["text"]}, "score": 0.0, "metadata": {}} for p in held]
            return 200, found[: min(body["limit"], self.keep)]
        if method == "DELETE" and path.removeprefix("/v1/archives/") in self.archives:
            del self.archives[path.removeprefix("/v1/archives/")]
            return 204, None
        return 404, {"detail": path}


@contextmanager
def letta_server() -> Iterator[LettaServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            status, answer = server.answer(self.command, self.path, json.loads(self.rfile.read(length) or b"null"))
            data = b"" if answer is None else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_DELETE = do_POST

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        server = LettaServer(f"http://127.0.0.1:{listening.server_port}")
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield server
        listening.shutdown()


@letta
def test_a_run_through_letta_keeps_profiles_apart_and_leaves_nothing_there(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LETTA_API_KEY", "LETTA_BASE_URL", "LETTA_CUSTOM_HEADERS"):
        monkeypatch.delenv(name, raising=False)
    add_labelled(store, 2, 3)
    with letta_server() as server:
        spec = simulated(memory=f"system:letta:k=4,order=score,address={server.url}", samples=1)
        planned = estimate(store, spec, find_labels=effective_labels)
        assert planned.requests and not server.asked
        assert any("what letta will recall is not asked" in note for note in planned.notes)

        # Whatever fails is a missing message with its cause, and what was begun there is removed.
        run_id = planning.plan(store, spec, find_labels=effective_labels)
        for fault, cause in (
            ({"broken": "/archives/"}, "memory: ingest failed (BadRequestError"),
            ({"broken": "/batch"}, "memory: ingest failed (BadRequestError"),
            ({"broken": "/search"}, "memory: recall failed (BadRequestError"),
            ({"keep": 3}, "memory: recall failed (LettaError: Letta gave 3 passages, not 4"),
        ):
            vars(server).update({"broken": "", "keep": 100} | fault)
            runs.execute(store, run_id)
            rows = _rows(store, run_id)
            assert {row.status for row in rows} == {"failed"} and all(row.cause.startswith(cause) for row in rows)
            assert not server.archives

        # The same run goes on with archives of its own.
        server.keep, before = 100, server.made
        runs.execute(store, run_id)
        assert server.made == before + 2 and not server.archives
        with store.read() as connection:
            row = store_runs.by_id(connection, run_id)
            lines = connection.execute(sa.select(recall.c.profile, recall.c.lines)).all()
            owner = dict(connection.execute(sa.text("SELECT id, profile FROM attribute")).all())
        assert {row.status for row in _rows(store, run_id)} == {"ok"}
        assert row.composition == "system:letta:k=4,order=score" and server.url in str(row.manifest.memory)
        for profile, recalled_lines in lines:
            assert len(recalled_lines) == 4 and all("score" not in line or not line["score"] for line in recalled_lines)
            assert {owner[a] for line in recalled_lines for a in line["attributes"]} == {profile}

        # A passage that is no statement any more is searched for what it carries.
        server.said = "The user has a memory."
        changed = simulated(memory=f"system:letta:k=1,address={server.url}", samples=1)
        other = planning.plan(store, changed, find_labels=effective_labels)
        runs.execute(store, other)
        with store.read() as connection:
            new = list(connection.scalars(sa.select(recall.c.lines)))
        assert [line["attributes"] for some in new for line in some if line["text"] == server.said] == [[], []]


def _rows(store: Store, run_id: str) -> list[Any]:
    with store.read() as connection:
        return list(connection.execute(sa.select(response).where(response.c.run == run_id)))


@letta
def test_a_letta_server_that_does_not_answer_is_named(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LETTA_API_KEY", "LETTA_BASE_URL", "LETTA_CUSTOM_HEADERS"):
        monkeypatch.delenv(name, raising=False)
    add_labelled(store, 1, 2)
    with letta_server() as server:
        url = server.url
    spec = simulated(memory=f"system:letta:k=4,address={url}", samples=1)
    run_id = planning.plan(store, spec, find_labels=effective_labels)
    runs.execute(store, run_id)
    causes = {row.cause for row in _rows(store, run_id)}
    assert len(causes) == 1 and f"(LettaError: no answer from {url}. Start the Letta server" in causes.pop()


@letta
def test_a_key_for_letta_goes_only_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETTA_API_KEY", "secret-of-mine")
    monkeypatch.setenv("LETTA_BASE_URL", "http://127.0.0.1:9/")
    read_system("system:letta:k=5")
    read_system("system:letta:k=5,address=http://127.0.0.1:9")
    with pytest.raises(CompositionError, match="LETTA_API_KEY would be sent to http://127.0.0.1:8") as refused:
        read_composition("system:letta:address=http://127.0.0.1:8")
    assert "secret-of-mine" not in str(refused.value)
    with pytest.raises(CompositionError, match="holds more than host and path"):
        read_composition("system:letta:address=http://me:secret@127.0.0.1:9")
    with pytest.raises(CompositionError, match="k is a whole number from 1 to 100"):
        read_composition("system:letta:k=101")


# ---- Graphiti


@graphiti
def test_graphiti_recalls_by_words_and_vectors_and_opens_no_connection(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refused)
    (tmp_path / ".env").write_text("FROM_A_FILE=1")
    monkeypatch.chdir(tmp_path)
    profile, other = small_profiles(2, 4)
    # With the vectors of the system embedding and no threshold its order is theirs.
    ours = recalled("system:embedding:k=1000,order=score", profile)
    nearest = recalled("system:graphiti:k=5,order=score,search=cosine,threshold=-1", profile)
    for all_scored, five in zip(ours, nearest, strict=True):
        cosine = {line.attributes: line.score or 0.0 for line in all_scored.lines}
        best = sorted(cosine.values(), reverse=True)[:5]
        assert [cosine[tuple(line.attributes or ())] for line in five.lines] == pytest.approx(best, abs=1e-4)
        assert [line.score for line in five.lines] == pytest.approx([1 / rank for rank in range(1, 6)], abs=1e-5)
    words = recalled("system:graphiti:k=5,search=bm25", profile)
    assert words == recalled("system:graphiti:k=5,search=bm25", profile)
    for some in (*words, *recalled("system:graphiti:k=5", other)):
        positions = [position for line in some.lines for position in line.attributes or ()]
        assert positions == sorted(positions) and len(positions) <= 5
    assert any(some.lines for some in words)
    for some in words:
        own = {profile.attributes[position].statement for line in some.lines for position in line.attributes or ()}
        assert own == {line.text for line in some.lines}
    everything = recalled("system:graphiti:k=1000,search=cosine,threshold=-1", profile)
    assert all([line.text for line in some.lines] == [a.statement for a in profile.attributes] for some in everything)
    assert "FROM_A_FILE" not in os.environ and "PYTHON_DOTENV_DISABLED" not in os.environ


@graphiti
def test_a_run_through_graphiti_holds_more_graphs_than_kuzu_has_room_for_by_itself(store: Store) -> None:
    assert len([graphs._started({}) for _ in range(17)]) == 17
    add_labelled(store, 1, 2)
    with running_simulator() as url:
        memory = f"system:graphiti:k=5,threshold=-1,model=sim-judge,base_url={url}"
        before = estimate(store, simulated(memory=memory), find_labels=effective_labels)
        run_id = planning.plan(store, simulated(memory=memory), find_labels=effective_labels)
        runs.execute(store, run_id)
    assert {row.status for row in _rows(store, run_id)} == {"ok"}
    with store.read() as connection:
        asked = sa.select(sa.func.count()).select_from(run_call.join(call, run_call.c.call == call.c.key))
        vectors = connection.execute(asked.where(run_call.c.run == run_id, call.c.kind == "embedding")).scalar_one()
        row = store_runs.by_id(connection, run_id)
    assert {stage.kind: stage.draws for stage in before.stages}["embedding"] == vectors > 0
    assert row.manifest.memory.system is not None and "graphiti-core" in row.manifest.memory.system.version


@pytest.mark.parametrize(
    ("label", "says"),
    [
        ("search=words", "search is hybrid, bm25, cosine, not 'words'"),
        ("threshold=2.0", "threshold is from -1 to 1"),
        ("search=bm25,model=m", "search=bm25 uses no vectors"),
    ],
)
@graphiti
def test_what_graphiti_cannot_do_is_refused(label: str, says: str) -> None:
    with pytest.raises(CompositionError, match=says):
        read_composition(f"system:graphiti:{label}")
