"""Options of commands, each declared once: as a field of the request that its command takes.

What ``calibrate``, ``compare``, ``interval`` and ``tune`` have in common is :class:`Request`.
"""

import codecs
import re
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import wraps
from types import NoneType
from typing import Any, Literal, NewType, get_args

import click

from calliper._validation import check_levels
from calliper.cli._output import note
from calliper.cli._tables import Columns, Form, split_names, there_are
from calliper.exceptions import CalliperError
from calliper.kernels import named_kernels
from calliper.scores import Score, named_scores

#: What an option takes; help prints these names.
File = NewType("File", str)
Column = NewType("Column", str)
Name = NewType("Name", str)

Decorator = Callable[[Callable[..., None]], click.Command]

#: The option ``--seed``, as click takes it.
SEED: Any = {"help": "Seed for all random draws.", "type": click.IntRange(0, 2**32 - 1)}


def option(help: str, default: Any = None, **how: Any) -> Any:  # noqa: A002
    """A field of a request that is an option; ``how`` is what click's takes, and

    - ``flag``: its name, if it is not that of the field;
    - ``check``: a function that its value is passed through;
    - ``late``: whether help lists it after the options of the command itself.
    """
    if default is not None:
        how["default"] = default
    return field(default=default, metadata={"help": help, **how})


class OnceEach(click.Command):
    """A command that takes an option once, unless it may have several values."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As usual, but nothing that is given twice is dropped."""
        order = self.make_parser(ctx).parse_args(args=[*args])[2]
        for each in order:
            several = isinstance(each, click.Option) and (each.multiple or each.is_flag)
            if not several and order.count(each) > 1:
                raise click.UsageError(f"{each.opts[0]} is given twice: give it once", ctx)
        return super().parse_args(ctx, args)


def command(kind: Any, *, optional: Sequence[str] = (), without: Collection[str] = ()) -> Decorator:
    """A command that takes a request, which is checked before any work is done.

    Fields that are ``optional`` may be missing; those in ``without`` are no options.
    """

    def decorate(run: Callable[[Any], None]) -> click.Command:
        def called(**given: Any) -> None:
            request = kind(**given)
            request.check()
            run(request)

        shown = [each for each in fields(kind) if each.metadata and each.name not in without]
        shown.sort(key=lambda each: "late" in each.metadata)
        params = [_as_click(each, each.name not in optional) for each in shown]
        return click.command(cls=OnceEach, params=params)(wraps(run)(called))

    return decorate


def _as_click(each: Any, required: bool) -> click.Option:
    """The option of a field: its type says whether it must be given, and what it takes."""
    said, types = each.metadata, get_args(each.type) or (each.type,)
    how = {key: value for key, value in said.items() if key not in ("check", "flag", "late")}
    if isinstance(how.get("default"), bool):
        how["is_flag"] = True
    elif "default" not in how and not how.get("multiple"):
        how["required"] = required and NoneType not in types
    for kind in {File, Column, Name} & {*types}:
        how["metavar"] = kind.__name__.upper()
    if {*types} - {NoneType} in ({int}, {float}):
        how.setdefault("type", types[0])
    if words := [word for kind in types for word in get_args(kind) or [kind] if type(word) is str]:
        how["type"] = click.Choice(words)  # of a Literal
    if check := said.get("check"):
        how["callback"] = lambda context, parameter, value: check(value)
    return click.Option([said.get("flag", flag(each.name)), each.name], **how)


def flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def levels(words: tuple[Any, ...]) -> tuple[float, ...]:
    """The levels of ``--coverage`` in ascending order."""
    try:
        found = sorted(map(float, words)) or [0.9]
    except ValueError:
        message = f"--coverage must be a number such as 0.9; got {', '.join(words)}."
        with suppress(ValueError):
            decimal = all(re.fullmatch(r"0,\d+", word) for word in words)  # a decimal comma
            listed = ";".join(words).replace(*",." if decimal else ",;")
            again = map(_share, re.split("; *", listed))
            message += f" Write {' '.join(f'--coverage {each:g}' for each in again)}."
        raise CalliperError(message) from None
    if len(set(found)) < len(found):
        raise CalliperError(f"--coverage names the same level twice: {found}.")
    return check_levels(found, "--coverage")


def _share(word: str) -> float:
    """The number in a word such as 0.9 or 90%."""
    return float(word.rstrip("%")) / (100 if word.endswith("%") else 1)


def level(help: str) -> Any:  # noqa: A002
    """``--coverage`` of a command that takes a single level."""
    return option(help, 0.9, type=float, check=lambda value: levels((value,))[0])


def _delimiter(text: str | None) -> str | None:
    sign = {"tab": "\t", "\\t": "\t"}.get(text or "", text)
    # A character of numbers cannot separate them.
    if sign is not None and (len(sign) != 1 or sign.isalnum() or sign in '".+-\r\n\0'):
        raise CalliperError(f"--delimiter {text!r}: must be one character, such as ';', or tab.")
    return sign


