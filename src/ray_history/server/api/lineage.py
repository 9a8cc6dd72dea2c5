"""The tree of tasks: which task, or method of which actor, started which.

As in Ray, the parent of a task is the task that started it, that of an actor's task is the actor, and that of an actor
is the task that created it. Siblings with the same name become a group. Every node counts the states of all nodes below
it and is as old as the oldest of them. Running nodes come first, then pending, failed and older ones. Ray before 2.54
misspells FAILED there, so that its failed nodes stand among the others.

The code does not recurse, so a chain of 100,000 tasks works like a flat list.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

_RUNNING = ("RUNNING", "RUNNING_IN_RAY_GET", "RUNNING_IN_RAY_WAIT")
_PENDING = ("PENDING_ARGS_AVAIL", "PENDING_NODE_ASSIGNMENT", "PENDING_OBJ_STORE_MEM_AVAIL", "PENDING_ARGS_FETCH")
_CREATION_PREFIX = 16 * "f"
"""The task that creates an actor has the actor's id behind these digits."""


class Attempt(NamedTuple):
    """One attempt of a task, as the tree needs it. Parents are task ids, or actor ids after `actor:`."""

    task_id: str
    parent: str | None
    """None at the top."""
    name: str
    type: str
    state: str
    created_ms: int | None
    actor_name: str | None = None
    """Of the actor that this task creates."""
    actor_parent: str | None = None


class Node:
    """A task, an actor, or a group of siblings with the same name."""

    __slots__ = ("children", "counts", "key", "name", "timestamp", "type")

    def __init__(self, name: str, key: str, type: str, timestamp: int | None) -> None:  # noqa: A002
        self.name, self.key, self.type, self.timestamp = name, key, type, timestamp
        # Shared between nodes, which saves memory: replaced, never changed.
        self.counts: dict[str, int] = _NO_COUNTS
        self.children: list[Node] = _NO_CHILDREN


_NO_COUNTS: dict[str, int] = {}
_NO_CHILDREN: list[Node] = []


def build_tree(
    attempts: Iterable[Attempt],
    parents: AbstractSet[str] | None = None,
    redact: Callable[[str], str] = str,
    *,
    failed_first: bool = True,
) -> list[Node]:
    """The top nodes of the tree of these attempts (or of plain tuples like them).

    Attempts come in any order, but all attempts of a task together, the first one first. Only tasks among `parents`
    have others below them; without `parents`, any may. Attempts with an unknown parent, or in a circle, are left out.
    """
    top = _link(attempts, parents, redact)
    levels = list(top)
    for node in levels:  # grows during the iteration: parents before children
        levels.extend(node.children)
    for node in reversed(levels):
        if node.children:
            node.children, oldest = _grouped(node.children, failed_first=failed_first)
            if oldest and oldest < (node.timestamp or sys.maxsize):
                node.timestamp = oldest
            node.counts = _total([node, *node.children])
    return _grouped(top, failed_first=failed_first)[0]


def count_attempts(top: list[Node]) -> int:
    return sum(sum(node.counts.values()) for node in top)


def _link(attempts: Iterable[Attempt], parents: AbstractSet[str] | None, redact: Callable[[str], str]) -> list[Node]:
    """Makes the nodes and their children; returns the top nodes."""
    nodes: dict[str, Node] = {}  # the possible parents, which are few in large sessions
    children: dict[str | None, list[Node]] = {None: []}
    # One copy of each text: every attempt comes with copies of its own.
    shared: Callable[[Any, Any], Any] = {}.setdefault
    names: dict[str, str] = {}
    initial_counts: dict[str, dict[str, int]] = {}
    node = Node("", "", "", None)
    for attempt in attempts:
        # Not by attributes, which are slow for a million plain tuples.
        task_id, parent, name, kind, state, created_ms = attempt[:6]
        if task_id == node.key:
            node.counts = node.counts | {state: node.counts.get(state, 0) + 1}
            continue
        if name not in names:
            names[name] = redact(name)
        # A task is as old as its first attempt; in Ray as any of them, since it defines no order of attempts.
        node = Node(names[name], task_id, shared(kind, kind), created_ms)
        node.counts = initial_counts.setdefault(state, {state: 1})
        if parents is None or task_id in parents:
            nodes[task_id] = node
        children.setdefault(parent, []).append(node)
        if kind == "ACTOR_CREATION_TASK" and parent is not None:
            actor_name, actor_parent = attempt[6:]
            nodes[parent] = actor = Node(redact(actor_name or ""), parent, "ACTOR", None)
            children.setdefault(actor_parent, []).append(actor)
    for parent, siblings in children.items():
        if parent in nodes:
            nodes[parent].children = siblings
    return children[None]


