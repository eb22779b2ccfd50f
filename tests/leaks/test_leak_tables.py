"""Leaks for a paper: excerpts, the basket's file, and tables in which no message can make a command of itself."""

from __future__ import annotations

import json
import re
import threading
import unicodedata
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from typer.testing import CliRunner
from worlds import add_dataset, add_labels, add_run, records

from cimemories.cli import cli
from cimemories.cli import leaks as leaks_command
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.leaks import basket, table
from cimemories.leaks.basket import Item
from cimemories.leaks.table import AROUND, CUT, LONGEST, LeakRow, Piece, excerpt
from cimemories.store.engine import Store, StoreError, content_hash, open_store
from cimemories.store.upkeep.backup import back_up, restore

X, N, A = INAPPROPRIATE, NECESSARY, AMBIGUOUS
HOSTILE = "100% of $5 & #1_{a}^b~c\\input{/etc/passwd}\\end{tabular} | <img src=x> ![i](http://x.y/z) `c` ''--''\n\n%"
# Every piece that escaped text may consist of: a plain character or one of Europe, or one of these whole commands.
PIECE = re.compile(
    "|".join(
        [
            r"[A-Za-z0-9 .,:;!?()/+=@'~-]|[\u00a1-\u02dd\u2013-\u203a€™]",
            r"\{[\[\]*]?\}",
            r"\\char34\{\}",
            r"\\[%$&#_{}]",
            r"\\text[a-z]+\{\}",
            r"\\mbox\{-\}",
            r"\\ciother\{[0-9A-F]{4,6}\}",
        ]
    )
)
LIGATURES = re.compile(r"--|''|,,|!`|\?`")


def pieces(text: str) -> list[str]:
    """The text as a row of the pieces that are allowed; what is none of them comes as a piece of its own."""
    parts, at = [], 0
    while at < len(text):
        hit = PIECE.match(text, at)
        parts.append(hit[0] if hit else f"not allowed: {text[at:]!r}")
        at += len(parts[-1]) if hit else len(text)
    return parts


def read(piece: str) -> str:
    """The character that a piece stands for, as far as letters and digits go; other signs as ''."""
    if other := re.fullmatch(r"\\ciother\{([0-9A-F]+)\}", piece):
        return chr(int(other[1], 16))
    return piece if len(piece) == 1 else ""


@given(
    st.text(alphabet=st.characters(), max_size=80)
    | st.text(alphabet="\\{}$&#_^~%'\"`-,<>|[]*! aé\n\u0000", max_size=40)
)
@example(HOSTILE)
@example("naïve Ångström Ş ﬁ 😀 Ω é \u202e \ud800 '' -- ---")
def test_every_text_is_escaped_to_pieces_that_compile_and_reads_the_same(text: str) -> None:
    escaped = table.latex_escaped(text)
    parts = pieces(escaped)
    assert not [piece for piece in parts if piece.startswith("not allowed")]
    assert "\n" not in escaped and escaped.isprintable()
    assert not LIGATURES.search(escaped)
    letters = [c for c in unicodedata.normalize("NFC", text) if c.isalnum() or (c.isprintable() and ord(c) > 0x2FFF)]
    assert [c for c in "".join(map(read, parts)) if c in set(letters)] == letters


@given(st.text(max_size=300), st.integers(-5, 320), st.integers(-5, 320))
def test_an_excerpt_is_short_and_holds_what_leaks(text: str, start: int, end: int) -> None:
    parts = excerpt(text, start, end)
    leaked = text[max(start, 0) : max(end, 0)]
    if not leaked:
        assert parts == ()
        return
    assert all("\n" not in piece.text and "\x1b" not in piece.text for piece in parts)
    inside = [piece.text for piece in parts if piece.leaked]
    assert "".join(inside) == re.sub(r"[\s\x00-\x1f\x7f-\x9f]+", " ", leaked)
    assert all(len(piece.text) <= AROUND + 2 for piece in parts if not piece.leaked)


