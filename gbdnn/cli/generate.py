"""``gbdnn generate``: generate networks and features, without a download."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

import gbdnn
from gbdnn.cli import formats, options, outputs, resume
from gbdnn.cli.terminal import Bars, say
from gbdnn.errors import ArgumentError
from gbdnn.gallery import digits, features_from_images
from gbdnn.io import read_idx, write_tsv
from gbdnn.io.store.unfinished import Origin


def generate(
    out: Annotated[Path, Argument(metavar="OUT", help="Output: a store, a file or a folder.")],
    neurons: Annotated[
        int | None, Option(help="1024, 4096, 16384 or 65536 (default: 1024).")
    ] = None,
    layers: Annotated[int | None, Option(min=1, help="Number of layers (default: 120).")] = None,
    seed: Annotated[int | None, Option(min=0, help="Of the permutations (default: 0).")] = None,
    radices: Annotated[
        list[str] | None,
        Option(
            metavar="R,R,...", help="A mixed-radix system of another RadiX-Net; may be repeated."
        ),
    ] = None,
    widths: Annotated[
        str | None,
        Option(metavar="W,W,...", help="With --radices: width of each level (default: 1)."),
    ] = None,
    features: Annotated[
        str | None,
        Option(
            metavar="IMAGES",
            help="Generate features, from an IDX file or from 'digits', scikit-learn's.",
        ),
    ] = None,
    inputs: Annotated[
        int | None,
        Option(min=1, help="With --features: number; beyond the images, shifted copies."),
    ] = None,
    dtype: Annotated[Literal["FP32", "FP64"], Option(help="Of the values.")] = "FP32",
    to: Annotated[
        options.FormatName | None,
        Option("--to", "--format", help="Format (default: by OUT's ending, else a store)."),
    ] = None,
    restart: resume.Restart = False,
    force: outputs.Force = False,
) -> None:
    """Generate a network of the Graph Challenge, another RadiX-Net, or features.

    The challenge's layers are generated and written one by one: the network may be larger than
    memory. A network of --radices has weights 1, bias 0 and no upper limit. If it is killed while
    it writes a store, the same command goes on with the first layer that is not complete. What is
    there already is replaced with --force alone.
    """
    radices = radices or None
    origin = None
    size = 1024 if neurons is None else neurons
    if features is not None:
        refused = {"--layers": layers, "--seed": seed, "--radices": radices}
        _refuse("--features", {**refused, "--restart": restart or None})
        _generate_features(features, out, size, inputs, dtype, to, force)
        return
    _refuse("a network", {"--inputs": inputs})
    if radices is not None:
        _refuse("--radices", {"--neurons": neurons, "--layers": layers, "--seed": seed})
        systems = [_numbers("--radices", text) for text in radices]
        levels = None if widths is None else _numbers("--widths", widths)
        weights = gbdnn.radix_layers(systems, levels, dtype=dtype)
        net = gbdnn.Network(gbdnn.Layer(W, copy=False) for W in weights)
    else:
        _refuse("no --radices", {"--widths": widths})
        net = gbdnn.radixnet(size, layers or 120, seed=seed or 0, dtype=dtype, lazy=True)
        given = {"neurons": size, "layers": len(net), "seed": seed or 0, "dtype": dtype}
        origin = Origin.of({key: str(value) for key, value in given.items()})
    name = to or formats.guess_target(out)
    formats.require_place(net, out, name)
    if restart and name != "store":
        raise ArgumentError(f"--restart: {out} is no store, and is always written anew")
    formats.require_free(out, name, force=force)
    with Bars() as bars:
        show = bars.add("writing layers")
        if name == "store":
            resume.save(resume.of_layers(net, origin), out, show, restart=restart, force=force)
        else:
            formats.write(net, out, name, show)
    nrows, ncols = net.shape
    count = "1 layer" if len(net) == 1 else f"{len(net)} layers"
    say(f"{out}: {name}, {count}, {nrows} inputs to {ncols} outputs, {net.edges} edges")


def _generate_features(
    images: str,
    out: Path,
    neurons: int,
    inputs: int | None,
    dtype: str,
    to: str | None,
    force: bool,
) -> None:
    """Write features into a store, or as tab-separated lines."""
    if to not in (None, "store", "tsv"):
        raise ArgumentError(f"--to {to}: features have the formats store and tsv")
    name = to or ("tsv" if out.name.lower().endswith((".tsv", ".tsv.gz")) else "store")
    if to is None and name == "store":
        formats.require_no_ending(out, ".tsv, .tsv.gz")
    outputs.require_free(out, stored=name == "store", force=force)
    pixels = digits() if images == "digits" else read_idx(Path(images))
    X = features_from_images(pixels, neurons, inputs=inputs, dtype=dtype)
    (write_tsv if name == "tsv" else gbdnn.save)(X, out)
    say(f"{out}: {name}, {X.nrows} inputs of {X.ncols}, {X.nvals} entries")


def _refuse(beside: str, given: dict[str, object]) -> None:
    for option, value in given.items():
        if value is not None:
            raise ArgumentError(f"{option} beside {beside} has no meaning")


def _numbers(option: str, text: str) -> list[int]:
    try:
        return [int(number) for number in text.split(",")]
    except ValueError as err:
        raise ArgumentError(f"{option} {text}: whole numbers with commas between them") from err
