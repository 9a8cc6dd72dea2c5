"""Options of the command line, made from declared settings; and those that several verbs share."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from ray_history.archive.settings import StorageOptions
from ray_history.index.settings import IndexSettings, make_indexer
from ray_history.setting import SettingField, is_service_link, settings_of

Command = TypeVar("Command", bound=Callable[..., Any])
Section = TypeVar("Section")


class SettingOption(click.Option):
    """An option whose former names keep working without being shown."""

    def __init__(self, names: list[str], *, former_flags: tuple[str, ...], **attributes: Any) -> None:
        super().__init__([*names, *former_flags], show_envvar=True, **attributes)
        self.former_flags = former_flags

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        value = super().resolve_envvar_value(ctx)
        variable = self.envvar[0] if isinstance(self.envvar, list) else str(self.envvar)
        return None if value and is_service_link(variable, value) else value

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        accepted, variables = self.opts, self.envvar
        self.opts = [name for name in accepted if name not in self.former_flags]
        self.envvar = variables[0] if isinstance(variables, list) else variables
        try:
            return super().get_help_record(ctx)
        finally:
            self.opts, self.envvar = accepted, variables


def option(entry: SettingField) -> Callable[[Any], Any]:
    """The option for one declared setting."""
    setting, default = entry.setting, entry.default
    if isinstance(default, float) and default.is_integer():
        default = int(default)  # `--help` shows 60, not 60.0
    names = list(entry.flags)
    attributes: dict[str, Any] = {"metavar": setting.metavar}
    if setting.takes_boolean:
        attributes = {"is_flag": False, "flag_value": "true", "type": click.BOOL, "metavar": "[BOOLEAN]"}
    elif default is True:
        names = [f"{name}/--no-{name.removeprefix('--')}" for name in names]
    elif default is False:
        attributes = {"is_flag": True}
    else:
        attributes["type"] = _type(entry)
    variables = [entry.variable, *entry.former_variables] if entry.variable else None
    return click.option(
        *names,
        entry.name,
        cls=SettingOption,
        former_flags=entry.former_flags,
        envvar=variables,
        default=default,
        show_default=setting.default_text or default not in (None, "", False),
        help=setting.help,
        **attributes,
    )


def _type(entry: SettingField) -> click.ParamType[Any] | None:
    setting = entry.setting
    if setting.choices:
        return click.Choice(setting.choices)
    if setting.is_file:
        return click.Path(exists=True, dir_okay=False)
    if isinstance(entry.default, float):
        return click.FloatRange(setting.minimum, setting.maximum, min_open=setting.above_minimum)
    if setting.minimum is not None:
        return click.IntRange(int(setting.minimum), None if setting.maximum is None else int(setting.maximum))
    return None


def with_settings(*sections: type, only: Iterable[str] = ()) -> Callable[[Command], Command]:
    """Adds the options of settings classes to a command, in their order; of the named fields only, if any are named."""
    chosen = frozenset(only)

    def decorate(command: Command) -> Command:
        decorated: Any = command
        entries = [entry for section in sections for entry in settings_of(section)]
        for entry in reversed(entries):
            if not chosen or entry.name in chosen:
                decorated = option(entry)(decorated)
        return decorated  # type: ignore[no-any-return]

    return decorate


def with_store(command: Command) -> Command:
    """Adds the storage options and passes the opened archive as `store`."""

    @functools.wraps(command)
    def run(*args: Any, **options: Any) -> Any:
        from ray_history.archive.stores import open_store

        storage = take(StorageOptions, options).or_default(os.environ).resolve(os.environ)
        return command(*args, store=open_store(storage), **options)

    return with_settings(StorageOptions)(run)  # type: ignore[return-value]


def with_indexer(command: Command) -> Command:
    """Adds the storage and index options and passes an indexer of the archive as `indexer`."""

    @functools.wraps(command)
    def run(*args: Any, **options: Any) -> Any:
        storage = take(StorageOptions, options).or_default(os.environ).resolve(os.environ)
        indexer = make_indexer(storage, take(IndexSettings, options))
        try:
            return command(*args, indexer=indexer, **options)
        finally:
            indexer.close()

    return with_settings(StorageOptions, IndexSettings)(run)  # type: ignore[return-value]


def take(section: type[Section], options: dict[str, Any]) -> Section:
    """Settings made from their options, which are removed from `options`."""
    return section(**{entry.name: options.pop(entry.name) for entry in settings_of(section)})