def test_an_excerpt_is_a_sentence_cut_between_words() -> None:
    text = "Dear Sir. I write about the lease.\nMy rent is $1,450 a month and I am late. Regards"
    start = text.index("$1,450")
    assert [p.text for p in excerpt(text, start, start + 6)] == ["My rent is ", "$1,450", " a month and I am late."]
    long = "word " * 60
    before, leaked, after = excerpt(f"{long}SECRET {long}", len(long), len(long) + 6)
    assert before.text.startswith(f"{CUT} word") and after.text.endswith(f"word {CUT}") and leaked.text == "SECRET"
    assert len(excerpt("x" * 2000, 0, 2000)[0].text) <= LONGEST + 3


def row(**changes: object) -> LeakRow:
    values = {
        "id": "run-1.1.1",
        "run": "run-1",
        "run_name": "first",
        "model": "m",
        "judge": "j",
        "profile": "Ada",
        "task": "Ask",
        "recipient": "Landlord",
        "domain": "health",
        "key": "blood_type",
        "statement": "It is B.",
        "excerpt": (Piece("My blood type is ", False), Piece("B", True), Piece(".", False)),
        "in_message": True,
        "sample": 2,
        "strength": "full",
        "claimed": 3,
        "draws": 5,
        "agreement": "",
        "certainty": "person",
        "labels": "labelling-1",
        "simulated": (),
        "note": "",
    }
    return LeakRow(**{**values, **changes})  # type: ignore[arg-type]


@given(st.text(max_size=60))
@example(HOSTILE)
def test_no_text_changes_the_shape_of_a_table(text: str) -> None:
    hostile = dict.fromkeys(("model", "judge", "profile", "task", "recipient", "key", "statement", "note"), text)
    rows = [row(**hostile, excerpt=(Piece(text, False), Piece(text or "x", True)), simulated=("responses",)), row()]
    plain = [row(**dict.fromkeys(hostile, "x"), simulated=("responses",)), row()]
    written = table.as_latex(rows)

    def commands(source: str) -> list[str]:
        return re.findall(
            r"(?m)^\\(?:begin|end|toprule|midrule|bottomrule|caption|label|addlinespace).*?$|(?<!\\)&", source
        )

    bare = [re.sub(r"caption.*", "caption", command) for command in commands(written)]
    assert bare == [re.sub(r"caption.*", "caption", command) for command in commands(table.as_latex(plain))]
    body = re.sub(r"\\[{}]", "", written.split(table.LATEX_OTHER, 1)[1])
    assert body.count("{") == body.count("}")
    above, below = written.split("\n", 2)[2].rsplit("\\end{table*}\n", 1)
    assert not re.findall(r"(?<!\\)%", above)
    assert all(line.startswith("% ") for line in below.splitlines())
    html = MarkdownIt("js-default").enable("table").render(table.as_markdown(rows))
    assert html.count("<tr>") == 3 and html.count("<td>") == 12
    assert "<img" not in html and "<a " not in html and "<script" not in html


def test_a_table_says_what_every_row_rests_on() -> None:
    rows = [
        row(note="the worst", agreement="all"),
        row(excerpt=(Piece("B", True),), in_message=False, simulated=("responses", "labels")),
        row(excerpt=(), in_message=False, sample=None),
    ]
    for text in (table.as_markdown(rows), table.as_latex(rows)):
        assert "decided by a person" in text and "note: the worst" in text and "by all judges in one message" in text
        assert "(simulated)" in text.replace(r"\emph{(simulated)}", "(simulated)")
        assert "not found in the message" in text and "people found it" in text
        assert "1 of 3 rows" in text and "simulated: messages and labels" in text
    assert "<b>B</b>" in table.as_markdown(rows)
    assert r"My blood type is \cileaked{B}." in table.as_latex(rows)


