"""Profiles by a model from plan to dataset: against the simulator with its faults and hostile servers."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from authored import EVENTS, GENERALS, PARTS, PER_DOMAIN, PROFILES, WANTED, calls_made, dataset_hashes, spec, write
from evaluating import cli_inside, outside
from hostile import IncomingRequest, Reply, completion, error, hostile_server

from cimemories.curation import authoring, execution
from cimemories.curation.authoring import estimate, people, report
from cimemories.curation.authoring_rules import broken_rules, normalized
from cimemories.llm.endpoint import EndpointError
from cimemories.llm.worker import WorkError
from cimemories.model import DOMAINS, GENERAL, WorkStatus
from cimemories.seeds import SeedError, load_general
from cimemories.simulator.server import running_simulator
from cimemories.store import datasets, generations, work
from cimemories.store.engine import Store, StoreError, open_store


def good(request: IncomingRequest) -> Reply:
    """A model that writes what it is asked for, with keys and statements that tell the prompt's attributes apart."""
    text = request.body["messages"][0]["content"]
    schema = request.body["response_format"]["json_schema"]["schema"]["properties"]
    answer, number = {}, 1 + max(map(int, re.findall(r"fact_(\d+)", text)), default=0)
    for domain, lists in schema.items():
        answer[domain] = []
        for _ in range(lists["maxItems"]):
            answer[domain].append({"key": f"fact_{number}", "value": number, "statement": f"My number is {number}."})
            number += 1
    return completion(json.dumps(answer), usage={"prompt_tokens": 10, "completion_tokens": 5})


# ---- the simulator, faults and all


def test_profiles_by_the_simulator(store: Store) -> None:
    result = write(store, spec())
    whole = set(result.row.parts) == {"ok"}
    assert result.row.status == ("finished" if whole else "finished with failures"), "parts may be short"
    assert (result.row.simulated, result.dataset_name) == (True, "new")
    assert sum(result.row.parts.values()) == PARTS
    assert result.planned == WANTED
    assert result.rejected, "the simulator writes some of it badly on purpose"
    with store.read() as connection:
        (row,) = datasets.all_rows(connection)
        people_ = [record.profile for record in datasets.profile_records(connection, row.id)]
        parts = generations.parts(connection, result.row.id)
        origin = generations.of_dataset(connection, row.id)
        assert [item.id for item in datasets.all_rows(connection) if item.simulated] == [row.id]
    assert (row.origin, row.profiles, row.contexts) == ("generated", PROFILES, 49)
    assert row.source_name == "sim-average, simulated"
    assert origin is not None
    assert origin.id == result.row.id
    assert origin.manifest["prompts"], "which words it was asked in"
    assert row.attributes == result.written + 4 * PROFILES
    for profile, person in zip(people_, people(PROFILES, seed=5, locale="en_US", events=EVENTS), strict=True):
        assert (profile.name, profile.sex, profile.address, profile.age) == (
            *(person.name, person.sex, person.address),
            person.age,
        )
        assert profile.events == person.events
        assert 21 <= profile.age <= 70
        for place, attribute in enumerate(profile.attributes[4:], start=4):
            before = profile.attributes[:place]
            broken = broken_rules(attribute, [a.key for a in before], [normalized(a.statement) for a in before])
            assert list(broken) == [], "no rule is broken in the record"
        own = [a for a in profile.attributes if a.event == profile.events[0]]
        assert [a.domain for a in own] == sorted((a.domain for a in own), key=DOMAINS.index)
    # What was turned down was asked for again, with the reasons, at most twice.
    assert max(part.attempt for part in parts) <= 2
    lacking = {
        part.id: (GENERALS if part.event == GENERAL else PER_DOMAIN * len(DOMAINS)) - len(part.attributes)
        for part in parts
    }
    for part in parts:
        assert (part.status == "ok") == (lacking[part.id] == 0)
        assert lacking[part.id] == 0 or part.attempt == 2
        assert all(item["attempt"] <= part.attempt for item in part.rejected)
    assert result.missing == sum(lacking.values())


