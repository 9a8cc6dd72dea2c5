"""What counts as a secret, in texts and in structures."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_history.server.redaction.rules import has_secrets, is_secret, redacted

SECRET = "hunter2-never-shown"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("python x.py --token abc --n 3", "python x.py --token <redacted> --n 3"),
        ("FOO=password=x y", "FOO=password=<redacted> y"),
        ("curl -H 'Authorization: Bearer abc' host", "curl -H 'Authorization: <redacted>' host"),
        ("git+https://user:abc@host/x", "git+https://user:<redacted>@host/x"),
        ("run --env-json={'env_vars': {'A': 'b'}} -n 3", "run --env-json={'env_vars': {'A': '<redacted>'}} -n 3"),
        ('for {"env_vars": {"A": "it\'s"}}.', 'for {"env_vars": {"A": "<redacted>"}}.'),
        (r'"{\"env_vars\": {\"A\": \"b\"}}" failed', r'"{\"env_vars\": {\"A\": \"<redacted>\"}}" failed'),
        ('{"env_vars": {"A": "b\\"}", "C": 7}} failed', '{"env_vars": {"A":"<redacted>","C":"<redacted>"}} failed'),
        (
            "{'env_vars': {'A': \"it's\", 'C': 'x'}} failed",
            "{'env_vars': {'A': \"<redacted>\", 'C': '<redacted>'}} failed",
        ),
        ("env_vars={'A': 'b', 'C': f(x)} failed", "env_vars=<redacted>"),
        (
            '{"env_vars": {"RAY_worker_niceness": "0", "RAY_EXPERIMENTAL_NOSET_CUDA": "1", "RAY_X": "y"}}',
            '{"env_vars":{"RAY_worker_niceness":"0","RAY_EXPERIMENTAL_NOSET_CUDA":"1","RAY_X":"<redacted>"}}',
        ),
        ('{"env_vars": {"A": "torn', '{"env_vars": <redacted>'),
        ("env_vars:\n  A: b\n  C: d", "env_vars:\n  <redacted>"),
        ("env_vars=A=b C=d\nfailed", "env_vars=<redacted>\nfailed"),
        ("in set_env_vars\n  run()\nValueError: boom", "in set_env_vars\n  run()\nValueError: boom"),
        ("KeyError: 'env_vars'", "KeyError: 'env_vars'"),
        ("auth: failed for user bob", "auth: failed for user bob"),
        ("first pass: 7 of 9", "first pass: 7 of 9"),
        ("pass: hunter2", "pass: <redacted>"),
        ("DB_PASS: hunter", "DB_PASS: <redacted>"),
        ("pass=hunter auth='x'", "pass=<redacted> auth=<redacted>"),
        (
            "creds=x OPENAI_KEY=y PARTITION_KEY=z partition_key=z",
            "creds=<redacted> OPENAI_KEY=<redacted> PARTITION_KEY=z partition_key=z",
        ),
        ("https://b/x?X-Amz-Signature=a1&n=1", "https://b/x?X-Amz-Signature=<redacted>&n=1"),
        ("https://b/x?sv=1&sig=a%3D&se=2", "https://b/x?sv=1&sig=<redacted>&se=2"),
        ("GET /x?Signature=a HTTP", "GET /x?Signature=<redacted> HTTP"),
        ("signature = inspect.signature(f)", "signature = inspect.signature(f)"),
        ("--token --password abc", "--token --password <redacted>"),
        ("serve -p 8080", "serve -p 8080"),
        ('{"env_vars": {"A": "b"}}', '{"env_vars":{"A":"<redacted>"}}'),
        ("max_tokens=5 and the tokenizer: x", "max_tokens=5 and the tokenizer: x"),
        ("-Dredis.password= -Dnode=1", "-Dredis.password= -Dnode=1"),
        ("--redis-password=abc", "--redis-password=<redacted>"),
        (["x", "--password", "abc", "--port", "1"], ["x", "--password", "<redacted>", "--port", "1"]),
        ({"serialized_runtime_env": "{not json"}, {"serialized_runtime_env": "<redacted>"}),
        ({"serialized_runtime_env": "{}"}, {"serialized_runtime_env": "{}"}),
        ({"runtimeEnv": {"envVars": {"A": 1, "B": None}}}, {"runtimeEnv": {"envVars": {"A": "<redacted>", "B": None}}}),
        ({"env": [{"name": "API_KEY", "value": "x"}]}, {"env": [{"name": "API_KEY", "value": "<redacted>"}]}),
        ({"awsSecretAccessKey": ["x", {"y": 1}]}, {"awsSecretAccessKey": ["<redacted>", {"y": "<redacted>"}]}),
        ({"pass": "x", "creds": "y", "STRIPE_KEY": "z"}, dict.fromkeys(("pass", "creds", "STRIPE_KEY"), "<redacted>")),
        ({"label_domain_key": "x", "message": "auth: x"}, {"label_domain_key": "x", "message": "auth: x"}),
    ],
)
def test_secrets_are_redacted_and_nothing_else(value: Any, expected: Any) -> None:
    assert redacted(value) == expected


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=20,
)
_SECRET_NAMES = st.sampled_from(
    ["password", "DB_PASSWORD", "hf_token", "secretKey", "AWS_ACCESS_KEY_ID", "env_vars", "envVars", "Credentials"]
)


@given(_JSON, _SECRET_NAMES, _JSON, st.text(max_size=10))
def test_values_below_the_name_of_a_secret_are_redacted(value: Any, name: str, around: Any, key: str) -> None:
    planted = {key: around, "inner": [{name: [value, SECRET, {"deep": SECRET}]}]}
    assert SECRET not in msgspec.json.encode(redacted(planted)).decode()
    assert is_secret(name) or name.lower() in ("env_vars", "envvars")


@given(
    variables=st.dictionaries(st.sampled_from("ABC"), st.text().map(lambda text: f"{text}{SECRET}{text}"), min_size=1),
    write=st.sampled_from([json.dumps, repr, lambda value: json.dumps(json.dumps(value))]),
    around=st.tuples(st.text(max_size=5), st.text(max_size=5)),
)
def test_variables_are_redacted_in_any_notation(
    variables: dict[str, str], write: Callable[[Any], str], around: tuple[str, str]
) -> None:
    text = f"{around[0]} {write({'env_vars': variables, 'pip': []})} {around[1]}"
    assert SECRET not in redacted(text)


@given(_JSON)
def test_redacting_twice_changes_nothing(value: Any) -> None:
    once = redacted(value)
    assert redacted(once) == once


@pytest.mark.parametrize(
    "text",
    [
        'API_KEY:\n"token": "hunter2"',
        "API_KEY=\n'token' = 'hunter2'",
        "API_KEY: 'torn\nexport TOKEN='hunter2'",
        '--password "torn\n"token": "hunter2"\nrest"',
    ],
)
def test_a_name_without_a_value_does_not_uncover_the_next_one(text: str) -> None:
    assert "hunter2" not in redacted(text)


def test_names_of_variables_may_be_half_a_surrogate_pair() -> None:
    assert "x1" not in redacted('env_vars: {"\\ud800": ["x1"], \'b\': 1}')
    assert redacted('env_vars: {"\\ud800": ["x1"]}') == 'env_vars: {"\\ud800":["<redacted>"]}'


def test_letters_that_only_patterns_fold_are_seen_in_json() -> None:
    assert has_secrets('{"pa\u017f\u017fword": "x1"}'.encode())
