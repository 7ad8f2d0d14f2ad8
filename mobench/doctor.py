"""`python -m mobench.doctor`: what this machine has for mobench; see `mobench.cli.doctor`."""

import gc
import os

if __name__ == "__main__":
    gc.disable()  # imports are a tenth faster, and all of this ends soon
    from mobench.cli.doctor import main

    os._exit(main())  # taking torch's modules apart would take another second
