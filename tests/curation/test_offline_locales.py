"""Profiles in every locale that is claimed: names and addresses of that locale, and nothing that breaks a line."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from evaluating import cli_inside, outside
from faker import Faker
from faker.config import AVAILABLE_LOCALES

from cimemories.curation.offline import FAMILY_NAME_FIRST, LOCALES, generate_profiles, known_locale
from cimemories.model import Profile
from cimemories.seeds import SeedError
from cimemories.store import datasets
from cimemories.store.engine import open_store

BORROWED_NAMES = {"en_AU", "en_CA"}


@cache
def profiles(locale: str) -> list[Profile]:
    return list(generate_profiles(3, seed=17, locale=locale, per_domain=2))


@pytest.mark.parametrize("locale", LOCALES)
def test_names_and_addresses_are_those_of_the_locale_each_on_one_line_and_none_twice(locale: str) -> None:
    providers: dict[str, Any] = {p.__provider__.rsplit(".")[-1]: p for p in Faker(locale).get_providers()}
    person, address = providers["person"], providers["address"]
    assert address.__lang__ == locale
    assert person.__lang__ == ("en_US" if locale in BORROWED_NAMES else locale)
    for profile in profiles(locale):
        lists = {"M": person.first_names_male, "F": person.first_names_female}
        first = [" ".join(name.split()) for name in lists[profile.sex]]
        ends = str.endswith if locale in FAMILY_NAME_FIRST else str.startswith
        assert any(ends(profile.name, name) for name in first), (profile.name, profile.sex)
        statements = {attribute.key: attribute.statement for attribute in profile.attributes}
        assert profile.name in statements["name"]
        assert profile.address in statements["address"]
        assert profile.address
        assert ",," not in profile.address
        assert str(profile.age) in statements["age"]
        for text in (profile.name, profile.address, *statements.values()):
            assert text == " ".join(text.split()), "one line, no space twice, none of another kind"
        assert max(Counter(statements.values()).values()) == 1
    assert len({profile.name for profile in profiles(locale)}) == len(profiles(locale))


def test_most_locales_differ_from_the_american_one() -> None:
    american = {profile.address for profile in profiles("en_US")}
    assert not any(american & {p.address for p in profiles(locale)} for locale in LOCALES if locale != "en_US")


def test_every_other_locale_is_refused_by_name_and_with_a_choice() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for locale in sorted({*AVAILABLE_LOCALES} - {*LOCALES}):
            with pytest.raises(SeedError, match=f"no names and addresses of their own for locale '{locale}'.*de_DE"):
                generate_profiles(1, locale=locale)
    for locale in ("", "xx_XX", "../en_US", "en_US.UTF-8", "Deutsch"):
        with pytest.raises(SeedError, match="Faker has no locale .*hi_IN"):
            generate_profiles(1, locale=locale)


def test_other_ways_to_write_a_locale_give_the_same_profiles() -> None:
    assert {known_locale(written) for written in ("ja-JP", "JA_jp", "ja_JP")} == {"ja_JP"}
    assert list(generate_profiles(3, seed=17, locale="ja-JP", per_domain=2)) == profiles("ja_JP")


def test_from_the_command_line_to_the_record(tmp_path: Path) -> None:
    locale = "hi_IN"
    arguments = ("generate", "-d", "small", "--profiles", 2, "--seed", 17, "--locale", locale, "--workspace", tmp_path)
    made = cli_inside(outside(), *arguments)
    assert made.returncode == 0, made.stderr
    store = open_store(tmp_path)
    with store.read() as connection:
        stored = datasets.profile_records(connection, datasets.by_name(connection, "small").id)
    store.close()
    expected = list(generate_profiles(2, seed=17, locale=locale))
    assert [(r.profile.name, r.profile.address, r.profile.attributes) for r in stored] == [
        (p.name, p.address, p.attributes) for p in expected
    ]


def test_the_command_line_says_which_locales_there_are(tmp_path: Path) -> None:
    refused = cli_inside(outside(), "generate", "-d", "small", "--locale", "tr_TR", "--workspace", tmp_path)
    assert refused.returncode == 1
    assert refused.stderr.startswith("error: Faker has no names and addresses of their own for locale 'tr_TR'")
    assert json.loads(cli_inside(outside(), "datasets", "--json", "--workspace", tmp_path).stdout) == []
