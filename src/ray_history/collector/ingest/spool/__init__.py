"""The spool: stores a batch from its acknowledgement until it is in the archive.

Invariants:
* One process owns the directory (a lock that dies with it). One thread appends; one thread seals, reads and removes.
* `append` returns after an fsync: from then on its bodies survive SIGKILL and power loss until `remove` is called.
  Records are written only to a segment whose header and directory entry are durable, so a torn header means that there
  are no records.
* A segment is written once, front to back. After a failed write or fsync nothing more is written to it (the kernel may
  have dropped its pages and report the next fsync as successful): it is truncated to its acknowledged end and sealed,
  and the next append opens another. So nothing acknowledged ever follows something torn.
* Opening seals every segment that it finds and changes none of their bytes. A record that provably was never written
  completely (it extends past the end of the file, or is all zeros) is ignored. Other bytes that do not match their
  checksum are never deleted: the bodies before and after them are returned, then `remove` renames the file to
  `<name>.corrupt`. If the header is damaged, nothing is returned.
* Sequence and creation time grow from segment to segment, whatever the clock does, and never repeat. The newest
  segment with a durable header, the mark, carries both. `remove` truncates the mark to its header (which needs no
  space on a full disk) instead of deleting it; it is deleted once a newer header is durable. Opening continues after
  the highest name and header, and first writes the mark's header again and syncs it: a sync alone proves nothing about
  pages of another process, whose own sync may have failed.
* Bodies that were not acknowledged may be returned too. Ray sends them again, and an event is counted once.

Format of `<sequence, 20 digits>.spool`, integers little-endian:

    8  magic and version    b"RAYSPOL" 0x01
    8  creation time        nanoseconds since 1970
    4  crc32 of the above
       records              4 length, 4 crc32 of the body, 4 crc32 of these 8 bytes, then the body

The length has its own checksum: a damaged one must not look like a record that was cut off at the end of the file, and
behind a damaged body the next record is known. Behind a damaged length it is searched.

`disk` has all file system calls, `segment` the bytes of one file; `recovery` reads what an earlier process left, and
`spool` is an open spool.
"""

from __future__ import annotations

from .disk import Disk
from .segment import MAX_BODY, Segment
from .spool import Pending, Spool, SpoolFull

__all__ = ["MAX_BODY", "Disk", "Pending", "Segment", "Spool", "SpoolFull"]
