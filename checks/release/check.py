"""``python -m checks.release.check``: build what would be published, look inside, install, try it.

Every problem is listed, and one is enough to fail. With ``--record`` the sizes and the time of an
import go into checks/release/README.md.
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "build" / "release"
PAGE = Path(__file__).parent / "README.md"
VERSION = (ROOT / "src/calliper/_version.py").read_text("utf-8").split('"')[-2]
LARGEST_WHEEL, LARGEST_FILE = 1_000_000, 200_000
IN_SDIST = ("LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "SECURITY.md", "pyproject.toml")
#: Run in a bare interpreter: the modules that calliper loads, others' only.
_NEEDED = """
import sys
before = set(sys.modules)
import calliper
print(*(m for m in sys.modules if m not in before and m.partition(".")[0] != "calliper"))
"""
_IMPORT = """
import sys, time
from importlib import import_module
begin = time.process_time()
for name in sys.argv[1:]:
    try:
        import_module(name)
    except ImportError:
        pass  # a name that only its parent can make
print(time.process_time() - begin)
"""


def main() -> int:
    """Print what was found; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--record", action="store_true", help="write sizes to checks/release/README.md"
    )
    record = parser.parse_args().record
    sdist, wheel = built()
    problems = [*stated(), *described(wheel), *contents(wheel), *source_contents(sdist)]
    problems += built_again(sdist, wheel)
    for file in (sdist, wheel):
        problems += tried(file)
    ratio = import_ratio(environment(wheel))
    sizes = f"{wheel.stat().st_size / 1e3:.0f} kB | {sdist.stat().st_size / 1e3:.0f} kB"
    print(f"wheel | source: {sizes}; import: {ratio:.2f} times that of its dependencies")
    if record:
        row = f"| {VERSION} | {sizes} | {ratio:.2f} |"
        PAGE.write_text(recorded(PAGE.read_text("utf-8"), row), "utf-8")
    for problem in problems:
        print(f"PROBLEM: {problem}")
    if not problems:
        print(f"calliper {VERSION} could go out: {wheel.name}, {sdist.name}")
    return int(bool(problems))


def built() -> tuple[Path, Path]:
    """Source archive, and the wheel that is built from it."""
    shutil.rmtree(OUT, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(OUT), str(ROOT)], check=True)
    (sdist,), (wheel,) = OUT.glob("*.tar.gz"), OUT.glob("*.whl")
    return sdist, wheel


def built_again(*files: Path) -> list[str]:
    """A second build must be the same, byte by byte, so that anyone can check what is published."""
    folder = OUT / "again"
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)], check=True)
    differ = [file.name for file in files if file.read_bytes() != (folder / file.name).read_bytes()]
    return [f"{name}: a second build differs" for name in differ]


def stated() -> list[str]:
    """One version, in the form that people expect, wherever it is named."""
    problems = []
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", VERSION):
        problems.append(f"_version.py: expected MAJOR.MINOR.PATCH, got {VERSION}")
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text("utf-8"), re.M)
    if cited is None or cited[1] != VERSION:
        problems.append(f"CITATION.cff: expected version: {VERSION}")
    section = rf"^## \[{re.escape(VERSION)}\] - \d{{4}}-\d\d-\d\d$"
    if re.search(section, (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M) is None:
        problems.append(f"CHANGELOG.md: expected a section ## [{VERSION}] - YYYY-MM-DD")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    recipe = (ROOT / "checks/release/recipe.yaml").read_text("utf-8")
    for wanted in [f"python {project['requires-python']}", *project["dependencies"]]:
        name, bound = re.match(r"([\w.-]+) ?(.*)", wanted).groups()  # type: ignore[union-attr]
        if f"    - {name} {bound}\n" not in recipe:
            problems.append(f"recipe.yaml: expected a line '- {name} {bound}'")
    if f'version: "{VERSION}"' not in recipe:
        problems.append(f'recipe.yaml: expected version: "{VERSION}"')
    return problems


def described(wheel: Path) -> list[str]:
    """The index's own check, and what a reader of the index looks for."""
    check = [sys.executable, "-m", "twine", "check", "--strict", *map(str, OUT.glob("calliper-*"))]
    problems = [] if subprocess.run(check, check=False).returncode == 0 else ["twine check failed"]
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"calliper-{VERSION}.dist-info/METADATA").decode("utf-8")
    head = HeaderParser().parsestr(text)
    wanted = ("Summary", "License-Expression", "Requires-Python", "Keywords", "Author")
    problems += [f"metadata: {name} is missing" for name in wanted if not head[name]]
    if not any(each.startswith("Typing :: Typed") for each in head.get_all("Classifier", [])):
        problems.append("metadata: the classifier Typing :: Typed is missing")
    if not any("source" in each.lower() for each in head.get_all("Project-URL", [])):
        print("note: [project.urls] of pyproject.toml names no Source yet")
    return problems


