"""`python -m cimemories` is the command line; the app starts its workers this way, whatever is on PATH."""

from cimemories.cli import main

main()
