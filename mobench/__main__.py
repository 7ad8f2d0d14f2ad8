"""`python -m mobench` is `mobench`."""

from mobench.cli.entry import main

main()
