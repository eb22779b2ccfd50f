"""Files on the Profiles page: what is imported is said, and an export is made only when somebody asks for it."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from paging import button, opened, page_html
from worlds import add_dataset, add_labels

from cimemories.exchange import exporting
from cimemories.store.engine import Store, open_store

PROFILES = "pages/curate/profiles.py"


@pytest.fixture
def store(app_store: Store) -> Store:
    return app_store


def test_an_export_is_made_when_it_is_asked_for(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    real = exporting.export
    monkeypatch.setattr(exporting, "export", lambda *a, **k: made.append(real(*a, **k)) or made[-1])
    data = add_dataset(store, profiles=1, attributes=3, contexts=2)
    add_labels(store, data.id, [[[1, 2], [0, 1], [2, 2]]], simulated=True)
    app = opened(PROFILES, view="dataset", dataset=data.id)
    assert not made
    assert not app.get("download_button") or "small-world" not in page_html(app)
    button(app, "Prepare the file").click().run()
    assert not app.exception
    assert len(made) == 1
    assert "small-world-huggingface-simulated.zip" in page_html(app)
    with zipfile.ZipFile(app.session_state["profiles.export.ready"].path) as archive:
        table = pq.read_table(io.BytesIO(archive.read("tables/dataset.parquet")))
    assert table["simulated"].to_pylist() == [True]
    # Another choice drops the offer: nobody gets a file of something else.
    format_box = next(box for box in app.selectbox if box.label == "Format")
    format_box.set_value(("labelled", ".json")).run()
    assert "small-world-huggingface" not in page_html(app)
    button(app, "Prepare the file").click().run()
    assert "small-world-labelled-simulated.json" in page_html(app)


def test_a_format_that_needs_labels_says_what_to_do(store: Store) -> None:
    data = add_dataset(store, profiles=1, attributes=1, contexts=1)
    app = opened(PROFILES, view="dataset", dataset=data.id)
    next(box for box in app.selectbox if box.label == "Format").set_value(("huggingface", ".parquet")).run()
    assert "no labels yet" in page_html(app)
    assert "Prepare the file" not in [item.label for item in app.button]


@pytest.mark.usefixtures("uploads_read_here")
def test_what_was_imported_is_said_with_its_notes(store: Store, tmp_path: Path) -> None:
    other = open_store(tmp_path / "other")
    data = add_dataset(other, profiles=1, attributes=2, contexts=1)
    add_labels(other, data.id, [[[1], [2]]])
    exporting.export(other, data.name, "huggingface", tmp_path / "c.parquet")
    other.close()
    app = opened(PROFILES, view="new")
    content = (tmp_path / "c.parquet").read_bytes()
    app.file_uploader[0].upload("columns <b>.parquet", content, "application/octet-stream").run()
    button(app, "Import").click().run()
    assert not app.exception
    page = page_html(app)
    assert "Recognised as the published columns, one row a pair." in page
    assert "Labels are imported under one stand-in persona" in page
    assert "columns &lt;b&gt;" in page
    app.file_uploader[0].upload("broken.zip", content[:50], "application/zip").run()
    button(app, "Import").click().run()
    assert "This file cannot be imported." in page_html(app)
    assert "broken.zip: not a whole Parquet file" in page_html(app)
