"""HTML as a tree, for tests of pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = frozenset({"meta", "link", "input", "br", "hr", "img"})


@dataclass
class Element:
    """An element with the elements and texts in it."""

    tag: str
    attributes: dict[str, str]
    inside: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text in it, with single spaces."""
        return " ".join("".join(self._texts()).split())

    def _texts(self) -> Iterator[str]:
        for part in self.inside:
            if isinstance(part, str):
                yield part
            else:
                yield " "
                yield from part._texts()
                yield " "

    def walk(self) -> Iterator[Element]:
        yield self
        for part in self.inside:
            if isinstance(part, Element):
                yield from part.walk()

    def all(self, tag: str = "", having: str = "", where: Callable[[Element], bool] = lambda _: True) -> list[Element]:
        """Elements by tag and class, in the order of the page."""
        return [
            found
            for found in self.walk()
            if (not tag or found.tag == tag)
            and (not having or having in found.attributes.get("class", "").split())
            and where(found)
        ]

    def one(self, tag: str = "", having: str = "", where: Callable[[Element], bool] = lambda _: True) -> Element:
        found = self.all(tag, having, where)
        assert len(found) == 1, f"{len(found)} of <{tag} class={having}>"
        return found[0]


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open = [Element("", {})]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].inside.append(element)
        if tag not in _VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].inside.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> inside <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].inside.append(data)


def parsed(body: bytes) -> Element:
    """The parsed page; elements that do not nest are an error."""
    parser = _Parser()
    parser.feed(body.decode())
    parser.close()
    assert len(parser.open) == 1, f"<{parser.open[-1].tag}> is not closed"
    return parser.open[0]
