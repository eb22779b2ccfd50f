"""The authors' profile files: facts of the released one, the round trip, and every refusal as one line."""

from __future__ import annotations

import copy
import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from official_files import JUNK, OFFICIAL, RECORD, RENT, expected_profiles, needs_official

from cimemories.formats.official import ProfileFile, parse_profiles, read_profiles, write_profiles
from cimemories.formats.reading import FormatError
from cimemories.model import DOMAINS, GENERAL, Attribute, Context, Profile, canonical_event


def parsed(records: object) -> ProfileFile:
    return parse_profiles(json.dumps(records).encode(), "profiles.json")


def complaint(data: bytes | list[Any]) -> str:
    with pytest.raises(FormatError) as caught:
        parse_profiles(data if isinstance(data, bytes) else json.dumps(data).encode(), "profiles.json")
    message = str(caught.value)
    assert message.startswith("profiles.json: ") and len(message.splitlines()) == 1
    return message.removeprefix("profiles.json: ")


def changed(*path: str | int, to: object = None, drop: bool = False) -> list[Any]:
    """One good record of one profile, changed at one place."""
    records: list[Any] = [copy.deepcopy(RECORD)]
    inner: Any = records
    for step in path[:-1]:
        inner = inner[step]
    if drop:
        del inner[path[-1]]
    else:
        inner[path[-1]] = to
    return records


@needs_official
def test_the_released_file_imports_whole_and_fast() -> None:
    started = time.thread_time()
    file = read_profiles(OFFICIAL)
    assert time.thread_time() - started < 1
    assert len(file.profiles) == 10
    assert sum(len(profile.attributes) for profile in file.profiles) == 1467
    assert {len(profile.contexts) for profile in file.profiles} == {49}
    assert {len(profile.events) for profile in file.profiles} == {3}
    assert len(file.sha256) == 64


@needs_official
def test_the_released_values_keep_their_types_and_order() -> None:
    file = read_profiles(OFFICIAL)
    raw = json.loads(OFFICIAL.read_bytes())
    for record, profile in zip(raw, file.profiles, strict=True):
        assert record["bio"] == {
            "name": profile.name,
            "sex": profile.sex,
            "address": profile.address,
            "age": profile.age,
        }
        assert list(record["information_attributes"]) == [attribute.key for attribute in profile.attributes]
        for attribute in profile.attributes:
            value = record["information_attributes"][attribute.key]["value"]
            assert type(attribute.value) is type(value)
            assert attribute.value == value
    lists = [a.value for profile in file.profiles for a in profile.attributes if isinstance(a.value, list)]
    assert lists == [[{"name": "Emily", "age": 12}, {"name": "Jacob", "age": 9}]]


@needs_official
def test_the_released_file_survives_the_round_trip() -> None:
    profiles = read_profiles(OFFICIAL).profiles
    assert parse_profiles(write_profiles(profiles).encode(), "again.json").profiles == profiles


# Unpaired halves and control characters are refused by the reader, so they cannot be part of a round trip.
texts = (
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=20)
    .map(lambda text: f"x{text}")
    .filter(lambda text: "".join(text.splitlines()) == text)
)
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), texts)
attributes = st.builds(
    Attribute,
    key=texts,
    value=scalars | st.lists(scalars, max_size=4),
    domain=st.sampled_from([*DOMAINS, GENERAL]),
    event=texts.map(canonical_event),
    statement=texts,
)
contexts = st.builds(Context, task=texts, recipient=texts, sphere=st.none() | texts)
profiles_ = st.builds(
    Profile,
    name=texts,
    sex=texts,
    address=texts.map(lambda text: f"{text}\n{text}"),
    age=st.integers(0, 150),
    attributes=st.lists(attributes, min_size=1, max_size=4, unique_by=lambda a: a.key).map(tuple),
    contexts=st.lists(
        contexts, max_size=4, unique_by=lambda c: (" ".join(c.task.split()), " ".join(c.recipient.split()))
    ).map(tuple),
)


