"""The command line: ``gbdnn challenge``, ``infer``, ``train``, ``generate``, ``convert``, ``info``.

The commands are thin wrappers of the Python functions. Exit codes: 0 on success; 1 if a check
FAILED; 2 for wrong usage, bad input or an output that cannot be written, with one line on standard
error; 3 for a fault of gbdnn itself; 130, 143 and 129 after Ctrl-C, SIGTERM and SIGHUP.
"""

import sys

try:
    import rich.progress  # noqa: F401
    import typer  # noqa: F401
except ImportError as err:
    sys.stderr.write(f'gbdnn: the command line needs {err.name}: pip install "gbdnn[challenge]"\n')
    sys.exit(2)

from gbdnn.cli.entry import app, main

__all__ = ["app", "main"]
