"""Records the Ray that a command of this machine starts, and leaves the command alone.

    ray-history run ──starts──▶ command ──starts──▶ Ray ──events──▶ ┐
          │                        ▲                                │
          └──starts, tells──▶ recorder ──finds by a mark────────────┘──▶ archive

command       the parent: runs the command with its own output, signals and exit code
environment   what the command's environment gets: Ray's variables for exporting events, and the mark
processes     finds marked processes, and the sessions that they have open
sessions      these sessions, as a collector follows them
recorder      the recorder: a collector in a process of its own, which no signal of the terminal reaches
messages      what the parent and the recorder tell each other
"""