def types_of(profile: Profile) -> list[object]:
    """The types of all values, which equality does not see: True equals 1, and 1 equals 1.0."""
    values = [a.value for a in profile.attributes]
    return [[type(item) for item in value] if isinstance(value, list) else type(value) for value in values]


@given(st.lists(profiles_, min_size=1, max_size=2))
def test_export_then_import_gives_equal_profiles(profiles: list[Profile]) -> None:
    again = parse_profiles(write_profiles(profiles).encode(), "export.json").profiles
    assert list(again) == profiles
    assert [types_of(profile) for profile in again] == [types_of(profile) for profile in profiles]


def test_the_export_refuses_what_would_not_come_back() -> None:
    rent = Attribute("rent", 1, "housing", "general", "Rent is 1.")
    with pytest.raises(FormatError, match="'rent' appears twice"):
        write_profiles([Profile("A", "F", "B", 4, (rent, rent))])
    with pytest.raises(FormatError, match="one spelling"):
        write_profiles([Profile("A", "F", "B", 4, (Attribute("rent", 1, "Housing", "general", "Rent is 1."),))])
    with pytest.raises(FormatError, match="NaN|finite"):
        write_profiles([Profile("A", "F", "B", 4, (Attribute("rent", float("nan"), "housing", "general", "R"),))])
    with pytest.raises(FormatError, match="list is empty"):
        write_profiles([])


def test_spellings_are_unified_and_extra_fields_named() -> None:
    records = changed(0, "contexts", 0, "labels_combined", to={"My rent is $1,450.": {"private": 1.0}})
    records[0]["information_attributes"]["rent"]["information_domain"] = "Mental Health"
    file = parsed(records)
    attribute = file.profiles[0].attributes[0]
    assert (attribute.domain, attribute.event) == ("mental_health", "divorce proceedings")
    assert any("labels_combined (1)" in note and "contexts" in note for note in file.notes)
    assert any("the spelling of events was unified in 1 attribute" in note for note in file.notes)
    assert any("the spelling of domains was unified in 1 attribute" in note for note in file.notes)


def test_a_byte_order_mark_is_tolerated() -> None:
    data = json.dumps([RECORD]).encode()
    assert parse_profiles(b"\xef\xbb\xbf" + data, "x").profiles == parse_profiles(data, "x").profiles


@pytest.mark.parametrize(("value", "kind"), [(True, bool), (1, int), (1.0, float), ("1", str), (None, type(None))])
def test_a_value_keeps_its_type(value: object, kind: type) -> None:
    record = changed(0, "information_attributes", "rent", "value", to=value)
    assert type(parsed(record).profiles[0].attributes[0].value) is kind
    record = changed(0, "information_attributes", "rent", "value", to=[value, value])
    listed = parsed(record).profiles[0].attributes[0].value
    assert isinstance(listed, list) and [type(item) for item in listed] == [kind, kind]


