"""The program around the commands: errors, signals and exit codes."""

import os
import re
import signal
import sys
from io import TextIOWrapper
from types import FrameType
from typing import NoReturn

import click

from calliper import __version__
from calliper._validation import MISSES, OUR_WORDS
from calliper.cli._calibration import calibrate
from calliper.cli._compare import compare
from calliper.cli._demo import demo
from calliper.cli._inspect import inspect
from calliper.cli._interval import interval
from calliper.cli._methods import methods
from calliper.cli._monitor import monitor
from calliper.cli._output import in_options
from calliper.cli._tune import tune
from calliper.exceptions import CalliperError

#: Signals that end the program; Windows has no SIGHUP.
_SIGNALS = [each for each in signal.Signals if each.name in ("SIGINT", "SIGTERM", "SIGHUP")]
_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True}


class Stopped(SystemExit):
    """A signal asked the program to end; files that are half written are removed on the way."""


@click.group(context_settings=_SETTINGS, invoke_without_command=True)
@click.version_option(__version__, prog_name="calliper", message="%(prog)s %(version)s")
@click.pass_context
def commands(context: click.Context) -> None:
    """Adaptive prediction intervals for any regression model, with proven coverage.

    \b
    Try it on an example; list the methods:
      calliper demo
      calliper methods

    \b
    Put intervals around predictions in a file, in one step or with a saved calibration:
      calliper interval --calibration cal.csv --new new.csv \\
          --target y --prediction y_pred --output out.csv
      calliper calibrate --calibration cal.csv --target y --prediction y_pred \\
          --output model.calliper
      calliper interval --calibrated model.calliper --new new.csv --output out.csv

    \b
    Compare methods, tune how local the intervals are, and monitor coverage:
      calliper compare --calibration cal.csv --test test.csv \\
          --target y --prediction y_pred --output report.html
      calliper tune --calibration cal.csv --training train.csv \\
          --target y --prediction y_pred --output tuned.calliper
      calliper monitor --labels log.csv --target y --tolerated 0.12
    """  # noqa: D301
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for command in (calibrate, compare, demo, inspect, interval, methods, monitor, tune):
    commands.add_command(command)


def run() -> int:
    """The command line from first to last; every expected failure is one line and code 2."""
    for number in _SIGNALS:
        # A signal that the parent told us to ignore (nohup, a job in the background) stays so.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)
    _prepare_streams()
    try:
        return commands.main(prog_name="calliper", standalone_mode=False) or 0
    except Stopped as stop:
        click.echo(f"calliper: stopped by {signal.Signals(int(str(stop)) - 128).name}", err=True)
        return int(str(stop))
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "calliper"
        message = f"{_usage(error)} (see '{command} --help')"
    except click.ClickException as error:
        message = error.format_message()
    except CalliperError as error:
        message = str(error)
    except MemoryError:
        message = "there is not enough memory: close other programs, or use fewer rows at once"
    except OSError as error:
        what = f"{error.filename}: " if error.filename else ""
        message = f"{what}{error.strerror or error}"
    click.echo(f"calliper: error: {in_options(message)}", err=True)
    return 2


def _usage(error: click.UsageError) -> str:
    """What is wrong with the options, and what may have been meant."""
    message = error.format_message().rstrip(".")
    if isinstance(error, click.NoSuchOption):
        word = error.option_name.strip("-").replace("-", "_")
        if word in OUR_WORDS:
            misses = ", 1 less the share of misses" if word in MISSES else ""
            where = "'calliper interval --coverage'"
            message = f"{message}: set the share of targets inside with {where}{misses}"
    # A shell takes what follows a space for another argument.
    if "extra argument" in message and any(re.search(r"\w,$", word) for word in sys.argv):
        message += ": write lists with no space after the comma, as in --features a,b"
    elif "extra argument" in message and "--new" in sys.argv:
        message += ": put a pattern of several files in quotation marks, as in --new 'new/*.csv'"
    return message


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    # A second Ctrl-C must not interrupt the clean-up that the first one started.
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise Stopped(128 + number)


def _prepare_streams() -> None:
    """Replace streams that are closed, whose numbers other files would get; print any letter."""
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")
