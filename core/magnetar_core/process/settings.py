"""Sources of settings: flags, else the environment, else a TOML file, else defaults.

A component's settings are a frozen dataclass. Its fields give names, types and defaults, and it
checks relations between settings when it is created. A field is read from the variable MAGNETAR_
plus its name in capitals, and from the component's section of the file.
"""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from magnetar_core.config import PREFIX, InvalidConfig

FILE_VARIABLE = f"{PREFIX}CONFIG_FILE"

SettingsT = TypeVar("SettingsT")
_SCALARS = (str, bool, int, float)
# A server asks for the settings of each class again with those of each other one.
_scalar_types: dict[type[Any], Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class Sources:
    """Settings that were found in the environment and in the file.

    Attributes:
        environ: the environment's variables.
        sections: the TOML file's sections, each a table of settings.
        file_name: the name that errors give to the file.
    """

    environ: Mapping[str, str]
    sections: Mapping[str, Mapping[str, object]] = dataclasses.field(default_factory=dict)
    file_name: str = ""

    @classmethod
    def load(
        cls, environ: Mapping[str, str], sections: Iterable[str], file: str | Path | None = None
    ) -> Sources:
        """Read the file that is given, or that MAGNETAR_CONFIG_FILE names, if any.

        Args:
            environ: the environment's variables.
            sections: names of the sections that the file may have.
            file: the file's path; None: as the environment says.
        Raises:
            InvalidConfig: the file cannot be read, or has an unknown section.
        """
        path = file or environ.get(FILE_VARIABLE)
        if not path:
            return cls(environ)
        try:
            found = tomllib.loads(Path(path).read_text("utf-8-sig"))
        except OSError as error:
            raise InvalidConfig(f"the configuration {path} cannot be read: {error}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidConfig(f"the configuration {path} is not TOML: {error}") from error
        known = list(sections)
        for name, table in found.items():
            if name not in known or not isinstance(table, dict):
                raise InvalidConfig(
                    f"{path} has {name!r} at its top; there are sections"
                    f" {', '.join(f'[{one}]' for one in known)}"
                )
        return cls(environ, found, str(path))


@dataclass(frozen=True, slots=True)
class Resolved(Generic[SettingsT]):
    """Settings, and the source of each: "flag", "environment", "file" or "default"."""

    settings: SettingsT
    origins: Mapping[str, str]


def resolve(
    kind: type[SettingsT],
    section: str,
    sources: Sources,
    /,
    *,
    beside: Iterable[type[Any]] = (),
    **flags: object,
) -> Resolved[SettingsT]:
    """Create settings from flags and sources. A flag counts unless it is None.

    Args:
        kind: the class of the settings.
        section: name of their section in the file.
        sources: the environment and the file.
        beside: other settings that share the section.
        flags: values from the command line.
    Raises:
        InvalidConfig: an unknown name, a value of the wrong type, or values that the settings
            refuse together.
    """
    table = sources.sections.get(section, {})
    known = [name for one in (kind, *beside) for name in names_of(one)]
    for name in table:
        if name not in known:
            raise InvalidConfig(
                f"{sources.file_name} sets {name!r} in [{section}], which is not a setting"
                f"{_suggestion(name, known)}; `magnetar config show` lists them"
            )
    values = {name: value for name, value in flags.items() if value is not None}
    origins = dict.fromkeys(values, "flag")
    for name, annotation in _scalar_types_of(kind).items():
        variable = PREFIX + name.upper()
        if name in values:
            continue
        if variable in sources.environ:
            text = sources.environ[variable].strip()
            values[name] = _read(annotation, text, variable, strings=True)
            origins[name] = "environment"
        elif name in table:
            where = f"{name} in [{section}] of {sources.file_name}"
            values[name] = _read(annotation, table[name], where)
            origins[name] = "file"
        else:
            origins[name] = "default"
    return Resolved(kind(**values), origins)


def names_of(kind: type[Any]) -> list[str]:
    """Return the names of settings: fields that are scalars or optional scalars.

    Fields with `is_setting` false in their metadata are left out.
    """
    return list(_scalar_types_of(kind))


def unknown_variables(kinds: Iterable[type[Any]], environ: Mapping[str, str]) -> list[str]:
    """Return MAGNETAR_ variables that resemble a setting but match none, with suggestions."""
    known = [PREFIX + name.upper() for kind in kinds for name in names_of(kind)]
    return [
        f"{variable} is not a setting{_suggestion(variable, known)}"
        for variable in sorted(environ)
        if variable.startswith(PREFIX)
        and variable not in known
        and difflib.get_close_matches(variable, known, n=1, cutoff=0.85)
    ]


def _scalar_types_of(kind: type[Any]) -> Mapping[str, Any]:
    """Return the type of each setting, by its name."""
    found = _scalar_types.get(kind)
    if found is None:
        annotations = typing.get_type_hints(kind)
        names = (
            field.name
            for field in dataclasses.fields(kind)
            if field.metadata.get("is_setting", True)
        )
        found = {name: annotations[name] for name in names if _is_scalar(annotations[name])}
        _scalar_types[kind] = found
    return found


def _is_scalar(annotation: Any) -> bool:
    parts = typing.get_args(annotation) if _is_union(annotation) else (annotation,)
    return all(part in _SCALARS or part is type(None) for part in parts)


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (typing.Union, types.UnionType)


def _read(annotation: Any, value: object, where: str, *, strings: bool = False) -> Any:
    # A fifth of a server's start, which most settings do without: they have their defaults.
    from pydantic import TypeAdapter, ValidationError

    reader: TypeAdapter[Any] = TypeAdapter(annotation)
    try:
        return reader.validate_strings(value) if strings else reader.validate_python(value)
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise InvalidConfig(f"{where} is {value!r}: {reason}; correct or remove it") from None


def _suggestion(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]}?)" if close else ""
