"""The recipe for kernels in docs/architecture.md, and the lists of engines on the pages."""

import os
import re
import sys
from pathlib import Path
from typing import get_args

from shell import python

from gbdnn.engine import plan

ROOT = Path(__file__).parents[2]
TOY = """
import tempfile
import numpy as np
import gbdnn
import toy_kernel

rng = np.random.default_rng(0)
W = [rng.integers(-8, 9, shape) * (rng.random(shape) < 0.2) / 8 for shape in [(40, 70), (70, 30)]]
net = gbdnn.Network(W, bias=[rng.integers(-8, 9, 70) / 8, -0.25], clip=4.0)
X = rng.integers(0, 3, (300, 40)) * (rng.random((300, 40)) < 0.3)
expected = gbdnn.infer(net, X, engine="sparse")
folder = tempfile.mkdtemp()
gbdnn.save(net, folder)
for layers in (net, gbdnn.load(folder, lazy=True)):
    for options in ({}, {"nthreads": 3}, {"memory": 200_000}, {"deduplicate": True}):
        stats = []
        Y = gbdnn.infer(layers, X, engine="toy", callback=stats.append, **options)
        assert Y.isequal(expected), options
        assert {each.kernel for each in stats} == {"toy"}
found = gbdnn.compile(net, engine="toy")(X.astype(float))
np.testing.assert_array_equal(found, expected.to_dense(fill_value=0))
print(gbdnn.plan(net, X, engine="toy"))
try:
    gbdnn.infer(net, X, engine="tyo")
except gbdnn.GbdnnError as err:
    print(err)
"""


def test_a_kernel_is_one_file():
    path = os.pathsep.join([str(ROOT / "tests" / "support"), *sys.path])
    done = python(TOY, PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    assert "toy, ms" in done.stdout
    assert "'toy'" in done.stdout.splitlines()[-1]


def test_docstrings_pages_and_types_list_all_engines():
    some, known = plan.engines(), plan.engines(at_once=True)
    assert get_args(plan.Engine) == known
    sources = "".join(file.read_text() for file in (ROOT / "gbdnn").rglob("*.py"))
    lists = re.findall(r"^    engine : \{(.*)\}, default", sources, re.MULTILINE)
    assert set(lists) == {", ".join(f'"{name}"' for name in names) for names in (some, known)}
    page = (ROOT / "docs" / "how-to" / "resources.md").read_text()
    table = page[page.index("| `engine=` |") : page.index("On the challenge, the fused")]
    assert set(re.findall(r'^\| `"(\w+)"`', table, re.MULTILINE)) == set(known)
