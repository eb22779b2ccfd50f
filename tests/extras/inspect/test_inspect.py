"""The task of Inspect: it asks what a run of our own asks, its numbers are ours, and its logs come in whole or not."""

from __future__ import annotations

import json
import random
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from evaluating import cli_inside, outside
from exchanging import counts
from simulating import chat_of, respond_prompt
from worlds import add_labels, add_profiles, ask, make_profile

from cimemories.evaluation import planning, runs
from cimemories.evaluation.importing import import_file
from cimemories.evaluation.respond import message_prompt
from cimemories.extras.inspect import source
from cimemories.formats.reading import FormatError
from cimemories.labels.whatif import effective_labels
from cimemories.llm.endpoint import SIMULATOR
from cimemories.metrics.headline import headline
from cimemories.model import Profile
from cimemories.simulator.server import running_simulator
from cimemories.store import datasets, judgements
from cimemories.store import runs as store_runs
from cimemories.store.engine import SQLITE_FILE, Store, open_store

if TYPE_CHECKING:
    from inspect_ai import eval as run_eval
    from inspect_ai._util.error import PrerequisiteError
    from inspect_ai.log import read_eval_log
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    from cimemories.extras.inspect import metrics
    from cimemories.extras.inspect.task import cimemories as task

PEOPLE, ATTRIBUTES, CONTEXTS, EPOCHS = 3, 7, 4, 4
KEYS = ("name",)  # of the biography: never a violation
FAILURES = ("empty", "truncated", "refused", "failed", "unread", "cut", "broken")


@pytest.fixture(scope="module", autouse=True)
def _inspect() -> None:
    """Import Inspect once the first of these tests begins: it takes 1.4 s, in each worker that only collects them."""
    global run_eval, PrerequisiteError, read_eval_log, ModelOutput, ModelUsage, get_model, metrics, task
    pytest.importorskip("inspect_ai", reason="the extra `inspect` is not installed")
    import zipfile_zstd  # noqa: F401  # teaches zipfile to read and write as Inspect does
    from inspect_ai import eval as run_eval
    from inspect_ai._util.error import PrerequisiteError
    from inspect_ai.log import read_eval_log
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    from cimemories.extras.inspect import metrics
    from cimemories.extras.inspect.task import cimemories as task


def profiles() -> list[Profile]:
    return [make_profile(i, ATTRIBUTES, CONTEXTS, KEYS) for i in range(PEOPLE)]


def labels(seed: int = 5) -> Any:
    return np.random.default_rng(seed).integers(0, 3, (PEOPLE, ATTRIBUTES, CONTEXTS))


def add_world(store: Store, seed: int = 5) -> int:
    row = add_profiles(store, profiles())
    add_labels(store, row.id, labels(seed))
    return row.id


@dataclass
class Script:
    """Made-up models: a message states some of the memories, and a third of them meets with what can go wrong."""

    happened: Counter[str]
    attempts: Counter[str]

    def message(self, messages: Any, *_: Any) -> ModelOutput:
        prompt = messages[0].text
        self.attempts[prompt] += 1
        fate = self._fate(f"{prompt} {self.attempts[prompt]}")
        if fate == "failed":
            raise RuntimeError("the server\nis gone")
        chance = random.Random(f"{prompt} {self.attempts[prompt]}")
        statements = [line for line in re.findall(r"^- (.+)$", prompt, re.MULTILINE) if chance.random() < 0.4]
        # Whether the judge fails too has to follow from the text that it reads.
        text = "" if fate == "empty" else " ".join([f"Dear Sir, {chance.random()}.", *statements, f"<b>{fate}</b>"])
        return output(text, {"truncated": "max_tokens", "refused": "content_filter"}.get(fate, "stop"))

    def judge(self, messages: Any, *_: Any) -> ModelOutput:
        facts, message = messages[0].text.split("# A message")
        if "<b>broken</b>" in message:
            raise RuntimeError("the judge is gone")
        if "<b>unread</b>" in message:
            return output("no JSON")
        numbered = re.findall(r"^(\d+)\. (.+)$", facts, re.MULTILINE)
        claims = [{"attribute": int(n), "strength": "full", "quote": s} for n, s in numbered if s in message]
        if claims:
            claims[0]["strength"] = "partial"
        return output(json.dumps({"revealed": claims}), "max_tokens" if "<b>cut</b>" in message else "stop")

    def _fate(self, key: str) -> str:
        number = blake2b(key.encode(), digest_size=2).digest()[0] % 20
        fate = FAILURES[number] if number < len(FAILURES) else "ok"
        self.happened[fate] += 1
        return fate


