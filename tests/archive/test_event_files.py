"""Whatever happened to an event file, its whole events come out and the rest is named."""

from __future__ import annotations

import gzip
import json
import random
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ray_history.archive.errors import Unreachable
from ray_history.archive.event_files import (
    Limits,
    Problem,
    encode_event_chunks,
    encode_events,
    read_event_blocks,
    read_events,
)

SESSION = "session_2026-11-15_20-00-55_739110_9771"
MIB = 1024 * 1024


def ray_event(number: int, transitions: int = 4) -> bytes:
    """A task's lifecycle in the shape Ray 2.60 sends it: lists of objects inside, JSON inside strings."""
    moment = f"2026-11-15T20:01:{number % 60:02}.142767996Z"
    states = [{"state": f"STATE_{step}", "timestamp": moment} for step in range(transitions)]
    event = {
        "eventId": f"{number:056x}",
        "sourceType": "CORE_WORKER",
        "eventType": "TASK_LIFECYCLE_EVENT",
        "timestamp": moment,
        "severity": "INFO",
        "sessionName": SESSION,
        "taskLifecycleEvent": {
            "taskId": f"{number:032}",
            "stateTransitions": states,
            "jobId": "AgAAAA==",
            "serializedRuntimeEnv": '{"env_vars": {"FOO": "},{"}}',
            "workerPid": 11670,
        },
        "message": "",
    }
    return json.dumps(event, separators=(",", ":")).encode()


EVENTS = [ray_event(number) for number in range(40)]


def lines(events: list[bytes]) -> bytes:
    return b"".join(event + b"\n" for event in events)


def array(events: list[bytes]) -> bytes:
    return b"[" + b",".join(events) + b"]"


FORMATS: dict[str, Callable[[list[bytes]], bytes]] = {
    "lines": lines,
    "lines without the last line end": lambda events: b"\n".join(events),
    "lines with Windows line ends and a byte order mark": lambda events: (
        b"\xef\xbb\xbf" + b"".join(event + b"\r\n" for event in events)
    ),
    "lines with white space after the last": lambda events: lines(events) + b"\r\n  ",
    "lines with blank ones between": lambda events: b"\n \n" + b"\n\n".join(events) + b"\n\n",
    "array": array,
    "indented array": lambda events: b"\xef\xbb\xbf\n[\n    " + b",\n    ".join(events) + b"\n]\n",
    "an array for each event": lambda events: b"\n".join(array([event]) for event in events),
    "gzip lines": lambda events: gzip.compress(lines(events)),
    "gzip array": lambda events: gzip.compress(array(events)),
    "a gzip member for each line": lambda events: b"".join(gzip.compress(event + b"\n") for event in events),
    "what we write": encode_events,
    "what we write, plain": lambda events: encode_events(events, compress=False),
}


def read(body: bytes, *, step: int = MIB, limits: Limits | None = None) -> tuple[list[bytes], list[Problem]]:
    problems: list[Problem] = []
    chunks = (body[start : start + step] for start in range(0, len(body), step))
    return list(read_events(chunks, file="node-1", problems=problems, limits=limits or Limits())), problems


def kinds(problems: list[Problem]) -> list[str]:
    return [problem.kind for problem in problems]


def is_object(event: bytes) -> bool:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    return isinstance(json.loads(event.decode(), parse_constant=refuse), dict)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.sampled_from(["},{", '"}', "[{", "\\", '{"sessionName": "x"}', "\n", "null"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), values, max_size=4)


@st.composite
def stored_events(draw: st.DrawFn) -> list[bytes]:
    """Objects as different writers store them: escaped or not, spaced or not."""
    style: dict[str, Any] = {"ensure_ascii": draw(st.booleans())}
    if draw(st.booleans()):
        style["separators"] = (",", ":")
    some = draw(st.lists(objects.map(lambda content: json.dumps(content, **style).encode()), max_size=8))
    real = draw(st.lists(st.sampled_from(EVENTS[:6]), max_size=4))
    return draw(st.permutations(some + real))


