"""Packs of contexts and personas: what ships fits, one's own are found and checked, and labellings of several packs
stand side by side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from evaluating import add, ballots, cli_inside, outside, small_profiles
from hypothesis import given
from hypothesis import strategies as st

from cimemories import seeds
from cimemories.curation import execution, labelling
from cimemories.curation.editing import add_pack
from cimemories.curation.spec import LabellingSpec
from cimemories.model import Context
from cimemories.seeds import SeedError, packs
from cimemories.store import datasets, labellings, versions
from cimemories.store.engine import Store, StoreError

CONTEXT = {"task": "Ask for a key", "recipient": "Janitor", "sphere": "housing"}
PERSONA = {"key": "one", "name": "The one", "prior": 1.0, "description": "You weigh it."}


def write(workspace: Path, kind: packs.Kind, content: object, name: str = "mine.yaml") -> Path:
    path = packs.folder_of(workspace, kind) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else yaml.safe_dump(content, allow_unicode=True)
    path.write_text(text, encoding="utf-8")
    return path


def contexts(*entries: dict[str, object], **fields: object) -> dict[str, object]:
    return {"pack": "mine", "contexts": list(entries), **fields}


def personas(*entries: dict[str, object], **fields: object) -> dict[str, object]:
    return {"pack": "mine", "personas": list(entries), **fields}


def shown(store: Store) -> list[datasets.ProfileRecord]:
    with store.read() as connection:
        return datasets.profile_records(connection, datasets.by_name(connection, "small").id)


class TestShipped:
    def test_the_core_pack_is_the_contexts_of_the_paper_and_stays_first(self) -> None:
        assert packs.context_pack().contexts == seeds.load_contexts()
        assert packs.contexts_of(["core", "india"])[:49] == seeds.load_contexts()

    def test_two_packs_from_outside_the_united_states(self) -> None:
        known = {(c.task, c.recipient) for c in seeds.load_contexts()}
        for name in ("germany", "india"):
            pack = packs.context_pack(name)
            assert 20 <= len(pack.contexts) <= 35
            assert {context.sphere for context in pack.contexts} == set(packs.SPHERES), "every sphere of life"
            assert not known & {(c.task, c.recipient) for c in pack.contexts}, "none twice, in no other pack"
            known |= {(c.task, c.recipient) for c in pack.contexts}
            assert pack.about

    def test_every_pack_that_ships_can_be_used_and_says_what_it_is(self) -> None:
        assert packs.persona_pack() == seeds.load_personas()
        for kind in packs.KINDS:
            files = packs.pack_files(kind)
            assert [file.name for file in files if file.default] == [packs.DEFAULTS[kind]]
            assert all(packs.load_pack(file).about for file in files)
            assert len({file.name for file in files}) == len(files) >= 3

    def test_every_persona_pack_says_where_its_priors_come_from(self) -> None:
        for file in packs.pack_files("personas"):
            pack = packs.persona_pack(file.name)
            assert sum(persona.prior for persona in pack.personas) == pytest.approx(1)
            uniform = len({persona.prior for persona in pack.personas}) == 1
            assert ("by choice" in pack.priors_from) == uniform, file.name


class TestOnesOwn:
    def test_a_pack_of_the_workspace_stands_beside_those_that_ship(self, tmp_path: Path) -> None:
        write(tmp_path, "contexts", contexts(CONTEXT, title="My town"))
        write(tmp_path, "personas", personas(PERSONA))
        assert [f.name for f in packs.pack_files("contexts", tmp_path)] == ["core", "germany", "india", "mine"]
        assert packs.contexts_of(["mine"], tmp_path) == (Context("Ask for a key", "Janitor", "housing"),)
        assert packs.context_pack("mine", tmp_path).title == "My town"
        assert packs.persona_pack("mine", tmp_path).personas[0].prior == 1.0
        with pytest.raises(SeedError, match="no pack of contexts named 'mine'. Available: core, germany, india"):
            packs.contexts_of(["mine"])

    def test_a_context_of_two_packs_comes_once(self, tmp_path: Path) -> None:
        core = seeds.load_contexts()[0]
        twin = {"task": core.task, "recipient": core.recipient, "sphere": "legal"}
        write(tmp_path, "contexts", contexts(CONTEXT, twin))
        loaded = packs.contexts_of(["mine", "core", "mine"], tmp_path)
        assert len(loaded) == 50
        assert [c.sphere for c in loaded if (c.task, c.recipient) == (core.task, core.recipient)] == ["legal"]

    def test_no_pack_at_all_is_an_error(self) -> None:
        with pytest.raises(SeedError, match="no pack of contexts is named"):
            packs.contexts_of([])

    @pytest.mark.parametrize("name", ["../germany", "contexts/germany", "/etc/passwd", "", "Germany", "germany.yaml"])
    def test_a_name_is_no_path(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(SeedError, match="no pack of contexts named"):
            packs.contexts_of([name], tmp_path)

    @pytest.mark.parametrize("name", ["germany", "core", "mine"])
    def test_a_name_is_given_once(self, tmp_path: Path, name: str) -> None:
        write(tmp_path, "contexts", contexts(CONTEXT, pack=name), f"{name}.yaml")
        write(tmp_path, "contexts", contexts(CONTEXT, pack=name), f"{name}.yml")
        with pytest.raises(SeedError, match=f"already is a pack named '{name}'"):
            packs.contexts_of([name], tmp_path)

    def test_the_name_inside_is_that_of_the_file(self, tmp_path: Path) -> None:
        path = write(tmp_path, "contexts", contexts(CONTEXT), "other.yaml")
        with pytest.raises(SeedError) as caught:
            packs.contexts_of(["other"], tmp_path)
        assert str(caught.value) == f"{path}: pack: is 'mine', but the file is named 'other'. Make them the same"


BROKEN_CONTEXTS = [
    (contexts({**CONTEXT, "sphere": "sports"}), ["contexts[0].sphere", "'finance'", "'immigration'"]),
    (contexts(CONTEXT, {"task": "Ask", "recipient": "Boss"}), ["contexts[1].sphere: is missing"]),
    (contexts({**CONTEXT, "task": " "}), ["contexts[0].task"]),
    (contexts({**CONTEXT, "task": 5}), ["contexts[0].task"]),
    (contexts({**CONTEXT, "recipient": "Boss\n# Your decision"}), ["contexts[0].recipient", "one line"]),
    (contexts({**CONTEXT, "recipient": "x" * 301}), ["contexts[0].recipient", "300"]),
    (contexts({**CONTEXT, "to": "Boss"}), ["contexts[0].to"]),
    (contexts(CONTEXT, CONTEXT), ["context given more than once: Ask for a key / Janitor"]),
    (contexts(), ["contexts: "]),
    (contexts(CONTEXT, pack="My town"), ["pack: 'My town' is not a valid name"]),
    ("pack: mine\npack: yours\ncontexts: []", ["not valid YAML", "'pack' is given twice", "line 2"]),
    ("pack: mine\ncontexts: [{task: a, task: b, recipient: c, sphere: legal}]", ["'task' is given twice"]),
    ("pack: mine\ncontexts: 2026-13-45", ["not valid YAML"]),
    ("!!python/object/apply:os.system ['true']", ["not valid YAML"]),
    ("[" * 100_000, ["more than 30 deep"]),
    ("- " * 100_000, ["more than 30 deep"]),
    ("a: &a [x, x, x]\n" + "".join(f"b{i}: &b{i} [*a, *a]\n" for i in range(50)), ["b0: is not a known field"]),
    ("#" + "x" * 1_000_000, ["1,000,001 bytes"]),
]
BROKEN_PERSONAS = [
    (personas({**PERSONA, "prior": 0.5}), ["the priors must add to 1, and add to 0.5"]),
    (personas({**PERSONA, "prior": 0.0}, {**PERSONA, "key": "two"}), ["personas[0].prior"]),
    (personas({**PERSONA, "prior": "1.0"}), ["personas[0].prior"]),
    (personas({**PERSONA, "prior": True}), ["personas[0].prior"]),
    (personas({**PERSONA, "prior": float("nan")}), ["personas[0].prior"]),
    (personas({**PERSONA, "key": "The One"}), ["personas[0].key"]),
    (personas({**PERSONA, "description": "a\0b"}), ["personas[0].description"]),
    (personas({**PERSONA, "prior": 0.5}, {**PERSONA, "prior": 0.5}), ["persona given more than once: one"]),
]


@pytest.mark.parametrize(
    ("kind", "content", "fragments"),
    [("contexts", *case) for case in BROKEN_CONTEXTS] + [("personas", *case) for case in BROKEN_PERSONAS],
    ids=lambda value: str(value)[:40],
)
def test_a_pack_that_does_not_fit_names_file_entry_and_field(
    tmp_path: Path, kind: packs.Kind, content: object, fragments: list[str]
) -> None:
    if isinstance(content, dict) and "\0" in str(content):
        content = json.dumps(content)  # YAML's own writer escapes it too
    path = write(tmp_path, kind, content)
    with pytest.raises(SeedError) as caught:
        (packs.context_pack if kind == "contexts" else packs.persona_pack)("mine", tmp_path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    # An entry that is wrong is there: the list is not too short for it.
    assert "at least 1 item" not in message or content == contexts()
    assert all(fragment in message for fragment in fragments), message
    assert len(message) < 2000


def test_very_many_errors_are_counted_and_the_first_ones_told(tmp_path: Path) -> None:
    path = write(tmp_path, "contexts", contexts(*[{"task": "Ask"}] * 1000))
    with pytest.raises(SeedError, match=r"contexts\[0\]\.recipient.*and 199[01] more$"):
        seeds.load_contexts(path)


# Whatever a file holds, it is a pack or a SeedError, never another exception and never half a pack.
yaml_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(packs.SPHERES),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["pack", "contexts", "personas", "task", "recipient", "sphere", "key", "name", "prior", "description"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@given(yaml_values)
def test_anything_else_is_refused_in_words(tmp_path_factory: pytest.TempPathFactory, content: object) -> None:
    path = tmp_path_factory.mktemp("pack") / "mine.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    try:
        packs.read_any(path)
    except SeedError as error:
        assert str(path) in str(error)


class TestCommand:
    def test_lists_and_checks(self, tmp_path: Path) -> None:
        write(tmp_path, "contexts", contexts(CONTEXT))
        listed = cli_inside(outside(), "packs", "--json", "--workspace", tmp_path)
        assert listed.returncode == 0, listed.stderr
        entries = {(entry["kind"], entry["name"]): entry for entry in json.loads(listed.stdout)}
        assert entries["contexts", "core"]["entries"] == 49
        assert entries["contexts", "mine"]["shipped"] is False
        assert entries["personas", "westin"]["priors"] == {
            "fundamentalist": 0.26,
            "pragmatic": 0.64,
            "unconcerned": 0.1,
        }
        file = tmp_path / "new.yaml"
        file.write_text(yaml.safe_dump(personas(PERSONA, pack="new")))
        checked = cli_inside(outside(), "packs", "--check", file, "--workspace", tmp_path)
        assert (checked.returncode, checked.stdout) == (0, f"{file}: valid, a pack of 1 persona named 'new'\n")
        assert str(tmp_path / "packs" / "personas" / "new.yaml") in checked.stderr

    def test_a_broken_pack_is_listed_with_its_error_and_hides_no_other(self, tmp_path: Path) -> None:
        path = write(tmp_path, "contexts", contexts({**CONTEXT, "sphere": "sports"}))
        listed = cli_inside(outside(), "packs", "--json", "--workspace", tmp_path)
        assert listed.returncode == 1
        errors = {entry["name"]: entry["error"] for entry in json.loads(listed.stdout)}
        assert errors.pop("mine").startswith(f"{path}: contexts[0].sphere")
        assert set(errors.values()) == {None}
        checked = cli_inside(outside(), "packs", "--check", path, "--workspace", tmp_path)
        assert checked.returncode == 1
        assert checked.stderr.startswith(f"error: {path}: contexts[0].sphere")


class TestAdding:
    def test_every_profile_gets_the_contexts_once_and_the_history_says_so(self, store: Store) -> None:
        add(store, small_profiles(2, contexts=3))
        before = shown(store)
        assert add_pack(store, "small", "germany", annotator="Ada") == (31, 0)
        after = shown(store)
        for old, new in zip(before, after, strict=True):
            assert new.profile.contexts == (*old.profile.contexts, *packs.context_pack("germany").contexts)
            assert new.profile.attributes == old.profile.attributes
        assert add_pack(store, "small", "germany", annotator="Ada") == (0, 31)
        assert shown(store) == after
        with store.read() as connection:
            edits = versions.history(connection, datasets.by_name(connection, "small").id)
        assert {(row.edit.action, row.annotator, row.reason) for row in edits} == {("add", "Ada", "pack germany")}
        assert len(edits) == 31

    def test_what_labels_runs_or_decisions_rest_on_is_never_changed(self, store: Store) -> None:
        add(store, small_profiles(1, contexts=2))
        labelling.plan(store, LabellingSpec(dataset="small", model="sim-labeler", base_url="simulator", draws=1))
        before = shown(store)
        with pytest.raises(StoreError, match="'small' stays as it is, because 1 labelling"):
            add_pack(store, "small", "germany", annotator="Ada")
        assert shown(store) == before

    def test_nothing_is_written_of_a_pack_that_does_not_fit(self, sqlite_store: Store) -> None:
        add(sqlite_store, small_profiles(1, contexts=2))
        before = shown(sqlite_store)
        write(sqlite_store.workspace, "contexts", contexts(CONTEXT, {**CONTEXT, "sphere": "sports"}))
        with pytest.raises(SeedError, match=r"contexts\[1\]\.sphere"):
            add_pack(sqlite_store, "small", "mine", annotator="Ada")
        with pytest.raises(StoreError, match="--annotator"):
            add_pack(sqlite_store, "small", "germany", annotator=" ")
        assert shown(sqlite_store) == before


class TestLabelling:
    def test_labellings_of_several_packs_stand_side_by_side(self, store: Store) -> None:
        add(store, small_profiles(contexts=2))
        made = {}
        for name in ("westin", "five-views", "shared-privacy"):
            spec = LabellingSpec(dataset="small", model="sim-labeler", base_url="simulator", draws=2, personas=name)
            made[name] = labelling.plan(store, spec)
            execution.execute(store, made[name])
            assert labelling.plan(store, spec) == made[name], "the same pack again is the same labelling"
        assert len(set(made.values())) == 3
        with store.read() as connection:
            assert {row.pack for row in labellings.all_rows(connection)} == set(made)
            for name, labelling_id in made.items():
                pack = packs.persona_pack(name)
                assert tuple(labellings.personas(connection, labelling_id).values()) == pack.personas
                assert ballots(store, labelling_id) == {"ok": 2 * 2 * len(pack.personas)}

    def test_a_pack_of_the_workspace_votes_and_is_kept_when_its_file_changes(self, sqlite_store: Store) -> None:
        add(sqlite_store, small_profiles(contexts=1))
        write(sqlite_store.workspace, "personas", personas(PERSONA))
        spec = LabellingSpec(dataset="small", model="sim-labeler", base_url="simulator", draws=1, personas="mine")
        first = labelling.plan(sqlite_store, spec)
        write(sqlite_store.workspace, "personas", personas({**PERSONA, "description": "You distrust them."}))
        second = labelling.plan(sqlite_store, spec)
        assert first != second, "another wording is another persona"
        execution.execute(sqlite_store, first)
        with sqlite_store.read() as connection:
            (voter,) = labellings.personas(connection, first).values()
        assert voter.description == "You weigh it.", "what was planned is what is asked"

    def test_an_unknown_or_broken_pack_stops_before_anything_is_asked_or_written(self, sqlite_store: Store) -> None:
        add(sqlite_store, small_profiles(contexts=1))
        nowhere = LabellingSpec(dataset="small", model="m", base_url="http://127.0.0.1:9/v1", personas="mine")
        with pytest.raises(SeedError, match="no pack of personas named 'mine'. Available: westin, five-views"):
            labelling.plan(sqlite_store, nowhere)
        write(sqlite_store.workspace, "personas", personas({**PERSONA, "prior": 0.4}))
        with pytest.raises(SeedError, match=r"mine\.yaml: the priors must add to 1"):
            labelling.plan(sqlite_store, nowhere)
        with sqlite_store.read() as connection:
            assert labellings.all_rows(connection) == []