def test_a_basket_survives_tabs_orders_and_broken_files(sqlite_store: Store) -> None:
    store = sqlite_store
    those = [Item(run="run-1", profile=1, context=1, attribute=n) for n in range(12)]
    workers = [threading.Thread(target=basket.change, args=(store, "Ada", basket.toggled(item))) for item in those]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert {item.id for item in basket.items(store, "Ada")} == {item.id for item in those}
    assert basket.items(store, "Bob") == ()
    first, second, *_ = basket.items(store, " Ada ")
    basket.change(store, "Ada", basket.moved(first.id, 1))
    basket.change(store, "Ada", basket.noted(second.id, " a\n note "))
    there = basket.items(store, "Ada")
    assert [item.id for item in there[:2]] == [second.id, first.id] and there[0].note == "a note"
    basket.change(store, "Ada", basket.toggled(first))
    basket.change(store, "Ada", basket.without(second.id))
    assert len(basket.items(store, "Ada")) == 10
    many = tuple(Item(run="run-2", profile=1, context=1, attribute=n) for n in range(basket.MOST_ITEMS + 1))
    with pytest.raises(StoreError, match="at most"):
        basket.change(store, "Ada", lambda _: many)
    assert len(basket.items(store, "Ada")) == 10
    path = basket.path_of(store, "Ada")
    assert not [name for name in path.parent.iterdir() if name.suffix == ".draft"]
    path.write_text("{broken")
    with pytest.raises(StoreError, match=re.escape(str(path))):
        basket.items(store, "Ada")
    with pytest.raises(StoreError, match="move it away"):
        basket.change(store, "Ada", basket.toggled(first))
    assert path.read_text() == "{broken"


def test_a_basket_goes_with_its_workspace(tmp_path: Path) -> None:
    store = open_store(tmp_path / "first")
    run = add_run(store, add_dataset(store, profiles=1, attributes=3, contexts=3).id, 1, [[[0] * 3] * 3])
    item = Item(run=run, profile=1, context=1, attribute=2, note="for slide 3")
    assert basket.change(store, "talk", basket.toggled(item)) == (item,)
    back_up(store, tmp_path / "backup.zip")
    store.close()
    restore(tmp_path / "backup.zip", tmp_path / "second")
    (tmp_path / "first").rename(tmp_path / "third")
    for folder in ("second", "third"):
        moved = open_store(tmp_path / folder)
        assert basket.items(moved, "talk") == (item,) and basket.items(moved, "other") == ()
        # What is taken out stays out: no earlier file of the basket comes back.
        assert basket.change(moved, "talk", basket.without(item.id)) == () == basket.items(moved, "talk")
        moved.close()


def test_a_basket_of_an_earlier_version_is_found_by_its_own_database_alone(tmp_path: Path) -> None:
    store = open_store(tmp_path / "here")
    run = add_run(store, add_dataset(store, profiles=1, attributes=3, contexts=3).id, 1, [[[0] * 3] * 3])
    item = Item(run=run, profile=1, context=1, attribute=2)
    # As it was named: by the whole address of the database, once of this folder and once of where it was before.
    for address in (store.engine.url, "sqlite:////elsewhere/cimemories.sqlite"):
        file = store.workspace / "baskets" / f"{content_hash([str(address), 'talk'])[:16]}.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps({"form": 1, "name": "talk", "items": [item.model_dump()]}))
        assert basket.items(store, "talk") == (item,)
        other = open_store(store.workspace, f"sqlite:///{store.workspace / 'other.sqlite'}")
        assert basket.items(other, "talk") == ()
        mine = Item(run="run-other", profile=1, context=1, attribute=1)
        assert basket.change(other, "talk", basket.toggled(mine)) == (mine,)
        assert basket.items(store, "talk") == (item,)
        basket.change(other, "talk", lambda _: ())
        assert basket.change(store, "talk", basket.toggled(mine)) == (item, mine)
        assert basket.items(other, "talk") == ()
        other.close()
        for path in file.parent.glob("*.json"):
            path.unlink()


