"""Break, try, note: one warm process, and a fork of it for each mutant.

The parent collects the tests once and never runs one. A child swaps the code of the broken
function under the feet of all who hold it, runs the tests that touch the broken line, quickest
first and those first that noticed other mutants of the function, and ends at the first failure.
Who runs out of its processor time or memory is noticed, too. Verdicts are kept by unit, one letter
a mutant: k noticed, t by its time, s survived, ? not tried yet.
"""

from __future__ import annotations

import ast
import gc
import json
import os
import random
import resource
import select
import signal
import sys
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from time import monotonic
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest

from checks.mutants import touching
from checks.mutants.mutators import ROOT, SOURCE, Mutant, core_files, holds, mutants_of, unit_of

RESULTS = Path(__file__).with_name("results.json")

#: Seconds that a test may take beyond ten times what it took, and bytes beyond what there is.
PATIENCE, MEMORY = 4, 4 << 30

#: Seconds of tests, quickest first, that a mutant meets at first, and that survivors meet again.
QUICK, THOROUGH = 2.0, 15.0


#: By file and unit: the unit's key, a letter for each mutant, and the changes that survived.
Verdicts = dict[str, dict[str, list[Any]]]


def read() -> Verdicts:
    """Verdicts so far."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def write(verdicts: Verdicts) -> None:
    """Keep them: a line for each unit, put in place whole."""
    files = []
    for file, units in sorted(verdicts.items()):
        short = ((json.dumps(u), json.dumps(v, ensure_ascii=False)) for u, v in units.items())
        lines = ",\n".join(f"  {unit}: {verdict}" for unit, verdict in sorted(short))
        files.append(f"{json.dumps(file)}: {{\n{lines}\n}}")
    part = RESULTS.with_suffix(".part")
    part.write_text("{\n" + ",\n".join(files) + "\n}\n", encoding="utf-8")
    part.replace(RESULTS)


def in_step(mutants: list[Mutant], before: Verdicts) -> Verdicts:
    """Verdicts with a letter for every mutant there is; changed units begin anew."""
    now: Verdicts = {}
    for mutant in mutants:
        unit = now.setdefault(mutant.file, {}).setdefault(mutant.unit, [mutant.key, "", []])
        old = before.get(mutant.file, {}).get(mutant.unit, ("", ""))
        unit[1] += old[1][mutant.number] if old[0] == mutant.key else "?"
        if unit[1][-1] == "s":
            unit[2].append(mutant.change)
    return now


@dataclass
class _Child:
    mutant: Mutant
    pipe: int
    until: float
    tests: list[int]


@dataclass(eq=False)
class Campaign:
    """A plugin of pytest that breaks the core instead of running the tests."""

    minutes: float
    jobs: int
    only: str = ""
    again: bool = False
    explained: frozenset[tuple[str, str]] = frozenset()
    noticed: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    sound: dict[int, bool] = field(default_factory=dict)
    pipe: int = -1
    at: int = -1

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> None:
        """In a child: say which test failed, and end before anything is said about how."""
        error = None if call.excinfo is None else call.excinfo.value
        if error is not None and not isinstance(error, pytest.skip.Exception):
            os.write(self.pipe, str(self.at).encode())
            os._exit(0)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try mutants until the time is over."""
        self.tests, self.lines = touching.read()
        items = {item.nodeid: item for item in session.items}
        self.items: list[Any] = [items.get(name) for name, _ in self.tests]
        self.trees, mutants = {}, []
        for file in core_files():
            self.trees[file], found = mutants_of(file)
            mutants += found
        self.mutants, self.verdicts = mutants, in_step(mutants, read())
        self.functions = living_functions()
        self.usage = _usage(self.trees)
        gc.collect()
        gc.freeze()  # what is never looked at again is never copied for a child
        self._try_all(self._ordered(mutants))
        return True

    def _ordered(self, mutants: list[Mutant]) -> list[Mutant]:
        """Those not tried yet in a fixed random order, then survivors again."""
        mutants = [m for m in mutants if m.file.startswith(self.only)]
        random.Random(0).shuffle(mutants)
        fresh = [m for m in mutants if self._letter(m) == "?"]
        named = ((m, (m.file, f"{m.unit}: {m.change}")) for m in mutants if self._letter(m) == "s")
        survivors = [m for m, name in named if name not in self.explained]
        return survivors + fresh if self.again else fresh + survivors

    def _letter(self, mutant: Mutant) -> str:
        return str(self.verdicts[mutant.file][mutant.unit][1][mutant.number])

    def _note(self, mutant: Mutant, letter: str) -> None:
        unit = self.verdicts[mutant.file][mutant.unit]
        unit[1] = unit[1][: mutant.number] + letter + unit[1][mutant.number + 1 :]

    def _try_all(self, mutants: list[Mutant]) -> None:
        until, saved, done = monotonic() + 60 * self.minutes, monotonic(), Counter[str]()
        waiting, children = mutants[::-1], dict[int, _Child]()
        while (waiting and monotonic() < until) or children:
            while waiting and len(children) < self.jobs and monotonic() < until:
                mutant = waiting.pop()
                most = THOROUGH if self._letter(mutant) == "s" else QUICK
                children |= self._begin(mutant, most)
            pipes = [child.pipe for child in children.values()]
            ready = select.select(pipes, [], [], 0.5)[0] if pipes else []
            for pid, child in list(children.items()):
                if child.pipe in ready or monotonic() > child.until:
                    letter = self._end(pid, child)
                    self._note(child.mutant, letter)
                    done[letter] += 1
                    del children[pid]
            if monotonic() - saved > 20:
                saved = monotonic()
                write(in_step(self.mutants, self.verdicts))
                print(f"{dict(done)}, {len(waiting)} to go", flush=True)
        write(in_step(self.mutants, self.verdicts))
        print(f"{dict(done)}, {len(waiting)} to go")

    def _tests_of(self, mutant: Mutant, most: float) -> list[int]:
        """Places of the tests to run, in their order, of so many seconds."""
        file, (first, last) = self.lines.get(mutant.file, {}), mutant.lines
        found = {t for line in range(first, last + 1) for t in file.get(line, ())}
        name = mutant.unit.rpartition(".")[2]
        if mutant.constant:  # a constant: those who touch where it is read
            spots = {spot for word in name.split(",") for spot in self.usage.get(word, ())}
            found = {t for f, line in spots for t in self.lines.get(f, {}).get(line, ())}
            found |= {t for tests in file.values() for t in tests}
        likely = self.noticed[f"{mutant.file}:{mutant.unit}"]
        tests = sorted(t for t in found if self.items[t] is not None and self.sound.get(t, True))
        seen = Counter[str]()
        cost = {}
        for t in tests:  # other cases of one test are less likely to tell something new
            name, seconds = self.tests[t]
            seen[name.partition("[")[0]] += 1
            cost[t] = (0.01 + seconds) * seen[name.partition("[")[0]]
        tests.sort(key=lambda t: (-likely[t] / (0.05 + self.tests[t][1]), cost[t]))
        spent, chosen = 0.0, list[int]()
        for t in tests:
            spent += self.tests[t][1]
            if spent > most and chosen:
                break
            chosen.append(t)
        return chosen

    def _begin(self, mutant: Mutant, most: float) -> dict[int, _Child]:
        """A child at work on a mutant; none where no test touches it, which thus survives."""
        tests = self._tests_of(mutant, most)
        if not tests or _module(mutant.file) is None:  # without torch its files are not imported
            self._note(mutant, "s" if _module(mutant.file) else "?")
            return {}
        pid, pipe = self._fork(tests, mutant)
        allowed = sum(10 * self.tests[t][1] + 0.1 for t in tests)
        return {pid: _Child(mutant, pipe, monotonic() + 60 + min(20 * allowed, 1200), tests)}

    def _fork(self, tests: list[int], mutant: Mutant | None) -> tuple[int, int]:
        """A child that runs tests until one fails, which it writes down; broken if so asked."""
        out, into = os.pipe()
        pid = os.fork()
        if pid:
            os.close(into)
            return pid, out
        self.pipe = into
        try:
            _quietened()
            if mutant is not None:
                install(mutant, self.trees[mutant.file], self.functions)
            answer = self._survived(tests)
        except BaseException as error:
            answer = f"!{error!r}"
        os.write(into, answer.encode()[:500])
        os._exit(0)

    def _survived(self, tests: list[int]) -> str:
        """Run tests up to one that fails, which ends the process; s if none does."""
        most = resource.getrlimit(resource.RLIMIT_CPU)[1]
        for place, following in zip(tests, [*tests[1:], None], strict=True):
            item, after = self.items[place], None if following is None else self.items[following]
            used = resource.getrusage(resource.RUSAGE_SELF)
            spent = ceil(used.ru_utime + used.ru_stime + 10 * self.tests[place][1] + PATIENCE)
            resource.setrlimit(resource.RLIMIT_CPU, (spent, most))
            self.at = place
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        return "s"

    def _end(self, pid: int, child: _Child) -> str:
        """The verdict of a child that has ended, or has had its time."""
        late = monotonic() > child.until
        answer = "" if late else os.read(child.pipe, 500).decode()
        if not answer:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        os.close(child.pipe)
        status = os.waitpid(pid, 0)[1]
        if answer == "s":
            return "s"
        if answer.isdigit():
            place = int(answer)
            if place not in self.sound:
                self.sound[place] = self._is_sound(place)
            if self.sound[place]:
                self.noticed[f"{child.mutant.file}:{child.mutant.unit}"][place] += 1
                return "k"
            return "?"  # the test fails by itself: to be tried again without it
        if answer:
            print(f"not tried: {child.mutant.file} {child.mutant.change}: {answer}")
            return "?"
        ended = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        return "t" if late or ended in (signal.SIGXCPU, signal.SIGKILL) else "k"

    def _is_sound(self, place: int) -> bool:
        """Whether a test passes here where nothing is broken."""
        pid, pipe = self._fork([place], None)
        answer = os.read(pipe, 100).decode()
        os.close(pipe)
        os.waitpid(pid, 0)
        if answer != "s":
            print(f"\nno witness, it fails by itself: {self.tests[place][0]}")
        return answer == "s"


