"""Comments and the guideline: append-only in the record, and their tabs of the Review page."""

from __future__ import annotations

from pathlib import Path

import pytest
from paging import button, double_click, opened, page_html
from streamlit.testing.v1 import AppTest
from worlds import add_dataset, add_labels, records

from cimemories.review.status import pair_comments
from cimemories.store import reviews
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import DATABASE_URL, WORKSPACE, Store, StoreError, text_hash

HOSTILE = "![x](http://evil/y.png) <img src=x onerror=alert(1)> :material/bolt: =1+1\nsecond line"
PAGE = "pages/curate/review.py"


def world(store: Store) -> tuple[DatasetRow, list[tuple[int, int]]]:
    row = add_dataset(store, profiles=1, attributes=2, contexts=2)
    (record,) = records(store, row.id)
    return row, [(a, c) for a in record.attribute_ids for c in record.context_ids]


def test_a_comment_is_said_once_and_settled_by_another_row(store: Store) -> None:
    row, (pair, other, *_) = world(store)
    with store.write() as connection:
        # Each at a moment of its own: those of one moment stand in the order of their uids.
        first_at, then, at_last = (f"2026-01-01T00:00:0{second}.000Z" for second in range(3))
        assert reviews.add_comment(connection, row.id, "Ada", *pair, "which rent?", uid="u", created=first_at)
        assert not reviews.add_comment(connection, row.id, "Ada", *pair, "which rent?", uid="u")
        assert reviews.add_comment(connection, row.id, "Bob", *other, "half a pair \ud83d and \0", created=then)
        first, second = reviews.comments_of_dataset(connection, row.id)
        assert reviews.resolve_comment(connection, row.id, "Bob", first.id, "the one in the lease", created=then)
        assert reviews.resolve_comment(connection, row.id, "Cyd", first.id, "too late", created=at_last)
        with pytest.raises(StoreError, match="cannot be empty"):
            reviews.add_comment(connection, row.id, "Ada", *pair, " \n")
        with pytest.raises(StoreError, match="no comment"):
            reviews.resolve_comment(connection, row.id, "Ada", first.id + 1000)
    with store.read() as connection:
        assert [c.uid for c in reviews.comments_of_pair(connection, *pair)] == ["u"]
        (settled,) = reviews.comments_of_pair(connection, *pair)
        assert (settled.open, settled.resolved_by, settled.resolution) == (False, "Bob", "the one in the lease")
        assert second.open and second.text == "half a pair \ufffd and \ufffd"
    assert [item.comment.id for item in pair_comments(store, row.id)] == [second.id, first.id]


def test_a_comment_of_another_dataset_is_not_settled_from_here(store: Store) -> None:
    row, (pair, *_) = world(store)
    there = add_dataset(store, name="there")
    with store.write() as connection:
        reviews.add_comment(connection, row.id, "Ada", *pair, "why?")
        (item,) = reviews.comments_of_dataset(connection, row.id)
        with pytest.raises(StoreError):
            reviews.resolve_comment(connection, there.id, "Ada", item.id)
        assert reviews.comments_of_dataset(connection, there.id) == []


# --- the guideline ---


def test_the_guideline_that_ships_is_the_first_version_and_stays_when_others_come(store: Store) -> None:
    with store.read() as connection:
        shipped = reviews.current_guideline(connection)
    assert (shipped.version, shipped.hash, shipped.created) == (1, text_hash(shipped.text), "")
    for word in ("necessary", "inappropriate", "ambiguous", "flag", "skip"):
        assert word in shipped.text.lower()
    with store.write() as connection:
        kept = reviews.keep_guideline(connection)
        assert (kept.hash, kept.text, bool(kept.created)) == (shipped.hash, shipped.text, True)
        second = reviews.save_guideline(connection, "Be kind.\r\n", "Ada", " Shorter\n is better. ")
        assert reviews.save_guideline(connection, "Be kind.", "Bob", "") == second
        third = reviews.save_guideline(connection, shipped.text, "Bob", "Too short.")
        for text in (" ", "x" * (reviews.LONGEST_GUIDELINE + 1)):
            with pytest.raises(StoreError):
                reviews.save_guideline(connection, text, "Ada", "Why not.")
        with pytest.raises(StoreError, match="needs a reason"):
            reviews.save_guideline(connection, "Be very kind.", "Ada", " \n")
    with store.read() as connection:
        versions = reviews.guideline_versions(connection)
        assert reviews.current_guideline(connection) == third == versions[-1]
    assert [(v.version, v.annotator) for v in versions] == [(1, reviews.SHIPPED_GUIDELINE), (2, "Ada"), (3, "Bob")]
    assert [v.reason for v in versions] == ["", "Shorter is better.", "Too short."]
    assert len({v.hash for v in versions}) == 3
    assert (versions[1].text, versions[2].text) == ("Be kind.\n", shipped.text)


