"""The size and shape of the house in numbers: ``python -m checks.house`` (``make house``).

Lines of the source, with and without comments and docstrings; modules that ``import calliper``
loads; files of the source that a call enters, and calls that change the file; attributes asked for
by name; class names that a saved file may hold; module constants with several homes.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "calliper"
#: Packages outside the core.
OUTSIDE = ("scale", "lab", "cli")


def main() -> None:
    """Print every number, a line each."""
    texts = {path.relative_to(SOURCE): path.read_text("utf-8") for path in SOURCE.rglob("*.py")}
    lines = {path: len(text.splitlines()) for path, text in texts.items()}
    core = sum(n for path, n in lines.items() if path.parts[0] not in OUTSIDE)
    print(f"files of source                      {len(texts):7,}")
    print(f"lines of source / of them the core   {sum(lines.values()):7,} / {core:,}")
    print(f"lines of code alone                  {sum(map(code_lines, texts.values())):7,}")
    by_package = Counter[str]()
    for path, n in lines.items():
        by_package[path.parts[0] if len(path.parts) > 1 else "."] += n
    print("  " + ", ".join(f"{name} {n:,}" for name, n in sorted(by_package.items())))
    asked = sum(len(re.findall(r"\b(?:getattr|hasattr)\(", text)) for text in texts.values())
    print(f"getattr( and hasattr(                {asked:7,}")
    several = {name: n for name, n in constants(texts).items() if n > 1}
    print(f"constants with several homes         {len(several):7,}  {sorted(several)[:12]}")
    print(f"modules loaded by import calliper    {modules_loaded():7,}")
    for name, seen in entered().items():
        print(f"{name:<37}{len(seen.files):7,} files, {seen.changes.total():,} changes, most often")
        for (before, after), n in seen.changes.most_common(5):
            print(f"  {n:3} {before} -> {after}")


def code_lines(text: str) -> int:
    """Lines that hold code: no blanks, comments or docstrings."""
    docs: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            constant = first.value if isinstance(first, ast.Expr) else None
            if isinstance(constant, ast.Constant) and isinstance(constant.value, str):
                docs.update(range(constant.lineno, (constant.end_lineno or 0) + 1))
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    skipped |= {tokenize.ENDMARKER, tokenize.ENCODING}
    held: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped:
            held.update(range(token.start[0], token.end[0] + 1))
    return len(held - docs)


def constants(texts: dict[Path, str]) -> Counter[str]:
    """How many modules assign each name in capitals."""
    homes = Counter[str]()
    for text in texts.values():
        names = set()
        for node in ast.parse(text).body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
            for target in targets:
                names |= {each.id for each in ast.walk(target) if isinstance(each, ast.Name)}
        homes.update(name for name in names if name.isupper())
    return homes


def modules_loaded() -> int:
    """Modules of ours after ``import calliper`` in a fresh process."""
    code = (
        "import sys, calliper; print(sum(n.partition('.')[0] == 'calliper' for n in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(done.stdout)


class Entered:
    """Files of the source that are entered, and how often one of them calls another."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.changes = Counter[tuple[str, str]]()

    def __call__(self, frame: Any, event: str, argument: Any) -> None:
        """A profiler: sees each call."""
        if event != "call":
            return
        name = within_source(frame)
        if name is None:
            return
        self.files.add(name)
        caller = frame.f_back
        while caller is not None and within_source(caller) is None:
            caller = caller.f_back
        if caller is not None and (before := str(within_source(caller))) != name:
            self.changes[before, name] += 1

    def during(self, call: Callable[[], Any]) -> Self:
        """What is entered while the call runs."""
        sys.setprofile(self)
        try:
            call()
        finally:
            sys.setprofile(None)
        return self


def within_source(frame: Any) -> str | None:
    """The file of a frame, by its path in the source; None if it is another's."""
    name = frame.f_code.co_filename
    return name[len(str(SOURCE)) + 1 :] if name.startswith(str(SOURCE)) else None


def entered() -> dict[str, Entered]:
    """What ``calibrate`` of a forest on 200 rows enters, and ``predict_interval`` after it."""
    import numpy as np
    from sklearn.ensemble import RandomForestRegressor

    from calliper import ConformalRegressor

    rng = np.random.default_rng(0)
    X = rng.uniform(size=(500, 4))
    y = X[:, 0] + X[:, 1] * rng.normal(size=500)
    model = RandomForestRegressor(50, random_state=0).fit(X[:200], y[:200])
    for _ in range(2):  # the second time nothing is imported
        made = ConformalRegressor(model)
        calibrate = Entered().during(lambda made=made: made.calibrate(X[200:400], y[200:400]))  # type: ignore[misc]
        predict = Entered().during(lambda made=made: made.predict_interval(X[400:]))  # type: ignore[misc]
    return {"calibrate": calibrate, "predict_interval": predict}


if __name__ == "__main__":
    main()