def _quietened() -> None:
    """In a child: nothing is shown, memory is bounded, and a second is not wasted on farewells."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if sys.platform == "linux" else 0
    if pages:
        most = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


Functions = dict[tuple[str, str, int], list[FunctionType]]


def living_functions() -> Functions:
    """All functions of the core, by file, name and first line, whoever holds them."""
    found: Functions = defaultdict(list)
    for thing in gc.get_objects():
        if type(thing) is FunctionType and thing.__code__.co_filename.startswith(str(SOURCE)):
            code = thing.__code__
            found[code.co_filename, code.co_qualname, code.co_firstlineno].append(thing)
    return found


def install(mutant: Mutant, tree: ast.Module, functions: Functions) -> None:
    """Break the library in this process."""
    mutant.apply()
    path = str(SOURCE / mutant.file)
    unit = unit_of(tree, mutant)
    if not isinstance(unit, ast.FunctionDef):
        _renew_constant(mutant, unit)
        return
    (code,) = (c for c in _codes(_compiled(unit, mutant)) if c.co_qualname == mutant.unit)
    holders = functions.get((path, mutant.unit, code.co_firstlineno), [])
    if not holders:
        raise LookupError("nobody holds it")
    for function in holders:
        function.__code__ = code
        _renew_defaults(function, unit.args, mutant)


def _compiled(unit: ast.FunctionDef, mutant: Mutant) -> CodeType:
    """The unit alone, within the classes that it is in: their names are part of its own."""
    inner: ast.stmt = unit
    for name in reversed(mutant.unit.split(".")[:-1]):
        inner = ast.ClassDef(name, [], [], [inner], [], lineno=1, col_offset=0)
    late = ast.ImportFrom("__future__", [ast.alias("annotations", lineno=1, col_offset=0)], 0)
    body = [ast.fix_missing_locations(late), ast.fix_missing_locations(inner)]
    return compile(ast.Module(body, []), str(SOURCE / mutant.file), "exec")


def _codes(code: CodeType) -> Any:
    """A code object and all within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _value(node: ast.expr, names: dict[str, Any]) -> Any:
    return eval(compile(ast.Expression(node), "<broken>", "eval"), names)


