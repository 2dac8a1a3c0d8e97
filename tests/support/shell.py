"""The command `gbdnn`, in this process; and how it is called as one of its own."""

import fcntl
import os
import re
import struct
import subprocess
import sys
import termios
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from unittest.mock import patch

import pytest

GBDNN = [sys.executable, "-P", "-m", "gbdnn"]  # which is tested, and not what lies in the folder


def run(*arguments, stream=StringIO):
    """Exit code and output of the command, in this process: Python does not have to start."""
    from gbdnn import cli

    command = ["gbdnn", *map(str, arguments)]
    out, err = stream(), stream()
    with (
        redirect_stdout(out),
        redirect_stderr(err),
        patch.object(sys, "argv", command),
        pytest.raises(SystemExit) as ended,
    ):
        cli.main()
    code = ended.value.code or 0
    return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())


def as_process(*arguments, **options):
    """Exit code and output of the command, as a process."""
    command = [*GBDNN, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def well(*arguments, run=run):
    """Exit code 0, nothing on standard error; what is on standard output."""
    done = run(*arguments)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def fails(*arguments, match, run=run):
    """Exit code 2, one line on standard error, nothing on standard output; the line."""
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, ""), done
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("gbdnn: ")
    assert match in done.stderr
    return done.stderr


def on_terminal(*arguments, columns=100, rows=24, **environment):
    """Exit code of the command on a terminal, all it writes there, and the lines that it leaves."""
    import pty

    watcher, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    here = {name: x for name, x in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [*GBDNN, *map(str, arguments)], stdout=terminal, stderr=terminal, stdin=terminal,
        env={**here, "TERM": "xterm-256color", **environment},
    )  # fmt: skip
    os.close(terminal)
    written = b""
    while True:
        try:
            part = os.read(watcher, 4096)
        except OSError:  # Linux ends a closed terminal so
            break
        if not part:
            break
        written += part
    os.close(watcher)
    written = written.decode()
    return process.wait(), written, _left(written, columns, rows)


def _left(written, columns, rows):
    """Lines that a terminal shows and has shown, which erases some and goes back to others."""
    lines, row, column = [""], 0, 0
    for word in re.findall(r"\x1b\[[?\d;]*[A-Za-z]|[^\x1b]", written):
        if word == "\r":
            column = 0
        elif word == "\n":
            row += 1
        elif word.endswith("A") and word.startswith("\x1b"):
            # What has left the screen is out of reach.
            row = max(0, len(lines) - rows, row - int(word[2:-1] or 1))
        elif word == "\x1b[2K":
            lines[row] = ""
        elif not word.startswith("\x1b"):
            if column == columns:
                row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
            lines[row] = lines[row][:column].ljust(column) + word + lines[row][column + 1 :]
            column += 1
        lines += [""] * (row + 1 - len(lines))
    return [line for line in map(str.rstrip, lines) if line]
