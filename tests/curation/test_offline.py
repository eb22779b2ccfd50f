"""Profiles made offline: repeatable, without repeats, and every statement says its value."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from faker import Faker
from hypothesis import given, settings
from hypothesis import strategies as st

from cimemories import seeds
from cimemories.curation.offline import ExpressionError, Sampled, Source, generate_profiles, parse, spoken_date
from cimemories.model import DOMAINS, GENERAL, Attribute, Profile, is_bio
from cimemories.seeds import SeedError

FAKER = Faker("en_US")


def sample(expression: str, seed: int = 0) -> Sampled:
    FAKER.seed_instance(seed)
    return parse(expression).sample(Source(random.Random(seed), FAKER, "en_US"))


def templates_by_key() -> dict[str, seeds.Template]:
    entries = list(seeds.load_general().attributes)
    for event in seeds.offline_events():
        entries += [entry for domain in seeds.load_offline(event).domains.values() for entry in domain]
    return {entry.key: entry for entry in entries}


@cache
def seeds_general(event: str) -> dict[str, str]:
    return seeds.load_offline(event).general


def spoken_forms(attribute: Attribute) -> set[str]:
    """All forms in which a value may stand in its statement."""
    value = attribute.value
    if isinstance(value, int | float):
        return {str(value), f"${value:,}", f"{value:,}"}
    text = str(value)
    forms = {text}
    if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        forms.add(spoken_date(date.fromisoformat(text)))
    if re.fullmatch(r"\d\d:\d\d", text):
        hour, minute = int(text[:2]), text[3:]
        forms.add(f"{hour % 12 or 12}:{minute} {'AM' if hour < 12 else 'PM'}")
    return forms


@pytest.fixture(scope="module")
def profiles() -> list[Profile]:
    return list(generate_profiles(60, seed=7))


@pytest.fixture
def copied_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "seeds"
    shutil.copytree(seeds.SEEDS, folder)
    monkeypatch.setattr(seeds, "SEEDS", folder)
    return folder


class TestShape:
    def test_counts_and_order(self, profiles: list[Profile]) -> None:
        general = len(seeds.load_general().attributes) + 4
        for profile in profiles:
            places = [(attribute.event, attribute.domain) for attribute in profile.attributes]
            expected = [(GENERAL, GENERAL)] * general
            expected += [(event, domain) for event in profile.events for domain in DOMAINS for _ in range(5)]
            assert places == expected
            assert len(profile.events) == 3

    def test_nothing_twice_in_a_profile(self, profiles: list[Profile]) -> None:
        for profile in profiles:
            assert max(Counter(attribute.key for attribute in profile.attributes).values()) == 1
            assert max(Counter(attribute.statement for attribute in profile.attributes).values()) == 1

    def test_no_two_profiles_alike(self, profiles: list[Profile]) -> None:
        assert len({profile.name for profile in profiles}) == len(profiles)
        assert len({profile.address for profile in profiles}) == len(profiles)

    def test_biography(self, profiles: list[Profile]) -> None:
        for profile in profiles:
            first = profile.attributes[:4]
            assert [a.value for a in first] == [profile.name, profile.sex, profile.address, profile.age]
            assert all(is_bio(attribute.key, attribute.domain) for attribute in first)
            assert not any(is_bio(attribute.key, attribute.domain) for attribute in profile.attributes[4:])
            assert 21 <= profile.age <= 70
            assert profile.sex in {"M", "F"}
            assert "\n" not in profile.address

    def test_first_name_fits_the_sex(self, profiles: list[Profile]) -> None:
        provider = next(p for p in FAKER.get_providers() if hasattr(p, "first_names_male"))
        names = {"M": provider.first_names_male, "F": provider.first_names_female}
        assert all(profile.name.split()[0] in names[profile.sex] for profile in profiles)

    def test_all_shipped_events_are_used(self) -> None:
        used = {event for profile in generate_profiles(120, seed=3) for event in profile.events}
        assert used == set(seeds.offline_events())

    def test_contexts_are_passed_on(self) -> None:
        contexts = seeds.load_contexts()
        assert next(generate_profiles(1, contexts=contexts)).contexts == contexts


class TestStatements:
    @pytest.mark.parametrize("locale", ["en_US", "de_DE", "ja_JP"])
    def test_every_statement_says_its_value(self, locale: str) -> None:
        templates = templates_by_key()
        for profile in generate_profiles(40, seed=11, locale=locale, per_domain=7):
            for attribute in profile.attributes:
                if attribute.key == "sex":
                    assert attribute.statement == f"I am {'male' if attribute.value == 'M' else 'female'}."
                elif isinstance(attribute.value, bool):
                    entry = templates[attribute.key]
                    assert attribute.statement == (entry.statement_true if attribute.value else entry.statement_false)
                else:
                    assert any(form in attribute.statement for form in spoken_forms(attribute)), attribute
                assert not set("{}|") & set(attribute.statement), attribute

    def test_general_facts_go_with_the_event(self) -> None:
        divorcing = [p for p in generate_profiles(120, seed=2, events=1) if p.events == ("divorce proceedings",)]
        statuses = {a.value for profile in divorcing for a in profile.attributes if a.key == "marital_status"}
        assert statuses == {"separated", "married, with a divorce pending"}

    def test_where_events_disagree_the_first_one_counts(self) -> None:
        for profile in generate_profiles(120, seed=4):
            status = next(a.value for a in profile.attributes if a.key == "marital_status")
            givers = [g["marital_status"] for e in profile.events if "marital_status" in (g := seeds_general(e))]
            if givers:
                assert str(status) in givers[0]


class TestRepeatable:
    @settings(max_examples=settings().max_examples // 2)
    @given(st.integers(0, 2**40), st.integers(0, 6), st.integers(0, 6))
    def test_the_first_of_many_are_the_few(self, seed: int, few: int, more: int) -> None:
        assert list(generate_profiles(few + more, seed=seed))[:few] == list(generate_profiles(few, seed=seed))

    def test_another_process_makes_the_same(self) -> None:
        code = "from cimemories.curation.offline import *; print(*generate_profiles(3, seed=5), sep='\\n')"
        here = "\n".join(str(profile) for profile in generate_profiles(3, seed=5))
        environment = os.environ | {"PYTHONHASHSEED": "12345", "PYTHONIOENCODING": "utf-8"}
        root = Path(__file__).parents[2]
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=root, env=environment, check=True)
        assert run.stdout.decode().strip() == here

    def test_seeds_differ(self) -> None:
        assert next(generate_profiles(1, seed=1)) != next(generate_profiles(1, seed=2))

    def test_runs_side_by_side_do_not_disturb_each_other(self) -> None:
        left, right = generate_profiles(5, seed=1), generate_profiles(5, seed=1)
        for one, other in zip(left, right, strict=True):
            random.random()
            Faker.seed(99)
            assert one == other


class TestLimits:
    def test_none(self) -> None:
        assert list(generate_profiles(0)) == []

    @pytest.mark.parametrize("arguments", [{"count": -1}, {"count": 1, "events": 0}, {"count": 1, "per_domain": 0}])
    def test_numbers_out_of_range_are_refused_at_once(self, arguments: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="must be"):
            generate_profiles(**arguments)

    def test_everything_there_is(self) -> None:
        events = len(seeds.offline_events())
        profile = next(generate_profiles(1, events=events, per_domain=7))
        assert len(profile.attributes) == len(seeds.load_general().attributes) + 4 + events * 63

    def test_more_events_than_there_are(self) -> None:
        with pytest.raises(SeedError, match="99 events are too many: only"):
            generate_profiles(1, events=99)

    def test_more_templates_than_there_are(self) -> None:
        with pytest.raises(SeedError, match=r"\.yaml: domains\.\w+: 8 templates are needed, it has 7"):
            generate_profiles(1, per_domain=8)

    def test_unknown_locale(self) -> None:
        with pytest.raises(SeedError, match="no locale 'xx_XX'"):
            generate_profiles(1, locale="xx_XX")

    def test_names_in_the_order_of_the_locale(self) -> None:
        families = {
            locale: next(p for p in Faker(locale).get_providers() if hasattr(p, "last_names")).last_names
            for locale in ("de_DE", "ja_JP")
        }
        assert all(p.name.split()[0] in families["ja_JP"] for p in generate_profiles(20, locale="ja_JP"))
        assert all(p.name.endswith(tuple(families["de_DE"])) for p in generate_profiles(20, locale="de_DE"))

    def test_a_locale_runs_out_of_names(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("cimemories.curation.offline.person_name", lambda source, sex: f"Kim {sex}")
        with pytest.raises(SeedError, match="'en_US' has too few names for more than 2 profiles"):
            list(generate_profiles(50))


class TestBrokenTemplates:
    def change(self, folder: Path, old: str, new: str) -> None:
        path = folder / "offline/lottery-win.yaml"
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new, 1), encoding="utf-8")

    def test_unknown_expression_names_file_key_and_expression(self, copied_seeds: Path) -> None:
        self.change(copied_seeds, "{money 250000 9500000 10000}", "{monney 1 2 3}")
        with pytest.raises(SeedError) as caught:
            generate_profiles(1)
        message = str(caught.value)
        assert "lottery-win.yaml" in message
        assert "'lottery_prize'" in message
        assert "unknown placeholder {monney 1 2 3}; known are bool, city" in message

    def test_key_of_another_file(self, copied_seeds: Path) -> None:
        self.change(copied_seeds, "key: lottery_prize\n", "key: divorce_lawyer_retainer\n")
        with pytest.raises(SeedError, match="key 'divorce_lawyer_retainer' is also in"):
            generate_profiles(1)

    def test_general_value_for_an_attribute_that_is_not_there(self, copied_seeds: Path) -> None:
        self.change(copied_seeds, "domains:\n", "general:\n  shoe_size: '{int 35 47}'\ndomains:\n")
        with pytest.raises(SeedError, match=r"key 'general\.shoe_size'"):
            generate_profiles(1)

    def test_two_templates_that_say_the_same(self, copied_seeds: Path) -> None:
        path = copied_seeds / "offline/general.yaml"
        twin = '  - key: twin_{}\n    value: "{{int 5 5}}"\n    statement: "I own {{value}} cats."\n'
        with path.open("a", encoding="utf-8") as file:
            file.write(twin.format("a") + twin.format("b"))
        with pytest.raises(SeedError, match=r"general\.yaml: key 'twin_b': its statement repeats"):
            next(generate_profiles(1))


class TestValues:
    @given(st.integers(0, 10**6), st.integers(0, 5000), st.integers(1, 700), st.integers())
    def test_money_stays_on_its_grid(self, low: int, span: int, step: int, seed: int) -> None:
        sampled = sample(f"{{money {low} {low + span} {step}}}", seed)
        assert isinstance(sampled.value, int)
        assert low <= sampled.value <= low + span
        assert (sampled.value - low) % step == 0
        assert sampled.spoken == f"${sampled.value:,}"

    @given(st.integers(-50, 50), st.integers(0, 100), st.integers())
    def test_int(self, low: int, span: int, seed: int) -> None:
        sampled = sample(f"{{int {low} {low + span}}}", seed)
        assert isinstance(sampled.value, int)
        assert low <= sampled.value <= low + span
        assert sampled.spoken == str(sampled.value)

    @given(st.integers())
    def test_decimal_has_no_rounding_dust(self, seed: int) -> None:
        sampled = sample("{decimal 0.1 0.9 0.1}", seed)
        assert sampled.value in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
        assert sampled.spoken == str(sampled.value)

    @given(st.integers())
    def test_dates(self, seed: int) -> None:
        day = date.fromisoformat(str(sample("{date 2024 2026}", seed).value))
        assert 2024 <= day.year <= 2026
        assert date.fromisoformat(str(sample("{weekday 2024 2026}", seed).value)).weekday() < 5

    def test_spoken_date(self) -> None:
        assert spoken_date(date(2025, 4, 12)) == "April 12, 2025"

    @pytest.mark.parametrize(("hour", "spoken"), [(0, "12:"), (9, "9:"), (12, "12:"), (15, "3:")])
    def test_times(self, hour: int, spoken: str) -> None:
        sampled = sample(f"{{time {hour} {hour}}}")
        assert re.fullmatch(rf"{hour:02}:(00|15|30|45)", str(sampled.value))
        assert sampled.spoken.startswith(spoken)
        assert sampled.spoken.endswith("AM" if hour < 12 else "PM")

    @given(st.integers())
    def test_pick_and_text_around(self, seed: int) -> None:
        assert sample("{pick: Lexapro 10 mg | Zoloft 50 mg}", seed).value in {"Lexapro 10 mg", "Zoloft 50 mg"}
        sampled = sample("Unit {int 1 40}, {money 1000 2000 1000}", seed)
        assert sampled.value == sampled.spoken
        assert re.fullmatch(r"Unit \d+, \$[12],000", sampled.spoken)

    @pytest.mark.parametrize("name", ["person", "doctor", "company", "street", "city", "phone"])
    def test_text_from_faker(self, name: str) -> None:
        sampled = sample(f"{{{name}}}", 5)
        assert isinstance(sampled.value, str)
        assert sampled.value
        assert sampled == sample(f"{{{name}}}", 5)

    @given(st.integers())
    def test_phone_numbers_are_those_set_aside_for_fiction(self, seed: int) -> None:
        assert re.fullmatch(r"\([2-9]\d\d\) 555-01\d\d", str(sample("{phone}", seed).value))

    @pytest.mark.parametrize(
        ("expression", "message"),
        [
            ("", "empty"),
            ("{}", "unknown placeholder"),
            ("{nonsense}", "unknown placeholder {nonsense}"),
            ("{__class__}", "unknown placeholder"),
            ("{int 9 2}", "the first not above the second"),
            ("{int 1}", "expected {int LOW HIGH}"),
            ("{int 1 x}", "with numbers"),
            ("{int 1 2.5}", "with whole numbers"),
            ("{int 1 NaN}", "expected {int LOW HIGH}"),
            ("{money 1 9 0}", "STEP above 0"),
            ("{decimal 1 9 -1}", "STEP above 0"),
            ("{date 12 2026}", "years from 1900 to 2100"),
            ("{time 8 24}", "hours from 0 to 23"),
            ("{pick: one}", "two options or more"),
            ("{pick: a | | b}", "none of them empty"),
            ("{person x}", "takes nothing after its name"),
            ("{int 1 2", "a brace without its partner"),
            ("5}", "a brace without its partner"),
            ("{bool} indeed", "must stand alone"),
        ],
    )
    def test_readable_errors(self, expression: str, message: str) -> None:
        with pytest.raises(ExpressionError) as caught:
            parse(expression)
        assert message in str(caught.value)
