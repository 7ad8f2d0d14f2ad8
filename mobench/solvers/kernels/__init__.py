"""The small solvers run by run in scalar loops, which Numba compiles (`mobench.kernels.compiled`)."""
