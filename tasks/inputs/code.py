"""Which modules a stage imports, given what its parameters choose, and a hash of what each does.

The graph is static (grimp), so nothing is imported. What is chosen by name is in a table of one module (``METHODS``,
``PIPELINES``, ``DATASETS``, ``ARMS``); only its chosen entries count, and modules that only other entries name are not
followed. The parsed code is hashed without docstrings and comments, so neither they nor the layout make a stage stale.
"""

import ast
import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from harr.errors import ParamsError, one_line
from harr.params.fields import is_dotted

PACKAGES = ("harr", "tasks")
TEXTS = {".txt", ".j2", ".js", ".css", ".html"}
"""Suffixes of the files next to a module that belong to it: prompts and templates."""
Chosen = Mapping[tuple[str, str], frozenset[str]]
"""Keys that count, by module and table: ``{("harr.rag.pipelines", "PIPELINES"): {"react"}}``."""


@dataclass
class Code:
    """The modules of harr, tasks and ``others`` (packages of plug-ins and users), with their imports."""

    others: tuple[str, ...] = ()
    _trees: dict[str, ast.Module] = field(default_factory=dict)
    _hashes: dict[Any, str] = field(default_factory=dict)
    _beside: dict[Path, list[Path]] = field(default_factory=dict)
    _graph: Any = None

    def __post_init__(self) -> None:
        import grimp
        from grimp.exceptions import SourceSyntaxError

        try:
            self._graph = grimp.build_graph(
                *PACKAGES,
                *filter(_is_package, self.others),
                include_external_packages=True,
                exclude_type_checking_imports=True,
                cache_dir=None,
            )
        except (SourceSyntaxError, UnicodeError) as error:
            raise ParamsError(f"code that params.yaml names cannot be read: {one_line(error)}; mend it") from None

    def hashes(
        self, starts: Collection[str], chosen: Chosen, aside: Collection[str]
    ) -> tuple[dict[str, str], set[str]]:
        """Return by file the hashes of modules and of all that they import, directly or not.

        The packages of others that these import are returned as well.

        Args:
            starts: modules.
            chosen: the entries of tables that count.
            aside: modules, or packages by name, that affect no result; they are not followed.
        """
        hashes: dict[str, str] = {}
        others: set[str] = set()
        pending = [*starts]
        while pending:
            name = pending.pop()
            if name.partition(".")[0] not in (*PACKAGES, *self.others):
                others.add(name)
            elif (file := self._file(name)) not in hashes and not _is_below(name, aside):
                entries = {table: keys for (module, table), keys in chosen.items() if module == name}
                hashes[file] = self._hash(name, entries)
                others |= set(_optional(self._tree(name)))
                if name in self._graph.modules:  # a one-file package is not in it
                    pending += self._graph.find_modules_directly_imported_by(name) - self._unused_modules(name, entries)
        return dict(sorted(hashes.items())), others

    def has(self, name: str) -> bool:
        """Return whether this is a module of the ``others``; settings may contain text that only looks like one."""
        return name.partition(".")[0] in self.others and self._path(name).exists()

    def _hash(self, name: str, entries: Mapping[str, frozenset[str]]) -> str:
        key = (name, tuple(sorted((table, tuple(sorted(keys))) for table, keys in entries.items())))
        if key not in self._hashes:
            tree = _only(self._tree(name), entries)
            self._hashes[key] = code_hash(tree, self._texts(name, tree))
        return self._hashes[key]

    def _path(self, name: str) -> Path:
        top, *below = name.split(".")
        path = _folder(top).joinpath(*below)
        if not below and not _is_package(top):
            return path / f"{top}.py"
        return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")

    def _file(self, name: str) -> str:
        """Return a module's file in readable form: harr/train/grpo.py."""
        top = name.partition(".")[0]
        return self._path(name).relative_to(_folder(top).parent if _is_package(top) else _folder(top)).as_posix()

    def _tree(self, name: str) -> ast.Module:
        if name not in self._trees:
            path = self._path(name)
            try:
                self._trees[name] = ast.parse(self.read(path))
            except (SyntaxError, ValueError) as error:
                raise ParamsError(f"{path} is not Python ({one_line(error)}); mend it") from None
        return self._trees[name]

    def read(self, path: Path) -> bytes:
        """Return the content of a code file; nothing for the ``__init__.py`` that a folder lacks."""
        return b"" if path.name == "__init__.py" and not path.exists() else path.read_bytes()

    def _texts(self, name: str, tree: ast.Module) -> list[bytes]:
        """Return the files next to or below a module whose names it mentions: prompts and templates."""
        folder = self._path(name).parent
        if folder not in self._beside:
            files = sorted(path for path in folder.rglob("*") if path.suffix in TEXTS)
            self._beside[folder] = files
        if not self._beside[folder]:
            return []
        words = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        return [self.read(path) for path in self._beside[folder] if words & {path.stem, path.name}]

    def _unused_modules(self, name: str, entries: Mapping[str, frozenset[str]]) -> set[str]:
        """Return the modules that only unchosen entries of a module's tables name."""
        cut: set[str] = set()
        for table, keys in entries.items():
            by_key = table_modules(name, self._tree(name), table)
            used = {module for key, modules in by_key.items() if key in keys for module in modules}
            cut |= {module for modules in by_key.values() for module in modules} - used
        return cut