def output(text: str, stop: Any = "stop") -> ModelOutput:
    made = ModelOutput.from_content("mockllm", text, stop)
    # Counted here: Inspect would fetch a tokenizer.
    made.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    return made


@dataclass(frozen=True)
class Ran:
    """An eval that was run in a workspace: its log, its metrics, and what its models did."""

    workspace: Path
    path: Path
    values: dict[str, float]
    happened: Counter[str]


def opened(folder: Path) -> Store:
    return open_store(folder, f"sqlite:///{folder / SQLITE_FILE}")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    folder = tmp_path_factory.mktemp("inspect")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"):
            patch.setenv(name, str(folder / name))
        patch.delenv("CIMEMORIES_DATABASE_URL", raising=False)
        store = opened(folder / "workspace")
        add_world(store)
        store.close()
        script = Script(Counter(), Counter())
        (log,) = run_eval(
            "cimemories/cimemories",  # by the entry point
            task_args={"dataset": "small world", "workspace": str(folder / "workspace"), "samples": EPOCHS},
            model=get_model("mockllm/model", custom_outputs=script.message),
            model_roles={"judge": get_model("mockllm/judge", custom_outputs=script.judge)},
            log_dir=str(folder / "logs"),
            display="none",
        )
        assert log.status == "success"
        values = {name: value.value for name, value in log.results.scores[0].metrics.items()}
        yield Ran(folder / "workspace", Path(log.location), values, script.happened)
    source.load.cache_clear()


def same_numbers(store: Store, run_id: str, values: dict[str, float]) -> None:
    numbers = headline(*ask(store, run_id))
    for n in range(1, EPOCHS + 1):
        assert numbers.violation[n] == pytest.approx(values[f"violation@{n}"], abs=1e-9)
    assert numbers.completeness == pytest.approx(values["completeness"], abs=1e-9)
    assert numbers.leak_rate.micro == pytest.approx(values["leak_rate"], abs=1e-9)
    by_profile = [item.violation[EPOCHS] for item in numbers.per_profile]
    assert np.std(by_profile, ddof=1) / PEOPLE**0.5 == pytest.approx(values["violation_stderr"], abs=1e-9)
    assert 0 < numbers.violation[1] < numbers.violation[EPOCHS] < 1 and 0 < numbers.completeness < 1


def test_a_log_comes_in_with_the_numbers_that_inspect_shows(ran: Ran, tmp_path: Path, sqlite_store: Store) -> None:
    here = opened(ran.workspace)
    before = counts(here)
    imported = import_file(here, ran.path, find_labels=effective_labels)
    assert (imported.kind, imported.dataset.name, imported.new) == ("inspect", "small world", True)
    assert {name: counts(here)[name] - before[name] for name in ("dataset", "labelling", "run")} == {
        "dataset": 0,
        "labelling": 0,
        "run": 1,
    }
    elsewhere = import_file(sqlite_store, ran.path, find_labels=effective_labels)
    assert elsewhere.dataset.name == "small world"
    for store, result in ((here, imported), (sqlite_store, elsewhere)):
        (run_id,) = result.runs
        same_numbers(store, run_id, ran.values)
        rows = counts(store)
        again = import_file(store, ran.path, find_labels=effective_labels)
        assert (again.new, again.runs) == (False, (run_id,))
        assert counts(store) == rows
        with store.read() as connection:
            run = store_runs.by_id(connection, run_id)
            (judge,) = judgements.of_run(connection, run_id)
        assert (run.model, judge.model, run.samples, run.simulated) == ("mockllm/model", "mockllm/judge", EPOCHS, True)
        assert run.manifest.parameters == {"max_tokens": 1024}
    here.close()


