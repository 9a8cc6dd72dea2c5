"""After a start, the archive may be ahead of the state file."""

from __future__ import annotations

from .log_archive import Node, log_lines


def test_files_rotated_while_the_collector_was_down_are_recognised(node: Node) -> None:
    for number in range(3):
        node.write("raylet.out", log_lines(number, 500))
        node.interval()
        node.rotate("raylet.out")
    node.interval()
    before = node.on_disk()
    node.shipper.close()
    for number in range(3, 5):
        node.write("raylet.out", log_lines(number, 500))
        node.rotate("raylet.out")
    node.write("raylet.out", log_lines(9, 500))
    node.start()
    node.interval()
    assert node.archived().items() >= node.on_disk().items()
    assert set(before.values()) <= set(node.archived().values())
    node.finish()
    assert node.objects().items() >= node.on_disk().items()


def test_a_session_that_continues_after_finish_is_appended_to_its_whole_objects(node: Node) -> None:
    node.write("raylet.out", log_lines(1, 5000))
    node.finish()
    node.crash()
    sent = node.store.sent
    node.write("raylet.out", b"a new line\n")
    node.interval()
    assert node.read("raylet.out") == log_lines(1, 5000) + b"a new line\n"
    assert node.store.sent - sent < 1000
    node.finish()
    assert node.objects() == node.on_disk()


def test_bytes_uploaded_but_missing_in_the_state_file_are_recognised(node: Node) -> None:
    node.write("a.log", b"first\n")
    node.interval()
    remembered = node.state_file.read_bytes()
    node.write("a.log", b"second\n")
    node.interval()
    node.rotate("a.log")
    node.write("a.log", b"another file\n")
    node.interval()
    node.shipper.close()
    node.state_file.write_bytes(remembered)
    node.start()
    node.interval()
    assert node.read("a.log") == b"another file\n"
    assert node.read("a.log.1") == b"first\nsecond\n"
    node.finish()
    assert node.objects() == node.on_disk()


def test_without_state_file_sequence_numbers_continue_and_the_content_is_right(node: Node) -> None:
    node.write("a.log", log_lines(1, 1000))
    node.write("b.log", log_lines(2, 1000))
    node.interval()
    before = node.bundles()
    node.rotate("b.log")
    node.state_file.unlink()
    node.write("a.log", b"more\n")
    node.write("b.log", b"another\n")
    node.crash()
    assert "there is no" in node.shipper.state_problem
    node.interval()
    assert node.bundles()[: len(before)] == before or not set(before) & set(node.bundles())
    archived = node.archived()
    assert {name: archived[name] for name in node.on_disk()} == node.on_disk()
    node.finish()
    assert node.objects() == node.on_disk()


def test_an_object_missing_in_the_state_file_is_identified_by_its_bytes(node: Node) -> None:
    node.write("a.log", log_lines(1, 200_000))
    node.finish()
    node.state_file.unlink()
    node.crash()
    sent = node.store.sent
    node.finish()
    assert node.store.sent == sent
    assert node.objects() == node.on_disk()
