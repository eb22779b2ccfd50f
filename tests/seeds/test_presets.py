"""The presets of seeds/models.yaml: the paper's models are there, and what is written of them fits together."""

from __future__ import annotations

from pathlib import Path

import pytest

from cimemories.llm.vllm import ServerSpec, server_command
from cimemories.metrics import warnings
from cimemories.seeds import SeedError
from cimemories.seeds.presets import Kind, Preset, load_presets, preset

FAMILIES = "families: [{name: A, words: [a]}]\n"
LOCAL = "{key: one, name: a/one, title: One, kind: local, family: A, roles: [tested], serve: {}}"


def test_the_models_of_the_paper_are_there() -> None:
    presets = load_presets()
    names = " ".join(item.name for item in presets)
    for model in ("gpt-4o", "o3", "gpt-5", "gemini-2.5-flash", "claude-sonnet-4", "Llama-3.3-70B", "Mistral-7B"):
        assert model in names
    sizes = [item.key for item in presets if item.key.startswith("qwen3-") and item.thinking]
    assert sizes == [f"qwen3-{size}b" for size in ("0.6", "1.7", "4", "8", "14", "32")]
    assert {item.key for item in presets if "judge" in item.roles} == {"deepseek-r1-0528"}
    assert {item.key for item in presets if "labeller" in item.roles} == {"gpt-5"}
    assert {item.key for item in presets if "author" in item.roles} == {"gpt-oss-120b"}


@pytest.mark.parametrize("item", load_presets(), ids=lambda item: item.key)
def test_every_preset_agrees_with_its_name_and_can_be_served(item: Preset) -> None:
    loaded = preset(item.key)
    assert loaded.family in warnings.families(loaded.name)
    if loaded.kind == Kind.HOSTED:
        assert loaded.base_url and loaded.base_url.startswith("https://") and loaded.gpus is None
        return
    assert loaded.serve is not None and loaded.gpus
    assert server_command(Path("vllm"), ServerSpec("").filled(loaded), 8000)[2] == loaded.name


def test_thinking_is_switched_by_fields_of_the_request() -> None:
    thinking = preset("qwen3-8b").thinking
    assert thinking is not None and thinking.default == "on"
    assert thinking.off == {"chat_template_kwargs": {"enable_thinking": False}}
    always = preset("gpt-oss-120b").thinking
    assert always is not None and always.off is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"presets: [{LOCAL}, {LOCAL}]", "more than once: one"),
        (f"presets: [{LOCAL.replace('family: A', 'family: B')}]", "family 'B'"),
        (f"presets: [{LOCAL.replace(', serve: {}', '')}]", "goes with a local model"),
        (f"presets: [{LOCAL.replace('local', 'hosted').replace(', serve: {}', '')}]", "go with a hosted model"),
        (f"presets: [{LOCAL.replace('tested', 'loved')}]", "roles"),
        (f"presets: [{LOCAL.replace('kind', 'price: 3, kind')}]", "price"),
        (f"presets: [{LOCAL.replace('serve: {}', 'serve: {}, thinking: {default: fast}')}]", "thinking"),
    ],
)
def test_a_file_that_does_not_fit_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "models.yaml"
    path.write_text(FAMILIES + text)
    with pytest.raises(SeedError, match=message):
        load_presets(path)


def test_a_preset_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(SeedError, match="no preset 'qwen9'.*qwen3-8b"):
        preset("qwen9")
