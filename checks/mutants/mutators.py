"""Every small way to break a file of the core: a number, an operator, a bound, a statement.

Not broken are words (docstrings, messages, what is raised or warned), annotations, decorators, and
what only helps to print. A mutant belongs to a unit: a function or method with all that is defined
in it, or a constant of a module or class. Its number counts within the unit, so that it keeps its
name until the unit itself is changed.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "calliper"

#: Where a tree is changed: an owner's field, the place in it if it is a list, and what goes there.
Edit = tuple[ast.AST, str, int | None, Any]

#: Added to what units are known by: with other ways to break them, old verdicts are void.
VERSION = "1"

OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitAnd,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip

_PAIRS = "min max, minimum maximum, fmin fmax, argmin argmax, floor ceil, any all, zeros ones"
NAMES = {a: b for pair in _PAIRS.split(", ") for a, b in (pair.split(), pair.split()[::-1])}
NAMES |= {"zeros_like": "ones_like", "ones_like": "zeros_like"}

#: Words that stand for a choice, as arguments of these names.
WORDS = {"left": "right", "right": "left", "stable": "quicksort"}

#: Functions that may be forgotten: what they are given is taken as it is.
FORGETTABLE = {"abs", "sort", "sqrt", "nan_to_num", "cumsum", "unique", "round"}

#: Arguments that check, describe or save time, and change no result.
UNBROKEN_ARGUMENTS = {"strict", "copy", "dtype", "maxsize", "stacklevel", "check_finite", "workers"}

#: Functions of words, and what is called with words alone.
UNBROKEN_FUNCTIONS = {"__repr__", "_repr_html_", "_note", "describe", "__sklearn_tags__", "__dir__"}
SPEAKING = {"warn", "TypeVar", "getLogger"}


@dataclass(frozen=True)
class Mutant:
    """One way to break one unit.

    Attributes
    ----------
    file : below ``src/calliper``
    unit : what is broken, as Python names it: ``KNN.at_most``
    number : which of the ways to break it
    key : of the unit's text without docstrings; other text is another unit
    lines : first and last of the statement, or those of the whole unit for what runs on import
    change : before and after, in a line
    edit : (owner, field, place or None, replacement) in the tree of the file
    constant : whether the unit is one of a module or class
    """

    file: str
    unit: str
    number: int
    key: str
    lines: tuple[int, int]
    change: str
    edit: Edit
    constant: bool

    def apply(self) -> Any:
        """Break the tree; what stood there before."""
        owner, field, place, new = self.edit
        return _put(owner, field, place, new)


def core_files() -> list[str]:
    """The numerical core, below ``src/calliper``."""
    folders = ("kernels", "calibrators")
    inside = (path for folder in folders for path in (SOURCE / folder).glob("*.py"))
    named = sorted(str(path.relative_to(SOURCE)) for path in inside if path.name != "__init__.py")
    return [*named, "guarantees.py", "quantile.py", "scores.py"]


def tree_of(file: str) -> ast.Module:
    """A file of the core, parsed."""
    return ast.parse((SOURCE / file).read_text(encoding="utf-8"))


def mutants_of(file: str) -> tuple[ast.Module, list[Mutant]]:
    """The tree of a file and all ways to break it, unit by unit."""
    tree, found = tree_of(file), []
    for unit, node in units(tree):
        key = key_of(node)
        for number, (statement, edit) in enumerate(edits_of(node)):
            at = _lines(statement) if statement is not node else (node.lineno, node.end_lineno or 0)
            change, constant = _change(edit, statement), not isinstance(node, ast.FunctionDef)
            found.append(Mutant(file, unit, number, key, at, change, edit, constant))
    return tree, found


def units(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """Functions, methods and constants with their names, in the order of the file."""

    def inside(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.stmt]]:
        for node in body:
            if isinstance(node, ast.ClassDef):
                yield from inside(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.FunctionDef) and node.name not in UNBROKEN_FUNCTIONS:
                yield prefix + node.name, node
            elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                names = [n.id for n in ast.walk(target) if isinstance(n, ast.Name)]
                if names and names[0] != "__all__":
                    yield prefix + ",".join(names), node

    yield from inside(tree.body, "")


def unit_of(tree: ast.Module, mutant: Mutant) -> ast.stmt:
    """The unit that a mutant breaks; a property and its setter have one name."""
    return next(n for name, n in units(tree) if name == mutant.unit and holds(n, mutant))


def holds(node: ast.AST, mutant: Mutant) -> bool:
    """Whether what is broken is in there."""
    return any(inner is mutant.edit[0] for inner in ast.walk(node))


def key_of(node: ast.stmt) -> str:
    """What a unit is known by: its text without docstrings and layout."""
    bare = ast.parse(ast.unparse(node))
    for inner in ast.walk(bare):
        if isinstance(inner, ast.FunctionDef) and ast.get_docstring(inner) is not None:
            inner.body = inner.body[1:] or [ast.Pass()]
    return hashlib.sha256((VERSION + ast.unparse(bare)).encode()).hexdigest()[:10]


def _lines(node: ast.AST) -> tuple[int, int]:
    """First and last line of a statement; of one with a body, of its head."""
    first, last = node.lineno, node.end_lineno  # type: ignore[attr-defined]
    body = getattr(node, "body", None)
    if isinstance(node, ast.stmt) and isinstance(body, list) and body:
        last = max(first, body[0].lineno - 1)
    return first, last


def _put(owner: ast.AST, field: str, place: int | None, new: Any) -> Any:
    """Set a field, or one place of it; what stood there."""
    old = getattr(owner, field)
    if place is None:
        setattr(owner, field, new)
        return old
    before, old[place] = old[place], new
    return before


def edits_of(unit: ast.stmt) -> list[tuple[ast.stmt, Edit]]:
    """All edits of a unit, each with the statement that it is in."""
    if not isinstance(unit, ast.FunctionDef):
        found = list(_within(unit, "value", unit))
        return [(at, edit) for at, edit in found if not isinstance(edit[3], ast.BitAnd)]  # types
    owners = ((unit.args, "defaults"), (unit.args, "kw_defaults"), (unit, "body"))
    return [edit for owner, field in owners for edit in _within(owner, field, unit)]


def _within(owner: ast.AST, field: str, statement: ast.stmt) -> Iterator[tuple[ast.stmt, Edit]]:
    value = getattr(owner, field)
    for place, child in enumerate(value if isinstance(value, list) else [value]):
        if isinstance(child, ast.AST) and not _is_words(owner, field, child):
            at = child if isinstance(child, ast.stmt) else statement
            where = place if isinstance(value, list) else None
            yield from ((at, (owner, field, where, new)) for new in _broken(child, owner, field))
            yield from _below(child, at)


def _below(node: ast.AST, statement: ast.stmt) -> Iterator[tuple[ast.stmt, Edit]]:
    for field in node._fields:
        if field not in ("annotation", "returns", "decorator_list", "type_comment", "ctx"):
            yield from _within(node, field, statement)


def _is_words(owner: ast.AST, field: str, child: ast.AST) -> bool:
    """Whether nothing in there decides anything but words."""
    if isinstance(child, ast.JoinedStr | ast.Import | ast.ImportFrom):
        return True
    if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
        return True  # a docstring
    if isinstance(owner, ast.Raise) or (isinstance(owner, ast.Assert) and field == "msg"):
        return True
    if isinstance(child, ast.keyword) and child.arg in UNBROKEN_ARGUMENTS:
        return True
    called = owner.func if isinstance(owner, ast.Call) else None
    return isinstance(called, ast.Name) and called.id in SPEAKING


def _broken(node: ast.AST, owner: ast.AST, field: str) -> Iterator[ast.AST]:
    """What may stand there instead of a node."""
    if type(node) in OPERATORS:
        yield OPERATORS[type(node)]()
    elif isinstance(node, ast.Constant):
        yield from (ast.copy_location(ast.Constant(v), node) for v in _values(node.value, owner))
    elif isinstance(node, ast.UnaryOp) and not isinstance(node.operand, ast.Constant):
        yield node.operand
    elif isinstance(node, ast.Attribute) and node.attr == "inf":
        yield ast.copy_location(ast.UnaryOp(ast.USub(), node), node)
    elif isinstance(node, ast.Call):
        yield from _broken_call(node)
    elif isinstance(node, ast.stmt):
        yield from _broken_statement(node)
    if isinstance(node, ast.expr):
        if field == "test" and not _flips(node):
            yield ast.copy_location(ast.UnaryOp(ast.Not(), node), node)
        if isinstance(owner, ast.Slice) and not isinstance(node, ast.Constant):
            yield from (_moved(node, step) for step in (ast.Add(), ast.Sub()))


def _values(value: Any, owner: ast.AST) -> Iterator[Any]:
    """Other values of a constant."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield value + 1
        if value == 1:
            yield 0
    elif isinstance(value, float):
        yield 2 * value if value else 1.0
    elif isinstance(value, str) and isinstance(owner, ast.keyword) and value in WORDS:
        yield WORDS[value]


