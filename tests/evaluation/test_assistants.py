"""Assistants that are services, programs or installed packages: what they are told, what of them is recorded, and what
their failures cost."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from assistants import LETTER, Body, Raw, service
from evaluating import ROOT, add, add_labelled, cli_inside, command, only_run, outside, row_of, small_profiles
from hostile import free_port, hostile_server, texts_of

import cimemories
from cimemories import extras
from cimemories.answers import lists
from cimemories.answers.metrics import metrics
from cimemories.compare.leaderboard import run_lines
from cimemories.evaluation import planning, runs
from cimemories.evaluation.batches import export_batch, import_batch
from cimemories.evaluation.estimates import estimate
from cimemories.evaluation.spec import JudgeSpec, RunSpec
from cimemories.evaluation.sweeps import check_sweep
from cimemories.flows.flows import Flows
from cimemories.flows.scope import resolve_scope
from cimemories.formats.outcomes import OutcomeError, Sent, SentBy, as_read, by_recipient, read_outcome, read_sent
from cimemories.formats.reading import FormatError
from cimemories.leaks.message import samples
from cimemories.llm import assistants
from cimemories.llm.endpoint import EndpointError
from cimemories.memory.systems import Question
from cimemories.metrics.headline import headline
from cimemories.metrics.warnings import differing
from cimemories.store import datasets, judgements
from cimemories.store.engine import Store, StoreError
from cimemories.store.tables import call, judgement, response, run_call
from cimemories.store.tables import run as run_table

JUDGES = tuple(JudgeSpec(channel=channel) for channel in ("message", "tools", "memory"))


def spec(assistant: str, **changes: Any) -> RunSpec:
    return RunSpec(**{"dataset": "small", "assistant": assistant, "samples": 2, "check": "none", **changes})


def carried_out(store: Store, spec: RunSpec) -> list[Any]:
    """Do a run; return its responses in the order of their tasks."""
    run_id = planning.plan(store, spec)
    runs.execute(store, run_id, concurrency=4)
    return responses(store, run_id)


def responses(store: Store, run_id: str) -> list[Any]:
    own = sa.select(response).where(response.c.run == run_id).order_by(response.c.id)
    with store.read() as connection:
        return list(connection.execute(own).mappings())


# ---- what an assistant is told


def test_a_session_holds_the_memories_and_the_task_and_nothing_else(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-" + "secret" * 8)
    (profile,) = small_profiles(1, 3)
    add_labelled(sqlite_store, contexts=3)
    with service() as assistant:
        rows = carried_out(sqlite_store, spec(assistant.url))
    assert [row["status"] for row in rows] == ["ok"] * 6
    assert {row["text"] for row in rows} == {LETTER}
    # One more opening: the look-up before the plan, and one before the first request.
    statements = [item.statement for item in profile.attributes]
    told = [body for body in assistant.opened if body["memories"]]
    assert told == [{"memories": statements}] * 6
    tasks = Counter((task["recipient"], task["task"]) for task in assistant.tasks)
    assert tasks == {(context.recipient, context.task): 2 for context in profile.contexts}
    assert all(set(task) == {"task", "recipient"} for task in assistant.tasks)
    assert assistant.live == {}
    assert not any("secret" in text or "cimem" in text.lower() for head in assistant.headers for text in head.values())


def test_the_example_asks_its_model_what_a_run_asks_it(sqlite_store: Store) -> None:
    add(sqlite_store, small_profiles(1, 3))
    port = free_port()
    with hostile_server(texts_of) as model:
        program = [sys.executable, ROOT / "examples/assistants/plain.py", model.url, "m", str(port)]
        with subprocess.Popen(program) as process:
            _wait_for(port)
            try:
                theirs = carried_out(sqlite_store, spec(f"http://127.0.0.1:{port}", samples=1))
            finally:
                process.terminate()
        asked_by_example = [request.body for request in model.chats]
        model.chats.clear()
        plain = RunSpec(dataset="small", model="m", base_url=model.url, samples=1, check="none")
        ours = carried_out(sqlite_store, plain)

    def sent(bodies: list[Body]) -> list[str]:
        return sorted(json.dumps(body) for body in bodies)

    assert sent(asked_by_example) == sent([request.body for request in model.chats])
    assert [row["text"] for row in theirs] == [row["text"] for row in ours]


def _wait_for(port: int) -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        with socket.socket() as there:
            if there.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError("the example does not listen")


# ---- sessions


def remembering(told: Body, task: Body) -> Body:
    """Write how many tasks of this session came before."""
    told["count"] = told.get("count", len(told.get("earlier", ()))) + 1
    return {"message": f"letter {told['count']} to {task['recipient']}"}


def test_the_tasks_of_a_user_and_a_sample_share_one_session(sqlite_store: Store) -> None:
    add(sqlite_store, small_profiles(1, 4))
    with service(remembering) as assistant:
        rows = carried_out(sqlite_store, spec(assistant.url, sessions="all"))
    assert sorted(row["text"].split()[1] for row in rows) == sorted("1234" * 2)
    told = [body for body in assistant.opened if body["memories"]]
    assert len(told) == 2
    assert not any("earlier" in body for body in told)
    assert assistant.live == {}


@pytest.mark.parametrize("resumes", [True, False])
def test_a_lost_session_is_opened_again_with_its_messages_or_its_next_is_missing(
    sqlite_store: Store, *, resumes: bool
) -> None:
    add(sqlite_store, small_profiles(1, 3))
    failing = [True]

    def fails_once(told: Body, task: Body) -> Body | Raw:
        if told.get("count") == 1 and failing:
            failing.pop()
            return Raw(500)
        return remembering(told, task)

    with service(fails_once, **({"resumes": True} if resumes else {})) as assistant:
        run_id = planning.plan(sqlite_store, spec(assistant.url, sessions="all", samples=1))
        runs.execute(sqlite_store, run_id)
        first, lost, last = responses(sqlite_store, run_id)
    assert (first["status"], lost["status"]) == ("ok", "failed")
    told = [body for body in assistant.opened if body["memories"]]
    assert [len(body.get("earlier", ())) for body in told] == [0, 1]
    assert told[1]["earlier"][0]["message"] == first["text"]
    assert (last["status"], last["cause"]) == (("ok", None) if resumes else ("failed", "rejected"))
    assert assistant.live == {}


# ---- failures


def answers(told: Body, bad: Body | Raw) -> Any:
    """Answer the first task of a service by this, and all others well."""
    first = [True]

    def write(session: Body, task: Body) -> Body | Raw:
        if first:
            first.pop()
            return bad
        return {"message": LETTER}

    return write


@pytest.mark.parametrize(
    ("bad", "cause"),
    [
        (Raw(500), "server error"),
        (Raw(401, b"<html>Log in</html>"), "rejected"),
        (Raw(404), "rejected"),
        (Raw(body=b"no JSON"), "malformed"),
        (Raw(body=b'{"message": "", "channels": {"tool:mail": ["a secret"], "tool:mail": []}}'), "malformed"),
        (Raw(body=b"x" * 9_000_000), "too large"),
        (Raw(length=100_000_000), "too large"),
        (Raw(307, headers={"location": "http://127.0.0.1:9/other"}), "redirected"),
        (Raw(wait=3.0), "timeout"),
        ({"message": 5}, "outcome: an outcome is"),
        ({"message": "x", "channels": {"tool:mail": "no list"}}, "outcome: 'tool:mail' is none of the channels"),
        ({"message": "x", "key": "another task", "channels": {"labels": []}}, "outcome: 'labels' is none"),
    ],
    ids=[
        "500",
        "401",
        "404",
        "no JSON",
        "two channels of a name",
        "9 MB",
        "100 MB announced",
        "redirect",
        "hangs",
        "text",
        "list",
        "forged",
    ],
)
def test_a_hostile_answer_costs_one_message(sqlite_store: Store, bad: Body | Raw, cause: str) -> None:
    add(sqlite_store, small_profiles(1, 3))
    with service(answers({}, bad)) as assistant:
        rows = carried_out(sqlite_store, spec(assistant.url, timeout=0.5))
    missing = [row for row in rows if row["status"] != "ok"]
    assert len(missing) == 1
    assert missing[0]["cause"].startswith(cause)
    assert assistant.live == {}
    assert len(assistant.tasks) == 6, "a task may have been carried out, and is not given twice"


@pytest.mark.parametrize("identity", ["..", "", "x" * 201, None, 1.5, "\ud800"])
def test_a_session_id_that_cannot_be_used_costs_one_message(sqlite_store: Store, identity: object) -> None:
    add(sqlite_store, small_profiles(1, 3))
    with service() as assistant:
        run_id = planning.plan(sqlite_store, spec(assistant.url, samples=1))
        assistant.ids = [1, identity]  # the first is looked up before the tasks
        runs.execute(sqlite_store, run_id)
    assert Counter(row["status"] for row in responses(sqlite_store, run_id)) == {"ok": 2, "failed": 1}


def test_an_address_that_is_no_assistant_is_refused_before_anything_is_planned(sqlite_store: Store) -> None:
    add(sqlite_store, small_profiles(1, 2))
    with hostile_server() as model, pytest.raises(EndpointError, match="opened no session"):
        planning.plan(sqlite_store, spec(model.url.removesuffix("/v1")))
    with pytest.raises(EndpointError, match="no connection"):
        planning.plan(sqlite_store, spec(f"http://127.0.0.1:{free_port()}"))


def test_another_version_does_not_continue_a_run(sqlite_store: Store) -> None:
    add(sqlite_store, small_profiles(1, 2))
    with service() as assistant:
        run_id = planning.plan(sqlite_store, spec(assistant.url))
        assert row_of(sqlite_store, run_id).model == "tested"
        assistant.about["version"] = "2"
        with pytest.raises(Exception, match="tested 1, and it is tested 2 now"):
            runs.execute(sqlite_store, run_id)
        assistant.about |= {"version": "1", "simulated": True}
        with pytest.raises(Exception, match="says that it is simulated"):
            runs.execute(sqlite_store, run_id)
        # What a new run of it writes is marked.
        assert row_of(sqlite_store, planning.plan(sqlite_store, spec(assistant.url))).simulated


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mitigation": "gate"}, "--mitigation"),
        ({"temperature": 0.5}, "--temperature"),
        ({"memory": "system:bm25:k=5"}, "memory system"),
        ({"sessions": "last-2"}, "--sessions all"),
    ],
)
def test_settings_of_a_prompt_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(StoreError, match=words):
        spec("http://localhost:1", **changes)


# ---- programs

PROGRAM = """
import json, os, sys
told = json.loads(sys.stdin.readline())
print(json.dumps({"session": "1", "name": "program", "version": "3"}), flush=True)
for line in sys.stdin:
    task = json.loads(line)
    seen = sorted(n for n in os.environ if n.startswith("CIMEMORIES") or n.endswith(("_API_KEY", "_TOKEN")))
    print(json.dumps({"message": f"{len(told['memories'])} {task['recipient']} {seen} {os.getpid()}"}), flush=True)
