"""``python -m gbdnn`` is the command ``gbdnn``."""

from gbdnn.cli import main

main()