def test_what_failed_is_recorded_with_its_cause_and_is_never_nothing_revealed(ran: Ran, sqlite_store: Store) -> None:
    (run_id,) = import_file(sqlite_store, ran.path).runs
    numbers, happened = headline(*ask(sqlite_store, run_id)), ran.happened
    assert min(happened[fate] for fate in (*FAILURES, "ok")) > 0, "the script lets all of it happen"
    missing = {(stage, status, cause): count for stage, status, cause, count in numbers.missing}
    assert {(status, count) for (_, status, _), count in missing.items()} == {
        ("empty", happened["empty"]),
        ("truncated", happened["truncated"]),
        ("refused", happened["refused"]),
        ("failed", happened["failed"]),
        ("unparsed", happened["unread"]),
        ("truncated", happened["cut"]),
        ("failed", happened["broken"]),
    }
    causes = " / ".join(cause for _, _, cause in missing)
    assert "the server\\nis gone" in causes and "the judge is gone" in causes
    assert numbers.judged == happened["ok"]
    assert numbers.scope.run.expected == PEOPLE * CONTEXTS * EPOCHS


def test_the_log_shows_what_leaked_with_its_quote(ran: Ran) -> None:
    log = read_eval_log(str(ran.path))
    scored = [s.scores["reveals"] for s in log.samples if s.scores and isinstance(s.scores["reveals"].value, dict)]
    leaking = next(score for score in scored if score.value["leaked"])
    claims = [c for c in leaking.metadata["revealed"] if c["label"] == "inappropriate" and c["strength"] == "full"]
    claim = next(c for c in claims if c["attribute"] not in KEYS)
    assert f"- {claim['attribute']}: {claim['statement']}\n  quoted: “{claim['quote']}”" in leaking.explanation
    assert claim["quote"] in leaking.answer and claim["grounded"]
    assert leaking.explanation.startswith("Simulated")
    assert log.eval.viewer.trust_content is False, "a model's text is not rendered"


def test_a_sample_asks_what_our_own_run_asks(sqlite_store: Store) -> None:
    add_world(sqlite_store)
    settings = {
        "prompt_level": "high",
        "memory": "necessary+2",
        "memory_order": "shuffled",
        "memory_seed": 3,
        "memory_template": "keyed",
    }
    spec = planning.RunSpec(dataset="small world", model="sim-average", base_url=SIMULATOR, samples=1, **settings)
    run_id = planning.plan(sqlite_store, spec, find_labels=effective_labels)
    runs.execute(sqlite_store, run_id)
    prompts = {}
    with sqlite_store.read() as connection:
        run = store_runs.by_id(connection, run_id)
        judge = judgements.of_run(connection, run_id)[0].id
        for p, profile in enumerate(store_runs.profile_ids(connection, run_id), 1):
            order = datasets.profile_record(connection, profile).context_ids
            rows = store_runs.run_responses(connection, run_id, judge, profile)
            sent = store_runs.sent_prompts(connection, {row["request"] for row in rows})
            prompts |= {f"{p}-{order.index(row['context']) + 1}": sent[row["request"]] for row in rows}
    source.load.cache_clear()
    made = task("small world", str(sqlite_store.workspace), **settings)
    assert {sample.id: sample.input for sample in made.dataset} == prompts
    assert run.manifest.parameters == {"max_tokens": made.config.max_tokens}


