"""`{"$ref": path}` objects of fastjson, replaced by what they point at.

Paths are `$` followed by `.name` (special characters after a backslash) and `[index]`. A reference
that leads nowhere, to itself or to something that contains it is refused, and so is a text whose
references unfold to more values than allowed.
"""

from __future__ import annotations

import re
from typing import Any, Final

from broker_core.errors import MalformedJson

_STEP = re.compile(r"\.((?:[^.\[\\]|\\.)+)|\[(-?[0-9]{1,19})\]|\[(['\"])((?:[^\\]|\\.)*?)\3\]")
_ESCAPE = re.compile(r"\\(.)")
_REFERENCE: Final = "$ref"


def resolve_references(root: Any, values_max: int, depth_max: int) -> Any:
    """`root` with every reference replaced by its target; equal targets are one object."""
    return _Resolver(root, values_max, depth_max).resolve()


class _Resolver:
    def __init__(self, root: Any, values_max: int, depth_max: int) -> None:
        self._root = root
        self._values_max = values_max
        self._depth_max = depth_max
        # id of a container → (values that it unfolds to, levels below); (0, 0) during its visit.
        self._visited: dict[int, tuple[int, int]] = {}

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
        values, levels = 1, 0
        entries: Any = container.items() if isinstance(container, dict) else enumerate(container)
        for key, item in list(entries):
            target = self._target_of(item)
            if target is not item:
                container[key] = target
            if isinstance(target, dict | list):
                inner_values, inner_levels = self._visit(target, depth + 1)
                values += inner_values
                levels = max(levels, inner_levels + 1)
            else:
                values += 1
        if values > self._values_max or levels >= self._depth_max:
            raise MalformedJson(f"references unfold to {values} values on {levels + 1} levels")
        self._visited[id(container)] = (values, levels)
        return values, levels

    def _target_of(self, item: Any) -> Any:
        """What `item` stands for: itself, unless it is a reference."""
        followed: set[str] = set()
        while isinstance(item, dict) and len(item) == 1 and _REFERENCE in item:
            path = item[_REFERENCE]
            if not isinstance(path, str) or path in followed:
                raise MalformedJson(f"the reference {path!r:.80} leads nowhere")
            followed.add(path)
            item = self._at(path)
        return item

    def _at(self, path: str) -> Any:
        if not path.startswith("$"):
            # `..` and `@` name an ancestor, which no finite text can contain.
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