def contents(wheel: Path) -> list[str]:
    """The wheel holds what git holds of src/calliper, its metadata and the licence; no more."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "src/calliper"]
    files = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    ours = {name.removeprefix("src/") for name in files.splitlines() if (ROOT / name).exists()}
    about = f"calliper-{VERSION}.dist-info"
    ours |= {f"{about}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt")}
    ours |= {f"{about}/licenses/LICENSE", "calliper/py.typed"}
    with zipfile.ZipFile(wheel) as archive:
        held = {info.filename: info.file_size for info in archive.infolist()}
    problems = [f"wheel: {name} is missing" for name in sorted(ours - held.keys())]
    problems += [f"wheel: {name} does not belong there" for name in sorted(held.keys() - ours)]
    problems += [f"wheel: {name} has {n} bytes" for name, n in held.items() if n > LARGEST_FILE]
    if (size := wheel.stat().st_size) > LARGEST_WHEEL:
        problems.append(f"wheel: expected at most {LARGEST_WHEEL} bytes, got {size}")
    return problems


def source_contents(sdist: Path) -> list[str]:
    """The source archive can be built, read, cited and tested."""
    with tarfile.open(sdist) as archive:
        held = {str(PurePosixPath(*PurePosixPath(name).parts[1:])) for name in archive.getnames()}
    wanted = (*IN_SDIST, "src/calliper/__init__.py", "tests/test_regressor.py")
    return [f"source archive: {name} is missing" for name in wanted if name not in held]


def environment(file: Path) -> Path:
    """The interpreter of the environment that belongs to a file."""
    return OUT / f"env-{file.suffix.lstrip('.')}" / "bin" / "python"


def tried(file: Path) -> list[str]:
    """Install it alone into a fresh environment and run the smoke test there."""
    python = environment(file)
    venv.create(python.parents[1], with_pip=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for command in (
        [*pip, str(file)],
        [str(python), "-I", str(Path(__file__).with_name("smoke.py"))],
    ):
        if subprocess.run(command, cwd=OUT, check=False).returncode != 0:
            return [f"{file.name}: {' '.join(command[1:3])} failed in a fresh environment"]
    return []


def import_ratio(python: Path, n_runs: int = 5) -> float:
    """How much longer it takes to import calliper than what it depends on; medians, in turn."""

    def answer(code: str, *words: str) -> str:
        run = [str(python), "-I", "-c", code, *words]
        return subprocess.run(run, capture_output=True, text=True, check=True).stdout

    others = answer(_NEEDED).split()
    times = [
        (float(answer(_IMPORT, "calliper")), float(answer(_IMPORT, *others)))
        for _ in range(n_runs + 1)
    ][1:]  # the first run writes bytecode
    return statistics.median(own for own, _ in times) / statistics.median(dep for _, dep in times)


def recorded(page: str, row: str) -> str:
    """The page with this version's row in place of an older one, or added at the end."""
    head, table, tail = re.split(r"(?<=<!-- measured -->\n)(.*?)(?=<!-- end -->)", page, flags=re.S)
    version = row.split("|")[1]
    kept = [line for line in table.strip().splitlines() if line.split("|")[1] != version]
    return "\n".join([head.rstrip("\n"), *kept, row, tail.lstrip("\n")])


if __name__ == "__main__":
    sys.exit(main())
