"""``gbdnn generate``: generate networks and features."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

import gbdnn
from gbdnn.cli import options, outputs
from gbdnn.cli.terminal import Bar, say
from gbdnn.errors import ArgumentError
from gbdnn.gallery import digits, features_from_images
from gbdnn.io.array_files import read_idx
from gbdnn.io.data import write_features
from gbdnn.io.formats import FEATURES, target
from gbdnn.io.networks import target_format
from gbdnn.io.store.folder import require_free


def generate(
    out: Annotated[
        Path,
        Argument(metavar="OUT", callback=outputs.named, help="A store, a file, a folder or -."),
    ],
    neurons: Annotated[int, Option(help="Neurons per layer: 1024, 4096, 16384 or 65536.")] = 1024,
    layers: Annotated[int | None, Option(min=1, help="Number of layers (default: 120).")] = None,
    seed: Annotated[
        int | None, Option(min=0, help="Seed of the permutations (default: 0).")
    ] = None,
    features: Annotated[
        str | None, Option(metavar="IMAGES", help="Features of an IDX file, or of the word digits.")
    ] = None,
    inputs: options.Inputs = None,
    to: outputs.To = None,
    force: outputs.Force = False,
) -> None:
    """Generate a network of the Graph Challenge, or features for one.

    The network may be larger than memory. The OUT - writes features to standard output.

    \b
    Examples:
      gbdnn generate net --neurons 65536 --layers 1920
      gbdnn generate X --features digits --neurons 65536 --inputs 60000
    """  # noqa: D301 -- \b keeps the lines of the examples
    if features is not None and (layers, seed) != (None, None):
        raise ArgumentError("--features cannot be combined with --layers or --seed")
    if features is None and inputs is not None:
        raise ArgumentError("--inputs requires --features")
    form = target(out, to, FEATURES, "to") if features else target_format(out, to, "to").name
    if form == "store" or features is not None:
        require_free(out, stored=form == "store", replace=force)
    with Bar() as bar:
        bar.begin("generating")
        if features is None:
            net = gbdnn.gallery.radixnet(neurons, layers or 120, seed=seed or 0, lazy=True)
            gbdnn.save(net, out, form, progress=bar.show, replace=force)
            content = f"{len(net)} layers of {neurons} neurons, {net.edges} edges"
        else:
            pixels = digits() if features == "digits" else read_idx(Path(features))
            X = features_from_images(pixels, neurons, inputs=inputs)
            write_features(X, out, form, replace=force)
            content = f"{X.nrows} inputs of {X.ncols} neurons, {X.nvals} entries"
    say(f"{out}: {content}", out)
