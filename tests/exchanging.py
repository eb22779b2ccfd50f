"""Worlds to export: datasets with all that a record can hold of one, drawn at random, and what they consist of."""

from __future__ import annotations

import hashlib
import json
import random
import zipfile
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from worlds import PERSONAS, answer, make_profile

from cimemories.formats.bundle import BUNDLED, DERIVED, MANIFEST
from cimemories.formats.tables import TABLES, write_rows
from cimemories.model import Attribute, ChatRequest, Context, Label, Profile, Verdict, WorkStatus
from cimemories.store import archive, calls, datasets, decisions, labellings, versions, work
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, content_hash
from cimemories.store.tables import metadata
from cimemories.store.versions import Edit

ODD = ("plain", 'quote "x"', "comma, semicolon;", "Zoë — 中文", "line\nbreak", "{braces} <b>", "=1+1", "\u2028", "NaN")
VALUES: tuple[Any, ...] = (1, 1.0, True, None, "text", [1, "two", None], [{"name": "Ann", "age": 3}], -0.5, 10**12)


def counts(store: Store) -> dict[str, int]:
    """Rows of every table of the record."""
    with store.read() as connection:
        return {
            table.name: connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
            for table in metadata.sorted_tables
        }


def content(store: Store, dataset_id: int) -> dict[str, list[dict[str, Any]]]:
    """All that a dataset consists of, without ids."""
    with store.read() as connection:
        contents = archive.Contents(connection, dataset_id)
        contents.number_runs(with_calls=True)
        return {
            name: [{column: row.get(column) for column in table.names} for row in getattr(contents, name)()]
            for name, table in TABLES.items()
            if name != "dataset"
        }


def profiles_of(store: Store, dataset_id: int) -> list[Profile]:
    with store.read() as connection:
        return [record.profile for record in datasets.profile_records(connection, dataset_id)]


def odd_profile(chance: random.Random, number: int, contexts: list[Context]) -> Profile:
    """A profile with odd texts and values of every type, tested in some of the contexts."""
    plain = make_profile(number, attributes=chance.randint(1, 4), contexts=0)
    attributes = tuple(
        Attribute(a.key, chance.choice(VALUES), a.domain, a.event, f"{a.statement} {chance.choice(ODD)}")
        for a in plain.attributes
    )
    tested = tuple(c for c in contexts if chance.random() < 0.8) or tuple(contexts[:1])
    return Profile(plain.name, plain.sex, plain.address, plain.age, attributes, tested)


def odd_world(store: Store, chance: random.Random, name: str) -> DatasetRow:
    """A dataset with labellings of every state, imported labels, decisions taken back, rules and a history."""
    places = [
        Context(f"Task {i} {chance.choice(ODD)}", f"Recipient {i}", chance.choice([None, "housing"]))
        for i in range(chance.randint(1, 3))
    ]
    people = [odd_profile(chance, i, places) for i in range(chance.randint(1, 3))]
    with store.write() as connection:
        dataset_id = datasets.add(connection, name, people, origin="test", source_name=None, source_hash=f"of {name}")
        records = datasets.profile_records(connection, dataset_id)
        ids = labellings.personas_of(connection, "test", PERSONAS)
        for number in range(chance.randint(0, 2)):
            _vote(connection, chance, dataset_id, records, ids, f"voter {number} {name}")
        if chance.random() < 0.5:
            labellings.add_imported(connection, dataset_id, records, shares_of(chance, people))
        _decide(connection, chance, dataset_id, records)
        for number in range(chance.randint(0, 2)):
            priors = {"fundamentalist": 0.5, "pragmatic": 0.25, "unconcerned": 0.25}
            added = {"threshold": chance.choice([0.6, 0.9, 1.0]), "priors": priors, "annotator": "ann"}
            labellings.add_rule(connection, dataset_id, f"rule {number}", use=number == 1, **added)
        for _ in range(chance.randint(0, 2)):
            side = {"name": chance.choice(ODD), "sex": "x", "address": "y", "age": 40}
            versions.add(connection, dataset_id, Edit("bio", "change", 0, side, side), annotator="ann", reason="why")
        return datasets.by_name(connection, name)