def _renew_defaults(function: FunctionType, arguments: ast.arguments, mutant: Mutant) -> None:
    """Put the broken default in its place, if it is a default that is broken."""
    new = mutant.edit[3]
    for place, node in enumerate(arguments.defaults):
        if node is new or holds(node, mutant):
            values = list(function.__defaults__ or ())
            values[place] = _value(node, function.__globals__)
            function.__defaults__ = tuple(values)
    for argument, other in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if other is not None and (other is new or holds(other, mutant)):
            assert function.__kwdefaults__ is not None
            function.__kwdefaults__[argument.arg] = _value(other, function.__globals__)


def _renew_constant(mutant: Mutant, unit: Any) -> None:
    """Give a constant of a module or class its broken value, wherever it was imported to."""
    home = _module(mutant.file)
    owners, _, name = mutant.unit.rpartition(".")
    value = _value(unit.value, vars(home))
    names = name.split(",")
    values = value if len(names) > 1 else [value]
    if owners:
        holder: Any = home
        for part in owners.split("."):
            holder = getattr(holder, part)
        if name in getattr(holder, "__dataclass_fields__", {}):
            heirs = (each for each in holder.__subclasses__() if name not in vars(each))
            for kind in (holder, *heirs):  # each has its own __init__
                _renew_field(kind, name, value)
        _renew_kept(getattr(holder, name), value)
        setattr(holder, name, value)
        return
    for each, new in zip(names, values, strict=True):
        old = getattr(home, each)
        _renew_kept(old, new)
        for module in list(sys.modules.values()):
            if (
                getattr(module, "__name__", "").startswith("calliper")
                and vars(module).get(each) is old
            ):
                setattr(module, each, new)


