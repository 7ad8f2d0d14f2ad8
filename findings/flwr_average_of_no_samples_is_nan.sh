#!/usr/bin/env bash
# flwr 1.42.0: the average of clients that report no samples is NaN, and no function says so.
#
# flwr.server.strategy.aggregate.aggregate, FedAvg's mean weighted by num_examples, divides by their sum. Where every
# client that answered reports 0 (it skipped its data, or counts batches that it dropped), the new model is NaN in
# every entry; NumPy's warning goes to the log of the server, and training goes on with that model. With one client
# that reports 1 the mean is right. mobench.flower refuses a number of samples that is not above 0.
#
# Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check flwr==1.42.0 numpy==2.2.6 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PY'
from importlib.metadata import version

import numpy as np
from flwr.server.strategy.aggregate import aggregate

print("flwr", version("flwr"))
models = [[np.array([1.0, 2.0])], [np.array([3.0, 4.0])]]
none = aggregate([(models[0], 0), (models[1], 0)])
one = aggregate([(models[0], 0), (models[1], 1)])
print("mean of two models of 0 samples each:", none[0], "  of 0 and 1 sample:", one[0])
assert np.isnan(none[0]).all()
assert one[0].tolist() == [3.0, 4.0]
PY