def _is_below(name: str, packages: Collection[str]) -> bool:
    return name in PACKAGES or any(name == one or name.startswith(f"{one}.") for one in packages)


def named_modules(values: Any) -> set[str]:
    """Return the modules of other packages' functions (``package.module:name``) in values or keys, at any depth.

    >>> sorted(named_modules({"function": "mine.search:find", "terms": {"a:b": 1.0}, "arms": ["c.d:e", "dense", "f g:h"]}))
    ['a', 'c.d', 'mine.search']
    """
    if isinstance(values, Mapping):
        values = [*values.keys(), *values.values()]
    if isinstance(values, list | tuple):
        return {module for value in values for module in named_modules(value)}
    return {values.partition(":")[0]} if isinstance(values, str) and is_dotted(values) else set()


def packages_of(modules: Iterable[str]) -> tuple[str, ...]:
    """Return the modules' packages that are installed and not ours, and the plug-ins that these import; a missing one
    is reported where it is used."""
    tops: set[str] = set()
    pending = {*modules}
    while pending:
        module = pending.pop()
        top = module.partition(".")[0]
        if top not in {*PACKAGES, *tops} and _has_code(module):
            tops.add(top)
            pending |= _plugins_of(top)
    return tuple(sorted(tops))


def _has_code(module: str) -> bool:
    """Return whether a module's package has code; a folder without ``__init__.py`` counts if it holds the module."""
    top, *below = module.split(".")
    if (spec := _spec(top)) and _is_namespace(spec):
        path = _folder(top).joinpath(*below)
        return bool(below) and (path.with_suffix(".py").exists() or path.is_dir())
    return bool(spec) and str(spec.origin).endswith(".py")


@cache
def _plugins_of(top: str) -> set[str]:
    """Return the packages called ``harr_...`` that a package imports."""
    if not _is_package(top):
        return set()
    texts = (path.read_text(encoding="utf-8", errors="replace") for path in _folder(top).rglob("*.py"))
    return {name for text in texts for name in re.findall(r"^\s*(?:from|import) (harr_\w+)", text, re.MULTILINE)}


@cache
def _spec(top: str) -> Any:
    from importlib.util import find_spec

    return find_spec(top)


def _is_package(top: str) -> bool:
    return bool(_spec(top).submodule_search_locations)


def _is_namespace(spec: Any) -> bool:
    """Return whether this is one folder without ``__init__.py``."""
    return spec.origin is None and len(spec.submodule_search_locations or ()) == 1


def _folder(package: str) -> Path:
    """Return the folder of a package, or of its only file, without importing it."""
    spec = _spec(package)
    if spec and _is_namespace(spec):
        return Path(next(iter(spec.submodule_search_locations)))
    if spec is None or not spec.origin:
        raise ModuleNotFoundError(f"package {package} is not here; run this in the project's folder")
    return Path(spec.origin).parent


