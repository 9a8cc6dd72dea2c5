"""Ranges of what comes from objects of the archive: one type for a count, a moment, a text, and how they are decoded.

Anybody who may write to the bucket makes these objects: a collector, another version of this program, a broken copy.
A struct whose fields have these types refuses what no program of ours writes, where the object is decoded and not where
one of its values is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, TypeVar

import msgspec

from ray_history.decoding import DECODING_ERRORS
from ray_history.moments import EARLIEST, LATEST

Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 53) - 1)]
"""A number of things or bytes. JavaScript and `float` represent all of them exactly."""
Amount = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
"""An amount of a resource, such as processors."""
Moment = Annotated[float, msgspec.Meta(ge=EARLIEST, lt=LATEST)]
"""Unix seconds."""
MomentOrZero = Annotated[float, msgspec.Meta(ge=0, lt=LATEST)]
"""Unix seconds; 0 if it did not happen. `check` refuses those between."""
MomentMs = Annotated[int, msgspec.Meta(ge=EARLIEST * 1000, lt=LATEST * 1000)]
"""Unix milliseconds."""
MomentNs = Annotated[int, msgspec.Meta(ge=EARLIEST * 10**9, lt=LATEST * 10**9)]
"""Unix nanoseconds."""
Name = Annotated[str, msgspec.Meta(max_length=1024)]
"""A name, an id, a version."""
Key = Annotated[str, msgspec.Meta(max_length=4096)]
"""The key of an object, or the path of a file: as long as any system allows."""
Text = Annotated[str, msgspec.Meta(max_length=10_000)]
"""A text for people, such as an error message."""

T = TypeVar("T", bound=msgspec.Struct)


def reason(error: Exception) -> str:
    """Why bytes cannot be decoded, in one line that begins with the place: `events.stored: expected ...`."""
    text, _, place = str(error).partition(" - at `$")
    text = text[:1].lower() + text[1:300]
    return f"{place.strip('`.')}: {text}" if place else text


def check(value: T) -> T:
    """The value, unless one of its own moments is before the year 2000, which the type cannot say."""
    for name in _moments(type(value)):
        if 0 < getattr(value, name) < EARLIEST:
            raise msgspec.ValidationError(f"Expected 0 or a time from the year 2000 on - at `$.{name}`")
    return value


def valid_fields(fields: Mapping[str, Any], kind: type[T]) -> tuple[T, list[str]]:
    """The struct from those fields that are valid, and why the others are not. All of its fields have defaults.

    A field that is a struct of its own counts as a whole: some of its counts without the others would mislead.
    """
    valid: dict[str, Any] = {}
    problems: list[str] = []
    for field in msgspec.structs.fields(kind):
        if field.name in fields:
            try:
                one = check(msgspec.convert({field.name: fields[field.name]}, kind))
            except DECODING_ERRORS as error:
                problems.append(reason(error))
            else:
                valid[field.name] = getattr(one, field.name)
    return kind(**valid), problems


@cache
def _moments(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(field.name for field in msgspec.structs.fields(kind) if field.type == MomentOrZero)
