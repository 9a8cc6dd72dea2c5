"""The tree of tasks: which task, or method of which actor, started which.

As Ray builds it: a task stands below the task that started it; tasks of an actor stand below the actor, the actor below
what created it. Siblings of one name become a group. Every node counts the states of all below it and is as old as the
oldest of them; what runs comes first, then what waits, what failed, and what is older.

Nothing here recurses: a chain of 100,000 tasks is as good as a flat list.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

_RUNNING = ("RUNNING", "RUNNING_IN_RAY_GET", "RUNNING_IN_RAY_WAIT")
_CREATION = 16 * "f"
_PENDING = ("PENDING_ARGS_AVAIL", "PENDING_NODE_ASSIGNMENT", "PENDING_OBJ_STORE_MEM_AVAIL", "PENDING_ARGS_FETCH")


class Attempt(NamedTuple):
    """One attempt of a task, as the tree needs it. A place is a task id, `actor:` with an actor id, or None."""

    task_id: str
    place: str | None
    """What it stands below; None at the top."""
    name: str
    type: str
    state: str
    created_ms: int | None
    actor_name: str | None = None
    """For the creation of an actor: what the actor is called."""
    actor_place: str | None = None
    """And what the actor stands below."""


class Node:
    """A task, an actor, or a group of siblings of one name."""

    __slots__ = ("children", "counts", "key", "name", "timestamp", "type")

    def __init__(self, name: str, key: str, type: str, timestamp: int | None) -> None:  # noqa: A002
        self.name, self.key, self.type, self.timestamp = name, key, type, timestamp
        self.counts: dict[str, int] = _NOTHING
        """How many attempts are in which state. Shared between nodes: replaced, never changed."""
        self.children: list[Node] = _NONE
        """Shared while empty."""


_NOTHING: dict[str, int] = {}
_NONE: list[Node] = []
_NOBODY = Node("", "", "", None)


def grow(
    attempts: Iterable[Attempt], parents: AbstractSet[str] | None = None, shown: Callable[[str], str] = str
) -> list[Node]:
    """The top of the tree of these attempts (or plain tuples like them).

    They come in any order, but those of one task one after the other, the first one first. Only tasks among `parents`
    have others below them; if that is not known, any may. `shown` is what a name is shown as. Attempts are not in the
    tree when what they belong below is unknown, or when they are in a circle.
    """
    tops = _placed(attempts, parents, shown)
    levels = list(tops)
    for node in levels:  # grows while it is read: parents before children
        levels.extend(node.children)
    for node in reversed(levels):
        if node.children:
            node.children, oldest = _grouped(node.children)
            if oldest and oldest < (node.timestamp or sys.maxsize):
                node.timestamp = oldest
            node.counts = _total([node, *node.children])
    return _grouped(tops)[0]


def attempts_in(top: list[Node]) -> int:
    return sum(sum(node.counts.values()) for node in top)


def _placed(attempts: Iterable[Attempt], parents: AbstractSet[str] | None, shown: Callable[[str], str]) -> list[Node]:
    """Nodes below each other; returns those at the top."""
    nodes: dict[str, Node] = {}
    """Those that something may stand below: of a large session few, and only they are looked up."""
    below: dict[str | None, list[Node]] = {None: []}
    shared: Callable[[Any, Any], Any] = {}.setdefault
    """One copy of each text: attempts come with copies of their own."""
    names: dict[str, str] = {}
    once: dict[str, dict[str, int]] = {}
    last, node = "", _NOBODY
    for task_id, place, name, kind, state, created_ms, actor_name, actor_place in attempts:
        if task_id == last:
            node.counts = node.counts | {state: node.counts.get(state, 0) + 1}
            continue
        # A task is as old as its first attempt. In Ray as any of them: it does not define the order of attempts.
        if name not in names:
            names[name] = shown(name)
        last, node = task_id, Node(names[name], task_id, shared(kind, kind), created_ms)
        node.counts = once.setdefault(state, {state: 1})
        if parents is None or task_id in parents:
            nodes[task_id] = node
        below.setdefault(place, []).append(node)
        if kind == "ACTOR_CREATION_TASK" and place is not None:
            nodes[place] = actor = Node(shown(actor_name or ""), place, "ACTOR", None)
            below.setdefault(actor_place, []).append(actor)
    for place, children in below.items():
        if place in nodes:
            nodes[place].children = children
    return below[None]


def _grouped(siblings: list[Node]) -> tuple[list[Node], int | None]:
    """Siblings in the order of display, those of one name as a group; and the oldest timestamp."""
    if len(siblings) == 1:
        return siblings, siblings[0].timestamp
    named: dict[str, list[Node]] = {}
    for node in siblings:
        named.setdefault(node.name, []).append(node)
    ranked = []
    for name, members in named.items():
        if len(members) == 1:
            ranked.append((_rank(members[0], _order(members[0])), members[0]))
            continue
        group = Node(name, name, "GROUP", min((node.timestamp for node in members if node.timestamp), default=None))
        group.children = sorted(members, key=lambda node: _rank(node, _order(node)))
        group.counts = _total(group.children)
        ranked.append((_rank(group, min(map(_order, members))), group))
    ranked.sort(key=itemgetter(0))
    grouped = [node for _, node in ranked]
    return grouped, min((node.timestamp for node in grouped if node.timestamp), default=None)


def _total(nodes: Iterable[Node]) -> dict[str, int]:
    total: dict[str, int] = {}
    for node in nodes:
        for state, count in node.counts.items():
            total[state] = total.get(state, 0) + count
    return total


def _order(node: Node) -> str:
    """Of siblings that nothing else tells apart: by task id, an actor by that of its creation, which holds its own."""
    return node.key.replace("actor:", _CREATION) if node.type == "ACTOR" else node.key


def _rank(node: Node, order: str) -> tuple[int, int, int, int, bool, str]:
    counts = node.counts
    age = node.timestamp or sys.maxsize
    later = node.type != "ACTOR_CREATION_TASK"
    if len(counts) == 1 and "FINISHED" in counts:  # most nodes of most trees
        return 0, 0, 0, age, later, order
    running = sum(counts.get(state, 0) for state in _RUNNING)
    pending = sum(counts.get(state, 0) for state in _PENDING)
    return -running, -pending, -counts.get("FAILED", 0), age, later, order


def written(top: list[Node]) -> Iterator[str]:
    """The tree as JSON text, in pieces."""
    names: dict[str, str] = {}
    waiting: list[Node | str] = ["]", *_separated(top), "["]
    while waiting:
        item = waiting.pop()
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
        waiting.append(closing)
        waiting.extend(_separated(item.children))


def _separated(nodes: list[Node]) -> list[Node | str]:
    """Nodes with commas between them, the first at the end."""
    mixed: list[Node | str] = [", "] * (2 * len(nodes) - 1)
    mixed[::2] = reversed(nodes)
    return mixed