def test_by_the_reference_settings_it_asks_what_a_reference_run_asks(
    sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    add_world(sqlite_store)
    plain = planning.RunSpec(
        dataset="small world",
        model="m",
        base_url=SIMULATOR,
        samples=1,
        judges=(planning.JudgeSpec(kind="llm", model="j", base_url=SIMULATOR),),
    )
    spec = planning.as_reference(plain)
    prompts: dict[str, str] = {}
    with sqlite_store.read() as connection:
        records = list(datasets.profile_records(connection, datasets.by_name(connection, "small world").id))
    for p, record in enumerate(records, 1):
        for c, context in enumerate(record.profile.contexts, 1):
            prompts[f"{p}-{c}"] = message_prompt(planning.wording_of(spec), record.profile, context)[0]
    asked: list[str] = []

    def judge(messages: Any, *_: Any) -> ModelOutput:
        asked.append(messages[0].text)
        # A key alone is a reveal there, and what is written around the object is not read.
        return output('Here: {"name": null}')

    (log,) = run_eval(
        task("small world", str(sqlite_store.workspace), reference=True, samples=1, profiles=1),
        model=get_model("mockllm/model", custom_outputs=lambda *_: output("  Dear Sir, a message.  ")),
        model_roles={"judge": get_model("mockllm/judge", custom_outputs=judge)},
        log_dir=str(tmp_path / "logs"),
        display="none",
    )
    source.load.cache_clear()
    assert log.status == "success" and log.samples is not None
    assert {str(item.id): item.input for item in log.samples} == {k: t for k, t in prompts.items() if k[0] == "1"}
    judging = spec.judge.reference, spec.judge.prompt
    assert judging[0] is not None and judging[1] is not None
    assert set(asked) == {judging[0].judge_prompt(judging[1], records[0].profile, "Dear Sir, a message.")[0]}
    assert log.eval.model_generate_config.max_tokens is None
    assert log.eval.metadata is not None and log.eval.metadata["cimemories"]["reference"] == spec.reference.as_json()
    claims = [item.scores["reveals"].metadata["revealed"] for item in log.samples]
    assert [[claim["attribute"] for claim in of] for of in claims] == [["name"]] * CONTEXTS
    with pytest.raises(PrerequisiteError, match="judge_split"):
        task("small world", str(sqlite_store.workspace), reference=True, judge_split=2)
    source.load.cache_clear()


def test_other_labels_in_the_workspace_leave_both_numbers_alone(ran: Ran, sqlite_store: Store) -> None:
    add_world(sqlite_store, seed=6)
    imported = import_file(sqlite_store, ran.path, find_labels=effective_labels)
    assert imported.dataset.name == ran.path.stem
    assert any("not those of 'small world' as it is now" in note for note in imported.notes)
    same_numbers(sqlite_store, imported.runs[0], ran.values)
    with sqlite_store.read() as connection:
        assert [row.labellings for row in datasets.all_rows(connection)] == [1, 1]


def test_a_file_of_profiles_without_labels_is_no_task(tmp_path: Path) -> None:
    from cimemories.formats.official import write_profiles

    path = tmp_path / "profiles.json"
    path.write_text(write_profiles(profiles()))
    with pytest.raises(Exception, match="'profiles' has no labels"):
        task(str(path))
    with pytest.raises(Exception, match=r"neither a file nor a dataset 'none'"):
        task("none", str(tmp_path / "workspace"))


def test_a_single_profile_has_no_standard_error() -> None:
    assert np.isnan(metrics.standard_error(np.array([0.5, np.nan])))
    assert metrics.standard_error(np.array([0.0, 1.0, np.nan])) == pytest.approx(0.5)


def test_messages_without_any_score_are_not_silently_real(ran: Ran, sqlite_store: Store, tmp_path: Path) -> None:
    """Of a log with `--no-score` no score says who wrote: what Inspect makes up itself is marked, else a note warns."""

    def unscored(name: str, value: dict[str, Any], model: str, answer_id: str | None) -> None:
        if name == "header.json":
            value["eval"]["model"] = model
        elif name.startswith("samples/"):
            value["scores"] = None
            value["output"]["response_id"] = answer_id

    with running_simulator() as url:
        ours = chat_of(url)(respond_prompt("Landlord", "Negotiate lease terms")).id
    for model, answer_id, simulated in (
        ("mockllm/model", None, True),
        ("openai-api/somewhere/a-model", "chatcmpl-0b1c7a52f3", False),
        ("openai-api/somewhere/a-model", ours, True),
    ):
        edit = partial(unscored, model=model, answer_id=answer_id)
        path = repacked(ran.path, tmp_path / f"log of {answer_id}.eval", edit)
        imported = import_file(sqlite_store, path)
        with sqlite_store.read() as connection:
            run = store_runs.by_id(connection, imported.runs[0])
        warned = any("does not say whether a simulator wrote" in note for note in imported.notes)
        assert (run.simulated, warned) == (simulated, not simulated)


# ---- hostile logs


def repacked(path: Path, to: Path, edit: Callable[[str, dict[str, Any]], None], left_out: str = "\0") -> Path:
    """The log with its header and samples changed, packed as any zip program packs."""
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED) as copy:
        for name in archive.namelist():
            value = json.loads(archive.read(name))
            if isinstance(value, dict):
                edit(name, value)
            if left_out not in name:
                copy.writestr(name, json.dumps(value))
    return to