def _flips(test: ast.expr) -> bool:
    """Whether another mutant already turns this condition into its contrary."""
    if isinstance(test, ast.Compare):
        contrary = ast.Eq | ast.NotEq | ast.Is | ast.IsNot | ast.In | ast.NotIn
        return isinstance(test.ops[0], contrary)
    return isinstance(test, ast.UnaryOp)


def _moved(node: ast.expr, step: ast.operator) -> ast.expr:
    return ast.copy_location(ast.BinOp(node, step, ast.copy_location(ast.Constant(1), node)), node)


def _broken_call(node: ast.Call) -> Iterator[ast.AST]:
    called = node.func
    name = getattr(called, "attr", getattr(called, "id", ""))
    if name in NAMES:
        other: Any = (
            ast.Attribute(called.value, NAMES[name], ast.Load())
            if isinstance(called, ast.Attribute)
            else ast.Name(NAMES[name], ast.Load())
        )
        other = ast.copy_location(other, called)
        yield ast.copy_location(ast.Call(other, node.args, node.keywords), node)
    if name in FORGETTABLE and node.args:
        yield node.args[0]
    if name == "range":
        last = len(node.args) - 1 if len(node.args) < 3 else 1
        moved = [_moved(a, ast.Sub()) if i == last else a for i, a in enumerate(node.args)]
        yield ast.copy_location(ast.Call(called, moved, []), node)


