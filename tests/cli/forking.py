"""Runs of the command, a process for each, forked from one that has imported the library.

The import takes a second or more, the run itself a tenth. A request is a line of JSON on standard
input, the answer an exit code on standard output.
"""

from __future__ import annotations

import json
import os
import sys


def serve() -> int:
    from calliper.cli import _app, main

    assert _app
    while line := sys.stdin.readline():
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            become(request)
            leave(main)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()
    return 0


def become(request: dict) -> None:
    os.chdir(request["cwd"])
    os.umask(request["umask"])
    for number, (path, how) in enumerate(zip(request["streams"], ("r", "w", "w"), strict=True)):
        with open(path, how) as file:
            os.dup2(file.fileno(), number)
    sys.argv = ["calliper", *request["args"]]


def leave(main) -> None:
    """Exit without taking the interpreter down piece by piece, which takes long."""
    try:
        code = main()
    except SystemExit as end:
        code = end.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(serve())