def _grouped(siblings: list[Node], *, failed_first: bool) -> tuple[list[Node], int | None]:
    """Siblings in display order, grouped by name, and their oldest timestamp."""
    if len(siblings) == 1:
        return siblings, siblings[0].timestamp
    rank = partial(_rank, failed_first=failed_first)
    by_name: dict[str, list[Node]] = {}
    for node in siblings:
        by_name.setdefault(node.name, []).append(node)
    ranked = []
    for name, members in by_name.items():
        if len(members) == 1:
            ranked.append((rank(members[0], _sort_key(members[0])), members[0]))
            continue
        group = Node(name, name, "GROUP", _oldest(members))
        group.children = sorted(members, key=lambda node: rank(node, _sort_key(node)))
        group.counts = _total(group.children)
        ranked.append((rank(group, min(map(_sort_key, members))), group))
    ranked.sort(key=itemgetter(0))
    grouped = [node for _, node in ranked]
    return grouped, _oldest(grouped)


def _oldest(nodes: list[Node]) -> int | None:
    return min((node.timestamp for node in nodes if node.timestamp), default=None)


def _total(nodes: Iterable[Node]) -> dict[str, int]:
    total: dict[str, int] = {}
    for node in nodes:
        for state, count in node.counts.items():
            total[state] = total.get(state, 0) + count
    return total


def _sort_key(node: Node) -> str:
    """Siblings of equal rank are sorted by task ID, actors by the ID of the task that created them."""
    return node.key.replace("actor:", _CREATION_PREFIX) if node.type == "ACTOR" else node.key


def _rank(node: Node, sort_key: str, *, failed_first: bool) -> tuple[int, int, int, int, bool, str]:
    counts = node.counts
    age = node.timestamp or sys.maxsize
    later = node.type != "ACTOR_CREATION_TASK"
    if len(counts) == 1 and "FINISHED" in counts:  # most nodes of most trees
        return 0, 0, 0, age, later, sort_key
    running = sum(counts.get(state, 0) for state in _RUNNING)
    pending = sum(counts.get(state, 0) for state in _PENDING)
    failed = counts.get("FAILED", 0) if failed_first else 0
    return -running, -pending, -failed, age, later, sort_key


def tree_json(top: list[Node]) -> Iterator[str]:
    """The tree as JSON text, in pieces."""
    names: dict[str, str] = {}
    stack: list[Node | str] = ["]", *_separated(top), "["]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
            continue
        name = names.get(item.name)
        if name is None:
            name = names[item.name] = msgspec.json.encode(item.name).decode()
        key = item.key
        if item.type == "GROUP":
            key, link = name, "null"
        elif item.type == "ACTOR":
            link = f'{{"type": "actor", "id": "{key.removeprefix("actor:")}"}}'
            key = f'"{key}"'
        else:
            key = f'"{key}"'
            link = f'{{"type": "task", "id": {key}}}'
        age = "null" if item.timestamp is None else item.timestamp
        counts = ", ".join([f'"{state}": {count}' for state, count in item.counts.items()])
        opening = (
            f'{{"name": {name}, "key": {key}, "type": "{item.type}", "timestamp": {age}, '
            f'"state_counts": {{{counts}}}, "children": ['
        )
        closing = f'], "link": {link}}}'
        if not item.children:
            yield opening + closing
            continue
        yield opening
        stack.append(closing)
        stack.extend(_separated(item.children))


def _separated(nodes: list[Node]) -> list[Node | str]:
    """Nodes with commas between them, in reverse."""
    mixed: list[Node | str] = [", "] * (2 * len(nodes) - 1)
    mixed[::2] = reversed(nodes)
    return mixed