def _broken_statement(node: ast.stmt) -> Iterator[ast.stmt]:
    """Statements left out. They stay where nothing runs, so that names are bound as before."""
    if isinstance(node, ast.Return) and node.value is not None:
        if not (isinstance(node.value, ast.Constant) and node.value.value is None):
            yes, none = ast.Constant(True), ast.Constant(None)
            yield _placed(ast.Return(ast.IfExp(yes, none, node.value)), node)
        return
    target = node.targets[0] if isinstance(node, ast.Assign) else None
    kept = isinstance(target, ast.Attribute | ast.Subscript)
    left_out = ast.Expr | ast.AugAssign | ast.Raise | ast.Return | ast.Continue | ast.Break
    if kept or isinstance(node, left_out):
        yield _placed(ast.If(ast.Constant(False), [node], []), node)


def _placed(new: Any, old: ast.AST) -> Any:
    """The node with lines and columns, for it to be compiled."""
    return ast.fix_missing_locations(ast.copy_location(new, old))


def _change(edit: Edit, statement: ast.stmt) -> str:
    """Before and after, as short as it can be read."""
    owner, field, place, new = edit
    if isinstance(new, ast.stmt):
        gone = ast.unparse(statement).partition("\n")[0]
        return f"{gone} → {'return None' if isinstance(new, ast.Return) else 'left out'}"
    shown = owner
    if isinstance(owner, ast.stmt | ast.arguments | ast.comprehension):
        old = getattr(owner, field)
        before, after = (old if place is None else old[place]), new
        if isinstance(before, ast.operator):  # of an augmented assignment
            before = owner
        if before is not owner and isinstance(before, ast.AST):
            named = (
                f" [{_argument(owner, field, place)}]" if isinstance(owner, ast.arguments) else ""
            )
            return f"{ast.unparse(before)} → {ast.unparse(after)}{named}".replace("\n", " ")
    before_text = ast.unparse(shown)
    old = _put(owner, field, place, new)
    after_text = ast.unparse(shown)
    _put(owner, field, place, old)
    return f"{before_text} → {after_text}".replace("\n", " ")


def _argument(arguments: ast.AST, field: str, place: int | None) -> str:
    """The name of the argument whose default is broken."""
    assert isinstance(arguments, ast.arguments)
    assert place is not None
    if field == "kw_defaults":
        return arguments.kwonlyargs[place].arg
    all_args = arguments.posonlyargs + arguments.args
    return all_args[place - len(arguments.defaults)].arg