def test_the_same_seed_gives_the_same_profiles(sqlite_store: Store, tmp_path: Path) -> None:
    other = open_store(tmp_path / "other")
    write(sqlite_store, spec())
    write(sqlite_store, spec(name="again"))
    made = calls_made(sqlite_store)
    write(sqlite_store, spec(name="another seed", seed=6))
    write(other, spec())
    first, again, different = dataset_hashes(sqlite_store)
    assert first == again != different
    assert dataset_hashes(other) == [first], "also where nothing was on record"
    assert calls_made(sqlite_store) > made
    assert sum(part.attempt + 1 for part in _parts(sqlite_store)[:PARTS]) == made, "the second time none was made"
    other.close()


def _parts(store: Store) -> list[generations.Part]:
    with store.read() as connection:
        return [part for row in generations.all_rows(connection) for part in generations.parts(connection, row.id)]


def test_people_are_adults_of_their_locale_with_names_of_their_own() -> None:
    for locale in ("en_US", "de_DE", "ja_JP", "pt_BR"):
        sampled = people(60, seed=1, locale=locale, events=3)
        assert len({person.name for person in sampled}) == 60
        assert all(21 <= person.age <= 70 and len(set(person.events)) == 3 for person in sampled)
        assert {person.sex for person in sampled} == {"M", "F"}
        assert sampled[:7] == people(7, seed=1, locale=locale, events=3)
        assert [a.key for a in sampled[0].attributes(load_general().bio)] == ["name", "sex", "address", "age"]
    with pytest.raises(SeedError, match="no locale 'xx_XX'"):
        people(1, seed=1, locale="xx_XX", events=3)
    with pytest.raises(SeedError, match="the seeds have 31"):
        people(1, seed=1, locale="en_US", events=32)


# ---- what is sent


def test_each_call_holds_the_person_and_all_that_was_written_before(sqlite_store: Store) -> None:
    with hostile_server(good) as server:
        result = write(sqlite_store, spec(server.url, model="m"))
    assert (result.written, result.missing, result.rejected) == (WANTED, 0, {})
    assert len(server.chats) == PARTS
    assert all("seed" not in request.body for request in server.chats), "no seed unless one is asked for"
    for person in people(PROFILES, seed=5, locale="en_US", events=EVENTS):
        own = [a.body for a in server.chats if f"My name is {person.name}." in a.body["messages"][0]["content"]]
        texts = [body["messages"][0]["content"] for body in own]
        assert len(texts) == 1 + EVENTS
        assert all(person.address in text and f"{person.age} years old" in text for text in texts)
        known = [len(re.findall(r"^- fact_\d+: My number", text, re.MULTILINE)) for text in texts]
        assert known == [0, GENERALS, GENERALS + PER_DOMAIN * len(DOMAINS)]
        for event, body in zip((GENERAL, *person.events), own, strict=True):
            about = body["messages"][0]["content"].split("# The part of life to write about")[1]
            assert about.strip().startswith(f"{event}: ")
            lists = body["response_format"]["json_schema"]["schema"]["properties"]
            assert {d: v["maxItems"] for d, v in lists.items()} == (
                {GENERAL: GENERALS} if event == GENERAL else dict.fromkeys(DOMAINS, PER_DOMAIN)
            )
    assert result.tokens("prompt") == 10 * PARTS


def test_what_is_turned_down_is_asked_for_again_with_its_reason_and_never_more(sqlite_store: Store) -> None:
    """The first answer to each part lacks its first value; the second one is right."""

    def careless(request: IncomingRequest) -> Reply:
        reply = good(request)
        text = request.body["messages"][0]["content"]
        if "empty value" in text:
            return reply
        body = json.loads(reply.body["choices"][0]["message"]["content"])
        next(iter(body.values()))[0]["value"] = ""
        return completion(json.dumps(body))

    with hostile_server(careless) as server:
        result = write(sqlite_store, spec(server.url, model="m", model_seed=40, profiles=1))
    assert (result.missing, result.rejected) == (0, {"empty value": 1 + EVENTS})
    assert [chat.seed for chat in server.chats] == [40, 41] * (1 + EVENTS), "another draw for another attempt"
    for first, second in zip(server.chats[::2], server.chats[1::2], strict=True):
        requested_again = second.body["response_format"]["json_schema"]["schema"]["properties"]
        domain = next(iter(first.body["response_format"]["json_schema"]["schema"]["properties"]))
        assert {d: v["maxItems"] for d, v in requested_again.items()} == {domain: 1}
        assert re.search(
            rf"^- {domain} / fact_\d+: empty value: \"My number", second.body["messages"][0]["content"], re.M
        )


