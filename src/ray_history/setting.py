"""Settings as dataclass fields: each is declared once, with its default, flags, variable and help.

The command line, the environment variables and the reference documentation are derived from the fields.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_KEY = "setting"
_SERVICE_LINK = re.compile(r"(tcp|udp|sctp)://")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How a field is set from outside. Names that are not given are derived from the field's name."""

    help: str
    flags: tuple[str, ...] = ()
    former: tuple[str, ...] = ()
    """Previous names of flags and variables; they keep working and are not documented in `--help`."""
    variable: str | None = None
    """Environment variable; "" for none."""
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    above_minimum: bool = False
    is_file: bool = False
    """The value is the path of an existing file."""
    takes_boolean: bool = False
    """A switch that accepts `--x` as well as `--x=false`, as Go programs do."""
    default_text: str = ""
    """What to show for a default that depends on the machine."""


@dataclass(frozen=True, slots=True)
class SettingField:
    """A setting with the name and the default of its field."""

    name: str
    default: Any
    setting: Setting

    @property
    def flags(self) -> tuple[str, ...]:
        return self.setting.flags or (f"--{self.name.replace('_', '-')}",)

    @property
    def variable(self) -> str:
        return f"RAY_HISTORY_{self.name.upper()}" if self.setting.variable is None else self.setting.variable

    @property
    def former_flags(self) -> tuple[str, ...]:
        return tuple(name for name in self.setting.former if name.startswith("--"))

    @property
    def former_variables(self) -> tuple[str, ...]:
        return tuple(name for name in self.setting.former if not name.startswith("--"))


def setting(default: Any, help: str, **details: Any) -> Any:  # noqa: A002
    """A dataclass field for a setting; a callable default is called when the setting is not given."""
    metadata = {_KEY: Setting(help=help, **details)}
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def settings_of(section: type) -> Iterator[SettingField]:
    """The settings of a dataclass, without those that it inherits."""
    own = inspect.get_annotations(section)
    for field in dataclasses.fields(section):
        if field.name in own and _KEY in field.metadata:
            is_plain = field.default is not dataclasses.MISSING
            yield SettingField(field.name, field.default if is_plain else field.default_factory, field.metadata[_KEY])


def is_service_link(variable: str, text: str) -> bool:
    """Whether Kubernetes set the variable: a Service named `events` sets EVENTS_PORT=tcp://10.0.0.1:80 in its pods."""
    return variable.endswith("_PORT") and bool(_SERVICE_LINK.match(text))
