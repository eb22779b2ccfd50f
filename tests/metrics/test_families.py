"""Model families: told from names, and the warning where labels and answers are of one."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from evaluating import cli_inside, outside
from worlds import add_dataset, add_labels, add_run, ask

from cimemories.flows.labels import INAPPROPRIATE, NECESSARY
from cimemories.metrics import warnings
from cimemories.metrics.headline import headline
from cimemories.seeds import SeedError
from cimemories.store.engine import Store, StoreError
from cimemories.store.tables import labelling, run

X, N = INAPPROPRIATE, NECESSARY


@pytest.mark.parametrize(
    ("model", "wanted"),
    [
        ("gpt-5", {"GPT by OpenAI"}),
        ("openai/gpt-oss-120b", {"GPT by OpenAI"}),
        ("o3-mini-2025-01-31", {"GPT by OpenAI"}),
        ("EleutherAI/gpt-neox-20b", set()),
        ("Qwen/Qwen3-8B", {"Qwen by Alibaba"}),
        ("meta-llama/Llama-3.3-70B-Instruct", {"Llama by Meta"}),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", {"DeepSeek", "Qwen by Alibaba"}),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", {"Mistral"}),
        ("microsoft/phi4", {"Phi by Microsoft"}),
        ("cognitivecomputations/dolphin-2.9", set()),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", {"SmolLM by Hugging Face"}),
        ("claude-sonnet-4", {"Claude by Anthropic"}),
        ("google/gemma-3-27b-it", {"Gemini and Gemma by Google"}),
        ("sim-average", {"the simulator of this tool"}),
        ("simple-model", set()),
        ("co3-net", set()),
        ("", set()),
    ],
)
def test_a_name_tells_the_families(model: str, wanted: set[str]) -> None:
    assert set(warnings.families(model)) == wanted
    assert set(warnings.families(model.upper())) == wanted
    assert next(iter(warnings.families(model)), None) in (wanted or {None})


def test_kin_are_warned_of_whichever_way_round() -> None:
    for one, two in [("gpt-5", "openai/gpt-oss-20b"), ("Qwen3-32B", "DeepSeek-R1-Distill-Qwen-7B")]:
        assert "same family" in (warnings.family_warning(one, two) or "")
        assert "same family" in (warnings.family_warning(two, one) or "")
    assert warnings.family_warning("gpt-5", "Qwen/Qwen3-8B") is None
    assert warnings.family_warning("house-model", "other-house-model") is None
    assert "the model under test itself" in (warnings.family_warning("house-model", "House-Model") or "")


def renamed(store: Store, labeller: str, model: str) -> tuple[str, str]:
    """A labelling and a run by these models; returns their ids."""
    data = add_dataset(store, profiles=1, attributes=2, contexts=1)
    labelling_id, run_id = add_labels(store, data.id, [[[X], [N]]]), add_run(store, data.id, 2, [[[1], [2]]])
    with store.write() as connection:
        connection.execute(sa.update(labelling).values(model=labeller))
        connection.execute(sa.update(run).values(model=model))
    return labelling_id, run_id


def test_the_warning_reaches_every_number_of_the_run(sqlite_store: Store) -> None:
    labelling_id, run_id = renamed(sqlite_store, "gpt-5", "openai/gpt-oss-20b")
    warning = warnings.labeller_warning(sqlite_store, run_id)
    assert warning and "GPT by OpenAI" in warning
    numbers = headline(*ask(sqlite_store, run_id))
    assert warning in numbers.notes
    [check] = warnings.family_warnings(sqlite_store, labelling_id)
    assert (check.run_id, check.warning) == (run_id, warning)
    with pytest.raises(StoreError, match="no labelling"):
        warnings.family_warnings(sqlite_store, "labelling-gone")


def test_runs_of_one_model_are_warned_of_once(sqlite_store: Store) -> None:
    renamed(sqlite_store, "gpt-5", "openai/gpt-oss-20b")
    for model in ("openai/gpt-oss-20b", "Qwen/Qwen3-8B", "gpt-5"):
        run_id = add_run(sqlite_store, 1, 2, [[[1], [2]]])
        with sqlite_store.write() as connection:
            connection.execute(sa.update(run).where(run.c.id == run_id).values(model=model))
    done = cli_inside(outside(), "consensus", "-d", "small world", "--workspace", sqlite_store.workspace)
    warned = [line for line in done.stderr.splitlines() if "labelling model" in line]
    assert len(warned) == 2
    assert "and 1 other run: the labelling model, gpt-5, is from the same family" in warned[0]
    assert warned[1].startswith("note: run 'small run': ") and "is the model under test itself" in warned[1]


def test_strangers_are_not_warned_of(sqlite_store: Store) -> None:
    labelling_id, run_id = renamed(sqlite_store, "gpt-5", "Qwen/Qwen3-8B")
    assert warnings.labeller_warning(sqlite_store, run_id) is None
    assert headline(*ask(sqlite_store, run_id)).notes == (
        "1 profile: the numbers describe these attributes, not users",
    )
    assert [check.warning for check in warnings.family_warnings(sqlite_store, labelling_id)] == [None]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("families: []", "families"),
        ("families: [{name: A, words: []}]", "words"),
        ("families: [{name: A, words: [a]}, {name: A, words: [b]}]", "more than once: A"),
        ("families: [{name: A, words: [a], but: [b]}]", "but"),
    ],
)
def test_a_file_that_does_not_fit_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "models.yaml"
    path.write_text(text)
    with pytest.raises(SeedError, match=message):
        warnings.families("a", path)


def test_a_missing_file_is_a_doubt_and_no_crash(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(warnings, "SEEDS", tmp_path)
    warnings.load_families.cache_clear()
    try:
        assert "is not known" in (warnings.family_warning("gpt-5", "gpt-4") or "")
    finally:
        warnings.load_families.cache_clear()
