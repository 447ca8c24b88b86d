"""`python -m noema` is the command `noema`."""

from noema.cli.noema import main

main()
