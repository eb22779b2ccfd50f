"""What is shown obeys nobody: control characters visible, credentials hidden, and names that hold neither."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from evaluating import add
from hypothesis import given
from hypothesis import strategies as st
from paging import page_html
from streamlit.testing.v1 import AppTest
from typer.testing import CliRunner
from worlds import make_profile

from cimemories.cli import cli, output
from cimemories.cli.base import main
from cimemories.store import audits, decisions, labellings, reviews, versions
from cimemories.store.engine import DATABASE_URL, Store, StoreError, open_store
from cimemories.text import abbreviated, decimal, has_control, shortened, visible, visible_in, without_credentials
from cimemories.ui import safe

SECRET = "hunter2secret"
EVIL = "evil\x1b]0;owned\x07\x9b31m\u202egnp.exe\u2066\u2028"


@given(st.floats(-1, 1), st.integers(1, 4))
def test_what_rounds_to_zero_has_no_sign(value: float, digits: int) -> None:
    text = decimal(value, digits)
    assert float(text) == round(value, digits) and len(text.partition(".")[2]) == digits
    assert not text.startswith("-") or float(text) < 0


@given(st.text())
def test_visible_changes_control_characters_alone_and_one_for_one(text: str) -> None:
    shown = visible(text)
    assert len(shown) == len(text)
    assert not has_control(shown.replace("\n", "").replace("\t", "").replace("\r", ""))
    assert all(before == after for before, after in zip(text, shown, strict=True) if not has_control(before))
    assert visible(shown) == shown


def test_long_texts_are_cut_where_they_are_alike() -> None:
    start = "meta-llama/Llama-3.3-70B-Instruct with the whole memory on the official profiles"
    texts = [f"{start}, prompt high, seed 1", f"{start}, prompt high, seed 2", f"{start}, prompt base", "short"]
    shown = abbreviated(texts, 48)
    assert [text.rpartition("…")[2] for text in shown] == [
        *("profiles, prompt high, seed 1", "profiles, prompt high, seed 2", "official profiles, prompt base", "short")
    ]
    assert all(text.startswith("meta-llama/Llama") and len(text) <= 48 for text in shown[:3])
    assert abbreviated([texts[0], "y" * 90], 48) == [shortened(texts[0], 48), shortened("y" * 90, 48)]


@given(st.lists(st.text("ab ", max_size=30), max_size=8), st.integers(9, 20))
def test_texts_that_differ_stay_short_when_told_apart(texts: list[str], limit: int) -> None:
    for text, shown in zip(texts, abbreviated(texts, limit), strict=True):
        line = " ".join(text.split())
        assert len(shown) <= limit and (shown == line or "…" in shown)


def test_visible_says_which() -> None:
    assert visible("a\x1b[31m\x07\x7f") == "a␛[31m␇␡"
    assert visible("a\u202eb\u2066c") == "a␦b␦c"
    assert visible("one\r\ntwo\n\tthree\rfour") == "one\r\ntwo\n\tthree␍four"
    assert visible("שלום\u200f, مرحبا 👩‍👩‍👧") == "שלום\u200f, مرحبا 👩‍👩‍👧"
    assert visible_in({"a": ["\x1b", 3, None, ("\u202e",)]}) == {"a": ["␛", 3, None, ["␦"]]}


@pytest.mark.parametrize(
    "text",
    [
        f"cannot reach http://me:{SECRET}@host:80/v1 now",
        f"http://{SECRET}@host/v1",
        f"postgresql://me:a/{SECRET}@host/db failed",
        f"postgresql+psycopg://me:{SECRET}@@host/db",
        f"https://host/v1;api_key={SECRET}",
        f"https://host/v1?model=x&api-key={SECRET}&y=1",
        f"postgresql://host/db?user=me&password={SECRET}",
        f"postgresql://host/db?sslpassword={SECRET}#x",
        f"https://host/?access_token={SECRET}",
        f"https://host/?X-Amz-Signature={SECRET}",
        f"http://me:{SECRET}%40host/v1",
        f"http://host/v1%3Fapi_key%3D{SECRET}",
        f"postgresql://host/db?user=me&passfile=/home/me/{SECRET}",
        f"postgresql://host/db?options=-csecret.value%3D{SECRET}",
    ],
)
def test_credentials_of_addresses_are_hidden(text: str) -> None:
    assert SECRET not in without_credentials(text)
    assert "host" in without_credentials(text)


def test_a_text_without_credentials_stays() -> None:
    text = "http://localhost:8000/v1 serves org/model@main; see https://example.org/a?b=c&monkey-bars=2 (x@y.org)"
    assert without_credentials("see http://localhost:8000/v1?x=1") == "see http://localhost:8000/v1?x=1"
    assert "org/model@main" in without_credentials(text)


# ---- names


def test_no_name_with_control_characters_is_recorded(sqlite_store: Store) -> None:
    with pytest.raises(StoreError, match="dataset 'evil␛]0;owned␇") as caught:
        add(sqlite_store, [make_profile(0, 3, 4)], EVIL)
    assert not has_control(str(caught.value))
    dataset = add(sqlite_store, [make_profile(0, 3, 4)], "world")
    dataset_id = int(getattr(dataset, "id", 1) or 1)

    def refused(write: object) -> None:
        with pytest.raises(StoreError, match="holds control characters"), sqlite_store.write() as connection:
            write(connection)  # type: ignore[operator]

    refused(lambda c: labellings.add_rule(c, dataset_id, "a\x1bb", threshold=0.5, priors={}, annotator="Ada"))
    refused(lambda c: labellings.add_rule(c, dataset_id, "rule", threshold=0.5, priors={}, annotator="A\u202eda"))
    refused(lambda c: reviews.save_view(c, "v\x9bw", "/labels", {}, "Ada"))
    refused(lambda c: audits.add_slice(c, dataset_id, "pairs", "s\x1bl", 0, {}, "Ada", []))
    refused(lambda c: decisions.add_all(c, dataset_id, "A\x1bda", [decisions.NewDecision(1, 1, None)]))
    refused(lambda c: reviews.add_marks(c, dataset_id, "A\x1bda", [reviews.Mark(1, 1, "flag")]))
    refused(
        lambda c: versions.add_freeze(
            c, dataset_id, digest="x", labelling_id=None, rule={}, counts={}, annotator="A\x1bda"
        )
    )


def test_the_command_line_refuses_them_in_one_visible_line(tmp_path: Path) -> None:
    outcome = CliRunner().invoke(cli, ["generate", "-d", EVIL, "--profiles", "1", "-w", str(tmp_path)])
    assert isinstance(outcome.exception, StoreError)
    assert "␛" in str(outcome.exception)


# ---- what is shown


def test_the_terminal_is_given_nothing_to_obey(capsys: pytest.CaptureFixture[str]) -> None:
    output.line(EVIL)
    output.note(EVIL)
    output.table(["name"], [(EVIL,)], unbroken=True)
    output.line(output.as_json_text({"name": EVIL, "lines": "a\nb"}))
    printed = capsys.readouterr()
    for text in (printed.out, printed.err):
        assert not has_control(text.replace("\n", ""))
        assert "␛]0;owned␇" in text
    assert json.loads(printed.out[printed.out.index("{") :]) == {"name": EVIL, "lines": "a\nb"}


def test_an_error_is_given_nothing_to_obey_and_hides_passwords(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        raise StoreError(f"{EVIL} at postgresql://me:{SECRET}@host/db")

    monkeypatch.setattr("cimemories.cli.base.cli", fails)
    with pytest.raises(SystemExit):
        main()
    printed = capsys.readouterr().err
    assert SECRET not in printed
    assert "\x1b" not in printed and "\u202e" not in printed
    assert "␛" in printed


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://me:{SECRET}@127.0.0.1:1/db",
        f"postgresql://127.0.0.1:1/db?user=me&password={SECRET}",
        f"postgresql://me:x@127.0.0.1:{SECRET}/db",
        f"postgresql://me:p/{SECRET}@127.0.0.1:1/db",
        f"me:{SECRET}@127.0.0.1/db",
        f"nosuch://me:{SECRET}@127.0.0.1/db",
        f"postgresql://me:p@{SECRET}@127.0.0.1:1/db",
    ],
)
def test_no_error_names_the_password_of_the_database(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DATABASE_URL, address)
    with pytest.raises(StoreError) as caught:
        open_store(tmp_path)
    assert SECRET not in str(caught.value)


def test_the_app_shows_them_too() -> None:
    assert "␛" in safe.escape(EVIL) and "\u202e" not in safe.escape(EVIL)
    assert "\u202e" not in safe.option("a\u202eb") + safe.plain_label("a\u202eb")
    assert safe.escape("a\r\nb") == "a&#13;&#10;b"


def test_tables_and_errors_of_the_app_show_them_too() -> None:
    def script() -> None:
        import pandas as pd

        from cimemories.ui import page as ui_page
        from cimemories.ui import tables as ui_tables

        frame = pd.DataFrame({"name": ["a\u202eb", None, "c"], "share": [0.5, 0.25, 0.0], "odd": ["\x1b", "3", "c"]})
        ui_tables.table(frame, key="t", columns={"name": "text", "share": "percent", "odd": "text"})
        ui_page.error("It failed.", "at http://me:hunter2secret@host/v1")

    app = AppTest.from_function(script, default_timeout=30).run()
    assert not app.exception
    shown: pd.DataFrame = app.dataframe[0].value
    assert shown["name"].tolist()[0] == "a␦b"
    assert "[hidden]@host" in page_html(app)
    assert SECRET not in page_html(app)


def test_a_name_given_in_the_app_is_one_that_the_record_takes() -> None:
    def script() -> None:
        import streamlit as st

        from cimemories.ui import annotator as ui_annotator

        ui_annotator.set_name("  A\x1b\u202eda \n Lovelace ")
        st.text(ui_annotator.name())

    assert AppTest.from_function(script).run().text[0].value == "Ada Lovelace"
