"""A Flower strategy from any method: the clients are the objectives.

    strategy = mobench.flower.strategy("fedmgda_plus", clients=10, local_step=0.1)
    result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=20)     # in a Flower ServerApp

The server's step is the method's `Algorithm.step`, as with `oracle=local_steps`. Needs
`pip install '.[flower]'`.

May import: core, errors, training.
"""

try:
    import flwr.serverapp.strategy  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"mobench.flower needs Flower ({error}); install it with `pip install '.[flower]'`."
    ) from error

from mobench.flower.federation import MultiObjective, Round, client_loss, strategy

__all__ = ["MultiObjective", "Round", "client_loss", "strategy"]
