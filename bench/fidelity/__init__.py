"""How well a rebuilt session equals its live dashboard: captures of real clusters, and their score.

    python -m bench.fidelity capture --ray 2.60 --scenario killed --out DIR
    python -m bench.fidelity score DIR
    python -m bench.fidelity matrix          captures and scores, as in docs/fidelity.md
    python -m bench.fidelity docs            writes their section of docs/fidelity.md

A capture is a real cluster of two nodes with a collector beside each, what its dashboard answered twice just before its
death, the archive that the collectors wrote, and the log files that were on disk.
"""
