"""Long checks that are run by hand: faults, agreement with other code, other seeds, sessions on a GPU."""
