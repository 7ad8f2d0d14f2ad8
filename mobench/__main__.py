"""`python -m mobench` is `mobench`."""

from mobench.cli import main

main()
