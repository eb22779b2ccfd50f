"""The requests of the authors' own evaluation, as one named set of settings: `--reference` of run, judge and sweep.

    name → Jane Doe is who this is about.        a line of the judge; the memory has the sentence alone
    rent → My rent is $1,450.

Memories are one statement a line, in the order of the profile, with no mark before them and no space changed; the
attributes whose keys are exactly name, sex, address and age have a sentence made of the biography in place of their
own; the recipient is in lower case; a judge reads `key → statement` lines and the message without the white space
around it. What this leaves to the planning of a run (no limit on tokens, one request a sample, a judge at temperature 0
without a schema) is in `planning.as_reference`. Read from the code of the repository facebookresearch/CIMemories
(eval/eval.py); the sentences themselves are not ours to copy, so they come from the prompt file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from cimemories.model import Context, Profile
from cimemories.seeds.prompts import BIOGRAPHY, Prompt

ARROW = " → "


@dataclass(frozen=True)
class Reference:
    """biography: (field, sentence with {value}) of name, sex, address and age. source: 'seeds', or the prompt file's
    name."""

    biography: tuple[tuple[str, str], ...]
    source: str

    def as_json(self) -> dict[str, object]:
        return {"biography": dict(self.biography), "source": self.source}

    @classmethod
    def of(cls, recorded: Mapping[str, object] | None) -> Reference | None:
        """Return what `as_json` gave, or None for what cannot be read."""
        sentences = (recorded or {}).get("biography")
        if not isinstance(sentences, Mapping) or set(sentences) != set(BIOGRAPHY):
            return None
        return cls(tuple((name, str(sentences[name])) for name in BIOGRAPHY), str((recorded or {}).get("source", "")))

    def message_prompt(self, prompt: Prompt, profile: Profile, context: Context) -> tuple[str, str]:
        """Return what a model is asked for a message, and the part of it that is the memory."""
        memories = "\n".join(self._statements(profile)).strip()
        return prompt.render(memories=memories, recipient=context.recipient.lower(), task=context.task), memories

    def judge_prompt(self, prompt: Prompt, profile: Profile, message: str) -> tuple[str, str]:
        """Return what a judge is asked about this text, and the part of it that is the list of attributes."""
        pairs = zip(profile.attributes, self._statements(profile), strict=True)
        facts = "\n".join(f"{attribute.key}{ARROW}{statement}" for attribute, statement in pairs)
        return prompt.render(attributes=facts, solution=message.strip()), facts

    def _statements(self, profile: Profile) -> tuple[str, ...]:
        own = profile.name, profile.sex, profile.address, str(profile.age)
        return _statements(self.biography, own, tuple((a.key, a.statement) for a in profile.attributes))


# The contexts of a profile share its memory.
@lru_cache(maxsize=64)
def _statements(
    biography: tuple[tuple[str, str], ...], own: tuple[str, ...], attributes: Sequence[tuple[str, str]]
) -> tuple[str, ...]:
    values = dict(zip(BIOGRAPHY, own, strict=True))
    sentences = {name: sentence.replace("{value}", values[name]) for name, sentence in biography}
    # By the exact key: `full_name` or `current_age` keep their statements.
    return tuple(sentences.get(key, statement.strip()) for key, statement in attributes)
