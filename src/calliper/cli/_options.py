"""Options that several commands share, each declared once.

A command takes one frozen request, whose fields are its options. What ``calibrate``, ``compare``,
``interval`` and ``tune`` have in common is :class:`Request`: an option that all of them have is a
field of that class and an entry of one of the decorators below.
"""

import codecs
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

import click

from calliper._types import Coverage
from calliper._validation import check_levels
from calliper.cli._csv import Form
from calliper.cli._output import note
from calliper.cli._tables import Columns, Table, split_names, there_are
from calliper.exceptions import CalliperError
from calliper.kernels import named_kernels
from calliper.scores import Score, named_scores

Decorator = Callable[[Callable[..., None]], Callable[..., None]]


@dataclass(frozen=True, kw_only=True)
class Request:
    """The options that ``calibrate``, ``compare``, ``interval`` and ``tune`` share."""

    target: str
    prediction: str
    features: str | None
    features_prefix: str | None
    kernel: str | None
    score: str
    delimiter: str | None
    decimal: str
    encoding: str
    gaps: str
    seed: int
    quiet: bool

    def check(self) -> None:
        """Refuse names of columns that contradict one another."""
        if self.target == self.prediction:
            raise CalliperError(
                f"--target and --prediction are both {self.target!r}: name two columns."
            )
        if self.features is not None and self.features_prefix is not None:
            raise CalliperError("--features and --features-prefix cannot be combined: give one.")

    def columns(self, calibration: Table) -> Columns:
        """The columns: features by a list, by a prefix that the table fills in, or not at all."""
        features, prefix = [self.prediction], self.features_prefix
        if self.features is not None:
            features = split_names(self.features)
        elif prefix is not None:
            features = [name for name in calibration.columns if name.startswith(prefix)]
            if not features:
                raise CalliperError(
                    f"{calibration.name}: no column starts with {prefix!r}; "
                    f"{there_are(calibration)}."
                )
        if self.target in features:
            raise CalliperError(
                f"the features include the target {self.target!r}, which new rows do not have: "
                f"leave it out."
            )
        return Columns(
            target=self.target,
            prediction=self.prediction,
            features=tuple(features),
            prefix=prefix,
            alone=self.features is None and prefix is None,
        )

    @property
    def score_function(self) -> Score:
        """What is called an error."""
        return named_scores()[self.score]

    @property
    def form(self) -> Form:
        """How text files are written, and what an empty cell is."""
        form = text_form_of(self.delimiter, self.decimal, self.encoding)
        return replace(form, gaps=self.gaps == "fill")


def text_form_of(delimiter: str | None, decimal: str, encoding: str) -> Form:
    """How text files are written; decimal commas go with semicolons if nothing is said."""
    delimiter = delimiter or {".": ",", ",": ";"}[decimal]
    if delimiter == decimal:
        raise CalliperError("--decimal , needs another --delimiter than a comma: give one.")
    return Form(delimiter, decimal, encoding)


def note_if_alone(alone: bool) -> None:
    """Say so if no features were named."""
    if alone:
        note("note: no --features, so nearness was judged by the prediction alone")


def takes(kind: Callable[..., Any]) -> Decorator:
    """Give the command its options as one request."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        return wraps(command)(lambda **options: command(kind(**options)))

    return decorate


def checked(check: Callable[[Any], Any]) -> Callable[..., Any]:
    """A callback of click's that passes the value of an option through a function."""
    return lambda context, parameter, value: check(value)


