"""A machine that keeps looking for what is lost, invented or answered wrongly when everything around us fails.

    python -m bench.chaos                    ten minutes; CHAOS_MINUTES and CHAOS_SEED set the length and repeat a run
    python -m bench.chaos --only kill        only the scenarios whose names contain this
    python -m bench.chaos --write            writes the table into docs/failure-modes.md

A run is a sequence of lives. In each life a new cluster has a real collector, events with unique ids and log lines with
unique numbers; a real S3 server is behind a proxy that fails a part of all requests; a real history server runs through
all lives and is asked all the time. A scenario adds faults of its own. Then everything is healed, the collector ends in
order, and what is in the archive is counted by a reader that shares no code with the product.

The modules, each importing only those before it:

    events         posts events with unique ids, as Ray's agent does, and notes which were acknowledged
    log_files      writes, rotates, truncates and rewrites log files whose lines have unique numbers
    store_faults   chooses a fault for a request to the store
    archive_reader reads events and log files from the bucket
    disk clock     a disk that can be full or read-only, a clock that jumps
    spool_damage   bits that flip in the spool, and writes that are torn
    leaks          what processes hold, and whether it grows
    machine        the store, its proxies and the history server
    life           one cluster: its collector, its files, its disk
    viewers        ask the history server, and judge its answers
    verdict        compares what went in with what came out
    scenarios/     what is done to a life
    run            one life after the other, until the time is over
    report         the table
"""