def test_a_folder_of_seeds_without_a_guideline_falls_back_to_ours(
    sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sqlite_store.read() as connection:
        shipped = reviews.current_guideline(connection).text
        monkeypatch.setenv("CIMEMORIES_SEEDS", str(tmp_path))
        assert reviews.current_guideline(connection).text == shipped
        (tmp_path / "guideline.md").write_text("Ours.", encoding="utf-8")
        assert reviews.current_guideline(connection).text == "Ours.\n"


# --- the pages ---


@pytest.fixture
def review(sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> tuple[Store, DatasetRow, list[tuple[int, int]]]:
    monkeypatch.setenv(WORKSPACE, str(sqlite_store.workspace))
    monkeypatch.delenv(DATABASE_URL, raising=False)
    return sqlite_store, *world(sqlite_store)


def test_without_comments_the_tab_says_how_to_write_one(
    review: tuple[Store, DatasetRow, list[tuple[int, int]]],
) -> None:
    app = opened(PAGE, dataset=review[1].id, tab="comments")
    assert "No comments on pairs yet." in page_html(app)
    assert "Press c" in page_html(app) and "Open the queue" in [item.proto.label for item in app.get("page_link")]


def test_comments_are_found_and_resolved_and_their_text_is_only_text(
    review: tuple[Store, DatasetRow, list[tuple[int, int]]],
) -> None:
    store, row, (pair, other, *_) = review
    add_labels(store, row.id, {}, simulated=True)
    with store.write() as connection:
        reviews.add_comment(connection, row.id, "Ada", *pair, HOSTILE, created="2026-01-01T00:00:00.000Z")
        reviews.add_comment(connection, row.id, "Bob", *other, "is that so?")
        reviews.add_comment(connection, row.id, "Bob", *other, "settled long ago", uid="done")
        done = next(c for c in reviews.comments_of_dataset(connection, row.id) if c.uid == "done")
        reviews.resolve_comment(connection, row.id, "Ada", done.id, "yes")
    app = opened(PAGE, dataset=row.id, tab="comments")
    assert "2 of 3 comments on 2 pairs open." in page_html(app)
    assert list(app.dataframe[0].value["text"]) == ["is that so?", HOSTILE]
    app.segmented_control(key="review.comments.state").set_value("all").run()
    assert list(app.dataframe[0].value["state"]) == ["open", "open", "resolved"]
    app.selectbox(key="review.comments.who").set_value("Ada").run()
    assert list(app.dataframe[0].value["text"]) == [HOSTILE]
    app.text_input(key="review.comments.search").set_value("NO SUCH").run()
    assert "No comment matches" in page_html(app)
    app.text_input(key="review.comments.search").set_value("evil STATEMENT").run()
    # The filters are in the address, for a reload and for other people.
    address = {name: app.query_params[name] for name in ("show", "person", "search")}
    assert address == {"show": "all", "person": "Ada", "search": "evil STATEMENT"}
    linked = opened(PAGE, dataset=row.id, tab="comments", **address)
    assert list(linked.dataframe[0].value["text"]) == [HOSTILE]
    choose(app, row, 0)
    assert "&lt;img src=x onerror" in page_html(app) and "<img" not in page_html(app)
    assert not any("evil" in item.proto.body for item in app.markdown)
    assert button(app, "Resolve").disabled and "Needs your name" in page_html(app)
    app.session_state["annotator"] = "Cyd"
    app.run()
    button(app, "Resolve").click().run()
    assert "Nothing was resolved." in page_html(app)
    why = next(item for item in app.text_input if (item.key or "").endswith(".why"))
    why.set_value("it says <b>so</b>")
    double_click(app, button(app, "Resolve"))
    assert not app.exception
    assert "Nothing was resolved." not in page_html(app)
    assert "1 of 3 comments on 2 pairs open." in page_html(app)
    with store.read() as connection:
        first = next(c for c in reviews.comments_of_dataset(connection, row.id) if c.annotator == "Ada")
    assert (first.resolved_by, first.resolution) == ("Cyd", "it says <b>so</b>")
    choose(app, row, 0)
    double_click(app, button(app, "Reopen"))
    assert "2 of 4 comments on 2 pairs open." in page_html(app)
    # The resolved one stays as it is, and offers it again, here and to whoever else has it open.
    at = list(app.dataframe[0].value["state"]).index("resolved")
    choose(app, row, at)
    button(app, "Reopen").click().run()
    assert "Cyd has reopened this comment already." in page_html(app)
    assert "2 of 4 comments on 2 pairs open." in page_html(app)


def test_a_comment_leads_to_its_pair(review: tuple[Store, DatasetRow, list[tuple[int, int]]]) -> None:
    store, row, (_, other, *_rest) = review
    with store.write() as connection:
        reviews.add_comment(connection, row.id, "Bob", *other, "is that so?")
    app = opened(PAGE, dataset=row.id, tab="comments")
    choose(app, row, 0)
    links = {item.proto.label: item.proto.query_string for item in app.get("page_link")}
    for label in ("Show the pair", "Decide it in the queue"):
        assert f"context={other[1]}&attribute={other[0]}" in links[label]


def test_who_is_late_to_resolve_a_comment_is_told_who_did(
    review: tuple[Store, DatasetRow, list[tuple[int, int]]],
) -> None:
    store, row, (pair, other, *_) = review
    with store.write() as connection:
        for each in (pair, other):
            reviews.add_comment(connection, row.id, "Bob", *each, "is that so?")
    app = opened(PAGE, dataset=row.id, tab="comments")
    app.session_state["annotator"] = "Cyd"
    choose(app, row, 0)
    next(item for item in app.text_input if (item.key or "").endswith(".why")).set_value("Cyd's reason")
    with store.write() as connection:
        newest = reviews.comments_of_dataset(connection, row.id)[-1].id  # of one moment, the last by uid
        reviews.resolve_comment(connection, row.id, "Dan", newest, "Dan's reason")
    button(app, "Resolve").click().run()
    assert not app.exception
    assert "Dan has resolved the comment that you had open: Dan&#x27;s reason" in page_html(app)
    # One's own is no news.
    choose(app, row, 0)
    next(item for item in app.text_input if (item.key or "").endswith(".why")).set_value("Cyd's reason")
    button(app, "Resolve").click().run()
    assert "0 of 2 comments" in page_html(app) and "Cyd has resolved" not in page_html(app)
    # Nor is what was resolved when it was opened.
    app = opened(PAGE, dataset=row.id, tab="comments", show="all")
    choose(app, row, 0)
    assert "by Dan: Dan" in page_html(app) or "by Cyd" in page_html(app)
    app.segmented_control(key="review.comments.state").set_value("open").run()
    assert "has resolved the comment" not in page_html(app)


def choose(app: AppTest, row: DatasetRow, number: int) -> None:
    """As a click on a row of the table does."""
    key = f"review.comments.{row.id}"
    version = app.session_state[f"{key}.memory"]["version"]
    app.session_state[f"{key}.{version}"] = {"selection": {"rows": [], "columns": [], "cells": [(number, "state")]}}
    app.run()
    assert not app.exception


def test_a_guideline_is_saved_as_a_new_version_with_its_differences(
    review: tuple[Store, DatasetRow, list[tuple[int, int]]],
) -> None:
    store, row, _ = review
    app = opened(PAGE, "review.box.guideline", "review.box.versions", dataset=row.id, tab="guideline")
    assert "Version 1, by CIMemories Studio, as shipped" in page_html(app)
    (area,) = app.text_area
    first = area.value
    area.set_value(first + HOSTILE).run()
    assert "2 lines added, 0 removed." in page_html(app) and button(app, "Save as version 2").disabled
    app.session_state["annotator"] = "Ada"
    app.text_area[0].set_value("Only this.\n" + HOSTILE).run()
    assert button(app, "Save as version 2").disabled and "Needs a reason." in page_html(app)
    app.text_input(key="review.guideline.reason").set_value(f"One rule is enough. {HOSTILE}").run()
    double_click(app, button(app, "Save as version 2"))
    assert "Nothing was saved." not in page_html(app)
    assert not app.exception
    assert "Version 2, by Ada" in page_html(app) and "Version 3, by" not in page_html(app)
    assert "One rule is enough." in page_html(app)
    assert "<td>added</td><td><b>Only this.</b></td>" in page_html(app)
    assert "<td>removed</td>" in page_html(app)
    assert "<img" not in page_html(app) and not any("evil" in item.proto.body for item in app.markdown)
    assert "Save as version" not in str([item.label for item in app.button])  # nothing has changed since
    app.text_area[0].set_value("Mine.").run()
    app.text_input(key="review.guideline.reason").set_value("Mine.").run()
    with store.write() as connection:
        assert len(reviews.guideline_versions(connection)) == 2
        reviews.save_guideline(connection, "Somebody was faster.", "Bob", "Speed.")
    button(app, "Save as version 3").click().run()
    assert "Bob saved version 3 after you opened this one" in page_html(app) and app.text_area[0].value == "Mine."
    with store.read() as connection:
        assert reviews.current_guideline(connection).text == "Somebody was faster.\n"
    button(app, "Use version 1 again").click().run()
    assert "Version 4 stands, with the text of 1." in page_html(app) and "Back to version 1." in page_html(app)
    assert app.text_area[0].value.strip() == first.strip()


def test_a_guideline_that_is_being_written_stays_while_other_tabs_are_looked_at(
    review: tuple[Store, DatasetRow, list[tuple[int, int]]],
) -> None:
    _, row, _ = review
    app = opened(PAGE, "review.box.guideline", dataset=row.id, tab="guideline")
    app.session_state["annotator"] = "Ada"
    app.text_area[0].set_value("Only this.").run()
    app.text_input(key="review.guideline.reason").set_value("One rule is enough.").run()
    # Typed, and left by a click on another tab: one message, in whose run the form is not drawn.
    app.text_area[0].set_value("Only that.")
    app.segmented_control(key="review.role").set_value("Agree").run()
    assert not app.text_area
    app.segmented_control(key="review.role").set_value("Set up").run()
    app.session_state["review.box.guideline"] = True
    app.run()
    assert app.text_area[0].value == "Only that."
    assert app.text_input(key="review.guideline.reason").value == "One rule is enough."
    button(app, "Save as version 2").click().run()
    assert "Version 2, by Ada" in page_html(app) and app.text_area[0].value.strip() == "Only that."