RENT_AT = (0, "information_attributes", "rent")


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        (changed(*RENT_AT, "memory_statement", drop=True), "profile 1, attribute 'rent': memory_statement is missing"),
        (changed(*RENT_AT, "value", drop=True), "profile 1, attribute 'rent': value is missing"),
        (changed(*RENT_AT, "memory_statement", to="  "), "profile 1, attribute 'rent': memory_statement is blank"),
        (changed(*RENT_AT, "value", to={"a": 1}), "value must be text, a number, true, false, null or a list"),
        (changed(*RENT_AT, "value", to=[[1]]), "value must be text, a number, true, false, null or a list of these"),
        (changed(*RENT_AT, "value", to=[{"a": [1]}]), "value contains an object or list inside an object"),
        (changed(*RENT_AT, "value", to="a\x07"), "contains U+0007, a control character or lone surrogate; remove it"),
        (changed(*RENT_AT, "value", to=["\ud800"]), "value contains U+D800, a control character or lone surrogate"),
        (changed(*RENT_AT, "value", to=float("inf")), "profile 1, attribute 'rent': value must be a finite number"),
        (
            changed(*RENT_AT, "information_domain", to="taxes"),
            "information_domain 'taxes' is not one of finance",
        ),
        (changed(*RENT_AT, "event", to="_ _"), "profile 1, attribute 'rent': event is blank"),
        (changed(*RENT_AT, to=3), "profile 1, attribute 'rent' must be an object, not a number"),
        (changed(0, "information_attributes", to={}), "profile 1 (Jane Doe): there are no attributes"),
        (
            changed(0, "information_attributes", to={"\ud800\n": RENT}),
            "attribute key '\\ud800\\n' contains U+D800",
        ),
        (changed(0, "contexts", 1, "recipient", to=5), "profile 1, context 2: recipient must be text, not a number"),
        (changed(0, "contexts", to={}), "profile 1: contexts must be a list, not an object"),
        (changed(0, "contexts", 1, to=RECORD["contexts"][0]), "profile 1 (Jane Doe): contexts 1 and 2 are the same"),
        (changed(0, "contexts", 0, "labels", to=float("nan")), "NaN is not JSON; write null instead"),
        (changed(0, "bio", drop=True), "profile 1: bio is missing"),
        (changed(0, "bio", "age", to="42"), "profile 1, bio: age must be a whole number, not text"),
        (changed(0, "bio", "age", to=True), "profile 1, bio: age must be a whole number, not true or false"),
        (changed(0, "bio", "age", to=42.0), "profile 1, bio: age must be a whole number, not a decimal number"),
        (changed(0, "bio", "age", to=-1), "profile 1, bio: age must be a number of years from 0 to 150"),
        (
            changed(0, "bio", "name", to="\udc80"),
            "profile 1, bio: name contains U+DC80, a control character or lone surrogate",
        ),
        (changed(0, to=None), "profile 1 must be an object, not null"),
    ],
)
def test_a_refusal_names_record_and_field(records: list[Any], expected: str) -> None:
    assert expected in complaint(records)


def test_further_problems_are_counted() -> None:
    assert complaint([RECORD, {"bio": 1}]).endswith(" (and 2 more problems)")
    records = changed(0, "contexts", 0, to={"task": "T"})
    records[0]["bio"]["age"] = None
    assert complaint(records).endswith("whole number, not null (and 1 more problem)")


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("rent", "profile 1 (Jane Doe), attribute key 'rent' appears twice"),
        ("age", "profile 1 (Jane Doe), bio, field 'age' appears twice"),
        ("value", "profile 1, attribute 'rent', field 'value' appears twice"),
        ("bio", "profile 1, field 'bio' appears twice"),
    ],
)
def test_a_key_that_stands_twice_is_refused(key: str, expected: str) -> None:
    twice = json.dumps([RECORD]).replace(f'"{key}":', f'"{key}": 1, "{key}":')
    assert expected in complaint(twice.encode())


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "the file is empty"),
        (b" \r\n\t", "the file is empty (nothing but white space)"),
        (b"\xef\xbb\xbf", "the file is empty (nothing but white space)"),
        (b"[]", "the list is empty"),
        (b"{}", "the top level must be a list of profiles, from '[', not from '{'; put the one profile in [ ]"),
        (b"null", "the top level must be a list of profiles"),
        (b"\xff\xfe[\x00", "not UTF-8 at byte 0 (0xff)"),
        (b'["\xe9"]', "not UTF-8 at byte 2 (0xe9)"),
        (b"[\n  x]", "not valid JSON at line 2, column 3: a value is expected here"),
        (b"[{'a': 1}]", "not valid JSON at line 1, column 3: the name of a field is expected here, in double quotes"),
        (
            b'[{"a": 1 "b"}]',
            "not valid JSON at line 1, column 10: a comma is expected here, or the end of the list or object",
        ),
        (b'[{"a": "b\n"}]', "not valid JSON at line 1, column 10: a text has a line break or control character here"),
        (b"[" * 200_000, "nested too deeply"),
        (b"[" + b"9" * 5_000 + b"]", "a number has too many digits"),
    ],
)
def test_a_file_that_holds_no_profiles_is_refused(data: bytes, expected: str) -> None:
    assert complaint(data).startswith(expected)