def together(*options: Decorator) -> Decorator:
    """Several options as one decorator; help lists them in this order."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def target(*, required: bool = True) -> Decorator:
    """``--target``."""
    return click.option("--target", metavar="COLUMN", required=required, help="The true values.")


def known_columns(*, required: bool = True) -> Decorator:
    """``--target`` and ``--prediction``, the columns that every row with a known target has."""
    return together(
        target(required=required),
        click.option(
            "--prediction", metavar="COLUMN", required=required, help="The model's predictions."
        ),
    )


#: Where nearness is judged and which points count as near; what is called an error.
nearness_and_score = together(
    click.option(
        "--features",
        metavar="A,B,...",
        help="Columns that may show where errors are large; if omitted, only the prediction.",
    ),
    click.option("--features-prefix", metavar="TEXT", help="Or: all columns with this prefix."),
    click.option(
        "--kernel",
        type=click.Choice([*named_kernels()]),
        metavar="NAME",
        help=f"What counts as near: {', '.join(named_kernels())}.  [default: set by the method]",
    ),
    click.option(
        "--score",
        type=click.Choice([*named_scores()]),
        metavar="NAME",
        default="absolute",
        help=f"How errors are measured: {', '.join(named_scores())}. With signed, each side of the "
        "interval has its own width; lower and upper give one-sided bounds.",
    ),
)


def _delimiter(text: str | None) -> str | None:
    sign = {"tab": "\t", "\\t": "\t"}.get(text or "", text)
    # What numbers are written with cannot separate them.
    if sign is not None and (len(sign) != 1 or sign.isalnum() or sign in '".+-\r\n\0'):
        raise CalliperError(
            f"--delimiter {text!r}: give one character, as in --delimiter ';', or tab."
        )
    return sign


#: What text files have lines of, and names on a network do not.
_LINE = "column," * 20 + "1.5,-\r\n"


def _encoding(name: str) -> str:
    known = "give one that Python knows, such as utf-8, latin-1, utf-16, cp1252"
    try:
        encoder = codecs.getincrementalencoder(name)()
        pieces = [encoder.encode(_LINE), encoder.encode(_LINE), encoder.encode("", final=True)]
        whole = b"".join(pieces).decode(name)
    except (LookupError, TypeError, ValueError) as error:
        raise CalliperError(f"--encoding {name!r}: {known}.") from error
    # Those of names on a network, punycode and idna, cannot continue where they stopped.
    if whole != 2 * _LINE:
        raise CalliperError(f"--encoding {name!r} cannot write a table line by line: {known}.")
    return name


#: How the numbers and letters of text files are written.
text_form = together(
    click.option(
        "--delimiter",
        metavar="SIGN",
        callback=checked(_delimiter),
        help="Column separator in .csv files.  [default: a comma; with --decimal , a semicolon]",
    ),
    click.option(
        "--decimal",
        type=click.Choice([".", ","]),
        default=".",
        help="Decimal separator in .csv and .tsv files.",
    ),
    click.option(
        "--encoding",
        metavar="NAME",
        default="utf-8",
        callback=checked(_encoding),
        help="Encoding of text files without a byte order mark.",
    ),
)

#: The same, and what an empty cell is.
file_form = together(
    text_form,
    click.option(
        "--gaps",
        type=click.Choice(["fill", "refuse"]),
        default="fill",
        help="Missing feature values: fill them with the median of --training, or report an error. "
        "Without --training, they are always an error.",
    ),
)


def calibration_file(*, required: bool = True) -> Decorator:
    """``--calibration``."""
    return click.option(
        "--calibration",
        metavar="FILE",
        required=required,
        help="Rows that the model was not trained on, with target, prediction and features.",
    )


#: Rows that the model was trained on.
training_file = click.option(
    "--training",
    metavar="FILE",
    help="Rows that the model was trained on, with the same columns. They are checked against the "
    "calibration rows and used to standardise features and fill missing values; some methods and "
    "kernels learn from them.",
)


def coverage(help: str, *, several: bool = False) -> Decorator:  # noqa: A002
    """``--coverage``: a level, or with ``several`` a tuple of them in ascending order."""
    how: dict[str, Any] = {"default": 0.9, "callback": checked(lambda value: _checked(value)[0])}
    if several:
        how = {"multiple": True, "callback": checked(_levels)}
    return click.option("--coverage", type=Level(several), help=help, **how)


class Level(click.types.FloatParamType):
    """A number; several in one word get an error that says how to give them."""

    def __init__(self, several: bool) -> None:
        self.several = several

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """The number."""
        levels = re.split("[,;]", value) if isinstance(value, str) else []
        if self.several and len(levels) > 1:
            again = " ".join(f"--coverage {each.strip()}" for each in levels)
            self.fail(f"{value!r} is not one number. For several levels: {again}.", param, ctx)
        return super().convert(value, param, ctx)


seed = click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    help="Seed for all random draws.",
)
seed_and_quiet = together(
    seed, click.option("--quiet", is_flag=True, help="Print errors and warnings only.")
)


def _levels(values: tuple[float, ...]) -> tuple[float, ...]:
    levels = sorted(values) or [0.9]
    if len(set(levels)) < len(levels):
        raise CalliperError(f"--coverage names the same level twice: {levels}.")
    return _checked(levels)


def _checked(levels: Coverage) -> tuple[float, ...]:
    try:
        return check_levels(levels)
    except CalliperError as error:
        raise CalliperError(f"--{error}") from error
