"""YAML in which no key stands twice and no number is octal: PyYAML takes the last key, and 010 as 8, without a word."""

import re
from typing import Any

import yaml

MERGE = "tag:yaml.org,2002:merge"


class StrictSafeLoader(yaml.SafeLoader):
    """PyYAML's safe loader, which counts keys and refuses integers that begin with 0."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._checked: set[yaml.MappingNode] = set()
        """PyYAML writes merged keys into a node, which may be merged again: it is looked at as it was written."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Put merged keys into a mapping, unless one of its own keys stands twice."""
        seen: set[str] = set()
        for key, _ in [] if node in self._checked else node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != MERGE:
                if key.value in seen:
                    line = key.start_mark.line + 1
                    raise yaml.YAMLError(f"line {line}: the key {key.value[:100]} stands twice; leave one out")
                seen.add(key.value)
        self._checked.add(node)
        super().flatten_mapping(node)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """An integer, unless it begins with 0 and would be read as octal."""
        if re.fullmatch(r"[-+]?0[0-9_]+", node.value):
            line = node.start_mark.line + 1
            raise yaml.YAMLError(f"line {line}: {node.value[:100]} would be octal; leave out the 0 it begins with")
        return int(super().construct_yaml_int(node))


StrictSafeLoader.add_constructor("tag:yaml.org,2002:int", StrictSafeLoader.construct_yaml_int)


def load(text: str) -> Any:
    """What a YAML text holds; only plain values are made.

    Raises:
        yaml.YAMLError: it is no YAML, a key stands twice in a mapping, or a number is octal.

    >>> load("train: {steps: 3}")
    {'train': {'steps': 3}}
    >>> load("z: &z {k: 1}\\na: {b: &b {<<: *z, k: 2}}\\nc: {<<: *b}")
    {'z': {'k': 1}, 'a': {'b': {'k': 2}}, 'c': {'k': 2}}
    >>> load("seed: 0\\nseed: 1")
    Traceback (most recent call last):
        ...
    yaml.error.YAMLError: line 2: the key seed stands twice; leave one out
    >>> load("seed: 010")
    Traceback (most recent call last):
        ...
    yaml.error.YAMLError: line 1: 010 would be octal; leave out the 0 it begins with
    """
    return yaml.load(text, Loader=StrictSafeLoader)