def test_a_large_file_of_noise_is_refused_unread(tmp_path: Path) -> None:
    noise = tmp_path / "noise.json"
    with noise.open("wb") as stream:
        stream.write(b"noise")
        stream.truncate(200_000_000)
    started = time.thread_time()
    with pytest.raises(FormatError, match=r"^noise\.json: the top level must be a list"):
        read_profiles(noise)
    assert time.thread_time() - started < 0.5


def test_paths_that_are_no_readable_file(tmp_path: Path) -> None:
    for path, expected in [
        (tmp_path, "this is a folder"),
        (tmp_path / "none.json", r"^none\.json: there is no such file"),
        (tmp_path / "a\0b", "not a usable path"),
        (tmp_path / ("a" * 5000), "cannot be read"),
    ]:
        with pytest.raises(FormatError, match=expected) as caught:
            read_profiles(path)
        assert len(str(caught.value).splitlines()) == 1


def test_a_name_with_line_breaks_stays_one_line() -> None:
    with pytest.raises(FormatError) as caught:
        parse_profiles(b"", "a\nb\u2028c\udcff.json")
    assert str(caught.value) == "a\\nb\\u2028c\\udcff.json: the file is empty"


def mutated(chance: random.Random) -> bytes:
    """A good file with one to three changes: a value replaced, dropped or doubled, or bytes cut, swapped or put in."""
    records = [copy.deepcopy(RECORD), copy.deepcopy(RECORD)]
    for _ in range(chance.randint(1, 3)):
        spots: list[tuple[Any, Any]] = []
        stack: list[Any] = [records]
        while stack:
            node = stack.pop()
            pairs = list(node.items() if isinstance(node, dict) else enumerate(node))
            spots += [(node, key) for key, _ in pairs]
            stack += [inner for _, inner in pairs if isinstance(inner, dict | list)]
        if not spots:
            break
        node, key = chance.choice(spots)
        action = chance.randrange(3)
        if action == 0:
            node[key] = copy.deepcopy(chance.choice(JUNK))
        elif action == 1:
            del node[key]
        elif isinstance(node, dict):
            node[chance.choice(["", "\n", "x", "\ud800", f"{key} "])] = copy.deepcopy(node[key])
        else:
            node.append(copy.deepcopy(node[key]))
    data = bytearray(json.dumps(records, ensure_ascii=True).encode())
    for _ in range(chance.choice([0, 0, 1, 2])):
        at = chance.randint(0, len(data))
        piece = bytes(chance.choice([[0xFF], [0x00], b'"', b"{", b"]", b",", b"NaN", b"\n", b"9", b"\\u", b""]))
        data[at : at + chance.randint(0, 3)] = piece
    return bytes(data)


@pytest.mark.parametrize("seed", range(8))
def test_mutated_files_are_refused_in_one_line_or_read_right(seed: int) -> None:
    chance = random.Random(seed)
    refused = 0
    for _ in range(100):
        data = mutated(chance)
        try:
            file = parse_profiles(data, "mutated.json")
        except FormatError as error:
            refused += 1
            assert len(str(error).splitlines()) == 1 and str(error).startswith("mutated.json: ")
            continue
        assert file.profiles == expected_profiles(data)
    assert 10 < refused < 100


@given(st.binary(max_size=60) | st.binary(max_size=60).map(lambda noise: b"[" + noise))
def test_noise_is_refused(data: bytes) -> None:
    assert complaint(data)
