"""The names by which pages call the nodes of a session."""

from __future__ import annotations

from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.memo import cached_per_session

_NAMES = """
    with labeled as (
        select node_id, coalesce(nullif(node_name, ''), node_ip, left(node_id, 8)) as label,
            coalesce(is_head_node, false) as is_head, start_ns
        from {nodes}
    ),
    numbered as (
        select *, count(*) over (partition by label) as same,
            row_number() over (partition by is_head order by start_ns nulls last, node_id) as number
        from labeled
    )
    select node_id, case
        when same = 1 then label
        when is_head then 'head, ' || left(node_id, 8)
        else 'worker ' || number || ', ' || left(node_id, 8)
    end
    from numbered
"""


@cached_per_session
def node_names(request: SessionRequest) -> dict[str, str]:
    """Nodes by name or address; those that share one, by role, number and the first digits of their id."""
    return dict(request.tables.rows(_NAMES.format(nodes=request.tables.source("nodes"))))
