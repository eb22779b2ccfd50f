"""Settings as pydantic models: each is defined once, and every interface of the project is made from that.

    class RunSpec(Settings):
        samples: int = setting(5, "Samples n", "Messages per context.", TASK, ge=1)

A field with a `Setting` is an option of the command line (cli/options.py), a field of the form
(pages/evaluate/run_settings.py), a field of a sweep's file (evaluation/sweeps/file.py), a key of the manifest, a part
of the command that repeats the work, and a row of the table in docs/settings.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, Literal, Self, cast, get_args, get_origin

from annotated_types import Ge, Le
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo

from cimemories.store.engine import StoreError
from cimemories.text import complaint


@dataclass(frozen=True, eq=False)  # by identity, so that it can be hashed with its labels
class Setting:
    """The texts and the options of a field, for every interface.

    group: its part of the form. labels: the form's names of its choices. option, short: its name on the command line if
    that is not the field's, and a letter for it. plural: its name in a sweep's file if that is not the field's.
    metavar: the help's name of the value. typed: the type of its option if the field's own type is unknown to a command
    line; option_help: the option's help on that. placeholder: the text in an empty field of the form. step: of the
    form's number. when: whether the setting applies, given the values of the others. brief: how a name tells its value
    from others, such as 'thinking {}'; empty for a setting that does not make a run another experiment."""

    title: str
    help: str
    group: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    option: str = ""
    short: str = ""
    plural: str = ""
    metavar: str | None = None
    typed: type | None = None
    option_help: str = ""
    placeholder: str = ""
    step: float | None = None
    when: Callable[[Mapping[str, Any]], bool] | None = None
    brief: str = ""


def setting(default: Any, title: str, help: str, group: str = "", **more: Any) -> Any:
    """Return the field of a setting. default: a value, a Field with more about it, or ... for a required one. ge, le:
    bounds of a number; more: as of Setting."""
    bounds = {name: more.pop(name) for name in ("ge", "le") if name in more}
    info = default if isinstance(default, FieldInfo) else Field(default, **bounds)
    info.metadata.append(Setting(title, help, group, **more))
    return info


@dataclass(frozen=True)
class Described:
    """A field of a model, with its `Setting` and the facts of its type."""

    name: str
    info: FieldInfo
    setting: Setting

    @property
    def default(self) -> Any:
        return self.info.get_default(call_default_factory=True, validated_data={})

    @property
    def option(self) -> str:
        return self.setting.option or f"--{self.name.replace('_', '-')}"

    def applies(self, values: Mapping[str, Any]) -> bool:
        """Return whether the setting applies, given these values of the others."""
        return self.setting.when is None or self.setting.when(values)

    @property
    def type(self) -> Any:
        """Return the type with its validators."""
        return Annotated[(self.info.annotation, *self.info.metadata)]

    @property
    def plain(self) -> Any:
        """Return the type without None."""
        others = [item for item in get_args(self.info.annotation) if item is not type(None)]
        union = get_origin(self.info.annotation) is not Literal and type(None) in get_args(self.info.annotation)
        return others[0] if union else self.info.annotation

    @property
    def optional(self) -> bool:
        return type(None) in get_args(self.info.annotation)

    @property
    def choices(self) -> tuple[str, ...]:
        return get_args(self.plain) if get_origin(self.plain) is Literal else ()

    @property
    def least(self) -> float | None:
        return next((cast(float, item.ge) for item in self.info.metadata if isinstance(item, Ge)), None)

    @property
    def most(self) -> float | None:
        return next((cast(float, item.le) for item in self.info.metadata if isinstance(item, Le)), None)


@cache
def _adapters(model: type[Settings]) -> dict[str, TypeAdapter[Any]]:
    """Return the validator of each field by itself."""
    fields = model.model_fields.items()
    return {name: TypeAdapter(cast(Any, Annotated[(info.annotation, None, *info.metadata)])) for name, info in fields}


class Settings(BaseModel):
    """Values that are checked on creation. Raises StoreError, in plain words, for invalid ones."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="wrap")
    @classmethod
    def _in_words(cls, values: Any, read: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return read(values)
        except ValidationError as error:
            raise StoreError(explained(cls, error)) from None

    def replace(self, **changes: Any) -> Self:
        """Return a copy with these fields changed, checked as a whole."""
        return type(self)(**{**dict(self), **changes})

    def as_json(self) -> dict[str, Any]:
        """Return all fields as JSON."""
        return self.model_dump(mode="json")

    @classmethod
    def described(cls) -> dict[str, Described]:
        """Return the fields that are settings, by name and in their order."""
        return _described(cls)

    @classmethod
    def recorded(cls, values: Mapping[str, Any]) -> Self:
        """Return the settings that a record holds. A missing or unreadable field takes its default, and nothing is
        checked as a whole: reading a record never fails because of its content."""
        read: dict[str, Any] = {}
        for name, adapter in _adapters(cls).items():
            try:
                read[name] = adapter.validate_python(values[name])
            except (KeyError, ValueError, StoreError):  # a ValidationError is a ValueError
                continue
        return cls.model_construct(**read)

    @classmethod
    def applicable(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return these values without those of settings that do not apply, given the others. A setting that is not
        given counts with its default."""
        described = cls.described()
        values = {name: item.default for name, item in described.items()} | dict(given)
        return {
            name: value for name, value in given.items() if name not in described or described[name].applies(values)
        }

    def applies(self, name: str) -> bool:
        """Return whether a setting applies, given the others."""
        return self.described()[name].applies(dict(self))

    def non_defaults(self) -> Iterator[tuple[Described, Any]]:
        """Yield the settings whose values are not the default, with their values; for a record that lacks some, those
        that it has."""
        for item in self.described().values():
            if (value := getattr(self, item.name, item.default)) != item.default:
                yield item, value


@cache
def _described(model: type[Settings]) -> dict[str, Described]:
    found = {}
    for name, info in model.model_fields.items():
        setting = next((item for item in info.metadata if isinstance(item, Setting)), None)
        if setting is not None:
            found[name] = Described(name, info, setting)
    return found


def explained(model: type[Settings], error: ValidationError) -> str:
    """Return the error of the first invalid value, in plain words."""
    problem = error.errors(include_url=False)[0]
    name = str(problem["loc"][0]) if problem["loc"] else ""
    described = model.described().get(name)
    if problem["type"] == "value_error":
        # The error of one setting, or of several together.
        return f"{described.option}: {complaint(problem)}" if described else complaint(problem)
    if problem["type"] == "extra_forbidden":
        return f"there is no setting '{name}'. There are: {', '.join(model.described() or model.model_fields)}."
    return f"{described.option if described else name} {complaint(problem)}."
