"""The command line: ``gbdnn challenge``, ``infer``, ``train``, ``generate``, ``convert``, ``info``.

The commands are thin wrappers of the Python functions. Exit codes: 0 for success; 1 for a failed
check; 2 for usage errors, invalid input and output that cannot be written, with a one-line message
on standard error; 3 for internal errors; 130, 143 and 129 after Ctrl-C, SIGTERM and SIGHUP; 141 if
the reader of the data on standard output ends early.
"""

import sys

try:
    import rich.progress  # noqa: F401
    import typer  # noqa: F401
except ImportError as err:
    sys.stderr.write(f'gbdnn: the command line needs {err.name}; run pip install "gbdnn[cli]"\n')
    sys.exit(2)

from gbdnn.cli.entry import app, main

__all__ = ["app", "main"]
