"""YAML in which no key stands twice: PyYAML takes the last one and says nothing."""

from typing import Any

import yaml


class StrictSafeLoader(yaml.SafeLoader):
    """PyYAML's safe loader, which counts keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping, unless a key stands twice."""
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    line = key.start_mark.line + 1
                    raise yaml.YAMLError(f"line {line}: the key {key.value[:100]} stands twice; leave one out")
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def load(text: str) -> Any:
    """What a YAML text holds; only plain values are made.

    Raises:
        yaml.YAMLError: it is no YAML, or a key stands twice in a mapping.

    >>> load("train: {steps: 3}")
    {'train': {'steps': 3}}
    >>> load("seed: 0\\nseed: 1")
    Traceback (most recent call last):
        ...
    yaml.error.YAMLError: line 2: the key seed stands twice; leave one out
    """
    return yaml.load(text, Loader=StrictSafeLoader)
