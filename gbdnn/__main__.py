"""``python -m gbdnn`` is the command ``gbdnn``."""

from gbdnn.cli import main

if __name__ == "__main__":  # a spawned worker imports this module under another name
    main()
