"""`{"$ref": path}` objects of fastjson, replaced by what they point at.

Paths are `$` followed by `.name` (special characters after a backslash) and `[index]`. fastjson
writes one for each repetition of an object and points at the first one, so a reference leads to an
object or an array, and never through more than a few other references. One that leads nowhere, to
itself or to something that contains it is an error.

A small document must not cause much work: each path is looked up once, and both the references
between a path and its object and the unfolded size are limited.
"""

from __future__ import annotations

import re
from typing import Any, Final

from broker_core.errors import MalformedJson

# References that one reference may lead through; fastjson needs none.
HOPS_MAX: Final = 8
# Limit of the unfolded size, in characters of strings plus one per other value: this many times the
# size of the document, plus an allowance for small documents.
UNFOLD_FACTOR: Final = 4
UNFOLD_FREE: Final = 64 << 10

_STEP = re.compile(r"\.((?:[^.\[\\]|\\.)+)|\[(-?[0-9]{1,19})\]|\[(['\"])((?:[^\\]|\\.)*?)\3\]")
_ESCAPE = re.compile(r"\\(.)")
_REFERENCE: Final = "$ref"


def resolve_references(root: Any, text_size: int, depth_max: int) -> Any:
    """`root` with every reference replaced by its target; equal targets are one object."""
    return _Resolver(root, UNFOLD_FACTOR * text_size + UNFOLD_FREE, depth_max).resolve()


class _Resolver:
    def __init__(self, root: Any, size_max: int, depth_max: int) -> None:
        self._root = root
        self._size_max = size_max
        self._depth_max = depth_max
        # id of a container → (size that it unfolds to, levels below); (0, 0) during its visit.
        self._visited: dict[int, tuple[int, int]] = {}
        # Path → what it leads to in the end.
        self._targets: dict[str, Any] = {}

    def resolve(self) -> Any:
        root = self._target_of(self._root)
        if isinstance(root, dict | list):
            self._visit(root, 1)
        return root

    def _visit(self, container: Any, depth: int) -> tuple[int, int]:
        """Replace the references inside; measure what the container unfolds to."""
        known = self._visited.get(id(container))
        if known is not None:
            if known[0] == 0:
                raise MalformedJson("a reference leads to something that contains it")
            return known
        if depth > self._depth_max:
            raise MalformedJson(f"references unfold deeper than {self._depth_max}")
        self._visited[id(container)] = (0, 0)
        size, levels = 1, 0
        entries: Any = container.items() if isinstance(container, dict) else enumerate(container)
        for key, item in list(entries):
            target = self._target_of(item)
            if target is not item:
                container[key] = target
            if isinstance(target, dict | list):
                inner_size, inner_levels = self._visit(target, depth + 1)
                size += inner_size
                levels = max(levels, inner_levels + 1)
            else:
                size += 1 + (len(target) if isinstance(target, str) else 0)
        if size > self._size_max or levels >= self._depth_max:
            raise MalformedJson(
                f"references unfold to {size} characters on {levels + 1} levels, at most "
                f"{self._size_max} on {self._depth_max}"
            )
        self._visited[id(container)] = (size, levels)
        return size, levels

    def _target_of(self, item: Any) -> Any:
        """What `item` stands for: itself, unless it is a reference."""
        if not _is_reference(item):
            return item
        followed: list[str] = []
        while _is_reference(item):
            path = item[_REFERENCE]
            if not isinstance(path, str) or path in followed:
                raise MalformedJson(f"the reference {path!r:.80} leads nowhere")
            if path in self._targets:
                item = self._targets[path]
                break
            if len(followed) == HOPS_MAX:
                raise MalformedJson(
                    f"the reference {followed[0]!r:.80} leads through more than {HOPS_MAX} others"
                )
            followed.append(path)
            item = self._at(path)
        if not isinstance(item, dict | list):
            # A reference to a long string could repeat it at no cost.
            raise MalformedJson(f"the reference {followed[0]!r:.80} leads to no object or array")
        for path in followed:
            self._targets[path] = item
        return item

    def _at(self, path: str) -> Any:
        if not path.startswith("$"):
            # `..` and `@` name an ancestor, so the document would contain itself.
            raise MalformedJson(f"the reference {path!r:.80} leads to something that contains it")
        found = self._root
        position = 1
        while position < len(path):
            step = _STEP.match(path, position)
            if step is None:
                raise MalformedJson(f"the reference {path!r:.80} leads nowhere")
            position = step.end()
            found = self._step(found, step, path)
        return found

    def _step(self, found: Any, step: re.Match[str], path: str) -> Any:
        name, index, _, quoted = step.groups()
        try:
            if isinstance(found, list) and index is not None:
                if int(index) >= 0:
                    return found[int(index)]
            elif isinstance(found, dict):
                if index is not None:
                    return found[str(int(index))]
                return found[_ESCAPE.sub(r"\1", name if quoted is None else quoted)]
        except (IndexError, KeyError):
            pass
        raise MalformedJson(f"the reference {path!r:.80} leads nowhere")


def _is_reference(item: Any) -> bool:
    return isinstance(item, dict) and len(item) == 1 and _REFERENCE in item
