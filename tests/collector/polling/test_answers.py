from __future__ import annotations

import msgspec
import pytest

from ray_history.collector.polling.answers import alive_nodes, is_partial, job_rows


def rows(*nodes: object, warning: str = "") -> bytes:
    result = {"result": nodes, "partial_failure_warning": warning}
    return msgspec.json.encode({"result": True, "data": {"result": result}})


def test_alive_nodes_are_those_that_can_be_part_of_a_url() -> None:
    alive = {"node_id": "ab12", "state": "ALIVE", "extra": [1]}
    body = rows(alive, {"node_id": "cd", "state": "DEAD"}, {"node_id": "../x", "state": "ALIVE"}, {"node_id": "ef"})
    assert alive_nodes(body) == ["ab12"]
    assert alive_nodes(b"{}") == []


def test_job_rows_ignore_other_fields() -> None:
    (row,) = job_rows(b'[{"job_id": null, "status": "RUNNING", "entrypoint": "x"}]')
    assert (row.job_id, row.status) == (None, "RUNNING")


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"data": []}', b'[{"job_id": 7}]'])
def test_an_answer_that_is_not_of_ray_is_an_error(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        job_rows(body)


@pytest.mark.parametrize(
    ("body", "partial"), [(rows(), False), (rows(warning="2 of 3 nodes"), True), (b'{"data": {}}', False)]
)
def test_an_answer_is_partial_if_ray_warns(body: bytes, partial: bool) -> None:
    assert is_partial(body) is partial
