"""The vocabulary of secrets: names that sound like one, as patterns for Python and for SQL.

`server.redaction` replaces secrets with Python, value by value. Most rows hold none, so SQL selects those that may,
with patterns made from the same vocabulary. These leave out lookarounds, which RE2 does not have: SQL may select more
than Python replaces, but never less.
"""

from __future__ import annotations

from ray_history.history.sql import text

RUNTIME_ENV_VARIABLES = ("env_vars", "envvars")
"""Fields of a runtime environment whose values are all secret, in lower case."""
RUNTIME_ENV_VARIABLES_PATTERN = "env_?vars"
VARIABLES_OF_RAY = "RAY_(worker_niceness|EXPERIMENTAL_NOSET_[A-Z0-9_]+)"
"""Variables that Ray itself adds to runtime environments, with flags and numbers as values. The macro `redacted` has
the same pattern."""

ORDINARY_WORDS = ("auth", "cred", "creds", "pass", "sig")
"""Words that name a secret, and that messages use as well: `pass=x`, but `auth: failed for user bob`."""
WORDS = (*ORDINARY_WORDS, "authorization", "bearer", "cookie", "jwt", "passphrase", "pwd", "token")
"""Words that name a secret if they are a word of a name: `hfToken`, but not `max_tokens`."""

_KEYS = (
    *("anthropic", "api", "access", "account", "auth", "encryption", "hmac", "license", "master", "openai", "private"),
    *("secret", "service", "shared", "signing", "ssh", "storage"),
)
PARTS = rf"passw(?:or)?d|secret|credential|x-[a-z]+-signature|(?:{'|'.join(_KEYS)})[-_. ]?key|auth[-_. ]?token"
"""A pattern of what names a secret anywhere in a name, whatever the case."""

VARIABLE = "_KEY"
"""The end of a variable with a secret, such as `OPENAI_KEY`, in this case only: `partition_key` is an ordinary name."""
ORDINARY_VARIABLES = ("CACHE", "FOREIGN", "LABEL", "PARTITION", "PRIMARY", "PUBLIC", "SORT")
"""What stands before `_KEY` in variables without a secret."""

SIGNATURE_IN_URL = "[?&](?:x-[a-z]+-)?sig(?:nature)?="

_STEMS = {*WORDS, "passwd", "password", "secret", "credential", "signature", "key", *RUNTIME_ENV_VARIABLES}
HINTS = (*sorted(stem for stem in _STEMS if not any(other in stem for other in _STEMS - {stem})), "://")
"""Every text with a secret contains one of these, whatever the case."""

_NAME = r"[\w.\x{80}-\x{10ffff}-]*"
_LOGIN_IN_URL = r"://[^/\s]*@"


def _own_word(word: str) -> str:
    """A word of a name: `pass`, `Pass` or `PASS`, and not `passed`."""
    return f"[{word[0]}{word[0].upper()}]{word[1:]}|{word.upper()}"


_SECRET_NAME = (
    f"(?:{PARTS}|{'|'.join(word for word in WORDS if word not in ORDINARY_WORDS)}|(?-i:{VARIABLE})){_NAME}"
    f"|(?-i:(?:{'|'.join(map(_own_word, ORDINARY_WORDS))})(?:[^a-z:=]{_NAME})?)"
)
_SECRET = text(
    f"(?i){RUNTIME_ENV_VARIABLES_PATTERN}|{_LOGIN_IN_URL}|{SIGNATURE_IN_URL}"
    rf"|(?:{_SECRET_NAME})[^\w:=]*[:=]|-{_NAME}(?:{_SECRET_NAME})[ \t]"
)
_HINT = text("(?i)" + "|".join(_LOGIN_IN_URL if hint == "://" else hint for hint in HINTS))


def may_contain_secret(words: str) -> str:
    """SQL: whether a text may contain a secret: a name that sounds like one, and its value. Many texts only have the
    name, such as `tokenize.remote(batch)` or `KeyError: 7`, and redacting a row takes longer than making it."""
    return f"regexp_matches({words}, {_SECRET})"


def has_hint(words: str) -> str:
    """SQL: whether a text, with or without structure, has a word that sounds like a secret."""
    return f"regexp_matches({words}, {_HINT})"