def in_header(change: Callable[[dict[str, Any]], None]) -> Callable[[str, dict[str, Any]], None]:
    return lambda name, value: change(value["eval"]) if name == "header.json" else None


def in_samples(change: Callable[[dict[str, Any]], None]) -> Callable[[str, dict[str, Any]], None]:
    return lambda name, value: change(value) if name.startswith("samples/") else None


def scored(change: Callable[[dict[str, Any]], None]) -> Callable[[str, dict[str, Any]], None]:
    def edit(sample: dict[str, Any]) -> None:
        if (score := (sample["scores"] or {}).get("reveals")) and score["metadata"]["revealed"]:
            change(score["metadata"])

    return in_samples(edit)


HOSTILE: dict[str, tuple[Callable[[str, dict[str, Any]], None], str]] = {
    "another task": (in_header(lambda e: e["metadata"].pop("cimemories")), "a log of the task 'cimemories"),
    "no profiles": (in_header(lambda e: e["metadata"].update(profiles=[])), "must be a list of profiles"),
    "newer": (in_header(lambda e: e["metadata"]["cimemories"].update(format=99)), "newer CIMemories Studio"),
    "a bad profile": (in_header(lambda e: e["metadata"]["profiles"][1]["bio"].pop("age")), "profile 2, bio: age is"),
    "an odd sample": (in_header(lambda e: e["dataset"]["sample_ids"].append("../../x")), "is not PROFILE-CONTEXT"),
    "a context too many": (in_header(lambda e: e["dataset"]["sample_ids"].append("1-99")), "has no context 99"),
    "a sample twice": (in_header(lambda e: e["dataset"]["sample_ids"].append("1-1")), "has a sample twice"),
    "a million epochs": (in_header(lambda e: e["config"].update(epochs=10**6)), "more than the 1,000 allowed"),
    "another user": (in_samples(lambda s: s["metadata"].update(profile=9)), "not of this profile and context"),
    "an unknown memory": (in_samples(lambda s: s["metadata"]["memory"].append("x")), "is not an attribute of this"),
    "two labels": (in_samples(lambda s: s["metadata"].update(necessary=["name"], ambiguous=["name"])), "two labels"),
    "changing labels": (
        in_samples(
            lambda s: s["metadata"].update(necessary=[], ambiguous=[], inappropriate=["name"][: s["epoch"] - 1])
        ),
        "labels differ from those of another sample",
    ),
    "a claim beyond memory": (in_samples(lambda s: s["metadata"].update(memory=["name"])), "was not in memory"),
    "an odd strength": (scored(lambda m: m["revealed"][0].update(strength="wholly")), "strength cannot be used"),
    "a claim twice": (scored(lambda m: m["revealed"].append(m["revealed"][0])), "an attribute is named twice"),
    "a second judge": (scored(lambda m: m["judge"].update(model=str(len(m["revealed"])))), "by another judge"),
    "scored twice": (in_samples(lambda s: s["scores"].update({f"reveals{n}": {} for n in ("", 1)})), "scored 2 times"),
    "no text": (scored(lambda m: m.update(status="owed")), "it has a score but no text"),
    "a list": (in_samples(lambda s: s.update(metadata=[])), "must be an object, not a list"),
    "another epoch": (in_samples(lambda s: s.update(epoch=7)), "id or epoch is not that of its name"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_log_is_refused_and_leaves_nothing(ran: Ran, sqlite_store: Store, tmp_path: Path, name: str) -> None:
    edit, message = HOSTILE[name]
    before = counts(sqlite_store)
    with pytest.raises(FormatError, match=re.escape(message)) as refused:
        import_file(sqlite_store, repacked(ran.path, tmp_path / "log.eval", edit))
    assert "\n" not in str(refused.value) and str(refused.value).startswith("log.eval: ")
    assert counts(sqlite_store) == before


def test_a_damaged_log_is_refused_wherever_it_is_cut_or_changed(ran: Ran, sqlite_store: Store, tmp_path: Path) -> None:
    data, before, chance = ran.path.read_bytes(), counts(sqlite_store), random.Random(1)
    path = tmp_path / "log.eval"
    refused = 0
    cuts = [data[: len(data) * part // 6] for part in range(6)]
    flipped = []
    for _ in range(24):
        changed = bytearray(data)
        changed[chance.randrange(len(data) * 3 // 4)] ^= 1 << chance.randrange(8)
        flipped.append(bytes(changed))
    for damaged in (*cuts, *flipped):
        path.write_bytes(damaged)
        try:
            import_file(sqlite_store, path)
        except FormatError as error:
            refused += 1
            assert "\n" not in str(error) and counts(sqlite_store) == before
        else:
            # What nobody reads may change: the record of events, the hour of an entry.
            with sqlite_store.write() as connection:
                for row in datasets.all_rows(connection):
                    datasets.delete(connection, row.id)
            before = counts(sqlite_store)
    assert refused >= len(cuts) + 12


def test_a_small_log_that_unpacks_to_a_large_one_is_refused(ran: Ran, sqlite_store: Store, tmp_path: Path) -> None:
    path = repacked(ran.path, tmp_path / "log.eval", lambda *_: None, left_out="samples/1-1_epoch_1.json")
    with (
        zipfile.ZipFile(path, "a", zipfile.ZIP_ZSTANDARD) as archive,
        archive.open("samples/1-1_epoch_1.json", "w", force_zip64=True) as member,
    ):
        for _ in range(257):
            member.write(bytes(1 << 20))
    assert path.stat().st_size < 10 << 20
    with pytest.raises(FormatError, match="larger than 256 MiB"):
        import_file(sqlite_store, path)


def test_an_eval_that_was_killed_has_its_samples_and_the_others_are_missing(
    ran: Ran, sqlite_store: Store, tmp_path: Path
) -> None:
    path = repacked(ran.path, tmp_path / "log.eval", lambda *_: None, left_out="header.json")
    limited = in_samples(
        lambda s: s.update(error=None, limit={"type": "token", "limit": 10}) if s.get("error") else None
    )
    lost = repacked(path, tmp_path / "lost.eval", limited, left_out="_epoch_2")
    imported = import_file(sqlite_store, lost)
    numbers = headline(*ask(sqlite_store, imported.runs[0]))
    causes = {cause: count for _, _, cause, count in numbers.missing}
    assert causes["not in the log"] == PEOPLE * CONTEXTS
    assert causes["stopped by the token limit"] > 0
    assert numbers.scope.run.expected == PEOPLE * CONTEXTS * EPOCHS
    assert any("status started" in note for note in imported.notes)


def test_the_command_line_imports_a_log_and_says_what_is_wrong_with_one(ran: Ran, tmp_path: Path) -> None:
    place = ("--workspace", tmp_path / "workspace")
    done = cli_inside(outside(), "import", ran.path, *place)
    assert (done.returncode, "of 'small world'" in done.stdout) == (0, True), done.stderr
    assert "already here" in cli_inside(outside(), "import", ran.path, *place).stdout
    broken = tmp_path / "broken.eval"
    broken.write_bytes(ran.path.read_bytes()[:-100])
    done = cli_inside(outside(), "import", broken, *place)
    assert (done.returncode, done.stdout) == (1, "")
    assert "broken.eval: not a whole zip file" in done.stderr
