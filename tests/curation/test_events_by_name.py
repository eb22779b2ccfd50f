"""Events that profiles have where they are named: every kind of the authors' data has templates, and nothing that was
made before changes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from evaluating import ROOT, cli_inside, outside
from official_files import OFFICIAL, needs_official
from test_offline import spoken_forms

from cimemories import seeds
from cimemories.curation.offline import generate_profiles
from cimemories.demo import PROFILES, SEED
from cimemories.formats.official import read_profiles
from cimemories.model import DOMAINS, GENERAL, canonical_event
from cimemories.seeds import SeedError
from cimemories.store.engine import Store


def entries(event: str) -> list[seeds.Template]:
    return [entry for own in seeds.load_offline(event).domains.values() for entry in own]


def test_the_demo_and_every_seed_give_the_people_that_they_gave() -> None:
    """As data/demo/ has them, which was written before there were events by name."""
    made = list(generate_profiles(PROFILES, seed=SEED, contexts=seeds.load_contexts()))
    shipped = read_profiles(ROOT / "data" / "demo" / "profiles.json").profiles
    bare = [replace(p, contexts=()) for p in made]
    assert bare == [replace(p, contexts=()) for p in shipped]
    assert not set(seeds.offline_events()) & set(seeds.events_by_name())


def test_every_published_kind_has_templates_of_its_own() -> None:
    kinds = set(seeds.published_events().values())
    assert kinds <= {*seeds.offline_events(), *seeds.events_by_name()}
    assert set(seeds.events_by_name()) <= kinds
    for event in seeds.events_by_name():
        assert seeds.load_offline(event).event == event
        assert {len(own) for own in seeds.load_offline(event).domains.values()} == {5}
    every = [e for event in (*seeds.offline_events(), *seeds.events_by_name()) for e in entries(event)]
    texts = [t for e in every for t in (e.statement, e.statement_true, e.statement_false) if t]
    assert len({e.key for e in every}) == len(every) and len(set(texts)) == len(texts)


@needs_official
def test_no_event_of_the_released_profiles_is_unknown() -> None:
    names = {
        canonical_event(attribute["event"])
        for profile in json.loads(OFFICIAL.read_text())
        for attribute in profile["information_attributes"].values()
    }
    assert names - {GENERAL} <= set(seeds.published_events())


def test_statements_of_named_events_say_their_values() -> None:
    templates = {e.key: e for event in seeds.events_by_name() for e in entries(event)}
    for profile in generate_profiles(30, seed=5, events=4, among=seeds.events_by_name()):
        assert set(profile.events) <= set(seeds.events_by_name()) and len(profile.events) == 4
        own = [a for a in profile.attributes if a.domain in DOMAINS]
        assert len(own) == 4 * 9 * 5 and len({a.statement for a in own}) == len(own)
        for attribute in own:
            entry = templates[attribute.key]
            if isinstance(attribute.value, bool):
                assert attribute.statement == (entry.statement_true if attribute.value else entry.statement_false)
            else:
                assert any(form in attribute.statement for form in spoken_forms(attribute)), attribute


def test_names_are_read_in_any_spelling_and_unknown_ones_are_listed(sqlite_store: Store) -> None:
    assert seeds.named_events(["Sobriety", "gender_transition", "alcoholism"]) == (
        "addiction recovery",
        "gender transition",
    )
    assert set(seeds.named_events(["published"])) == set(seeds.published_events().values())
    with pytest.raises(SeedError, match=r"'a flood'. There are: published, job promotion"):
        seeds.named_events(["a flood"])
    with pytest.raises(SeedError, match="3 events are too many: only 2 are named"):
        generate_profiles(1, among=["engagement", "abortion"])
    place = ["--workspace", sqlite_store.workspace]
    done = cli_inside(
        outside(), "generate", "-d", "d", "--profiles", "1", "--events", "1", "--event", "engagement", *place
    )
    assert done.returncode == 0 and "generated 'd'" in done.stdout
    refused = cli_inside(outside(), "generate", "-d", "e", "-m", "m", "--event", "engagement", *place)
    assert refused.returncode == 1 and "--event names templates" in refused.stderr
