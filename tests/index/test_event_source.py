"""Event files become batches of lines that fit into memory, whatever their compression ratio."""

from __future__ import annotations

import gzip
import json
from contextlib import closing
from pathlib import Path

from ray_history.archive.layout import EventFileKey, Generation
from ray_history.archive.session_files import EventFile
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.index.event_source import EventSource
from tests.history.rebuilt import task, task_id

FILES, TASKS = 40, 50


def test_batches_become_smaller_when_events_unpack_to_more_than_usual(tmp_path: Path) -> None:
    store = open_store(DirectorySettings(tmp_path / "archive"))
    for number in range(FILES):
        events = [task(task_id(number * TASKS + n), callSite="over and over again " * 500) for n in range(TASKS)]
        store.put(f"{number:02}.gz", gzip.compress("\n".join(map(json.dumps, events)).encode()))
    packed = [
        EventFile(EventFileKey("n", "01000000", "2026-11-15-20", number, Generation.C), stored)
        for number, stored in enumerate(store.list())
    ]
    room = 16 * sum(file.stored.size for file in packed)  # as if these were ordinary, two batches or three
    work = tmp_path / "work"
    work.mkdir()
    with closing(EventSource(store, work, room // 6).batches(packed)) as batches:
        sizes = [(len(batch.files), batch.lines.load) for batch in batches]
    assert sum(files for files, _ in sizes) == FILES
    assert len(sizes) > 4
    assert sizes[0][1] > room // 6, "the events were to be more than usual"
    assert all(files == 1 or load <= room // 6 for files, load in sizes[2:]), sizes