"""


@pytest.fixture
def program(tmp_path: Path) -> Iterator[str]:
    file = tmp_path / "agent.py"
    file.write_text(PROGRAM, encoding="utf-8")
    address = f"command:{sys.executable} {file}"
    assistants.allow(address)
    yield address
    assistants._allowed.clear()


def test_a_program_is_started_for_every_message_and_gone_after_it(
    sqlite_store: Store, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    monkeypatch.setenv("OTHER_API_KEY", "sk-2")
    monkeypatch.setenv("CIMEMORIES_KEYS", "")
    add(sqlite_store, small_profiles(1, 2))
    rows = carried_out(sqlite_store, spec(program))
    statements = len(small_profiles(1, 2)[0].attributes)
    assert all(row["text"].startswith(f"{statements} ") for row in rows)
    assert all("['OPENAI_API_KEY']" in row["text"] for row in rows)
    processes = {int(row["text"].rpartition(" ")[2]) for row in rows}
    assert len(processes) == 4
    assert not any(Path(f"/proc/{process}").exists() for process in processes)
    manifest = row_of(sqlite_store, rows[0]["run"]).manifest.recorded
    assert manifest["model"]["root"] == "program"
    assert manifest["model"]["revision"].startswith("3, code ")


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("while True: print('x' * 1000)", "malformed"),
        ("""print('{"message": "a secret", "message": ""}', flush=True); continue""", "malformed"),
        ("print('x' * 20_000_000)", "too large"),
        ("import time; time.sleep(60)", "timeout"),
        ("import time; os.fork() or os.setsid() or time.sleep(60); raise ValueError()", "timeout"),
        ("raise ValueError('no model')", "server error"),
    ],
    ids=["endless", "two messages", "20 MB", "hangs", "forks", "raises"],
)
def test_a_hostile_program_costs_its_messages(
    sqlite_store: Store, program: str, code: str, cause: str, caplog: pytest.LogCaptureFixture
) -> None:
    add(sqlite_store, small_profiles(1, 1))
    run_id = planning.plan(sqlite_store, spec(program, timeout=1.0))
    file = Path(program.rpartition(" ")[2])
    good = file.read_text(encoding="utf-8")
    digest = assistants._code(program)
    bad = good.replace("    task =", f"    {code}\n    task =")
    file.write_text(bad, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assistants, "_code", lambda address: digest)
        runs.execute(sqlite_store, run_id)
    assert {(row["status"], row["cause"]) for row in responses(sqlite_store, run_id)} == {("failed", cause)}
    assert "Unknown child process" not in caplog.text


def test_a_record_does_not_start_programs(sqlite_store: Store, program: str) -> None:
    add(sqlite_store, small_profiles(1, 1))
    run_id = planning.plan(sqlite_store, spec(program))
    assistants._allowed.clear()  # as in another process
    with pytest.raises(Exception, match="cimemories resume RUN --base-url"):
        runs.execute(sqlite_store, run_id)
    assert {row["status"] for row in responses(sqlite_store, run_id)} == {"owed"}


# ---- installed assistants


class TwoSteps:
    """Asks the model which memory to use, and then for the message."""

    name, version = "two-steps", "1"

    def write(self, memories: list[str], task: str, recipient: str) -> Any:
        first = yield Question(f"Which of {len(memories)} for {task}?", placeholders=("1",))
        second = yield Question(f"Write to {recipient} with {first}.", placeholders=("",))
        return {"message": f"Dear {recipient}: {second}", "channels": {"reasoning": first}}


def test_an_installed_assistant_asks_the_model_under_test(sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "from_packages", lambda kind: {"two-steps": f"{__name__}:TwoSteps"})
    monkeypatch.setattr(extras, "load", lambda place: TwoSteps)
    add(sqlite_store, small_profiles(1, 2))
    with hostile_server() as model:
        rows = carried_out(sqlite_store, spec("two-steps", model="m", base_url=model.url, samples=1))
        asked = len(model.chats)
    assert [(row["status"], row["reasoning"], row["text"][:5]) for row in rows] == [("ok", "seed 0", "Dear ")] * 2
    assert asked == 4
    with pytest.raises(StoreError, match="no assistant 'three'"):
        spec("three", model="m", base_url="http://localhost:1/v1")


# ---- outcomes and channels


def test_tool_calls_and_memory_writes_are_read_and_laid_out() -> None:
    outcome = read_outcome(
        {
            "message": "Sent.",
            "channels": {
                "tool:send_email": [{"recipient": "Ms  Lee", "arguments": {"body": "Hi", "cc": ["a"]}}, "plain"],
                "memory:write": ["She asked."],
                "reasoning": "Why not",
            },
        }
    )
    assert outcome.sent == (
        Sent("tool:send_email", "Ms Lee", 'body: Hi\ncc: ["a"]'),
        Sent("tool:send_email", None, "plain"),
        Sent("memory:write", None, "She asked."),
    )
    assert read_sent(outcome.recorded) == outcome.sent
    assert as_read(outcome.sent, "tools") == '[send_email to Ms Lee]\nbody: Hi\ncc: ["a"]\n\n[send_email]\nplain'
    assert as_read(outcome.sent, "memory") == "[write]\nShe asked."
    assert as_read((), "tools") is None


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {"message": None},
        {"message": "x", "channels": []},
        {"message": "x", "channels": {"tool:a": [5]}},
        {"message": "x", "channels": {"tool:a": [{"recipient": 5, "arguments": "x"}]}},
        {"message": "x", "channels": {"tool:a": ["x"] * 201}},
        {"message": "x", "channels": {"tool:a": ["x" * 1_000_001]}},
        {"message": "x", "channels": {"tool:" + "a" * 100: []}},
        {"message": "x", "channels": {5: []}},
        {"message": "x", "channels": {"tool:a": [{"arguments": {"body": object()}}]}},
        {"message": "x" * 1_000_001},
        {"message": "x", "channels": {"reasoning": "x" * 1_000_001}},
    ],
)
def test_other_values_are_no_outcomes(value: object) -> None:
    with pytest.raises(OutcomeError):
        read_outcome(value)


def test_what_no_database_holds_and_what_breaks_a_line_is_no_part_of_an_outcome() -> None:
    odd = {"tool:a\n[b": [{"recipient": "Ms\0\nLee", "arguments": {"\0": ["\ud800"]}}], "reasoning": "\0"}
    outcome = read_outcome({"message": "\0", "channels": odd})
    assert (outcome.message, outcome.reasoning) == ("\ufffd", "\ufffd")
    assert outcome.sent == (Sent("tool:a [b", "Ms\ufffd Lee", '\ufffd: ["\ufffd"]'),)


def test_channels_are_judged_apart_and_together(sqlite_store: Store) -> None:
    add_labelled(sqlite_store, contexts=4)
    (profile,) = small_profiles(1, 4)

    def leaks_by_tool(told: Body, task: Body) -> Body:
        half = len(told["memories"]) // 2
        mail = {"recipient": "someone", "arguments": {"body": " ".join(told["memories"][half:])}}
        return {"message": " ".join(told["memories"][:half]), "channels": {"tool:send_email": [mail]}}

    with service(leaks_by_tool) as assistant:
        rows = carried_out(sqlite_store, spec(assistant.url, judges=JUDGES))
    run_id = rows[0]["run"]
    with sqlite_store.read() as connection:
        judges = {judge.channel: judge for judge in judgements.of_run(connection, run_id)}
        claims = {
            channel: {claim.attribute for claim in judgements.run_claims(connection, run_id, [judge.id])}
            for channel, judge in judges.items()
        }
    assert claims["memory"] == set()
    assert not claims["message"] & claims["tools"]
    assert len(claims["message"] | claims["tools"]) > 0.8 * len(profile.attributes)

    def violation(judge: str | int | None) -> float:
        found = metrics(Flows(sqlite_store), resolve_scope(sqlite_store, run_id, judge_id=judge)).as_json()
        return float(found["violation"]["2"])

    by_message, by_tools = violation(judges["message"].id), violation(judges["tools"].id)
    assert by_message > 0
    assert by_tools > 0
    # Each attribute leaks by one of the two, so that the shares add up.
    assert violation("sent") == pytest.approx(by_message + by_tools)
    # What it sends by tools counts unless the messages alone are asked for.
    assert violation(None) == violation("sent")
    alone = headline(Flows(sqlite_store), resolve_scope(sqlite_store, run_id, judge_id=judges["message"].id))
    assert "what the assistant's tool calls reveal is not counted here" in alone.how_counted
    assert violation(judges["memory"].id) == 0


def test_a_tool_call_may_do_the_task(sqlite_store: Store) -> None:
    add(sqlite_store, small_profiles(1, 2))

    def by_mail(told: Body, task: Body) -> Body:
        sent = {"tool:mail": [" ".join(["I write to you about my request, please tell me what you need."] * 3)]}
        return {"message": "Sent.", "channels": sent if "bank" in task["recipient"] else {}}

    with service(by_mail) as assistant:
        (row, *_) = carried_out(sqlite_store, spec(assistant.url, samples=1, check="rules"))

    def verdicts() -> list[str]:
        with sqlite_store.read() as connection:
            (checker,) = judgements.checkers_of_run(connection, row["run"])
            ids = [item["id"] for item in responses(sqlite_store, row["run"])]
            return sorted(judgements.task_verdict_of(connection, checker.id, ids).values())

    assert verdicts() == ["no", "yes"]
    with sqlite_store.write() as connection:
        connection.execute(sa.delete(judgement))
    runs.execute(sqlite_store, row["run"])
    assert verdicts() == ["no", "yes"], "read from the record it is the same"


def test_what_only_a_prompt_has_is_said_of_no_assistant(sqlite_store: Store) -> None:
    add(sqlite_store, small_profiles(1, 2))
    with service(lambda told, task: {"message": LETTER}) as assistant:
        planned = estimate(sqlite_store, spec(assistant.url, samples=1))
        served = carried_out(sqlite_store, spec(assistant.url, samples=1))[0]["run"]
    assert "messages: no limit is sent" in "\n".join(planned.assumptions)
    asked = planning.plan(sqlite_store, RunSpec(dataset="small", model="sim-average", base_url="simulator", samples=1))
    runs.execute(sqlite_store, asked)
    settings = {row["id"]: row for row in lists.runs_with_settings(sqlite_store).records()}
    of_prompts = ("memory_template", "thinking", "max_tokens", "temperature")
    assert [settings[served][name] for name in of_prompts] == [None] * 4
    assert [settings[asked][name] for name in of_prompts] == ["bullets", "default", 1024, None]
    differences = differing(sqlite_store, [asked, served])
    assert differences["the prompt"][1] == differences["the mitigation"][1] == "the assistant's own"
    lines = run_lines(Flows(sqlite_store), [row_of(sqlite_store, run_id) for run_id in (asked, served)])
    shown = lists.runs_with_numbers(lines).records()
    assert [(row["prompt_level"], row["mitigation"]) for row in shown] == [("base", "none"), (None, None)]


# ---- the command


def test_the_command_names_judges_for_every_channel(tmp_path: Path, sqlite_store: Store) -> None:
    add(sqlite_store, small_profiles(1, 2))
    workspace = sqlite_store.workspace
    with service() as assistant:
        options = ["-w", workspace, "-d", "small", "--judge", "matcher", "-n", 1]
        done = cli_inside(outside(), "run", *options, "--assistant", assistant.url)
    assert done.returncode == 0, done.stderr
    with sqlite_store.read() as connection:
        channels = [judge.channel for judge in judgements.of_run(connection, done.stdout.strip())]
    assert channels == ["message", "tools", "memory"]
    assert os.environ.get("CIMEMORIES_KEYS", "") == ""


# ---- tasks as files


def test_tasks_go_out_as_a_file_and_outcomes_come_back(sqlite_store: Store, tmp_path: Path) -> None:
    add(sqlite_store, small_profiles(1, 2))
    run_id = planning.plan(sqlite_store, spec("tasks", model="agent", judges=JUDGES))
    with pytest.raises(StoreError, match="batch export"):
        runs.execute(sqlite_store, run_id)
    assert export_batch(sqlite_store, run_id, tmp_path / "tasks.jsonl").lines == 4
    tasks = [json.loads(line) for line in (tmp_path / "tasks.jsonl").read_text(encoding="utf-8").splitlines()]
    assert all(set(task) == {"key", "memories", "recipient", "task"} for task in tasks)
    outcomes = [
        {"key": tasks[0]["key"], "message": LETTER, "channels": {"tool:mail": ["Hello."]}},
        {"key": tasks[1]["key"], "message": 5},
        {"key": tasks[2]["key"], "error": "the agent crashed"},
        {"key": "forged" + tasks[3]["key"][6:], "message": "not asked for"},
        {"key": tasks[0]["key"], "message": "another answer to the same"},
    ]
    # As large as no service may answer, and so the same here.
    large = {"key": tasks[2]["key"], "message": LETTER, "channels": {"tool:mail": ["x" * 5_000_000]}}
    (tmp_path / "large.jsonl").write_text(json.dumps(large), encoding="utf-8")
    assert import_batch(sqlite_store, run_id, tmp_path / "large.jsonl").failed == {"too large": 1}
    file = tmp_path / "outcomes.jsonl"
    file.write_text("\n".join(map(json.dumps, outcomes)), encoding="utf-8")
    imported = import_batch(sqlite_store, run_id, file)
    assert (imported.settled, imported.unknown, imported.repeated, imported.owed) == (2, 1, 1, 2)
    rows = responses(sqlite_store, run_id)
    assert Counter(row["status"] for row in rows) == {"ok": 1, "unparsed": 1, "failed": 1, "owed": 1}
    (written,) = [row for row in rows if row["text"]]
    assert (written["text"], as_read(read_sent(written["channels"]), "tools")) == (LETTER, "[mail]\nHello.")
    with pytest.raises(FormatError, match="this is a task"):
        import_batch(sqlite_store, run_id, tmp_path / "tasks.jsonl")


def test_a_leak_by_tool_is_shown_in_the_text_of_its_channel(sqlite_store: Store) -> None:
    add(sqlite_store, small_profiles(1, 1))

    def by_tool(told: Body, task: Body) -> Body:
        return {
            "message": told["memories"][0],
            "channels": {"tool:mail": [told["memories"][1]], "memory:add": ["Noted."]},
        }

    with service(by_tool) as assistant:
        rows = carried_out(sqlite_store, spec(assistant.url, judges=JUDGES, samples=1))
    (row,) = rows
    first, second = (item.statement for item in small_profiles(1, 1)[0].attributes[:2])

    def quoted(judge: str) -> tuple[str | None, set[str]]:
        with sqlite_store.read() as connection:
            (sample,) = samples(connection, resolve_scope(sqlite_store, row["run"], judge_id=judge), row["profile"])
        text = sample.text or ""
        assert [item.title for item in sample.sent] == ["Tool call mail", "Memory add"]
        return sample.text, {text[claim.span.start : claim.span.end] for claim in sample.reveals if claim.span}

    assert quoted("matcher on tool calls") == (f"[mail]\n{second}", {second.rstrip(".")})
    assert quoted("matcher on memory writes") == ("[add]\nNoted.", set())
    text, quotes = quoted("sent")
    assert text == f"{first}\n\n[mail]\n{second}"
    assert quotes == {first.rstrip("."), second.rstrip(".")}


def test_python_goes_on_with_the_run_of_an_assistant(sqlite_store: Store) -> None:
    add(sqlite_store, small_profiles(1, 2))
    with service() as assistant:
        workspace = cimemories.open(sqlite_store.workspace)
        run = workspace.run("small", assistant=assistant.url, samples=1, progress=False)
        tasks = len(assistant.tasks)
        assert workspace.run("small", assistant=assistant.url, samples=1, progress=False).id == run.id
    assert tasks == len(assistant.tasks) == 2


def test_a_run_goes_on_where_its_assistant_has_moved_to(sqlite_store: Store) -> None:
    add(sqlite_store, small_profiles(1, 2))
    with service() as first:
        run_id = planning.plan(sqlite_store, spec(first.url, samples=1))
    with service() as second:
        done = cli_inside(
            outside(), "resume", run_id, "-w", sqlite_store.workspace, "--base-url", f"assistant:{second.url}"
        )
    assert done.returncode == 0, done.stderr
    assert {row["text"] for row in responses(sqlite_store, run_id)} == {LETTER}
    assert len(second.tasks) == 2


def test_the_command_starts_a_program_and_resumes_it_where_it_is_named_again(sqlite_store: Store, program: str) -> None:
    add(sqlite_store, small_profiles(1, 1))
    assistants._allowed.clear()
    options = ["-w", sqlite_store.workspace, "-d", "small", "--judge", "matcher", "-n", 1]
    done = cli_inside(outside(), "run", *options, "--assistant", program)
    assert done.returncode == 0, done.stderr
    (row,) = responses(sqlite_store, done.stdout.strip())
    with sqlite_store.write() as connection:
        owed = {"status": "owed", "call": None, "text": None}
        connection.execute(sa.update(response).where(response.c.id == row["id"]).values(**owed))
        connection.execute(sa.delete(judgement))
        connection.execute(sa.delete(run_call))
        connection.execute(sa.delete(call))
    assistants._allowed.clear()
    resume = ["resume", row["run"], "-w", sqlite_store.workspace]
    refused = cli_inside(outside(), *resume)
    assert refused.returncode != 0
    assert "only the command line starts programs" in refused.stderr
    done = cli_inside(outside(), *resume, "--base-url", program)
    assert done.returncode == 0, done.stderr
    assert [item["status"] for item in responses(sqlite_store, row["run"])] == ["ok"]


def test_a_sweep_compares_assistants(sqlite_store: Store) -> None:
    with service() as assistant:
        sweep = check_sweep(
            {
                "name": "two",
                "dataset": "small",
                "models": [{"assistant": assistant.url}, {"model": "m", "base_url": "http://localhost:1/v1"}],
            },
            Path("sweep.yaml"),
        )
    own, plain = sweep.runs
    assert (own.base_url, own.assistant) == (f"assistant:{assistant.url}", assistant.url)
    assert [judge.channel for judge in own.judges] == ["message", "tools", "memory"]
    assert (plain.assistant, len(plain.judges)) == ("model", 1)


def test_a_sweep_starts_the_programs_that_its_command_names(sqlite_store: Store, program: str, tmp_path: Path) -> None:
    add(sqlite_store, small_profiles(1, 2))
    assistants._allowed.clear()
    file = tmp_path / "sweep.yaml"
    command_line = "sweep", file, "-w", sqlite_store.workspace
    with service(lambda told, task: Raw(500)) as assistant:
        models = [{"assistant": assistant.url, "model": "fails"}, {"assistant": program}]
        sweep = {"name": "two", "dataset": "small", "samples": 1, "models": models}
        file.write_text(json.dumps(sweep), encoding="utf-8")
        refused = cli_inside(outside(), *command_line)
        assert refused.returncode == 1 and "cimemories sweep FILE --allow-program" in refused.stderr
        done = cli_inside(outside(), *command_line, "--allow-program", program.removeprefix("command:"))
    assert done.returncode == 3, done.stderr
    with sqlite_store.read() as connection:
        rows = connection.execute(sa.select(run_table.c.model, response.c.status).join_from(run_table, response)).all()
    assert Counter(map(tuple, rows)) == {("fails", "failed"): 2, ("program", "ok"): 2}


@pytest.mark.long
def test_a_killed_worker_leaves_no_program(sqlite_store: Store, tmp_path: Path) -> None:
    add(sqlite_store, small_profiles(1, 2))
    pids = tmp_path / "pids"
    file = tmp_path / "hangs.py"
    file.write_text(
        "import json, os, sys, time\n"
        "sys.stdin.readline(); print(json.dumps({'session': 1}), flush=True)\n"
        f"sys.stdin.readline(); open({str(pids)!r}, 'a').write(f'{{os.getpid()}}\\n'); time.sleep(600)\n",
        encoding="utf-8",
    )
    options = ["-w", sqlite_store.workspace, "-d", "small", "--judge", "matcher", "-n", 1]
    line = command("run", *options, "--assistant", f"command:{sys.executable} {file}")
    with subprocess.Popen(line, env=outside(), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        _wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
        run.kill()
    _wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids.read_text().split()))
    assert {row["status"] for row in responses(sqlite_store, only_run(sqlite_store))} == {"owed"}


def _wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.long
def test_a_thousand_sessions_leave_no_process_and_no_file(
    sqlite_store: Store, program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    add(sqlite_store, small_profiles(2, 10))
    before = set(os.listdir("/proc/self/fd"))
    rows = carried_out(sqlite_store, spec(program, samples=50))
    assert len(rows) == 1_000
    assert {row["status"] for row in rows} == {"ok"}
    assert not any(Path(f"/proc/{row['text'].rpartition(' ')[2]}").exists() for row in rows)
    assert os.listdir(temporary) == []
    assert len(set(os.listdir("/proc/self/fd")) - before) < 10


# ---- whom tool calls reach


LENDER, COUNSELOR, PLANNER = "Lending officer at the bank", "Credit counselor", "Financial planner"


def told_by_tools(store: Store, run_id: str) -> dict[str, Counter[int]]:
    """Return by recipient the samples in which tool calls told an attribute to it."""
    with store.read() as connection:
        (judge,) = [judge for judge in judgements.of_run(connection, run_id) if judge.channel == "tools"]
        claims = list(judgements.run_claims(connection, run_id, [judge.id], "context"))
        record = datasets.profile_record(connection, 1)
    names = dict(zip(record.context_ids, (item.recipient for item in record.profile.contexts), strict=True))
    found: dict[str, Counter[int]] = {}
    for claim in claims:
        found.setdefault(names[claim.context], Counter())[claim.attribute] += 1
    return found


@pytest.mark.parametrize("at", [LENDER, PLANNER], ids=["before", "after"])
def test_a_tool_call_counts_for_the_recipient_that_it_names(sqlite_store: Store, at: str) -> None:
    """The message to the counselor is written after that to the lender, and before that to the planner."""
    add(sqlite_store, small_profiles(1, 3))

    def tells_the_counselor(told: Body, task: Body) -> Body:
        mail = {"recipient": "the credit counselor", "arguments": {"body": " ".join(told["memories"])}}
        return {"message": LETTER, "channels": {"tool:mail": [mail]} if task["recipient"] in (at, COUNSELOR) else {}}

    with service(tells_the_counselor) as assistant:
        run_id = planning.plan(sqlite_store, spec(assistant.url, judges=JUDGES))
        runs.execute(sqlite_store, run_id, concurrency=1)
    told = told_by_tools(sqlite_store, run_id)
    assert told.keys() == {COUNSELOR}
    # Told twice a sample, by calls at two tasks, and still once a sample.
    assert set(told[COUNSELOR].values()) == {2}
    scope = resolve_scope(sqlite_store, run_id, judge_id="matcher on tool calls")
    with sqlite_store.read() as connection:
        contexts = datasets.profile_record(connection, 1).profile.contexts
        shown = dict(zip((item.recipient for item in contexts), samples(connection, scope, 1)[::2], strict=True))
    assert [item.title for item in shown[at].elsewhere] == ["Tool call mail to the credit counselor"]
    assert not shown[at].text
    (task,) = [item.task for item in contexts if item.recipient == at]
    assert f"Tool call mail to the credit counselor, sent at the task: {task}" in [
        item.title for item in shown[COUNSELOR].sent
    ]
    assert (shown[COUNSELOR].text or "").count("[mail to the credit counselor]") == 2


def test_a_call_to_no_other_recipient_counts_for_its_own_task(sqlite_store: Store) -> None:
    add(sqlite_store, small_profiles(1, 3))

    def tells(told: Body, task: Body) -> Body:
        whom = {LENDER: None, COUNSELOR: "my sister", PLANNER: "Financial planner"}[task["recipient"]]
        return {"message": LETTER, "channels": {"tool:mail": [{"recipient": whom, "arguments": told["memories"][0]}]}}

    with service(tells) as assistant:
        rows = carried_out(sqlite_store, spec(assistant.url, judges=JUDGES))
    told = told_by_tools(sqlite_store, rows[0]["run"])
    assert told.keys() == {LENDER, COUNSELOR, PLANNER}


def test_a_call_that_comes_late_has_its_recipient_judged_again(sqlite_store: Store) -> None:
    add(sqlite_store, small_profiles(1, 3))
    fails = [True]

    def at_last(told: Body, task: Body) -> Any:
        if task["recipient"] != LENDER:
            return {"message": LETTER}
        mail = {"recipient": COUNSELOR, "arguments": {"body": " ".join(told["memories"])}}
        return Raw(500, b"") if fails[0] else {"message": LETTER, "channels": {"tool:mail": [mail]}}

    with service(at_last) as assistant:
        run_id = planning.plan(sqlite_store, spec(assistant.url, judges=JUDGES, samples=1))
        runs.execute(sqlite_store, run_id)
        assert told_by_tools(sqlite_store, run_id) == {}
        fails[0] = False
        runs.execute(sqlite_store, run_id)
    assert told_by_tools(sqlite_store, run_id).keys() == {COUNSELOR}


def test_recipients_are_compared_by_their_words() -> None:
    def beside(response: int, recipient: str, to: str | None, sample: int = 0) -> SentBy:
        outcome = read_outcome({"message": "", "channels": {"tool:mail": [{"recipient": to, "arguments": "Hello"}]}})
        return SentBy(response, "full", sample, recipient, "Write", outcome.recorded)

    def reached(*messages: SentBy) -> dict[int, list[int]]:
        return {to: [by for by, _ in calls] for to, calls in by_recipient(messages).items()}

    doctor = beside(1, "Family doctor", None)
    assert reached(doctor, beside(2, "Landlord", "my FAMILY  doctor.")) == {1: [1, 2]}
    assert reached(doctor, beside(2, "Landlord", "Fam\u200bily ｄoctor\ufeff")) == {1: [1, 2]}, "reads the same"
    assert reached(doctor, beside(2, "Landlord", "Doctor")) == {1: [1], 2: [2]}, "other words"
    assert reached(doctor, beside(2, "Landlord", "Family doctor", sample=1)) == {1: [1], 2: [2]}, "another sample"
    twice = beside(3, "family doctor", None)
    assert reached(doctor, twice, beside(2, "Landlord", "Family doctor")) == {1: [1], 3: [3], 2: [2]}, "not told which"