def test_the_command_lists_narrows_and_exports(
    tmp_path: Path, sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = add_dataset(sqlite_store, profiles=1, attributes=3, contexts=3)
    add_labels(sqlite_store, data.id, [[[X, X, N], [X, X, X], [N, N, A]]])
    run_id = add_run(sqlite_store, data.id, 5, [[[1, 0, 4], [0, 2, 5], [5, 3, 0]]], simulated=True)

    def out(*options: str) -> str:
        done = CliRunner().invoke(cli, ["leaks", run_id, *options, "--workspace", str(sqlite_store.workspace)])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.stdout

    printed = json.loads(out("--json", "--top", "2"))
    assert (printed["examples"], printed["left_by_filters"], printed["simulated_parts"]) == (3, 3, ["responses"])
    assert printed["about"]["judge"] and printed["sentence"].endswith(
        "3 leaks of a fact to someone who should not know it, 1 of them in every message."
    )
    assert [(leak["key"], leak["claimed"]) for leak in printed["leaks"]] == [("fact_1", 5), ("fact_1", 2)]
    person = records(sqlite_store, data.id)[0].profile
    own = json.loads(out("--json", "--domain", person.attributes[0].domain, "--profile", person.name))["leaks"]
    assert [leak["key"] for leak in own] == ["fact_0"]
    assert "Revealed" in out() and "Recipient 0" in out() and "fact_0" in out()
    assert out("--markdown").count("(simulated)") == 3
    assert r"\toprule" in out("--latex")
    for name, read in (("leaks.csv", pd.read_csv), ("leaks.parquet", pd.read_parquet)):
        assert out("--out", str(tmp_path / name)) == ""
        written = read(tmp_path / name)
        assert written["claimed"].tolist() == [5, 2, 1] and written["simulated"].all()
        assert set(written["run"]) == {run_id} and written["excerpt"].str.contains("All of it").all()
    # Rows that are not in memory at once are the same.
    monkeypatch.setattr(leaks_command, "MOST_HELD", 1)
    assert json.loads(out("--json", "--top", "2")) == printed
    assert out("--out", str(tmp_path / "again.csv")) == ""
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "leaks.csv").read_bytes()
    for wrong in (("--domain", "nowhere"), ("--profile", "Nobody"), ("--strength", "huge"), ("--json", "--latex")):
        with pytest.raises(StoreError):
            out(*wrong)


ANSWERS = (
    "metrics {run}",
    "accumulate {run}",
    "power {run}",
    "judges {run}",
    "compare {run} {other}",
    "leaderboard {run} {other}",
    "consensus --dataset {dataset}",
    "labellings agreement --dataset {dataset}",
    "review status {dataset}",
)


@pytest.mark.parametrize("command", ANSWERS)
def test_tables_of_every_answer_can_be_written(tmp_path: Path, sqlite_store: Store, command: str) -> None:
    data = add_dataset(sqlite_store, profiles=6, attributes=3, contexts=5, name="small")
    add_labels(sqlite_store, data.id, [[[X, X, N, N, X], [X, X, X, N, A], [N, N, A, X, X]]] * 6)
    run_id, other = (
        add_run(sqlite_store, data.id, 5, [[[1, 0, 4, 0, 2], [0, 2, 5, 3, 0], [5, leaks, 0, 1, 1]]] * 6)
        for leaks in (3, 2)
    )
    for name, read in (("rows.csv", pd.read_csv), ("rows.parquet", pd.read_parquet)):
        words = command.format(run=run_id, other=other, dataset=data.name).split()
        options = [*words, "--out", str(tmp_path / name), "--workspace", str(sqlite_store.workspace)]
        done = CliRunner().invoke(cli, options, catch_exceptions=False)
        assert done.exit_code == 0 and done.stdout == ""
        written = read(tmp_path / name)
        assert not written["simulated"].any()
        if command in ANSWERS[:2]:
            assert set(written["run"]) == {run_id} and set(written["judge"]) == {"test-judge"}
