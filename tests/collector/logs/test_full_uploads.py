"""Files are stored as whole objects, and no object of another file is destroyed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import BinaryIO

from ray_history.archive.stores.interface import chunks_of

from .log_archive import MIB, Node, log_lines, preserved


def test_a_rotated_file_becomes_a_whole_object_and_its_tails_are_deleted(node: Node) -> None:
    node.write("raylet.out", b"first file\n" * 20)
    node.interval()
    node.write("raylet.out", b"its last line\n")
    node.rotate("raylet.out")
    node.interval()
    assert node.objects() == node.on_disk() == {"raylet.out.1": b"first file\n" * 20 + b"its last line\n"}
    assert node.bundles() == []
    node.write("raylet.out", b"second file\n")
    node.interval()
    assert node.archived() == node.on_disk()


def test_backups_renamed_again_are_copied_in_the_store_and_the_oldest_is_preserved(node: Node) -> None:
    written = []
    for number in range(6):
        written.append(log_lines(number, 2000))
        node.write("raylet.out", written[-1])
        node.interval()
        node.rotate("raylet.out")
        node.interval()
    assert node.objects().items() >= node.on_disk().items()
    assert node.on_disk() == {f"raylet.out.{age}": written[-age] for age in (1, 2, 3)}
    assert sorted(preserved(node, "raylet.out.3")) == sorted(written[:3])
    assert node.shipper.counters.whole_uploads == 6
    assert len(node.objects()) == 6


def test_two_files_that_exchange_names_both_survive(node: Node) -> None:
    node.write("a.log", b"from a")
    node.write("b.log", b"from b, longer")
    node.finish()
    node.rename("a.log", "c.log")
    node.rename("b.log", "a.log")
    node.rename("c.log", "b.log")
    node.interval()
    assert node.objects() == {"a.log": b"from b, longer", "b.log": b"from a"}


def test_a_rotated_file_that_still_grows_is_not_uploaded_again_and_again(node: Node) -> None:
    node.write("raylet.out", log_lines(1, 50_000))
    node.interval()
    node.rotate("raylet.out")
    node.write("raylet.out", b"next file\n")
    node.interval()
    for number in range(10):
        node.write("raylet.out.1", f"late line {number}\n".encode())
        node.interval()
        assert node.archived() == node.on_disk()
    assert node.shipper.counters.whole_uploads == 1
    node.finish()
    assert node.objects() == node.on_disk()


def test_a_file_moved_to_old_is_stored_there(node: Node) -> None:
    node.write("worker-1.out", b"output\n" * 50)
    node.interval()
    node.rename("worker-1.out", "old/worker-1.out")
    node.interval()
    assert node.objects() == {"old/worker-1.out": b"output\n" * 50}
    assert node.bundles() == []


def test_a_stored_file_moved_to_old_is_copied_and_leaves_no_duplicate(node: Node) -> None:
    node.write("worker-1.out", b"output\n" * 50)
    node.finish()
    sent = node.store.sent
    node.rename("worker-1.out", "old/worker-1.out")
    node.interval()
    assert node.objects() == {"old/worker-1.out": b"output\n" * 50}
    assert node.store.sent == sent


def test_an_upload_replaces_a_copy_that_the_store_cannot_make(node: Node) -> None:
    node.write("worker-1.out", b"output\n" * 50)
    node.finish()
    node.rename("worker-1.out", "old/worker-1.out")
    with node.failing(lambda operation, _key: operation == "copy"):
        node.interval()
    assert node.objects() == {"old/worker-1.out": b"output\n" * 50}


def test_a_file_that_grows_during_its_upload_continues_in_tails(node: Node) -> None:
    node.write("raylet.out", log_lines(1, 3 * MIB))
    really_put = node.store.put_stream

    def growing(key: str, source: BinaryIO | Iterable[bytes]) -> int:
        def chunks() -> Iterator[bytes]:
            for chunk in chunks_of(source):
                node.write("raylet.out", b"written meanwhile\n")
                yield chunk

        return really_put(key, chunks())

    node.store.put_stream = growing  # type: ignore[method-assign]
    result = node.shipper.finish(float("inf"), final=False)
    assert not result.failures
    assert node.objects()["raylet.out"] == log_lines(1, 3 * MIB)
    del node.store.put_stream
    node.interval()
    assert node.read("raylet.out") == (node.logs / "raylet.out").read_bytes()
    node.finish()
    assert node.objects() == node.on_disk()
