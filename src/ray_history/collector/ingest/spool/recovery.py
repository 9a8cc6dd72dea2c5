"""Reads and checks everything that an earlier process left in the directory.

Only what that process acknowledged is known to be durable. It may have been killed before it synced the rest, or its
sync may have failed, and then a sync of this process would succeed without effect. So before any segment is offered or
deleted, the header with sequence and creation time is written again: the same bytes in place, which needs no space.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from .disk import Disk, opened, write_all
from .segment import (
    HEADER_SIZE,
    NAME,
    Damage,
    Segment,
    corrupt_path,
    damage_message,
    header,
    is_zero,
    read_header,
    read_records,
)


@dataclass(slots=True)
class Recovered:
    """The state that an earlier process left."""

    sealed: dict[int, Segment] = field(default_factory=dict)
    emptied: dict[int, Segment] = field(default_factory=dict)
    damaged: set[int] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    mark: int = -1
    next_sequence: int = 1
    last_created_ns: int = 0
    size: int = 0


def recover(disk: Disk, folder: int, directory: Path) -> Recovered:
    found = Recovered()
    for name, size in sorted(disk.listdir(directory).items()):
        found.size += size
        path = directory / name
        match = NAME.fullmatch(name)
        if match is None:
            found.problems.append(f"{path} is not a file of the spool; it is not touched and counts as used space")
            continue
        found.next_sequence = max(found.next_sequence, int(match[1]) + 1)
        if match[2]:
            found.problems.append(
                f"{path} is damaged and was set aside earlier ({size} bytes); delete it if it is not needed"
            )
            with opened(disk, path) as handle:
                found.last_created_ns = max(found.last_created_ns, read_header(disk, handle) or 0)
        else:
            _recover_segment(disk, found, int(match[1]), path, size)
    mark = found.sealed.get(found.mark) or found.emptied.get(found.mark)
    if mark is not None:
        with opened(disk, mark.path) as handle:
            write_all(disk, handle, 0, [header(mark.created_ns)])
            disk.fsync(handle)
    disk.fsync(folder)
    return found


def _recover_segment(disk: Disk, found: Recovered, sequence: int, path: Path, size: int) -> None:
    end, records = HEADER_SIZE, 0
    damages: list[Damage] = []
    with opened(disk, path) as handle:
        created_ns = read_header(disk, handle)
        if created_ns is None:
            damages.append(Damage(0, torn=size < HEADER_SIZE or is_zero(disk, handle, 0)))
        else:
            for record in read_records(disk, handle, size, damaged=damages.append):
                end, records = record.end, records + 1
    found.last_created_ns = max(found.last_created_ns, created_ns or 0)
    segment = Segment(sequence, created_ns or 0, path, size, end, records)
    damage = next((each for each in damages if not each.torn), None)
    if damage is not None:
        found.damaged.add(sequence)
        found.problems.append(damage_message(segment, damage))
        if not records:
            disk.rename(path, corrupt_path(path))
            return
    elif damages:
        found.problems.append(f"{path}: an unfinished write at byte {damages[0].offset} of {size} is ignored")
    (found.sealed if records else found.emptied)[sequence] = segment
    if created_ns is not None:
        found.mark = sequence
