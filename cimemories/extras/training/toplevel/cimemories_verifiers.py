"""The environment `cimemories-verifiers` of verifiers, which imports a module of this name (docs/onward.md)."""

from cimemories.extras.training.environment import (
    MessageEnv,
    MessageTaskset,
    OneMessage,
    load_environment,
)

__all__ = ["MessageEnv", "MessageTaskset", "OneMessage", "load_environment"]
