"""Secrets in free text: SQL suspects every row that redaction would change."""

from __future__ import annotations

import duckdb
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ray_history.history import secrets
from ray_history.history.read.json_rows import may_hold_secret, repeated_secrets
from ray_history.history.sql import create_source_tables
from ray_history.server.redaction.rules import is_secret, redacted

_WORDS = (
    *(*secrets.WORDS, *secrets.HINTS, *(f"{name}{secrets.VARIABLE}" for name in (*secrets.ORDINARY_VARIABLES, "ANY"))),
    *("auth", "Authorization", "bearer", "cookie", "cred", "credentials", "env_vars", "envVars", "jwt", "key"),
    *("api_key", "API-Key", "apiKey", "account.key", "sshkey", "pass", "passphrase", "password", "passwd", "pwd"),
    *("creds", "Pass", "PASS", "sig", "SIG", "Signature", "?sig=", "x-amz-", "OPENAI_KEY", "_KEY", "openai", "{", "}"),
    *("secret", "token", "to\u212aen", "TOKEN", "tokens", "tokenize", "http://", "redis://u:p@", "postgres://:x@h"),
    *("@", ":", "=", ":=", "--", "-", "--x", '\\"', '"', "'", "\\", ".", "_", ",", ";", "&", "(", "x", "7", "\u00e9"),
    *(" ", "\t", "\n", "\v", "\x1f", "\x85", "\u00a0", "\u2028", "\u3000"),
)
_PIECES = st.one_of(st.sampled_from(_WORDS), st.text(max_size=3))
_TEXTS = st.lists(_PIECES, max_size=12).map("".join).filter(lambda text: "\0" not in text)


@pytest.fixture(scope="module")
def database() -> duckdb.DuckDBPyConnection:
    database = duckdb.connect()
    create_source_tables(database)
    return database


def is_suspect(
    database: duckdb.DuckDBPyConnection, *, detail: bool = True, clean: bool = False, **told: str | None
) -> bool:
    row = dict.fromkeys(("name", "error_message", "call_site", "runtime_env", "extra_data")) | told
    columns = ", ".join(f"${name}::varchar as {name}" for name in row)
    columns += ", [{'extraData': '{}'}, {'extraData': extra_data}] as spans"
    found = database.execute(
        f"select {may_hold_secret('tasks', detail=detail, clean=clean)} from (select {columns})", row
    )
    return bool((found.fetchone() or (None,))[0])


@settings(deadline=None)
@given(text=_TEXTS)
@example("token\u00a0 \u00a0= x")
@example("--hf-token x")
@example('{\\"apiKey\\" : 7}')
@example("ssh_key\u00e9=7")
@example("DB_PASS: x1")
@example("myCreds = 7")
@example("SIGValue=7")
@example("https://a/b?X-Goog-Signature=7")
@example("OPENAI_KEY\u00a0=7")
@example("--db-pass x")
def test_sql_suspects_every_text_that_contains_secrets(database: duckdb.DuckDBPyConnection, text: str) -> None:
    if redacted(text) != text:
        for column in ("name", "error_message", "call_site", "extra_data"):
            assert is_suspect(database, **{column: text}), column
        assert is_suspect(database, name=text, detail=False)


_SEPARATORS = st.sampled_from(("", "_", "-", ".", "x", "X", "7", "\u00e9"))
_NAMES = st.lists(
    st.one_of(
        st.sampled_from(
            (*secrets.WORDS, *secrets.HINTS[:-1], "passwd", "password", "credential", "OPENAI_KEY")
        ).flatmap(lambda word: st.sampled_from((word, word.upper(), word.title()))),
        _SEPARATORS,
    ),
    min_size=1,
    max_size=6,
).map("".join)


@settings(deadline=None)
@given(name=_NAMES)
@example("authKey")
@example("PASSx")
def test_python_and_sql_agree_on_names(database: duckdb.DuckDBPyConnection, name: str) -> None:
    """A name that is secret in Python is secret in SQL, in every form of assignment."""
    if not is_secret(name):
        return
    for told in (f"{name}=v1", f'{{"{name}": "v1"}}', f"--{name} v1"):
        if redacted(told) != told:
            found = database.execute(f"select {secrets.may_contain_secret('?')}, {secrets.has_hint('?')}", [told] * 2)
            assert found.fetchone() == (True, True), told


@settings(deadline=None)
@given(text=_TEXTS)
@example("--hf-token x")
def test_texts_that_tasks_share_are_checked_once(database: duckdb.DuckDBPyConnection, text: str) -> None:
    """Texts that rows share are checked once, the others in each row."""
    if redacted(text) == text:
        return
    assert are_repeated(database, name=text)
    assert are_repeated(database, call_site=text)
    for column in ("error_message", "extra_data"):
        assert is_suspect(database, clean=True, **{column: text}), column


def are_repeated(database: duckdb.DuckDBPyConnection, **told: str | None) -> bool:
    columns = dict.fromkeys(("name", "call_site", "runtime_env")) | told
    database.execute("create or replace temp table told (name varchar, call_site varchar, runtime_env varchar)")
    database.executemany("insert into told values (?, ?, ?)", [["usual", "at.py:1", "{}"], list(columns.values())])
    return bool(database.execute(repeated_secrets("told", "told")).fetchall()[0][0])


def test_shared_environments_are_suspected_for_values_beside_their_variables(
    database: duckdb.DuckDBPyConnection,
) -> None:
    assert not are_repeated(database, runtime_env='{"env_vars": {"TOKEN": "x"}, "pip": ["polars"]}')
    assert are_repeated(database, runtime_env='{"config": {"token": "x"}}')


@pytest.mark.parametrize(
    "text",
    [
        *("tokenize_batch", "return tokenize.remote(item, shard=2)", "KeyError: 'x'", "passed: 7"),
        *("signal: SIGTERM", "signature = inspect.signature(f)", "partition_key=7", "--passes 3", "assigned: 7"),
    ],
)
def test_ordinary_texts_are_not_suspected(database: duckdb.DuckDBPyConnection, text: str) -> None:
    assert not is_suspect(database, name=text, error_message=text, call_site=text, extra_data=text)
    assert not is_suspect(database, name=text, detail=False)


def test_a_runtime_environment_is_suspected_for_values_beside_its_variables(
    database: duckdb.DuckDBPyConnection,
) -> None:
    assert not is_suspect(database, runtime_env='{"env_vars": {"TOKEN": "x"}, "pip": ["polars"]}')
    assert is_suspect(database, runtime_env='{"env_vars": {"A": "x"}, "pip": ["https://u:p@wheels.example"]}')
    assert is_suspect(database, runtime_env='{"config": {"token": "x"}}')


def test_long_names_are_treated_like_short_ones() -> None:
    assert is_secret("a_" * 100 + "token")
    assert not is_secret("a_" * 100 + "tokens")
    assert [is_secret(name) for name in ("hfToken", "max_tokens", "HF_TOKEN", "key")] == [True, False, True, False]
