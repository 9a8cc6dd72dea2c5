"""Recorded metrics: what scraping, blocks, tables and queries cost, beside Prometheus and VictoriaMetrics.

Goals: at 4,000 series at most 1 % of a core, 15 MiB and 2 bytes per sample in the archive; 1.1 bytes per sample in the
index; a panel of 200 nodes over 24 hours in 100 ms, the heaviest one in 1.5 s and 256 MiB; the whole Core dashboard of
an hour in 1 s. Smaller than the blocks of Prometheus, and a cold dashboard is not slower.
"""

from .large import large_session
from .peers import side_by_side
from .scraping import scraping


def main() -> None:
    scraping()
    side_by_side()
    large_session()
