"""YAML files as DVC reads them: YAML 1.2 by ruamel, set up as in DVC, so params.yaml and dvc.lock agree."""

from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from harr.errors import ParamsError, bare


def parse_yaml(text: str) -> Any:
    """Return the content of a YAML text, as plain values only.

    Raises:
        ValueError: it is not YAML, or a mapping has a duplicate key; the reason is one line.

    >>> parse_yaml("train: {steps: 3, learning_rate: 2e-4}")
    {'train': {'steps': 3, 'learning_rate': 0.0002}}
    >>> parse_yaml("enable_thinking: no")
    {'enable_thinking': 'no'}
    >>> parse_yaml("seed: 0\\nseed: 1")
    Traceback (most recent call last):
        ...
    ValueError: line 2: found duplicate key "seed" with value "1" (original value: "0")
    """
    try:
        return YAML(typ="safe").load(text)
    except MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ValueError(f"{line}{error.problem or error.context}") from None
    # ruamel's conversions raise other errors: `2024-13-45` is not a date, `!!bool x` not a boolean.
    except (YAMLError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())) from None


def read_yaml(path: Path, *, mend: str) -> Any:
    """Return the content of a YAML file.

    Raises:
        ParamsError: the file cannot be read, or is not YAML; one line, which ends with ``mend`` in the first case.
    """
    try:
        return parse_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ParamsError(f"{path}: cannot be read ({error.strerror}); {mend}") from None
    except ValueError as error:  # also a file that is not UTF-8
        raise ParamsError(f"{path}: not valid YAML: {bare(str(error))[:500]}") from None
