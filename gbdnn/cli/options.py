"""Options that several commands share; those for reading a network are one record."""

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, cast, get_type_hints

from typer import BadParameter, Option

from gbdnn.challenge.machine import machine
from gbdnn.cli.terminal import warn
from gbdnn.errors import ArgumentError
from gbdnn.io.formats import FormatName, ReadOptions
from gbdnn.runtime.threads import MOST_THREADS

_UNITS = {"": 1, **{f"{c}iB": 1 << 10 * n for n, c in enumerate("KMGT", 1)}}
_UNITS |= {"B": 1, **{f"{c}B": 1000**n for n, c in enumerate("KMGT", 1)}}


def size(text: str) -> int:
    """Return the bytes of ``--memory``: a number, with or without a unit."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]*)?)\s*([A-Za-z]*)", text.strip())
    units = {unit.lower(): factor for unit, factor in _UNITS.items()}
    if match is None or match[2].lower() not in units:
        raise BadParameter(f"{text!r}: a number of bytes, or one as 512MiB or 8GiB")
    return int(float(match[1]) * units[match[2].lower()])


class Numbers(list[int]):
    """Whole numbers that an option has with commas between them."""

    @classmethod
    def parse(cls, text: str) -> "Numbers":
        """Return the numbers."""
        try:
            return cls(map(int, text.split(",")))
        except ValueError as err:
            raise BadParameter(f"{text}: whole numbers with commas between them") from err


def numbers(metavar: str, words: str) -> Any:
    """Return the declaration of an option that has whole numbers."""
    return Option(parser=Numbers.parse, metavar=metavar, help=words)


NThreads = Annotated[int | None, Option(min=1, help="Number of threads (default: GraphBLAS's).")]
Engine = Annotated[
    Literal["auto", "sparse", "full", "fused"],
    Option(help="Form of the layers; auto: by estimated cost."),
]
Compress = Annotated[
    bool, Option(help="Compute equal inputs once: the answer is the same, and takes less time.")
]
Memory = Annotated[
    Any,
    Option(parser=size, metavar="SIZE", help="Working memory: bytes, 512MiB, 8GiB."),
]


@dataclass(frozen=True, kw_only=True)
class Given:
    """The options for reading a network; None where one was not given."""

    from_: Annotated[
        FormatName | None,
        Option("--from", help="Format of the network (default: detected)."),
    ] = None
    neurons: Annotated[
        int | None,
        Option(min=1, help="tsv: neurons per layer, if a folder has several sizes."),
    ] = None
    layers: Annotated[
        int | None, Option(min=1, help="Number of layers, the first ones (default: all).")
    ] = None
    prefix: Annotated[
        str | None,
        Option(help="matrix-market: what precedes the number in the files' names."),
    ] = None
    bias: Annotated[
        float | None,
        Option(help="tsv (default: the challenge's, 0 for other sizes), matrix-market (0)."),
    ] = None
    bias_rule: Annotated[
        Literal["entries", "all"] | None,
        Option(help="tsv (default: entries), matrix-market (all)."),
    ] = None
    clip: Annotated[
        float | None,
        Option(help="tsv (default: 32), matrix-market, torch (no upper limit)."),
    ] = None
    no_clip: Annotated[bool, Option("--no-clip", help="tsv: no upper limit.")] = False
    last_activation: Annotated[
        Literal["relu", "identity"] | None,
        Option(help="matrix-market (default: relu), torch (identity)."),
    ] = None
    logits: Annotated[
        bool, Option("--logits", help="onnx: leave out a last Softmax, LogSoftmax or Sigmoid.")
    ] = False
    dtype: Annotated[
        Literal["FP32", "FP64"] | None,
        Option(help="Of weights and sums (default: the network's; tsv: FP32)."),
    ] = None

    def __post_init__(self) -> None:
        if self.no_clip and self.clip is not None:
            raise ArgumentError("--no-clip beside --clip: one of them")

    def keywords(self) -> ReadOptions:
        """Return the options given, as `gbdnn.load` takes them."""
        names = {"from_": "format"}
        given = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "no_clip"}
        found = {
            names.get(name, name): x
            for name, x in given.items()
            if x is not None and x is not False
        }
        return cast("ReadOptions", found | ({"clip": None} if self.no_clip else {}))


def takes_given(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator of commands: these fields of `Given`, or all, replace ``given``."""
    hints = get_type_hints(Given, include_extras=True)
    options = [
        inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default,
                          annotation=hints[f.name])
        for f in fields(Given)
        if f.name in names or not names
    ]  # fmt: skip

    def decorator(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def wrapped(**arguments: Any) -> Any:
            given = Given(**{each.name: arguments.pop(each.name) for each in options})
            return command(given=given, **arguments)

        parameters = list(inspect.signature(command, eval_str=True).parameters.values())
        at = [each.name for each in parameters].index("given")
        parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
        parameters[at : at + 1] = options
        wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapped.__annotations__ = {each.name: each.annotation for each in parameters}
        return wrapped

    return decorator


def refuse(beside: str, given: Mapping[str, object]) -> None:
    """Raise ArgumentError if one of these options has a value: beside what, and why."""
    for option, value in given.items():
        if value is not None:
            raise ArgumentError(f"{option} beside {beside}")


def warn_of_threads(nthreads: int | None, processes: int | None = None) -> None:
    """Warn if there are more threads than this machine has cores for them."""
    cores = machine()["cores"]
    threads = (nthreads or 1) * (processes or 1)
    if not isinstance(cores, int) or nthreads is None or not cores < threads <= MOST_THREADS:
        return
    words = f"--nthreads {nthreads}" + (f" for each of {processes} workers" if processes else "")
    warn(f"{words}: this machine has {cores} cores for them; more threads than cores are slower")
