"""Rows as JSON, as Ray's state API prints them.

`row(table)` is SQL that makes one JSON object of a row: DuckDB writes the text, and no Python object is made per row.
"""

from __future__ import annotations

from collections.abc import Sequence

from ray_history.history.registry import TABLES, TASK_ENV, Column
from ray_history.history.secrets import has_hint, may_contain_secret
from ray_history.history.sql import text


def row(
    table: str,
    *,
    detail: bool,
    redact: bool = False,
    few: bool = False,
    environments: Sequence[tuple[str, str, str]] = (),
) -> str:
    """SQL: a row as JSON text; with `redact` the values of environment variables are hidden. Of `few` rows the texts
    are the same: they take longer to make, but less to plan. `environments`, all rows of `shown_environments`, save
    making the same text for each task again, and planning how it is made."""
    values = {
        column.name: _redacted(table, column) if redact else column.value
        for column in TABLES[table].columns
        if detail or not column.detail
    }
    if environments and redact and "runtime_env_info" in values:
        of_tasks, of_drivers = (
            ", ".join(f"{text(each[0])}: {text(each[which])}" for each in environments) for which in (1, 2)
        )
        values["runtime_env_info"] = f"""(case
            when type = 'DRIVER_TASK' then map {{{of_drivers}}}[{TASK_ENV}]
            else map {{{of_tasks}}}[{TASK_ENV}]
        end){"::json" if few else ""}"""
    if table != "tasks" or not detail or few:
        return "to_json({" + ", ".join(f"'{name}': {value}" for name, value in values.items()) + "})::varchar"
    # One struct of all would read what is JSON already, and write it again: that takes a fifth longer.
    tasks = TABLES["tasks"]
    values |= tasks.json_texts
    is_json = {*tasks.json_columns, *tasks.json_texts}
    texts = {name: value if name in is_json else f"to_json({value})" for name, value in values.items()}
    fields = [f"""'"{name}":', coalesce(({value})::varchar, 'null')""" for name, value in texts.items()]
    return "concat('{', " + ", ',', ".join(fields) + ", '}')"


def shown_environments(tasks: str, most: int) -> str:
    """SQL: each runtime environment of tasks, and the text that rows made with `redact` show for it, those of tasks and
    those of drivers; one more than `most` at most."""
    (info,) = (column for column in TABLES["tasks"].columns if column.name == "runtime_env_info")
    shown = f"({_redacted('tasks', info)})::varchar"
    told = f"""(
        select '' as runtime_env
        union
        select distinct {TASK_ENV} from {tasks}
    )"""
    return f"""
        select runtime_env, max({shown}) filter (type <> 'DRIVER_TASK'), max({shown}) filter (type = 'DRIVER_TASK')
        from {told}, (select unnest(['NORMAL_TASK', 'DRIVER_TASK']) as type)
        group by runtime_env
        limit {most + 1}
        """


def _redacted(table: str, column: Column) -> str:
    env = TABLES[table].runtime_envs.get(column.name)
    if not env:
        return column.value
    shown = f"redacted({env}::varchar)"
    return column.value.replace(env, shown if table in ("tasks", "actors") else f"{shown}::json")


_BESIDE_VARIABLES = has_hint("beside_variables(coalesce(runtime_env, ''))")


def may_hold_secret(table: str, *, detail: bool, clean: bool = False) -> str:
    """SQL: whether a row made with `redact` may still hold a secret in its free text; worth asking for tasks only.
    They are `clean` if `repeated_secrets` are none."""
    if table != "tasks":
        return "true"
    if not detail:
        return may_contain_secret("name")
    repeated = f"""
        or {may_contain_secret("concat_ws(' ', name, call_site)")}
        or {_BESIDE_VARIABLES}
    """
    # One pattern for both: getting it ready takes as long as making a hundred rows.
    carried = "[span.extraData for span in spans if span.extraData <> '{}']"
    return f"""
        {may_contain_secret(f"concat_ws(chr(10), error_message, array_to_string({carried}, chr(10)))")}
        {"" if clean else repeated}
    """


def repeated_secrets(tasks: str, names: str) -> str:
    """SQL: whether a secret may be told by what many tasks have in common: their names, where they were called, their
    runtime environments. Looked at once, it need not be looked at in each row."""
    # Not by a condition: DuckDB would look at each row, before it tells which differ.
    of_calls = f"coalesce(bool_or({may_contain_secret('call_site')} or {_BESIDE_VARIABLES}), false)"
    return f"""
        select
            (select {of_calls} from (select distinct call_site, runtime_env from {tasks}))
            or (select coalesce(bool_or({may_contain_secret("name")}), false) from (select distinct name from {names}))
        """