# ---- servers that go wrong


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (completion("I would rather not."), "answer cannot be read"),
        (completion("[]"), "answer cannot be read"),
        (completion('{"finance": [', finish_reason="length"), "answer cut at the token limit"),
        (completion("{}"), "fewer than were asked for"),
        (completion('{"leisure": [{"key": "golf", "value": 7, "statement": "I golf 7 times."}]}'), "unknown domain"),
    ],
    ids=["prose", "list", "cut", "nothing", "off"],
)
def test_a_server_that_answers_rubbish_ends_in_a_clear_report_and_no_dataset(
    sqlite_store: Store, reply: Reply, reason: str
) -> None:
    with hostile_server(lambda _: reply) as server:
        generation_id = authoring.plan(sqlite_store, spec(server.url, model="m"))
        with pytest.raises(WorkError, match="nothing that the model wrote could be kept") as caught:
            execution.execute(sqlite_store, generation_id)
        made = len(server.chats)
        with pytest.raises(WorkError, match="nothing that the model wrote"):
            execution.execute(sqlite_store, generation_id)
        assert len(server.chats) == made == 3 * PARTS, "each part was asked for three times, and never again"
    assert reason in str(caught.value)
    result = report(sqlite_store, generation_id)
    assert (result.row.status, result.written, result.row.dataset) == ("failed", 0, None)
    assert result.rejected[reason] >= 3 * PARTS
    assert dataset_hashes(sqlite_store) == []


