"""Rows as JSON, as Ray's state API prints them.

`row(table)` is SQL that makes one JSON object of a row: DuckDB writes the text, and no Python object is made per row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ray_history.history.registry import TABLES, TASK_ENV, Column, Version
from ray_history.history.secrets import has_hint, may_contain_secret
from ray_history.history.sql import text


def row(
    table: str,
    *,
    detail: bool,
    redact: bool = False,
    few: bool = False,
    environments: Sequence[tuple[str, str, str]] = (),
    version: Version | None = None,
) -> str:
    """SQL: a row as JSON text.

    `redact` replaces the values of environment variables. For a `few` rows, the same text is made by SQL that is slower
    to run but faster to plan. `environments`, all rows of `shown_environments`, avoid that the same text is made again
    for each task. Columns are those of a `version` of Ray, by default of the newest.
    """
    values = {
        column.name: _redacted(table, column) if redact else column.value
        for column in TABLES[table].columns
        if (detail or not column.detail) and column.is_in(version)
    }
    if environments and redact and "runtime_env_info" in values:
        shown = _looked_up(environments)
        values["runtime_env_info"] = f"{shown}::json" if few else shown
    if table != "tasks" or not detail or few:
        return "to_json({" + ", ".join(f"'{name}': {value}" for name, value in values.items()) + "})::varchar"
    return _joined(values)


def _joined(values: Mapping[str, str]) -> str:
    """SQL: the JSON text of a task, joined from texts. One struct would parse values that are JSON already, and write
    them again, which takes a fifth longer."""
    tasks = TABLES["tasks"]
    texts = {name: value if name in tasks.json_columns else f"to_json({value})" for name, value in values.items()}
    texts |= {name: json_text for name, json_text in tasks.json_texts.items() if name in texts}
    fields = [f"""'"{name}":', coalesce(({value})::varchar, 'null')""" for name, value in texts.items()]
    return "concat('{', " + ", ',', ".join(fields) + ", '}')"


def _looked_up(environments: Sequence[tuple[str, str, str]]) -> str:
    """SQL: the text that a task shows for its runtime environment."""
    of_tasks, of_drivers = (
        ", ".join(f"{text(each[0])}: {text(each[which])}" for each in environments) for which in (1, 2)
    )
    return f"""(case
        when type = 'DRIVER_TASK' then map {{{of_drivers}}}[{TASK_ENV}]
        else map {{{of_tasks}}}[{TASK_ENV}]
    end)"""


def shown_environments(tasks: str, limit: int) -> str:
    """SQL: the runtime environments of tasks, each with the redacted texts that rows of tasks and of drivers show for
    it; `limit` rows and one more."""
    (info,) = (column for column in TABLES["tasks"].columns if column.name == "runtime_env_info")
    shown = f"({_redacted('tasks', info)})::varchar"
    environments = f"""(
        select '' as runtime_env
        union
        select distinct {TASK_ENV} from {tasks}
    )"""
    return f"""
        select runtime_env, max({shown}) filter (type <> 'DRIVER_TASK'), max({shown}) filter (type = 'DRIVER_TASK')
        from {environments}, (select unnest(['NORMAL_TASK', 'DRIVER_TASK']) as type)
        group by runtime_env
        limit {limit + 1}
        """


def _redacted(table: str, column: Column) -> str:
    env = TABLES[table].runtime_envs.get(column.name)
    if not env:
        return column.value
    shown = f"redacted({env}::varchar)"
    return column.value.replace(env, shown if table in ("tasks", "actors") else f"{shown}::json")


_ENV_HAS_HINT = has_hint("without_variables(coalesce(runtime_env, ''))")


def may_hold_secret(table: str, *, detail: bool, clean: bool = False) -> str:
    """SQL: whether the free text of a row made with `redact` may contain a secret. Only tasks are checked; other tables
    are small. Tasks are `clean` if `repeated_secrets` found none."""
    if table != "tasks":
        return "true"
    if not detail:
        return may_contain_secret("name")
    repeated = f"""
        or {may_contain_secret("concat_ws(' ', name, call_site)")}
        or {_ENV_HAS_HINT}
    """
    # One pattern for both columns: compiling it takes as long as making a hundred rows.
    extra_data = "[span.extraData for span in spans if span.extraData <> '{}']"
    return f"""
        {may_contain_secret(f"concat_ws(chr(10), error_message, array_to_string({extra_data}, chr(10)))")}
        {"" if clean else repeated}
    """


def repeated_secrets(tasks: str, names: str) -> str:
    """SQL: whether what many tasks have in common (names, call sites, runtime environments) may contain a secret.
    Checked once, it need not be checked in each row."""
    # An aggregate, not a condition: DuckDB would check a condition on each row, before it removes duplicates.
    of_calls = f"coalesce(bool_or({may_contain_secret('call_site')} or {_ENV_HAS_HINT}), false)"
    return f"""
        select
            (select {of_calls} from (select distinct call_site, runtime_env from {tasks}))
            or (select coalesce(bool_or({may_contain_secret("name")}), false) from (select distinct name from {names}))
        """