def _vote(
    connection: sa.Connection, chance: random.Random, dataset_id: int, records: Any, ids: list[int], model: str
) -> None:
    simulated = chance.random() < 0.5
    draws = chance.randint(1, 2)
    labelling_id = labellings.add(
        connection,
        identity=f"{model} {dataset_id}",
        dataset_id=dataset_id,
        model=model,
        endpoint="http://x",
        simulated=simulated,
        pack="test",
        draws=draws,
        manifest={"personas": ids, "api_key_env": "SECRET", "seed": None, "asked": {"base_url": "http://u:p@x"}},
    )
    contexts = sorted({c for r in records for c in r.context_ids})
    labellings.plan(connection, labelling_id, [r.id for r in records], contexts, ids, draws)
    for record in records:
        for group in labellings.owed(connection, labelling_id, record.id):
            text = f"{model} {record.ordinal} {group.context} {group.persona}"
            item = ChatRequest("m", (("user", text),), {"temperature": 0.5}, chance.choice([None, 3]))
            keys = calls.keys_of(item, group.ballots, simulated=simulated)
            for draw, ballot in group.ballots.items():
                status = chance.choice(["ok", "ok", "ok", "failed", "unparsed", "owed"])
                if status == "owed":
                    continue
                good = {"status": "ok", "content": chance.choice(ODD), "prompt_tokens": 5}
                failed = {"status": "timeout", "error": "too slow"}
                fields = failed if status == "failed" else good
                outcome = answer(keys[draw], draw=draw, exchange=f"e {text} {draw}", **fields)
                calls.record_all(connection, [calls.Exchange(item, [outcome], "label", "http://x", simulated)])
                votes = [(a, chance.choice(list(Verdict))) for a in record.attribute_ids]
                done = labellings.Settled(
                    ballot,
                    status,
                    None if status == "ok" else "because",
                    keys[draw],
                    votes if status == "ok" else (),
                    conflicts=chance.randint(0, 2) if status == "ok" else 0,
                    unknown=chance.randint(0, 2),
                )
                labellings.settle(connection, [done])
    work.finish(connection, labelling_id, chance.choice([WorkStatus.FINISHED, WorkStatus.RUNNING, WorkStatus.FAILED]))
    work.bump(connection, labelling_id)


def _decide(connection: sa.Connection, chance: random.Random, dataset_id: int, records: Any) -> None:
    for _ in range(chance.randint(0, 5)):
        record = chance.choice(records)
        decisions.add(
            connection,
            dataset_id=dataset_id,
            attribute=chance.choice(record.attribute_ids),
            context=chance.choice(record.context_ids),
            annotator=chance.choice(["ann", "bob"]),
            label=chance.choice([None, *Label]),
            reason=chance.choice(ODD),
            seconds=chance.choice([None, 1.5]),
            source=chance.choice(["single", "batch"]),
            blind=chance.random() < 0.5,
        )


def shares_of(chance: random.Random, people: list[Profile]) -> labellings.SharedLabels:
    """Shares of every persona on most pairs, in tenths."""
    import numpy as np

    cells, shares = [], []
    for p, person in enumerate(people):
        for c in range(len(person.contexts)):
            for a in range(len(person.attributes)):
                for voter in range(len(PERSONAS)):
                    if chance.random() < 0.9:
                        necessary = chance.randint(0, 10)
                        private = chance.randint(0, 10 - necessary)
                        cells.append((p, a, c, voter))
                        shares.append((necessary / 10, private / 10, (10 - necessary - private) / 10))
    places = np.array(cells, dtype=np.int32).reshape(-1, 4)
    return labellings.SharedLabels(
        model="other",
        pack="test",
        personas=PERSONAS,
        profile=places[:, 0],
        attribute=places[:, 1],
        context=places[:, 2],
        persona=places[:, 3],
        shares=np.array(shares, dtype=np.float64).reshape(-1, 3),
        simulated=False,
        provenance={"file": "x.json", "sha256": "0", "model": "other", "votes": "not there"},
    )


def write_bundle(store: Store, row: DatasetRow, folder: Path, encoding: str, *, zipped: bool = True) -> Path:
    """Write a dataset as a bundle, as it was before there were folders."""
    tables = content(store, row.id)
    written: dict[str, Any] = {}
    for name in BUNDLED:
        rows = [{key: value for key, value in r.items() if key != "fresh"} for r in tables.get(name, [{}])]
        lines = "".join(f"{json.dumps(r, ensure_ascii=False)}\n" for r in rows).encode("utf-8")
        path = folder / f"{name}.{encoding}"
        if encoding == "jsonl" or name == DERIVED:
            path.write_bytes(lines)
        else:
            write_rows(path, TABLES[name], rows)
        written[name] = {"rows": len(lines.splitlines()), "sha256": hashlib.sha256(lines).hexdigest()}
    manifest = {
        "format": "cimemories-bundle",
        "version": 4,
        "encoding": encoding,
        "content": content_hash([[t, w["rows"], w["sha256"]] for t, w in written.items() if t != DERIVED]),
        "simulated": row.simulated,
        "dataset": {"name": row.name},
        "tables": written,
    }
    (folder / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    if not zipped:
        return folder
    with zipfile.ZipFile(folder.with_suffix(".zip"), "w", zipfile.ZIP_DEFLATED) as archive_:
        for file in sorted(folder.iterdir()):
            archive_.write(file, file.name)
    return folder.with_suffix(".zip")
