"""``python -m brim`` is ``brim``."""

from brim.cli.main import main

main()
