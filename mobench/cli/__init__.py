"""What stands behind the words of the command line: `mobench`, `mobench-status`, `mobench.doctor`,
`mobench.keep`.

May import everything; nothing imports it.
"""
