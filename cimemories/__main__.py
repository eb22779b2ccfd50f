"""`python -m cimemories` is the command line: how the app starts its workers, whatever is on PATH."""

from cimemories.cli import main

main()