def _renew_field(holder: Any, name: str, value: Any) -> None:
    """Another default of a field of a data class, by keyword alone or not."""
    start = holder.__init__
    if name in (start.__kwdefaults__ or {}):
        start.__kwdefaults__[name] = value
        return
    taken = start.__code__.co_varnames[: start.__code__.co_argcount]
    if name in taken:  # a ClassVar is not
        defaults = list(start.__defaults__)
        defaults[taken.index(name) - len(taken)] = value
        start.__defaults__ = tuple(defaults)


def _renew_kept(old: Any, new: Any) -> None:
    """What files keep of a class was put together on import: what comes from ``old`` is renewed."""
    if not isinstance(old, dict):
        return
    ours = (m for name, m in list(sys.modules.items()) if name.startswith("calliper"))
    kinds = {each for module in ours for each in vars(module).values() if isinstance(each, type)}
    for kind in kinds:
        kept = vars(kind).get("keeps")
        if isinstance(kept, dict):
            renewed = {k: new.get(k, v) if v is old.get(k, kind) else v for k, v in kept.items()}
            kind.keeps = renewed  # type: ignore[attr-defined]


def _module(file: str) -> ModuleType | None:
    return sys.modules.get("calliper." + file.removesuffix(".py").replace("/", "."))


def _usage(trees: dict[str, ast.Module]) -> dict[str, set[tuple[str, int]]]:
    """Where in the core each name is read."""
    found: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for file, tree in trees.items():
        for node in ast.walk(tree):
            word = getattr(node, "id", getattr(node, "attr", getattr(node, "value", None)))
            if isinstance(word, str) and hasattr(node, "lineno"):
                found[word].add((file, node.lineno))
    return found


def run(minutes: float, jobs: int, **how: Any) -> int:
    """Break the core for so long, as :class:`Campaign` says; what pytest answers."""
    from hypothesis import HealthCheck, Phase, settings

    settings.register_profile(
        "mutants", phases=[Phase.explicit, Phase.generate], database=None, derandomize=True,
        deadline=None, suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    settings.load_profile("mutants")
    options = [*touching.OPTIONS, "-s", "--assert=plain", "--tb=line"]
    tests = [str(ROOT / path) for path in touching.TESTS]
    return int(pytest.main([*options, *tests], plugins=[Campaign(minutes, jobs, **how)]))
