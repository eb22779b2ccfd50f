"""Preference training on a model of random weights, to try pairs with TRL. Imported only where trl is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from datasets import load_dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer

TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def two_steps(pairs: Path, folder: Path, trainer: type = DPOTrainer, config: type = DPOConfig) -> list[float]:
    """Train for two steps on a file of pairs; return the loss of each."""
    kind = {".jsonl": "json", ".parquet": "parquet"}[pairs.suffix]
    data = load_dataset(kind, data_files=str(pairs), split="train", cache_dir=str(folder / "cache"))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<pad>": 0, "</s>": 1} | {letter: i for i, letter in enumerate(alphabet, 2)}
    of_bytes = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    of_bytes.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=of_bytes, pad_token="<pad>", eos_token="</s>")
    tokenizer.chat_template = TEMPLATE
    torch.manual_seed(0)
    shape: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 16384}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(vocabulary), **shape, **heads))
    settings = config(
        output_dir=str(folder),
        max_steps=2,
        per_device_train_batch_size=1,
        logging_steps=1,
        report_to=[],
        use_cpu=True,
        bf16=False,
        save_strategy="no",
        max_length=16384,
    )
    # By its path: the trainer loads the reference model from there.
    model.save_pretrained(folder / "start")
    done = trainer(model=str(folder / "start"), args=settings, train_dataset=data, processing_class=tokenizer)
    done.train()
    return [entry["loss"] for entry in done.state.log_history if "loss" in entry]
