"""The shell: ``gbdnn challenge``, ``infer``, ``train``, ``generate``, ``convert`` and ``info``.

Thin over the Python functions. Exit codes: 0; 1 if a check FAILED; 2 for bad usage or bad input,
with one line on standard error; 3 for a fault of gbdnn's own; 128 and the number of the signal that
ended it, 130 on Ctrl-C.
"""

import sys

try:
    import rich.progress  # noqa: F401
    import typer  # noqa: F401
except ImportError as err:
    sys.stderr.write(f'gbdnn: the shell needs {err.name}: pip install "gbdnn[challenge]"\n')
    sys.exit(2)

from gbdnn.cli.entry import app, main

__all__ = ["app", "main"]