#: A line that any text file could have.
_LINE = "column," * 20 + "1.5,-\r\n"


def _encoding(name: str) -> str:
    try:
        encoder = codecs.getincrementalencoder(name)()
        pieces = [encoder.encode(_LINE), encoder.encode(_LINE), encoder.encode("", final=True)]
        # Those of network names, punycode and idna, cannot continue where they stopped.
        if b"".join(pieces).decode(name) == 2 * _LINE:
            return name
    except (LookupError, TypeError, ValueError):
        pass
    known = "an encoding that Python knows, such as utf-8, latin-1, utf-16, cp1252"
    raise CalliperError(f"--encoding {name!r}: must be {known}.")


@dataclass(frozen=True, kw_only=True)
class TableRequest:
    """The options of every command that reads tables."""

    target: Column = option("The true values.")
    delimiter: str | None = option(
        "Column separator in .csv files.  [default: a comma; with --decimal , a semicolon]",
        metavar="SIGN",
        check=_delimiter,
        late=True,
    )
    decimal: Literal[".", ","] = option("Decimal separator of text files.", ".", late=True)
    encoding: Name = option(
        "Encoding of text files without a byte order mark.", "utf-8", check=_encoding, late=True
    )

    def check(self) -> None:
        """Refuse options that contradict one another."""

    def given(self, name: str) -> bool:
        """Whether an option without a default was given."""
        value = getattr(self, name)
        return value is not None and value is not False

    def refuse_both(self, one: str, other: str) -> None:
        """Refuse two options that exclude each other."""
        if self.given(one) and self.given(other):
            both = f"{flag(one)} and {flag(other)}"
            raise CalliperError(f"{both} cannot be combined: use one of them.")

    @property
    def form(self) -> Form:
        """The form of text files; with decimal commas, the default delimiter is a semicolon."""
        delimiter = self.delimiter or {".": ",", ",": ";"}[self.decimal]
        if delimiter == self.decimal:
            raise CalliperError("--decimal , needs a --delimiter other than a comma: set one.")
        return Form(delimiter, self.decimal, self.encoding)


@dataclass(frozen=True, kw_only=True)
class Request(TableRequest):
    """The options that ``calibrate``, ``compare``, ``interval`` and ``tune`` share."""

    calibration: File = option(
        "Rows that the model was not trained on, with target, prediction and features."
    )
    prediction: Column = option("The model's predictions.")
    features: str | None = option(
        "Columns that may indicate where errors are large; by default, only the prediction.",
        metavar="A,B,...",
    )
    features_prefix: str | None = option("Or all columns with this prefix.", metavar="TEXT")
    kernel: Name | None = option(
        f"What counts as near: {', '.join(named_kernels())}.  [default: set by the method]",
        type=click.Choice([*named_kernels()]),
    )
    score: Name = option(
        "signed: each side is calibrated separately; lower and upper give one-sided bounds.",
        "absolute",
        type=click.Choice([*named_scores()]),
    )
    training: File | None = option(
        "Rows that the model was trained on, with the same columns; used to standardise features, "
        "fill missing values and, for some methods and kernels, to learn from."
    )
    missing: Literal["fill", "error"] = option(
        "Fill missing feature values with the median of --training, or stop with an error.",
        "fill",
        late=True,
    )
    seed: int = option(**SEED, default=0, late=True)
    quiet: bool = option("Print errors and warnings only.", False, late=True)

    def check(self) -> None:
        """Refuse names of columns that contradict one another."""
        if self.target == self.prediction:
            both = f"--target and --prediction are both {self.target!r}"
            raise CalliperError(f"{both}: name two different columns.")
        self.refuse_both("features", "features_prefix")

    def columns(self, calibration: Any) -> Columns:
        """The columns; features are named by a list or a prefix, or are the prediction alone."""
        prefix, features = self.features_prefix, [str(self.prediction)]
        if self.features is not None:
            features = split_names(self.features)
        elif prefix is not None:
            features = [name for name in calibration.columns if name.startswith(prefix)]
            if not features:
                what = f"{calibration.name}: no column starts with {prefix!r}"
                raise CalliperError(f"{what}; {there_are(calibration)}.")
        if self.target in features:
            raise CalliperError(f"the features include the target {self.target!r}: leave it out.")
        alone = self.features is None and prefix is None
        return Columns(self.target, self.prediction, tuple(features), prefix, alone)

    @property
    def score_function(self) -> Score:
        return named_scores()[self.score]

    @property
    def form(self) -> Form:
        """The form of text files, and what happens to empty cells."""
        return replace(super().form, fills=self.missing == "fill")


def note_if_alone(alone: bool) -> None:
    """Say so if no features were named."""
    if alone:
        note("note: no --features were given, so widths depend on the prediction alone")