def test_a_profile_of_which_nothing_could_be_kept_is_left_out_and_said_so(sqlite_store: Store) -> None:
    first = people(1, seed=5, locale="en_US", events=EVENTS)[0]

    def picky(request: IncomingRequest) -> Reply:
        text = request.body["messages"][0]["content"]
        return completion("no") if first.name in text else good(request)

    with hostile_server(picky) as server:
        result = write(sqlite_store, spec(server.url, model="m"))
    assert (result.row.status, result.left_out, result.missing) == ("finished with failures", 1, WANTED // PROFILES)
    with sqlite_store.read() as connection:
        (row,) = datasets.all_rows(connection)
        names = [r.profile.name for r in datasets.profile_records(connection, row.id)]
    assert len(names) == PROFILES - 1
    assert first.name not in names
    assert any("left out: 1 " in line for line in result.lines())


def test_failed_parts_are_asked_for_again_by_a_resume_and_nothing_is_half_there(store: Store) -> None:
    last = people(PROFILES, seed=5, locale="en_US", events=EVENTS)[-1]
    broken = True

    def failing(request: IncomingRequest) -> Reply:
        text = request.body["messages"][0]["content"]
        return Reply(body=b"{") if broken and last.name in text and last.events[1] + ": " in text else good(request)

    with hostile_server(failing) as server:
        generation_id = authoring.plan(store, spec(server.url, model="m"))
        with pytest.raises(WorkError, match=f"1 of {PARTS} parts are not written.*resume {generation_id}"):
            execution.execute(store, generation_id)
        result = report(store, generation_id)
        assert (result.row.status, result.row.dataset, result.row.parts) == (
            "interrupted",
            None,
            {"ok": PARTS - 1, "failed": 1},
        )
        assert dataset_hashes(store) == []
        broken = False
        made = len(server.chats)
        execution.execute(store, generation_id)
        assert len(server.chats) == made + 1
    assert report(store, generation_id).missing == 0
    assert len(dataset_hashes(store)) == 1


def test_a_request_that_the_server_refuses_for_good_is_missing_and_the_rest_goes_on(sqlite_store: Store) -> None:
    def refusing(request: IncomingRequest) -> Reply:
        general = GENERAL in request.body["response_format"]["json_schema"]["schema"]["properties"]
        return error(400, "the prompt is too long") if general else good(request)

    with hostile_server(refusing) as server:
        result = write(sqlite_store, spec(server.url, model="m"))
    assert result.row.parts == {"refused": PROFILES, "ok": PARTS - PROFILES}
    assert result.missing == PROFILES * GENERALS
    assert "the prompt is too long" in result.failures[0][1]
    assert result.row.dataset is not None


def test_a_name_that_was_taken_meanwhile_costs_no_work(sqlite_store: Store) -> None:
    with hostile_server(good) as server:
        generation_id = authoring.plan(sqlite_store, spec(server.url, model="m"))
        with sqlite_store.write() as connection:
            datasets.add(connection, "new", [], origin="test", source_name=None, source_hash="x")
        execution.execute(sqlite_store, generation_id)
    assert report(sqlite_store, generation_id).dataset_name == f"new ({generation_id})"


def test_the_very_same_is_gone_on_with_and_a_deleted_dataset_written_anew_without_a_call(sqlite_store: Store) -> None:
    with hostile_server(good) as server:
        first = authoring.plan(sqlite_store, spec(server.url, model="m"))
        assert authoring.plan(sqlite_store, spec(server.url, model="m")) == first
        assert authoring.plan(sqlite_store, spec(server.url, model="m", per_domain=3)) != first
        execution.execute(sqlite_store, first)
        (before,), made = dataset_hashes(sqlite_store), len(server.chats)
        with pytest.raises(StoreError, match="'new' exists already"):
            authoring.plan(sqlite_store, spec(server.url, model="m"))
        with sqlite_store.write() as connection:
            datasets.delete(connection, datasets.by_name(connection, "new").id)
        assert authoring.plan(sqlite_store, spec(server.url, model="m")) == first
        execution.execute(sqlite_store, first)
        assert dataset_hashes(sqlite_store) == [before]
        assert len(server.chats) == made


def test_a_generation_that_is_running_is_not_moved_by_one_that_is_refused(store: Store) -> None:
    with hostile_server(good, ("m",)) as here, hostile_server(good, ("m",)) as there:
        generation_id = authoring.plan(store, spec(here.url, model="m"))
        with store.write() as connection:
            claim = work.claim(connection, generation_id)
        with pytest.raises(StoreError, match=f"{generation_id} is running.*nothing was changed"):
            authoring.plan(store, spec(there.url, model="m"))
        with store.write() as connection:
            claim.hold(connection)
            assert generations.by_id(connection, generation_id).endpoint == here.url
            work.finish(connection, generation_id, WorkStatus.PAUSED)
        assert authoring.plan(store, spec(there.url, model="m")) == generation_id
        with store.read() as connection:
            assert generations.by_id(connection, generation_id).endpoint == there.url


def test_a_generation_takes_the_key_and_the_timeout_that_it_is_given_again(sqlite_store: Store) -> None:
    keys = {"OPENAI_API_KEY": "the-old-key-1234", "LAB_API_KEY": "the-right-key-1234"}

    def answers(request: IncomingRequest) -> Reply:
        right = request.authorization == f"Bearer {keys['LAB_API_KEY']}"
        return good(request) if right else error(401, "the key is wrong")

    with hostile_server(answers, ("m",)) as server:
        sizes = ("--profiles", 1, "--events", 1, "--per-domain", 1, "--general", 2)
        command = ("generate", "-d", "new", "-m", "m", "--base-url", server.url, *sizes)
        place = ("--workspace", sqlite_store.workspace)
        refused = cli_inside({**outside(), **keys}, *command, *place)
        assert refused.returncode == 1 and "the key is wrong" in refused.stderr
        other = ("--api-key-env", "LAB_API_KEY", "--timeout", 777)
        done = cli_inside({**outside(), **keys}, *command, *other, *place)
    assert (done.returncode, done.stdout) == (0, refused.stdout), done.stderr
    with sqlite_store.read() as connection:
        [row] = generations.all_rows(connection)
    assert row.manifest["asked"]["timeout"] == 777 and row.dataset is not None


def test_a_generation_that_is_paused_stays_paused(sqlite_store: Store) -> None:
    with hostile_server(good, ("m",)) as server:
        generation_id = authoring.plan(sqlite_store, spec(server.url, model="m"))

        def pauses(request: IncomingRequest) -> Reply:
            with sqlite_store.write() as connection:
                work.request_pause(connection, generation_id)
            return replace(good(request), wait=1.5)

        server.chat = pauses
        execution.execute(sqlite_store, generation_id, concurrency=1)
        with sqlite_store.read() as connection:
            row = generations.by_id(connection, generation_id)
        assert (row.status, row.error, row.dataset) == (WorkStatus.PAUSED, None, None)
        assert 0 < row.settled < row.expected
        server.chat = good
        execution.execute(sqlite_store, generation_id)
    assert report(sqlite_store, generation_id).row.status == "finished"


def test_nothing_is_written_down_for_what_cannot_be_done(sqlite_store: Store) -> None:
    with hostile_server(good) as server:
        for wrong, kind, message in [
            (spec("http://127.0.0.1:9/v1"), EndpointError, "no answer"),
            (spec(server.url, model="other"), EndpointError, "does not serve"),
            (spec(server.url, model="m", locale="xx"), SeedError, "locale"),
            (spec(server.url, model="m", name=" "), StoreError, "name"),
        ]:
            with pytest.raises(kind, match=message):
                authoring.plan(sqlite_store, wrong)
    for name in ("profiles", "per_domain", "general", "max_tokens"):
        with pytest.raises(StoreError, match="1 or more"):
            spec(**{name: 0})
    with sqlite_store.read() as connection:
        assert generations.all_rows(connection) == []
        with pytest.raises(StoreError, match="there is no 'generation-x'"):
            generations.by_id(connection, "generation-x")


def test_the_plan_grows_with_the_profiles(sqlite_store: Store) -> None:
    small = estimate(sqlite_store, spec())
    large = estimate(sqlite_store, spec(profiles=2 * PROFILES))
    assert (small.requests, small.responses) == (PARTS, WANTED)
    assert (large.requests, large.responses) == (2 * PARTS, 2 * WANTED)
    assert large.prompt_tokens == pytest.approx(2 * small.prompt_tokens, rel=0.05)


def test_the_plan_follows_what_is_recorded(sqlite_store: Store) -> None:
    write(sqlite_store, spec())
    again = estimate(sqlite_store, spec(name="again"))
    assert (again.requests, again.draws, again.recorded) == (0, calls_made(sqlite_store), calls_made(sqlite_store))
    assert again.draws > PARTS, "what was turned down was asked for again"
    more = estimate(sqlite_store, spec(name="more", profiles=PROFILES + 1))
    assert (more.requests, more.recorded) == (1 + EVENTS, again.recorded)


def test_a_part_that_another_call_has_settled_stays_as_it_is(store: Store) -> None:
    with hostile_server(good) as server:
        generation_id = write(store, spec(server.url, model="m", profiles=1)).row.id
    part = _parts(store)[0]
    with store.write() as connection:
        assert generations.settle(connection, [part]) == [True], "a commit that is done again"
        other = replace(part, call=_parts(store)[1].call, attributes=(), status=generations.SHORT)
        assert generations.settle(connection, [other]) == [False]
    assert _parts(store)[0] == part
    assert report(store, generation_id).missing == 0


def test_on_a_failing_server_every_part_is_written_in_the_end(sqlite_store: Store) -> None:
    with running_simulator(seed=0, faults=0.2, hang=0.5) as url:
        generation_id = authoring.plan(sqlite_store, spec(url))
        for _ in range(5):
            with suppress(WorkError):
                execution.execute(sqlite_store, generation_id)
    result = report(sqlite_store, generation_id)
    assert not set(result.row.parts) & set(generations.RETRIABLE)
    assert result.dataset_name == "new"
    assert result.written > 0.9 * WANTED
