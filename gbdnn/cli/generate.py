"""``gbdnn generate``: generate networks and features, without a download."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

import gbdnn
from gbdnn.cli import options, outputs
from gbdnn.cli.bars import Bars
from gbdnn.cli.terminal import counted, say
from gbdnn.errors import ArgumentError
from gbdnn.gallery import digits, features_from_images
from gbdnn.gallery.radixnet import radix_layers
from gbdnn.io import read_idx, write_tsv
from gbdnn.io.conversion import losses, no_place, write
from gbdnn.io.formats import FormatName, target_format


def generate(
    out: Annotated[Path, Argument(metavar="OUT", help="Output: a store, a file or a folder.")],
    neurons: Annotated[
        int | None, Option(help="1024, 4096, 16384 or 65536 (default: 1024).")
    ] = None,
    layers: Annotated[int | None, Option(min=1, help="Number of layers (default: 120).")] = None,
    seed: Annotated[int | None, Option(min=0, help="Of the permutations (default: 0).")] = None,
    radices: Annotated[
        list[options.Numbers] | None,
        options.numbers("R,R,...", "A mixed-radix system of another RadiX-Net; may be repeated."),
    ] = None,
    widths: Annotated[
        options.Numbers | None,
        options.numbers("W,W,...", "With --radices: width of each level (default: 1)."),
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
        FormatName | None,
        Option("--to", "--format", help="Format (default: by OUT's ending, else a store)."),
    ] = None,
    force: outputs.Force = False,
) -> None:
    """Generate a network of the Graph Challenge, another RadiX-Net, or features.

    The challenge's layers are generated and written one by one: the network may be larger than
    memory. A network of --radices has weights 1, bias 0 and no upper limit. An existing
    output is replaced only with --force.
    """
    radices = radices or None
    size = 1024 if neurons is None else neurons
    if features is not None:
        refused = {"--layers": layers, "--seed": seed, "--radices": radices}
        options.refuse("--features has no meaning", refused)
        _generate_features(features, out, size, inputs, dtype, to, force)
        return
    options.refuse("a network has no meaning", {"--inputs": inputs})
    if radices is not None:
        options.refuse(
            "--radices has no meaning", {"--neurons": neurons, "--layers": layers, "--seed": seed}
        )
        weights = radix_layers(radices, widths, dtype=dtype)
        net = gbdnn.Network(gbdnn.Layer(W, copy=False) for W in weights)
    else:
        options.refuse("no --radices has no meaning", {"--widths": widths})
        net = gbdnn.radixnet(size, layers or 120, seed=seed or 0, dtype=dtype, lazy=True)
    form = to or target_format(out)
    if lost := losses(net, form):
        raise ArgumentError(f"{out}: {no_place(lost, form)}, and gbdnn convert can leave it out")
    outputs.require_free_network(out, form, force=force)
    with Bars() as bars:
        write(net, out, form, progress=bars.add("writing layers"))
    nrows, ncols = net.shape
    count = counted(len(net), "layer")
    say(f"{out}: {form}, {count}, {nrows} inputs to {ncols} outputs, {net.edges} edges")


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
    name = outputs.features_format(out, to)
    outputs.require_free(out, stored=name == "store", force=force)
    with Bars() as bars:
        with bars.busy("generating"):
            pixels = digits() if images == "digits" else read_idx(Path(images))
            X = features_from_images(pixels, neurons, inputs=inputs, dtype=dtype)
        with bars.busy("writing"):
            (write_tsv if name == "tsv" else gbdnn.save)(X, out)
    say(f"{out}: {name}, {X.nrows} inputs of {X.ncols}, {X.nvals} entries")