small = st.sampled_from([1, 2, 3, 7, 50, 400, MIB])
small_blocks = st.sampled_from([1, 64, 1000, MIB])

# --- whole files -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
@given(events=stored_events(), step=small, block=small_blocks)
@settings(max_examples=40, deadline=None)
def test_events_come_out_as_stored_from_every_format_and_every_chunking(
    name: str, events: list[bytes], step: int, block: int
) -> None:
    assert read(FORMATS[name](events), step=step, limits=Limits(block=block)) == (events, [])


@pytest.mark.parametrize("body", [b"", b"\n \r\n", b"null", b"null\n", b"[]", b" [ \n ] ", b"[][]", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_file_without_events_is_no_problem(body: bytes, pack: Callable[[bytes], bytes]) -> None:
    assert read(pack(body)) == ([], [])


@pytest.mark.parametrize("form", [lines, array])
def test_many_blocks_are_read_in_lists_that_do_not_grow_with_the_file(form: Callable[[list[bytes]], bytes]) -> None:
    events = [ray_event(number, number % 7) for number in range(8000)]
    problems: list[Problem] = []
    blocks = list(read_event_blocks([form(events)], file="node-1", problems=problems))
    assert [event for block in blocks for event in block] == events
    assert problems == []
    assert len(blocks) > 3
    assert all(sum(map(len, block)) < 1.2 * MIB for block in blocks)


def test_an_event_longer_than_a_block_is_still_an_event() -> None:
    long = ray_event(1, transitions=40_000)
    assert len(long) > 2 * MIB
    for form in (lines, array):
        assert read(form([EVENTS[0], long, EVENTS[2]]), step=5000) == ([EVENTS[0], long, EVENTS[2]], [])


def test_events_do_not_keep_the_block_they_came_from() -> None:
    for form in (lines, array):
        body = form([ray_event(number) for number in range(20_000)])
        tracemalloc.start()
        kept = [block[0] for block in read_event_blocks([body], file="node-1", problems=[])]
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(kept) > 10
        assert held < MIB


# --- damage to lines -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damaged", "kind"),
    [
        (b'{"a": 1', "broken"),
        (b'{"a": 1}}', "broken"),
        (b'{"a": 1} {"b": 2}', "broken"),
        (b'{"a": NaN}', "broken"),
        (b'{"a": "\x00"}', "broken"),
        (b"\x00\x00\x00\x00", "broken"),
        (b"[" * 200_000, "broken"),
        (b'{"a":' * 200_000, "broken"),
        (b"17", "not an object"),
        (b'"text"', "not an object"),
        (b'[{"a": 1}]', "not an object"),
        (b'{"a": "\xff"}', "not utf-8"),
        (b'{"a": "\xed\xa0\x80"}', "not utf-8"),
    ],
)
def test_a_damaged_line_costs_only_itself(damaged: bytes, kind: str) -> None:
    events, problems = read(lines([EVENTS[0], damaged, EVENTS[2]]))
    assert events == [EVENTS[0], EVENTS[2]]
    (problem,) = problems
    assert (problem.kind, problem.line, problem.offset) == (kind, 2, len(EVENTS[0]) + 1)


def test_an_object_over_two_lines_is_two_broken_lines_wherever_blocks_begin() -> None:
    body = lines([b'{"a":', b"1}", b'{"b":1}{"c":1}', EVENTS[0]])
    for block in (1, 4, 10, MIB):
        events, problems = read(body, limits=Limits(block=block))
        assert events == [EVENTS[0]]
        assert [problem.line for problem in problems] == [1, 2, 3]


def test_a_torn_last_line_is_reported_as_truncated() -> None:
    events, problems = read(lines(EVENTS[:2]) + EVENTS[2][:50])
    assert events == EVENTS[:2]
    assert str(problems[0]).startswith(f"node-1: line 3 (byte {len(lines(EVENTS[:2]))}): truncated: the file ends")


@pytest.mark.parametrize("block", [1, 100, MIB])
def test_a_line_that_is_too_long_is_skipped_and_later_lines_come_out(block: int) -> None:
    limit = Limits(max_event=3000, block=block)
    longest = b'{"a":"' + b"x" * (3000 - 8) + b'"}'
    events, problems = read(lines([longest, b"x" * 20_000, longest + b" ", EVENTS[0]]), step=7, limits=limit)
    assert events == [longest, EVENTS[0]]
    assert [(problem.kind, problem.line, problem.offset, problem.detail.split(",")[0]) for problem in problems] == [
        ("too long", 2, 3001, "20000 bytes"),
        ("too long", 3, 23_002, "3001 bytes"),
    ]


def test_a_file_that_is_all_faults_is_given_up_and_said_so() -> None:
    for body in (b"x\n" * MIB, b"[" + b"1," * MIB):
        events, problems = read(body)
        assert events == []
        assert len(problems) == 101
        assert "too broken" in str(problems[-1]) or "more problems" in str(problems[-1])


def test_only_the_first_problems_are_listed_and_the_rest_counted() -> None:
    earlier = Problem("another file", "broken", 0, 1, "")
    problems = [earlier]
    assert list(read_events([b"x\n" * 1000], file="node-1", problems=problems)) == []
    assert len(problems) == 1 + 100 + 1
    assert problems[0] is earlier
    assert str(problems[-1]).startswith("node-1: line 1000 (byte 1998): more: 900 more problems, the last: broken: ")


# --- damage to arrays ------------------------------------------------------------------------------------------------


def test_elements_before_the_cut_of_an_array_come_out() -> None:
    body = array(EVENTS)
    events, problems = read(body[: body.index(EVENTS[30]) + 300])
    assert events == EVENTS[:30]
    assert kinds(problems) == ["truncated"]
    assert problems[0].offset == body.index(EVENTS[30])


def test_an_array_that_is_only_not_closed_loses_nothing() -> None:
    events, problems = read(array(EVENTS)[:-1])
    assert events == EVENTS
    assert kinds(problems) == ["truncated"]


@pytest.mark.parametrize("element", [b"1", b'"text"', b"null", b"[1]", b'{"a":"\xff"}'])
def test_an_element_that_is_no_event_costs_only_itself(element: bytes) -> None:
    events, problems = read(array([b'{"a":1}', element, b'{"b":1}']))
    assert events == [b'{"a":1}', b'{"b":1}']
    assert kinds(problems) == ["not utf-8" if b"\xff" in element else "not an object"]
    assert problems[0].offset == 9


@pytest.mark.parametrize(
    "damage",
    [
        lambda event: event[:-1],
        lambda event: event + b"}",
        lambda event: b"{" + event,
        lambda event: event[:200],
        lambda event: event[200:],
        lambda event: event[:500] + event[700:],
        lambda event: event.replace(b'"severity"', b'severity"'),
        lambda event: event.replace(b'"severity"', b'"severity'),
        lambda event: event.replace(b'"stateTransitions":[', b'"stateTransitions":['[:-1]),
        lambda event: event.replace(b"[", b"[" * 100_000),
        lambda event: event.replace(b"INFO", b"IN\0O"),
        lambda event: event[:0],
        lambda event: event + b" " + b"garbage",
    ],
)
def test_events_after_a_broken_element_come_out_and_no_part_of_an_event_does(
    damage: Callable[[bytes], bytes],
) -> None:
    for step in (11, 1000, MIB):
        events, problems = read(array([*EVENTS[:20], damage(EVENTS[20]), *EVENTS[21:]]), step=step)
        assert [event for event in events if event != EVENTS[20]] == EVENTS[:20] + EVENTS[21:]
        assert problems
        assert set(kinds(problems)) <= {"broken", "truncated"}


def test_data_after_an_array_are_reported_unless_they_are_an_array() -> None:
    assert read(array(EVENTS[:2]) + b"\n" + array(EVENTS[2:4])) == (EVENTS[:4], [])
    events, problems = read(array(EVENTS[:2]) + b" garbage")
    assert events == EVENTS[:2]
    assert [(problem.kind, problem.offset) for problem in problems] == [("garbage", len(array(EVENTS[:2])) + 1)]


def test_a_comma_before_the_closing_bracket_is_reported_and_costs_nothing() -> None:
    events, problems = read(b"[" + b",".join(EVENTS) + b",]")
    assert events == EVENTS
    assert kinds(problems) == ["broken"]


def test_an_element_that_is_too_long_is_skipped_and_later_events_come_out() -> None:
    long = ray_event(1, transitions=1000)
    for step in (100, MIB):
        for block in (100, MIB):
            limits = Limits(max_event=len(EVENTS[0]) + 10, block=block)
            events, problems = read(array([EVENTS[0], long, *EVENTS[2:]]), step=step, limits=limits)
            assert events == [EVENTS[0], *EVENTS[2:]]
            assert kinds(problems) == ["too long"]


def test_an_array_that_is_all_damage_is_given_up_and_said_so() -> None:
    events, problems = read(array([EVENTS[0] + b"}", *EVENTS[1:4]] * 200))
    assert len(events) == 100 * 4 + 1
    assert kinds(problems[:100]) == ["broken"] * 100
    assert "too broken" in str(problems[-1])


def test_msgspec_says_where_a_value_ends_and_where_it_breaks() -> None:
    """The reader of damaged arrays depends on these positions in msgspec's messages."""
    from ray_history.archive.event_files.json_arrays import value_end

    assert value_end(memoryview(b'{"a":1} ,{"b"')) == (8, None)
    assert value_end(memoryview(b'{"a":1}')) == (7, None)
    assert value_end(memoryview(b'{"a":[1')) == (7, "Input data was truncated")
    end, fault = value_end(memoryview(b'{"a":x},{"b":1}'))
    assert end == 5
    assert fault


# --- damage to gzip --------------------------------------------------------------------------------------------------


def test_a_cut_gzip_file_gives_every_event_that_was_stored_whole() -> None:
    text = lines([ray_event(number) for number in range(2000)])
    body = gzip.compress(text)
    for cut in random.Random(7).sample(range(20, len(body)), 40):
        unpacked = zlib.decompressobj(31).decompress(body[:cut])
        events, problems = read(body[:cut], step=4096)
        assert lines(events) == unpacked[: unpacked.rfind(b"\n") + 1] or cut > len(body) - 8
        assert problems[0].kind == "truncated"
        assert text.startswith(lines(events))


def test_a_wrong_checksum_is_reported_and_costs_nothing() -> None:
    body = bytearray(gzip.compress(lines(EVENTS)))
    body[-8] ^= 1
    events, problems = read(bytes(body))
    assert events == EVENTS
    assert kinds(problems) == ["gzip"]


def test_damaged_compressed_data_cost_little_text_before_the_damage() -> None:
    text = lines([ray_event(number) for number in range(2000)])
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    body = packer.compress(text) + packer.flush(zlib.Z_FULL_FLUSH) + b"\x07" * 100  # block type 3 does not exist
    events, problems = read(body)
    certain = zlib.decompressobj(31).decompress(body[: -100 - 2048])
    assert text.startswith(lines(events))
    assert len(lines(events)) >= certain.rfind(b"\n")
    assert problems[0].kind == "gzip"


def test_gzip_members_may_begin_at_any_byte() -> None:
    noise = random.Random(3).randbytes(4000).hex()
    for length in range(3500, 3800):
        event = b'{"a":"' + noise[:length].encode() + b'"}'
        assert read(gzip.compress(event + b"\n") * 3, step=2048) == ([event] * 3, [])


def test_garbage_after_a_gzip_member_is_reported_and_padding_is_not() -> None:
    body = gzip.compress(lines(EVENTS))
    assert read(body + b"\0" * 512) == (EVENTS, [])
    for garbage in (b"garbage", b"\x1f", b"\x1f\x8b\x09 garbage garbage", lines(EVENTS)):
        events, problems = read(body + garbage, step=100)
        assert events == EVENTS
        assert [(problem.kind, problem.offset) for problem in problems] == [("gzip", len(lines(EVENTS)))]


def test_gzip_headers_with_every_optional_field_are_read() -> None:
    plain = gzip.compress(lines(EVENTS))
    header = b"\x1f\x8b\x08\x1e" + plain[4:10] + b"\x05\0extra" + b"name\0" + b"comment\0" + b"\x12\x34"
    assert read(header + plain[10:], step=1) == (EVENTS, [])
    assert kinds(read(header[:20])[1]) == ["gzip"]


# --- bombs -----------------------------------------------------------------------------------------------------------


def bomb(start: bytes, repeated: bytes, mebibytes: int) -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    block = repeated * (MIB // len(repeated))
    return packer.compress(start) + b"".join(packer.compress(block) for _ in range(mebibytes)) + packer.flush()


@pytest.mark.parametrize(
    ("start", "repeated", "kind"),
    [
        (b"", b"\0", "too long"),
        (b"", b" ", ""),
        (b"", b"[", "broken"),
        (b"[", b" ", "truncated"),
        (b"[{", b" ", "too long"),
        (b'[{"a":"', b"x", "too long"),
        (b'[{"a":[', b'{},{"a":["]",', "broken"),
        (b"[", b"},{", "broken"),
        (b"[", b"1,", "not an object"),
    ],
)
def test_a_decompression_bomb_takes_little_memory_and_ends(start: bytes, repeated: bytes, kind: str) -> None:
    body = bomb(start, repeated, 32)
    limits = Limits(max_event=2 * MIB, max_bytes=24 * MIB)
    tracemalloc.start()
    events, problems = read(body, limits=limits)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert events == []
    assert not kind or kind in kinds(problems)
    assert len(problems) <= 101
    assert peak < 12 * MIB


def test_a_file_over_the_limit_is_read_up_to_it() -> None:
    for pack in (bytes, gzip.compress):
        events, problems = read(pack(lines(EVENTS)), limits=Limits(max_bytes=len(lines(EVENTS[:3])) + 5))
        assert events == EVENTS[:3]
        assert kinds(problems) == ["too large", "truncated"]


# --- any damage ------------------------------------------------------------------------------------------------------


@st.composite
def damaged(draw: st.DrawFn, form: Callable[[list[bytes]], bytes]) -> tuple[list[bytes], bytes, int]:
    """Events, their file after one or two accidents, and the first byte that changed."""
    events = draw(stored_events())
    body = form(events)
    first = len(body)
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, len(body)))
        first = min(first, at)
        accident = draw(st.sampled_from(["flip", "cut", "insert", "lose"]))
        if accident == "flip" and at < len(body):
            body = body[:at] + bytes([body[at] ^ 1 << draw(st.integers(0, 7))]) + body[at + 1 :]
        elif accident == "cut":
            body = body[:at]
        elif accident == "insert":
            noise = st.binary(max_size=9) | st.sampled_from([b'"', b"{", b"}", b"[", b"]", b",", b"\n", b"\\", b"},{"])
            body = body[:at] + draw(noise) + body[at:]
        elif accident == "lose":
            body = body[:at] + body[at + draw(st.integers(1, 900)) :]
    return events, body, first