def _optional(tree: ast.Module) -> Iterator[str]:
    """Yield the packages that a module loads by name (``harr.io.extras.optional``) rather than by an import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "optional":
            yield from (str(argument.value) for argument in node.args[:1] if isinstance(argument, ast.Constant))


def code_hash(tree: ast.AST, texts: Iterable[bytes] = ()) -> str:
    """Return a hash of what code does: of its syntax tree without docstrings, and of its texts.

    >>> one, other = "def f(x):\\n    'Doc.'\\n    return (x)  # why", "def f(x): return x"
    >>> code_hash(ast.parse(one)) == code_hash(ast.parse(other)) != code_hash(ast.parse("def f(x): return -x"))
    True
    """
    parts: list[str] = []
    _write(tree, parts)
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass"))
    for text in texts:
        digest.update(hashlib.sha256(text).digest())
    return digest.hexdigest()[:16]


def _write(node: Any, parts: list[str]) -> None:
    """Append a syntax tree as texts that are the same in every Python version: empty fields are left out."""
    if isinstance(node, ast.AST):
        parts.append(type(node).__name__)
        for name in node._fields:
            value = getattr(node, name, None)
            if value is None or value == [] or name in ("ctx", "kind", "type_comment"):
                continue
            parts.append(name)
            _write(_without_docstrings(value) if name == "body" else value, parts)
        parts.append(")")
    elif isinstance(node, list):
        for item in node:
            _write(item, parts)
    else:
        parts.append(repr(node))


def _without_docstrings(body: Any) -> Any:
    """Return statements without docstrings of modules, classes, functions and attributes."""
    return [statement for statement in body if not _is_docstring(statement)] if isinstance(body, list) else body


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _table(tree: ast.Module, name: str) -> ast.Dict:
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            value = getattr(node, "value", None)
            if isinstance(value, ast.Dict):
                return value
    raise LookupError(f"no table {name}")


def _only(tree: ast.Module, entries: Mapping[str, frozenset[str]]) -> ast.Module:
    """Return a module whose tables have only these keys; entries whose key is not a string stay."""
    if not entries:
        return tree
    body = list(tree.body)
    for name, keys in entries.items():
        table = _table(tree, name)
        pairs = [
            (key, value)
            for key, value in zip(table.keys, table.values, strict=True)
            if not isinstance(key, ast.Constant) or key.value in keys
        ]
        smaller = ast.Dict([key for key, _ in pairs], [value for _, value in pairs])
        place = next(number for number, node in enumerate(body) if getattr(node, "value", None) is table)
        body[place] = ast.Assign([ast.Name(name)], smaller)
    return ast.Module(body, [])


def table_modules(module: str, tree: ast.Module, name: str) -> dict[str, set[str]]:
    """Return the modules that each entry of a table uses: through names in it, and in functions it names.

    >>> code = "from a.b import play\\ndef _lazy():\\n    from a.c import sing\\nT = {'x': play, 'y': _lazy}"
    >>> {key: sorted(modules) for key, modules in table_modules("a", ast.parse(code), "T").items()}
    {'x': ['a.b'], 'y': ['a.c']}
    """
    local = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    imported = dict(_imports(tree.body, module))

    def modules(node: ast.AST, seen: frozenset[str] = frozenset()) -> set[str]:
        names: set[str] = set()
        for part in ast.walk(node):
            if isinstance(part, ast.ImportFrom):
                names |= {where for _, where in _imports([part], module)}
            if isinstance(part, ast.Name) and part.id in imported:
                names.add(imported[part.id])
            elif isinstance(part, ast.Name) and part.id in local and part.id not in seen:
                names |= modules(local[part.id], seen | {part.id})
        return names

    table = _table(tree, name)
    pairs = zip(table.keys, table.values, strict=True)
    return {str(key.value): modules(value) for key, value in pairs if isinstance(key, ast.Constant)}


def _imports(body: Iterable[ast.stmt], module: str) -> Iterator[tuple[str, str]]:
    """Yield each name that statements import from our packages, and the module that it is or belongs to."""
    for node in body:
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                below = f"{node.module}.{alias.name}"
                yield alias.asname or alias.name, below if _is_module(below) else node.module


def _is_module(name: str) -> bool:
    top, *below = name.split(".")
    if top not in PACKAGES:
        return False
    path = _folder(top).joinpath(*below)
    return path.is_dir() or path.with_suffix(".py").exists()