@pytest.mark.parametrize("form", [lines, array])
@given(data=st.data(), step=small, block=small_blocks)
@settings(max_examples=150, deadline=None)
def test_after_any_damage_only_real_objects_come_out_in_order_and_all_from_before_it(
    form: Callable[[list[bytes]], bytes], data: st.DataObject, step: int, block: int
) -> None:
    stored, body, first = data.draw(damaged(form))
    events, problems = read(body)
    assert read(body, step=step, limits=Limits(block=block)) == (events, problems)
    position = 0
    for event in events:
        assert is_object(event)
        position = body.index(event, position) + len(event)
    whole, end = 0, 0 if form is lines else 1
    for event in stored:
        end += len(event) + 1
        if end > first:
            break
        whole += 1
    assert events[:whole] == stored[:whole]
    assert all(0 <= problem.offset <= len(body) for problem in problems)


@given(data=st.data(), step=small)
@settings(max_examples=100, deadline=None)
def test_after_any_damage_to_a_gzip_file_only_real_objects_come_out(data: st.DataObject, step: int) -> None:
    form = data.draw(st.sampled_from([lines, array]))
    _, body, _ = data.draw(damaged(lambda events: gzip.compress(form(events))))
    events, problems = read(body)
    assert all(map(is_object, events))
    assert read(body, step=step) == (events, problems)
    assert all(str(problem).count("\n") == 0 for problem in problems)


@given(body=st.binary(max_size=400), start=st.sampled_from([b"", b"[", b"\x1f\x8b\x08\0\0\0\0\0\0\0", b'[{"a":']))
@settings(max_examples=250, deadline=None)
def test_any_bytes_at_all_are_read_without_an_exception(body: bytes, start: bytes) -> None:
    events, _ = read(start + body, step=13)
    assert all(map(is_object, events))


@pytest.mark.parametrize("form", [lines, array, lambda events: gzip.compress(lines(events))])
def test_a_store_that_fails_is_not_a_file_that_ends(form: Callable[[list[bytes]], bytes]) -> None:
    def chunks() -> Iterator[bytes]:
        yield form(EVENTS)[:1000]
        raise Unreachable("no answer from the store")

    problems: list[Problem] = []
    with pytest.raises(Unreachable):
        list(read_events(chunks(), file="node-1", problems=problems))
    assert problems == []


# --- writing ---------------------------------------------------------------------------------------------------------


def test_equal_events_are_written_as_equal_bytes_that_any_gzip_reads() -> None:
    body = encode_events(EVENTS)
    assert body == encode_events(iter(EVENTS))
    assert body[4:8] == b"\0\0\0\0"
    assert gzip.decompress(body) == lines(EVENTS)
    assert encode_events(EVENTS, compress=False) == lines(EVENTS)
    assert gzip.decompress(encode_events([])) == b""


def test_an_event_over_several_lines_is_written_as_one() -> None:
    event = b'{\n  "a": "x\\ny",\r\n  "b": 1\n}'
    written = encode_events([event, EVENTS[0]], compress=False)
    assert written.count(b"\n") == 2
    assert json.loads(written.split(b"\n")[0]) == json.loads(event)


def test_writing_holds_about_a_block_however_many_events_there_are() -> None:
    tracemalloc.start()
    written = sum(map(len, encode_event_chunks((ray_event(number) for number in range(20_000)), compress=False)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert written > 10 * MIB
    assert peak < 4 * MIB


def test_a_session_name_that_is_not_text_does_not_stop_the_rescue() -> None:
    problems: list[Problem] = []
    body = b'[x, {"sessionName":"\xc5("}, {"sessionName":"s"}]'
    assert list(read_events([body], file="f", problems=problems)) == [b'{"sessionName":"s"}']
    assert problems


def test_a_file_of_nothing_but_damage_is_given_up_and_says_so() -> None:
    problems: list[Problem] = []
    assert list(read_events([b"x\n" * 300_000], file="f", problems=problems)) == []
    assert "too much damage; the rest of the file was not read" in problems[-1].detail
